"""Parsed columns and rescued data give back every input record; no bytes can break that."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.formats.csv.columns import CsvConverters
from airflow_cloudfiles.engine.formats.csv.reader import CsvReader
from airflow_cloudfiles.engine.formats.record_policy import NumberRule
from airflow_cloudfiles.engine.formats.scalars import MISFIT, Cast
from airflow_cloudfiles.engine.formats.tables import safe_names
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.types import to_arrow
from tests.support.formats.csv_files import columns, opened, options, rows_of, written
from tests.support.formats.numbers_law import NUMBERS, OPTION, RULES, gives_back, is_number
from tests.support.laws import examples

RECORDS = 400
"""In one example: all 260 examples are more than 100,000 records."""
KINDS = [
    "STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN", "DECIMAL(7,3)",
    "DECIMAL(38,10)", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY",
]  # fmt: skip
TEXTS = [
    "", "", "0", "-1", "+7", "128", "32768", "2147483648", "9223372036854775808", "1" * 40, "1.10",
    "-1.5e3", "1e400", "1e-400", "12345.678", "9999.9995", "true", "FALSE", "NaN", "-Inf", "2d",
    "2024-02-29", "2023-02-29", "2024-01-31T12:30:59Z", "2024-01-31 12:30:59", "1,234.5", "$100.00",
    *NUMBERS, "+9007199254740993", "9007199254740993d",
    "x", "é😀", "a b", " lead", "trail ", 'say "x"', '"', '""', "back\\slash", "\\", '\\"', "a|b",
    "||", "a;b", "#", "'", "\t", "\x00", "\ufeff", "_c0", "null", "\u2028", "a\x1fb",
]  # fmt: skip


@dataclass
class Sample:
    """A file, and what its records are."""

    dialect: dict[str, Any]
    ddl: str
    header: list[str]
    records: list[list[str | None] | bytes]

    @property
    def has_header(self) -> bool:
        return self.dialect["header"]

    def content(self) -> bytes:
        """The file."""
        lines = [self._line(self.header)] if self.has_header else []
        lines += [each if isinstance(each, bytes) else self._line(each) for each in self.records]
        return b"\n".join(lines) + b"\n"

    def _line(self, values: list[Any]) -> bytes:
        sep = self.dialect["sep"]
        return sep.join(map(self._written, values)).encode()

    def _written(self, value: str | None) -> str:
        quote, escape = '"', self.dialect["escape"]
        if value is None:
            return ""
        sep = self.dialect["sep"]
        needs = value.startswith(quote) or any(each in value for each in (sep[0], "\n", " "))
        if not needs and hash(value) % 3:
            return value
        if escape != quote:
            value = value.replace(escape, escape * 2)
        return quote + value.replace(quote, escape + quote) + quote


def _sample(seed: int) -> Sample:
    """Schema, dialect, records and mutations, all at random."""
    generator = random.Random(seed)
    width = generator.randrange(1, 7)
    kinds = [generator.choice(KINDS) for _ in range(width)]
    names = [generator.choice("abcdefgh") + generator.choice(["", "1", " x"]) for _ in kinds]
    names = list(dict.fromkeys(names))
    has_header = generator.random() < 0.8
    schema = {"id": "INT"} | dict(zip(names, kinds, strict=False))
    if not has_header:
        schema = {f"_c{place}": kind for place, kind in enumerate(schema.values())}
    header = _mutated(generator, list(schema)) if has_header else list(schema)
    dialect = {
        "sep": generator.choice([",", ",", ";", "||", "|"]),
        "escape": generator.choice(["\\", '"']),
        "multiLine": generator.random() < 0.4,
        "header": has_header,
        "readerCaseSensitive": generator.random() < 0.7,
        "nullValue": generator.choice(["", "", "null"]),
        OPTION: generator.choice(RULES),
    }
    texts = TEXTS + (["two\nlines", "\n", 'a\n"b"\n'] if dialect["multiLine"] else [])
    records = [_record(generator, texts, len(header), row) for row in range(RECORDS)]
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in schema.items())
    return Sample(dialect, ddl, header, records)


def _mutated(generator: random.Random, header: list[str]) -> list[str]:
    """Columns in another order, in another case, unknown, unnamed, twice."""
    rest = header[1:]
    generator.shuffle(rest)
    for _ in range(generator.randrange(3)):
        rest.insert(generator.randrange(len(rest) + 1), generator.choice(["new", "", "A", "é"]))
    if generator.random() < 0.3 and rest:
        rest[0] = rest[0].upper()
    return ["id", *rest]


def _record(
    generator: random.Random, texts: list[str], width: int, row: int
) -> list[str | None] | bytes:
    kind = generator.random()
    if kind < 0.01:
        return b"%d,\xff\xfe" % row
    if kind < 0.03:
        width = max(1, width + generator.choice([-1, 1, 2]))
    found = [generator.choice(texts) or None for _ in range(width - 1)]
    if kind < 0.5:  # plain numbers, so that some examples go the fast way throughout
        found = [str(generator.randrange(-99, 999)) for _ in found]
    return [str(row), *found]


def _check(sample: Sample, rows: list[dict[str, Any]]) -> None:
    """The law."""
    schema = columns(sample.ddl)
    given = options(**sample.dialect)
    converters = CsvConverters(given.format_options, NumberRule.of(given))
    rule = sample.dialect[OPTION]
    floats = {each.name: str(each.type) == "float" for each in to_arrow(schema)}
    convert = {each.name: converters.to(each.dataType, "") for each in schema.fields}
    null = sample.dialect["nullValue"]
    names = (
        safe_names(sample.header, null, CASE_INSENSITIVE)
        if sample.has_header
        else tuple(schema.names)
    )
    targets = _targets(names, schema.names, is_sensitive=sample.dialect["readerCaseSensitive"])
    assert len(rows) == len(sample.records)
    for record, row in zip(sample.records, rows, strict=True):
        rescued = json.loads(row.pop("_rescued_data") or "{}", object_pairs_hook=list)
        kept = [(name, text) for name, text in rescued if name != "_file_path"]
        if isinstance(record, bytes):
            assert kept == [("_corrupt_record", record.decode("utf-8", "backslashreplace"))]
            continue
        left = []
        expected = dict.fromkeys(schema.names)
        for place, text in enumerate(record):
            if text is None or text == null:
                continue
            target = targets[place] if place < len(targets) else None
            value = MISFIT if target is None else convert[target](text)
            if value is MISFIT:
                left.append((names[place] if place < len(names) else f"_c{place}", text))
            else:
                expected[target] = value
                if isinstance(value, float) and is_number(text):
                    assert gives_back(text, value, rule, is_float=floats[target]), text
        beside = [text for text in record[len(names) :] if text not in {None, null}]
        is_marked = sample.has_header and len(record) != len(names) and not beside
        assert [each for each in kept if each[0] != "_corrupt_record"] == left
        assert len(kept) - len(left) == is_marked
        assert {name: _plain(value) for name, value in row.items()} == {
            name: _plain(value) for name, value in expected.items()
        }


def _targets(names: tuple[str, ...], known: list[str], *, is_sensitive: bool) -> list[str | None]:
    folded = {name.lower(): name for name in reversed(known)}
    found: list[str | None] = []
    for name in names:
        target = name if name in known else None
        if target is None and not is_sensitive:
            target = folded.get(name.lower())
        found.append(None if target in found else target)
    return found


def _plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _raw_rows(found: CsvReader, path: Path) -> list[dict[str, Any]]:
    """Rows in which dates and times are the numbers they are."""
    rows = []
    for batch in found.read_file(opened(path)):
        batch.validate(full=True)
        whole = {"date32[day]": pa.int32()}
        arrays = [
            column.cast(whole.get(str(column.type), pa.int64()))
            if pa.types.is_temporal(column.type)
            else column
            for column in batch.columns
        ]
        rows += pa.RecordBatch.from_arrays(arrays, batch.schema.names).to_pylist()
    return rows


@pytest.mark.law
@settings(max_examples=examples(260))
@given(seed=st.integers(0, 2**48))
def test_columns_and_rescued_data_give_back_every_record(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    sample = _sample(seed)
    path = tmp_path_factory.getbasetemp() / "law.csv"
    path.write_bytes(sample.content())
    found = CsvReader(columns(sample.ddl), options(**sample.dialect))
    _check(sample, _raw_rows(found, path))
    assert found.counts.dropped_records == 0


@pytest.mark.law
@settings(max_examples=examples(100))
@given(seed=st.integers(0, 2**48))
def test_both_ways_of_reading_agree_whatever_the_bytes(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    sample = _sample(seed)
    generator = random.Random(seed)
    content = bytearray(sample.content())
    for _ in range(generator.randrange(1, 30)):
        place = generator.randrange(len(content))
        content[place] = generator.choice(b'",;|\\\n\r\x00 \xc3a1')
    del content[generator.randrange(len(content)) :]
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(content)
    counts, rows = [], []
    for is_thorough in (False, True):
        found = CsvReader(columns(sample.ddl), options(**sample.dialect), is_thorough=is_thorough)
        try:
            rows.append(repr(_raw_rows(found, path)))
        except CloudFilesError as error:
            rows.append(str(error))
        counts.append(found.counts)
    assert rows[0] == rows[1]
    assert counts[0] == counts[1]
    if not sample.dialect["multiLine"] and "Error" not in rows[0] and sample.has_header:
        lines = bytes(content).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        records = [line for line in lines if line.strip(bytes(range(0x21)))]
        assert counts[0].rows in {len(records) - 1, 0}


MOMENTS = [
    date + between + clock + fraction + zone
    for date in ("2024-01-31", "2023-02-29", "2024-1-31", "0001-01-01", "9999-12-31", "12345-01-31")
    for between in ("T", " ", "  ")
    for clock in ("12:30:59", "24:00:00", "23:59:60", "1:2:3", "12:30")
    for fraction in ("", ".", ".1", ".123456", ".1234567")
    for zone in ("", "Z", "ZZ", " Z", "+01:00")
]


@pytest.mark.law
@pytest.mark.parametrize(
    ("kind", "rule"),
    [*((kind, "wholeNumbers") for kind in KINDS), ("DOUBLE", "all"), ("FLOAT", "none")],
)
def test_a_column_of_one_kind_of_text_is_converted_as_each_text(kind: str, rule: Any) -> None:
    (column,) = columns(f"a {kind}").fields
    numbers = NumberRule(rule)
    converters = CsvConverters(options().format_options, numbers)
    cast = Cast(to_arrow(columns(f"a {kind}")).field(0).type, converters.to(column.dataType, ""),
        converters.times, numbers)  # fmt: skip
    dates = ["2024-01-31", "2023-02-29", "2024-1-031", "12345-1-31", "1234567-01", "20-4-01-31"]
    generator = random.Random(kind)
    digits = ["".join(generator.choices("0123456789.-+eE", k=k % 9 + 1)) for k in range(300)]
    texts = [*dates, *MOMENTS[:: 5 if "TIME" in kind else 20]]
    for text in [*TEXTS, *texts, *(digits[:50] if "TIME" in kind or kind == "DATE" else digits)]:
        array = pa.array([text, None, text], pa.string())
        ours, lost = cast(array)
        reference, lost_by_it = cast.one_by_one(array)
        assert str(ours) == str(reference), text
        assert lost.tolist() == lost_by_it.tolist(), text


@pytest.mark.law
def test_ten_thousand_columns(tmp_path: Path) -> None:
    names = [f"c{place}" for place in range(10_000)]
    text = ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n"
    found = CsvReader(columns("c0 INT, c9999 STRING"), options())
    (row,) = rows_of(written(tmp_path, text), found)
    assert (row["c0"], row["c9999"]) == (1, "1")
    assert len(json.loads(row["_rescued_data"])) == 9_999


@pytest.mark.law
def test_values_of_many_megabytes(tmp_path: Path) -> None:
    long = "x" * (20 * 2**20)
    text = f'a,b\n1,{long}\n2,"{long}"\n3,"y""z{long}\n'
    for options_ in ({}, {"multiLine": True}, {"escape": '"'}):
        found = CsvReader(columns("a INT, b STRING"), options(**options_))
        rows = rows_of(written(tmp_path, text), found)
        assert [(row["a"], len(row["b"])) for row in rows[:2]] == [(1, len(long)), (2, len(long))]
        assert long in rows[2]["b"]


@pytest.mark.law
def test_quotes_without_end_take_no_time_without_end(tmp_path: Path) -> None:
    for text in ('"' * 90_000, '"\n' * 45_000, '"a" b\n' * 30_000, '"a""\n' * 30_000):
        for multi_line in (False, True):
            found = CsvReader(columns("a STRING"), options(header=False, multiLine=multi_line))
            assert rows_of(written(tmp_path, text), found)
