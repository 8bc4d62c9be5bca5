"""Parsed columns and rescued data give back every row, on the fast path and when explained."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from airflow_cloudfiles.engine.formats.record_policy import NumberRule
from airflow_cloudfiles.engine.formats.xml.shape import TextCasts
from airflow_cloudfiles.engine.options.formats.nested import XmlOptions
from tests.support.formats.numbers_law import NUMBERS, OPTION, RULES
from tests.support.formats.xml_files import (
    Account,
    Element,
    Source,
    columns,
    reader,
    table_of,
    written,
)
from tests.support.laws import examples

SCHEMA = columns(
    "_id BIGINT, name STRING, age INT, small SMALLINT, tiny TINYINT, price DOUBLE, ratio FLOAT, "
    "ok BOOLEAN, cost DECIMAL(7,3), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY, "
    "_VALUE STRING, tags ARRAY<STRING>, counts ARRAY<BIGINT>, "
    "user STRUCT<_vip: BOOLEAN, name: STRING, age: INT, since: STRUCT<day: DATE, _VALUE: STRING>>, "
    "items ARRAY<STRUCT<_sku: STRING, count: INT, price: STRUCT<_currency: STRING, "
    "_VALUE: DOUBLE>>>, attributes MAP<STRING, BIGINT>"
)
ATTRIBUTES = ["id", "vip", "sku", "currency", "x"]
NAMES = [
    "name", "age", "small", "tiny", "price", "ratio", "ok", "cost", "day", "at", "local", "raw",
    "tags", "counts", "user", "items", "attributes", "since", "count", "Name", "x", "ns:y", "été",
]  # fmt: skip
TEXTS = [
    "", " ", "0", "-0", "1", "+7", "007", "127", "128", "-129", "32768", "2147483648", "1.5",
    "9223372036854775808", "-9223372036854775808", "1e400", "12.345", "12345.678", "0.1234",
    "1,234.5", "NaN", "-Infinity", "1d", "true", "FALSE", "yes", "2024-02-29", "2023-02-29",
    "2024-1-5", "2024-01-31T12:30:59Z", "2024-01-31T12:30:59.123456+05:30", "2024-01-31 12:30:59",
    "12:30:59", "ff", "FFFE", "a < b & c > d", "]]>", " two  words ", "\n x \n", "été 😀", "'\"'",
    "null", "&amp;", "x" * 50,
]  # fmt: skip


class Records:
    """Makes elements that mostly fit a schema."""

    def __init__(
        self, generator: random.Random, error_rate: float | None, texts: Sequence[str]
    ) -> None:
        self._random = generator
        self._texts = texts
        some = generator.choice([0.0, 0.02, 0.3])
        self._error_rate = some if error_rate is None else error_rate

    def element(self, name: str, kind: DataType, depth: int = 0) -> Element:
        if isinstance(kind, ArrayType):
            return self.element(name, kind.elementType, depth)
        if self._random.random() < self._error_rate:
            return self.anything(name, depth)
        if isinstance(kind, StructType):
            return self.struct(name, kind, depth)
        if isinstance(kind, MapType):
            keys = self._random.sample(NAMES, self._random.randrange(3))
            content = [self.element(key, kind.valueType, depth + 1) for key in keys]
            return Element(name, {}, [*content])
        text = self.text(kind)
        return Element(name, {}, [text] if text else [])

    def struct(self, name: str, kind: StructType, depth: int) -> Element:
        made = Element(name)
        for column in kind.fields:
            if self._random.random() < 0.3:
                continue
            if column.name == "_VALUE":
                if not made.content and depth:
                    made.content.append(self.text(column.dataType) or "x")
            elif column.name.startswith("_"):
                made.attributes[column.name[1:]] = self.text(column.dataType).replace("\n", " ")
            else:
                is_list = isinstance(column.dataType, ArrayType)
                for _ in range(self._random.randrange(4) if is_list else 1):
                    made.content.append(self.element(column.name, column.dataType, depth + 1))
        if self._random.random() < self._error_rate:
            made.content.append(self.anything(self._random.choice(NAMES), depth + 1))
        return made

    def anything(self, name: str, depth: int) -> Element:
        pick = self._random
        made = Element(name)
        if pick.random() < 0.3:
            made.attributes[pick.choice(ATTRIBUTES)] = pick.choice(self._texts).replace("\n", " ")
        for _ in range(pick.randrange(3)):
            if pick.random() < 0.6 or depth > 3:
                if not made.content or isinstance(made.content[-1], Element):
                    made.content.append(pick.choice(self._texts))
            else:
                made.content.append(self.anything(pick.choice(NAMES), depth + 1))
        return made

    def text(self, kind: DataType) -> str:
        pick = self._random
        if pick.random() < self._error_rate:
            return pick.choice(self._texts)
        simple = {
            "string": lambda: pick.choice(["Anna", "Bob & Co", "", " x ", "1", "été"]),
            "boolean": lambda: pick.choice(["true", "false", "1", "0"]),
            "date": lambda: f"{pick.randrange(1, 9999):04}-{pick.randrange(1, 13):02}-07",
            "timestamp": lambda: f"2024-{pick.randrange(1, 13):02}-07T12:30:{pick.randrange(60)}Z",
            "timestamp_ntz": lambda: f"2024-01-07 {pick.randrange(24):02}:30:59",
            "binary": lambda: f"{pick.randrange(65536):04x}",
        }
        made = simple.get(kind.simpleString())
        return made() if made else str(pick.randrange(100))


def document(
    seed: int,
    schema: StructType,
    count: int,
    *,
    error_rate: float | None = None,
    parts_texts: bool = True,
    texts: Sequence[str] = TEXTS,
) -> tuple[list[Element], bytes]:
    """Rows and the file they are in."""
    generator = random.Random(seed)
    records = Records(generator, error_rate, texts)
    source = Source(generator, parts_texts=parts_texts)
    rows = [records.struct("row", schema, 0) for _ in range(count)]
    between = generator.choice(["", "\n", "\n  <!-- <row> -->\n"])
    body = between.join(source.element(row) for row in rows)
    return rows, f"<?xml version='1.0'?>\n<rows>{between}{body}</rows>\n".encode()


@pytest.mark.law
@given(seed=st.integers(0, 2**40), rule=st.sampled_from(RULES))
@settings(max_examples=examples(200))
def test_columns_and_rescued_data_give_back_every_row(tmp_path_factory, seed, rule):
    folder = tmp_path_factory.mktemp("law", numbered=True)
    schema = StructType(random.Random(seed).sample(SCHEMA.fields, 4))
    rows, data = document(seed, schema, 500, texts=[*TEXTS, *NUMBERS])
    table = table_of(written(folder, data), reader(schema, **{OPTION: rule}))
    account = Account(TextCasts(XmlOptions(row_tag="row"), NumberRule(rule)), rule)
    assert table.num_rows == len(rows)
    for source, row in zip(rows, table.to_pylist(), strict=True):
        account.record(schema, source, row)


@pytest.mark.law
@given(seed=st.integers(0, 2**40))
@settings(max_examples=examples(60))
def test_rows_that_are_explained_are_the_same(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("both", numbered=True)
    schema = StructType(random.Random(seed).sample(SCHEMA.fields, 4))
    file = written(folder, document(seed, schema, 200)[1])
    explained = table_of(file, reader(schema, is_thorough=True))
    assert explained.num_rows == 200
    # As text, in which a NaN is equal to another.
    assert repr(explained.to_pylist()) == repr(table_of(file, reader(schema)).to_pylist())
