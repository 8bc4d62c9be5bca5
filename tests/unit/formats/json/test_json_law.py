"""The law of JSON: columns and rescued data give back every record, whatever schema and options.

An example is a schema, a grammar and hundreds of records that were made for the schema and then
spoiled; all examples together make at least 100,000 records.
"""

from __future__ import annotations

import json
import random
import string

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.base import LinePiece
from airflow_cloudfiles.engine.formats.json.document import JsonDocumentReader
from airflow_cloudfiles.engine.formats.json.reader import JsonReader
from airflow_cloudfiles.engine.formats.json.shape import grammar_of
from airflow_cloudfiles.engine.options.formats.nested import JsonOptions
from tests.support.formats.json_files import MemoryFile
from tests.support.formats.numbers_law import NUMBERS, OPTION, RULES
from tests.support.laws import examples
from tests.unit.formats.json.test_json_agreement import assert_gives_back, options

EXAMPLES = 300
RECORDS = 350
"""Of an example: together more than 100,000."""
URI = "file:///f.json"
LEAVES: list[DataType] = [
    StringType(), LongType(), IntegerType(), ByteType(), DoubleType(), FloatType(), BooleanType(),
    DecimalType(7, 3), DecimalType(38, 10), DateType(), TimestampType(),
]  # fmt: skip
MARK = "\ue000"
ODD = [
    None, True, 0, -1, 128, 2**31, 2**63, 10**30, 1.5, 1e-7, "", "x", "1", "NaN", "2024-02-30",
    "2024-01-31", "2024-01-31T12:30:59Z", "é😀", 'a"b\\c\n', [], {}, [1, "x", None], {"k": {}},
    [[{"k": 1}]], "9" * 40, {"_file_path": 1}, *(f"{MARK}{number}{MARK}" for number in NUMBERS),
]  # fmt: skip


def _schema(rng: random.Random, depth: int = 0) -> StructType:
    width = rng.randrange(1, 7 if depth == 0 else 4)
    names = rng.sample(["a", "b", "c", "d", "É", "x y", "long_name", "Id"], width)
    return StructType([StructField(name, _type(rng, depth)) for name in names])


def _type(rng: random.Random, depth: int) -> DataType:
    kind = rng.randrange(10) if depth < 3 else 0
    if kind == 7:
        return ArrayType(_type(rng, depth + 1))
    if kind == 8:
        return MapType(StringType(), _type(rng, depth + 1))
    if kind == 9:
        return _schema(rng, depth + 1)
    return rng.choice(LEAVES)


def _fitting(rng: random.Random, kind: DataType) -> object:  # noqa: C901, PLR0911 - one a type
    """A value that fits, most of the time."""
    if rng.random() < 0.05:
        return rng.choice(ODD)
    if isinstance(kind, StructType):
        found = {f.name: _fitting(rng, f.dataType) for f in kind.fields if rng.random() < 0.9}
        if rng.random() < 0.05:
            found[rng.choice(["new", "A", "ID", "_rescued_data", "a.b", 'q"'])] = rng.choice(ODD)
        return found
    if isinstance(kind, ArrayType):
        return [_fitting(rng, kind.elementType) for _ in range(rng.randrange(3))]
    if isinstance(kind, MapType):
        return {rng.choice("klm"): _fitting(rng, kind.valueType) for _ in range(rng.randrange(3))}
    if isinstance(kind, StringType):
        return "".join(rng.choices(string.printable[:-2] + "é😀", k=rng.randrange(6)))
    if isinstance(kind, BooleanType):
        return rng.random() < 0.5
    if isinstance(kind, DateType):
        return f"{rng.randrange(1, 9999):04}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    if isinstance(kind, TimestampType):
        return f"2024-01-{rng.randrange(1, 29):02}T10:{rng.randrange(60):02}:00.25Z"
    if isinstance(kind, ByteType | IntegerType | LongType):
        return rng.randrange(-128, 128)
    return rng.randrange(-4000, 4000) / 8


def _spoiled(rng: random.Random, text: str) -> str:
    """A record with a slip of its writer: twice the same, said otherwise, or broken."""
    slip = rng.randrange(6)
    if slip == 0 and text != "{}":
        return text[:-1] + ', "a": 1, "a": {"b": 2}}'
    if slip == 1:
        return text.replace(",", " ,\t").replace(":", " : ")
    if slip == 2:
        return json.dumps(json.loads(text), ensure_ascii=True)
    if slip == 3:
        return f" {text} "
    place = rng.randrange(len(text) + 1)
    if slip == 4:
        return text[:place]
    return text[:place] + rng.choice('{}[]",:\\x0') + text[place + 1 :]


def _records(rng: random.Random, schema: StructType) -> list[bytes]:
    found = []
    for _ in range(RECORDS):
        record = _fitting(rng, schema)
        text = json.dumps(record if isinstance(record, dict) else {}, ensure_ascii=False)
        if rng.random() < 0.04:
            text = _spoiled(rng, text)
        found.append(text.encode())
    return found


def _with_numbers(text: bytes) -> bytes:
    """Numbers that Python would write otherwise, where they were between marks."""
    mark = MARK.encode()
    return text.replace(b'"' + mark, b"").replace(mark + b'"', b"")


def _rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """The rows, unless a slip made a year that Python has no dates of (see `test_far_dates`)."""
    try:
        found: list[dict[str, object]] = batch.to_pylist()
    except OverflowError:
        reject()
    return found


def _assert_every_record_is_somewhere(
    records: list[bytes],
    rows: list[dict[str, object]],
    schema: StructType,
    rule: str = "wholeNumbers",
) -> None:
    """Whole records are given back piece by piece, corrupt ones as they were."""
    grammar = grammar_of(JsonOptions())
    rest = iter(rows)
    for record in records:
        if not record.strip():
            continue
        try:
            end = grammar.value_end(record)
            is_record = record.strip()[:1] == b"{" and not grammar.has_more(record, end)
        except ValueError:
            is_record = False
        row = next(rest)
        if is_record:
            assert_gives_back(record.strip().rstrip(b","), row, schema, rule)
        else:
            kept = json.loads(row.pop("_rescued_data"))
            assert kept == {"_corrupt_record": record.decode(), "_file_path": URI}
            assert set(row.values()) <= {None}
    assert next(rest, None) is None


@pytest.mark.law
@pytest.mark.parametrize("separator", [None, "\x1e"])
@settings(
    max_examples=examples(EXAMPLES // 2), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(seed=st.integers(0, 2**48))
def test_columns_and_rescued_data_give_back_every_record(seed: int, separator: str | None):
    rng = random.Random(seed)
    schema = _schema(rng)
    records = list(map(_with_numbers, _records(rng, schema)))
    rule = rng.choice(RULES)
    lines = {"lineSep": separator} if separator else {}
    reader = JsonReader(schema, options(**lines, **{OPTION: rule}))
    data = (separator or "\n").encode().join(records)
    rows = _rows(reader.read([LinePiece(URI, data)]))
    _assert_every_record_is_somewhere(records, rows, schema, rule)
    assert reader.counts.rows == len(rows)


@pytest.mark.law
@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**48), indent=st.sampled_from([None, 1]))
def test_documents_give_back_every_record(seed: int, indent: int | None):
    rng = random.Random(seed)
    schema = _schema(rng)
    records = [json.loads(each) for each in _records(rng, schema) if _is_json(each)]
    document = _with_numbers(json.dumps(records, indent=indent, ensure_ascii=False).encode())
    reader = JsonDocumentReader(schema, options(multiLine="true"))
    rows = [row for batch in reader.read_file(MemoryFile(document)) for row in _rows(batch)]
    lines = [_with_numbers(json.dumps(each, ensure_ascii=False).encode()) for each in records]
    _assert_every_record_is_somewhere(lines, rows, schema)


def _is_json(record: bytes) -> bool:
    """Whether a record is an object, also with its numbers: a slip may be inside of one."""
    try:
        return all(isinstance(json.loads(each), dict) for each in (record, _with_numbers(record)))
    except ValueError:
        return False
