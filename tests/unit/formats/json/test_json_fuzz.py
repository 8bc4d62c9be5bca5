"""Whatever the bytes are, there are rows or an error that explains itself; no record is lost."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import CorruptRecordError
from airflow_cloudfiles.engine.formats.base import LinePiece
from airflow_cloudfiles.engine.formats.json.document import (
    JsonDocumentInference,
    JsonDocumentReader,
    JsonVariantReader,
)
from airflow_cloudfiles.engine.formats.json.infer import JsonInference
from airflow_cloudfiles.engine.formats.json.reader import JsonReader
from airflow_cloudfiles.engine.formats.registry import fixed_schema
from tests.support.formats.json_files import MemoryFile
from tests.unit.formats.json.test_json_agreement import options

SCHEMA = StructType(
    [
        StructField("a", StringType()),
        StructField("b", LongType()),
        StructField("c", DoubleType()),
        StructField("d", DateType()),
        StructField("t", TimestampType()),
        StructField("l", ArrayType(StructType([StructField("x", LongType())]))),
        StructField("m", MapType(StringType(), StringType())),
    ]
)
LENIENT = {
    "allowComments": "true",
    "allowUnquotedFieldNames": "true",
    "allowNumericLeadingZeros": "true",
    "allowBackslashEscapingAnyCharacter": "true",
    "allowUnquotedControlChars": "true",
    "dateFormat": "dd.MM.yyyy",
    "timestampFormat": "yyyy-MM-dd HH:mm[:ss][XXX]",
    "timeZone": "Europe/Paris",
}
SEED = [
    {"a": "x", "b": 1, "c": 2.5, "d": "2024-01-31", "t": "2024-01-31T10:00:00Z"},
    {"a": 'é"\\', "b": -(2**63), "l": [{"x": 1}, None, {"x": "2"}], "m": {"k": "v"}},
    {"d": "31.01.2024", "t": "2024-03-31 02:30", "new": {"deep": [[[1]]]}, "c": 1e300},
]


def _mangled(rng: random.Random) -> bytes:
    """Some records, some of whose bytes are others, twice or gone."""
    lines = [json.dumps(rng.choice(SEED), ensure_ascii=rng.random() < 0.5) for _ in range(4)]
    data = bytearray("\n".join(lines).encode())
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(data))
        kind = rng.randrange(5)
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[place:place] = rng.choice([b'"', b"{", b"}", b"[", b"\\", b"\x00", b"\xff", b"//"])
        elif kind == 2:
            del data[place : place + rng.randrange(1, 9)]
        elif kind == 3:
            data[place:place] = data[place : place + rng.randrange(1, 30)]
        else:
            data[place:place] = rng.choice([b"\r", b"\n", b"/*", b"'", b"1" * 50, b"\xed\xa0\x80"])
        if not data:
            return b""
    return bytes(data)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Rows, with days and microseconds as numbers, since Python's own end with the year 9999."""
    for name, kind in {"d": pa.int32(), "t": pa.int64()}.items():
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, name, batch.column(place).cast(kind))
    return batch.to_pylist()


def _lines(data: bytes) -> list[bytes]:
    cut = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return [line for line in cut if line.strip(b" \t")]


@pytest.mark.law
@pytest.mark.parametrize("given", [{}, LENIENT], ids=["strict", "lenient"])
def test_mangled_lines_are_rows_each_by_itself(given: dict[str, str]):
    rng = random.Random(11)
    for _ in range(120):
        data = _mangled(rng)
        reader = JsonReader(SCHEMA, options(**given))
        together = rows_of(reader.read([LinePiece("file:///f", data)]))
        alone = []
        for line in _lines(data):
            rows = rows_of(reader.read([LinePiece("file:///f", line)]))
            assert rows or line.lstrip()[:1] in b"[/", line
            alone += rows
        assert repr(together) == repr(alone)
        JsonInference(options(**given)).add(data)


@pytest.mark.law
@pytest.mark.parametrize("given", [{}, LENIENT], ids=["strict", "lenient"])
def test_mangled_documents_are_rows_to_the_last_byte(given: dict[str, str]):
    rng = random.Random(12)
    for _ in range(150):
        data = _mangled(rng)
        reader = JsonDocumentReader(SCHEMA, options(multiLine="true", **given))
        rows = [row for batch in reader.read_file(MemoryFile(data)) for row in rows_of(batch)]
        assert rows or not data.strip() or data.strip()[:1] in b"[/"
        source = "".join(data.decode("utf-8", "backslashreplace").split())
        for row in rows:  # what is none is kept as it is, but for white space
            assert "".join(_corrupt_text(row).split()) in source
        list(JsonDocumentInference(options(multiLine="true", **given)).add_file(MemoryFile(data)))


def _corrupt_text(row: dict[str, object]) -> str:
    kept = json.loads(row["_rescued_data"] or "{}")
    return kept.get("_corrupt_record", "")


def test_mangled_lines_are_variants_or_corrupt_records():
    rng = random.Random(13)
    chosen = options(singleVariantColumn="v")
    for _ in range(150):
        data = _mangled(rng)
        reader = JsonVariantReader(fixed_schema(chosen), chosen)
        batch = reader.read([LinePiece("file:///f", data)])
        batch.validate(full=True)
        assert batch.num_rows == len(_lines(data))
        assert all(
            row["v"] is not None or row["_rescued_data"] is not None for row in batch.to_pylist()
        )


@pytest.mark.law
@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED"])
def test_mangled_lines_fail_or_are_dropped_and_counted(mode: str):  # B75
    rng = random.Random(14)
    for _ in range(80):
        data = _mangled(rng)
        kept = JsonReader(SCHEMA, options())
        kept.read([LinePiece("file:///f", data)])
        reader = JsonReader(SCHEMA, options(mode=mode))
        if mode == "FAILFAST" and kept.counts.corrupt_records:
            with pytest.raises(CorruptRecordError, match=r"FAILFAST\. Correct or remove the file"):
                reader.read([LinePiece("file:///f", data)])
            continue
        rows = reader.read([LinePiece("file:///f", data)]).num_rows
        assert rows + reader.counts.dropped_records == kept.counts.rows
        assert reader.counts.dropped_records == kept.counts.corrupt_records


def test_bad_records_go_to_their_path_whatever_the_mode_and_mismatches_do_not():  # B76
    chosen = options(badRecordsPath="/bad", mode="FAILFAST")
    reader = JsonReader(SCHEMA, chosen)
    rows = reader.read([LinePiece("file:///f", b'{"b":"no"}\nbroken\n{"b":1}\n\xff')]).to_pylist()
    assert [row["b"] for row in rows] == [None, 1]
    assert rows[0]["_rescued_data"] == '{"b":"no","_file_path":"file:///f"}'
    assert [each.record for each in reader.bad_records] == ["broken", "\\xff"]
    assert (reader.counts.corrupt_records, reader.counts.dropped_records) == (2, 2)


@pytest.mark.law
def test_ten_thousand_columns_and_as_many_unknown_fields():
    names = [f"c{number}" for number in range(10_000)]
    schema = StructType([StructField(name, LongType()) for name in names])
    record = json.dumps({name: number for number, name in enumerate(names)}).encode()
    strange = json.dumps({f"x{number}": number for number in range(10_000)}).encode()
    reader = JsonReader(schema, options())
    rows = reader.read([LinePiece("file:///f", b"\n".join([record, strange, record]))]).to_pylist()
    assert [row["c9999"] for row in rows] == [9999, None, 9999]
    assert len(json.loads(rows[1]["_rescued_data"])) == 10_001
    inference = JsonInference(options(**{"cloudFiles.inferColumnTypes": "true"}))
    inference.add(record + b"\n" + strange)
    assert len(inference.result().fields) == 20_000


@pytest.mark.law
@pytest.mark.parametrize("given", [{}, LENIENT], ids=["strict", "lenient"])
@pytest.mark.parametrize(
    "value",
    [
        "[" * 5000 + "]" * 5000,
        '{"a":' * 3000 + "1" + "}" * 3000,
        "[" * 100_000,
        "1" * 100_000,
        "1e" + "9" * 1000,
        "-0." + "0" * 100_000 + "1",
        '"' + "\\ud800" * 1000 + '"',
        '"' + "\\u0000" * 1000 + '"',
        '"' + "x" * 3_000_000 + '"',
        "/*" * 50_000,
        "[" + "1," * 20_000 + "1]",
    ],
    ids=["arrays", "objects", "open", "digits", "exponent", "zeros", "surrogates", "nulls", "long",
         "comments", "wide"],
)  # fmt: skip
def test_what_is_huge_or_deep_is_kept_somewhere(value: str, given: dict[str, str]):
    line = f'{{"a":{value},"b":1}}'.encode()
    for field in ("a", "c", "l", "new"):
        text = line.replace(b'"a"', f'"{field}"'.encode(), 1)
        reader = JsonReader(SCHEMA, options(**given))
        rows = reader.read([LinePiece("file:///f", text + b'\n{"a":"after","b":2}')]).to_pylist()
        assert rows[-1]["a"] == "after"
        assert len(rows) == 2
        assert rows[0]["a"] is not None or rows[0]["c"] is not None or rows[0]["_rescued_data"]
        documents = JsonDocumentReader(SCHEMA, options(multiLine="true", **given))
        assert sum(batch.num_rows for batch in documents.read_file(MemoryFile(text))) == 1
    JsonInference(options(**{"cloudFiles.inferColumnTypes": "true", **given})).add(line)
    chosen = options(singleVariantColumn="v", **given)
    variants = JsonVariantReader(fixed_schema(chosen), chosen)
    assert variants.read([LinePiece("file:///f", line)]).num_rows == 1


def test_a_document_that_is_too_large_is_refused_by_name():
    reader = JsonDocumentReader(SCHEMA, options(multiLine="true", maxRecordBytes="10"))
    refused = r"file:///f\.json has more than 10 bytes.*maxRecordBytes.*split the file"
    with pytest.raises(Exception, match=refused):
        list(reader.read_file(MemoryFile(b'{"a":"0123456789"}')))
