"""What the options of JSON change; `spark/oracle/test_json_options_oracle.py` asks Spark."""

from __future__ import annotations

import json
import logging

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.base import LinePiece, UnknownFields
from airflow_cloudfiles.engine.formats.json.document import (
    JsonDocumentInference,
    JsonDocumentReader,
)
from airflow_cloudfiles.engine.formats.json.infer import JsonInference
from airflow_cloudfiles.engine.formats.json.reader import JsonReader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.types import canonical_struct
from tests.support.formats.json_files import MemoryFile

SCHEMA = StructType([StructField("a", StringType()), StructField("b", LongType())])
WIDENING = {"cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening"}
TYPED = {"cloudFiles.inferColumnTypes": "true"}


def options(**given: str) -> CloudFilesOptions:
    return CloudFilesOptions.parse({"cloudFiles.format": "json", **given}, path="/landing")


def read(data: bytes, **given: str) -> list[dict[str, object]]:
    chosen = options(**{"cloudFiles.schemaEvolutionMode": "rescue", **given})
    return JsonReader(SCHEMA, chosen).read([LinePiece("file:///f", data)]).to_pylist()


def inferred(*records: str, known: StructType | None = None, **given: str) -> str:
    inference = JsonInference(options(**given), known)
    inference.add("\n".join(records).encode())
    return canonical_struct(inference.result()).simpleString()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"encoding": "UTF-16", "multiLine": "true"}, "not allowed with multiLine"),  # B24
        ({"encoding": "utf-32le", "multiLine": "true"}, "not allowed with multiLine"),  # B24
        ({"encoding": "klingon"}, "no encoding of text"),
        ({"encoding": "base64"}, "no encoding of text"),
        ({"lineSep": ""}, "must not be empty"),
        ({"lineSep": "|", "multiLine": "true"}, "Leave one of them out"),
        ({"samplingRatio": "0"}, "above 0 and at most 1"),
        ({"samplingRatio": "1.5"}, "above 0 and at most 1"),
        ({"samplingRatio": "half"}, "above 0 and at most 1"),
        ({"allowComments": "perhaps"}, "must be true or false"),
        ({**WIDENING, "prefersDecimal": "false"}, "a double cannot be widened"),  # B64
        ({"header": "true"}, "is an option of format csv"),
    ],
)
def test_options_that_cannot_be_are_refused_with_a_reason(given, reason):
    with pytest.raises(OptionError, match=reason):
        options(**given)


def test_decimals_are_preferred_where_types_are_to_widen():  # B64
    assert not options().format_options.prefers_decimal
    assert options(**WIDENING).format_options.prefers_decimal


def test_json_lines_with_multi_line_are_all_read_with_a_warning(caplog):  # B146
    data = b'{"a":"1"}\n{"a":"2"}\n{"a":"3"}\n'
    reader = JsonDocumentReader(SCHEMA, options(multiLine="true"))
    with caplog.at_level(logging.WARNING):
        rows = [row for batch in reader.read_file(MemoryFile(data)) for row in batch.to_pylist()]
    assert [row["a"] for row in rows] == ["1", "2", "3"]
    assert "file:///f.json holds 3 JSON documents, not one" in caplog.text
    assert "leave multiLine out" in caplog.text


def test_a_document_that_breaks_off_is_one_corrupt_record_and_what_precedes_it_is_read():
    data = b'{"a":"1"}\n[{"a":"2"},\n{"a"'
    reader = JsonDocumentReader(SCHEMA, options(multiLine="true"))
    rows = [row for batch in reader.read_file(MemoryFile(data)) for row in batch.to_pylist()]
    assert rows[0]["a"] == "1"
    kept = json.loads(rows[1]["_rescued_data"])["_corrupt_record"]
    assert kept == '[{"a":"2"},\n{"a"'
    assert reader.counts.corrupt_records == 1


def test_a_document_is_not_cut():
    reader = JsonDocumentReader(SCHEMA, options(multiLine="true"))
    assert not options(multiLine="true").format_options.can_split()
    assert list(reader.read_file(MemoryFile(b'{"a":"1"}'), start=5, end=9)) == []


def test_large_documents_come_in_batches(monkeypatch):
    monkeypatch.setattr("airflow_cloudfiles.engine.formats.json.document.BATCH_BYTES", 100)
    data = json.dumps([{"b": number} for number in range(50)], indent=1).encode()
    reader = JsonDocumentReader(SCHEMA, options(multiLine="true"))
    batches = list(reader.read_file(MemoryFile(data)))
    assert len(batches) > 3
    assert [row["b"] for batch in batches for row in batch.to_pylist()] == list(range(50))
    inference = JsonDocumentInference(options(multiLine="true", **TYPED))
    list(inference.add_file(MemoryFile(data)))
    assert inference.result().simpleString() == "struct<b:bigint>"


def test_rescued_data_is_strict_json_whatever_the_record_was():  # B80
    lenient = dict.fromkeys(
        ["allowComments", "allowUnquotedFieldNames", "allowNumericLeadingZeros",
         "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars"], "true"
    )  # fmt: skip
    line = rb"""{b: /* x */ "\q", new: {c: 007, 'd': NaN, e: [01, /**/ 2]}, a: {x: -00.5}} // y"""
    (row,) = read(line + b"\n", **lenient)
    assert json.loads(row["_rescued_data"]) == {
        "b": "q",
        "new": {"c": 7, "d": "NaN", "e": [1, 2]},
        "_file_path": "file:///f",
    }
    assert row["a"] == "{x: -00.5}"


def test_a_separator_of_ones_own_leaves_line_breaks_to_the_records():
    data = b'{"a":"1",\n"b":1};{"a":"2"\r\n};broken\nrecord;;{"a":"3"}'
    rows = read(data, lineSep=";")
    assert [(row["a"], row["b"]) for row in rows] == [
        ("1", 1),
        ("2", None),
        (None, None),
        ("3", None),
    ]
    assert json.loads(rows[2]["_rescued_data"])["_corrupt_record"] == "broken\nrecord"


def test_timestamps_are_inferred_only_together_with_types():  # B23
    record = '{"a":"2024-01-31T10:00:00Z"}'
    assert inferred(record, inferTimestamp="true") == "struct<a:string>"
    assert inferred(record, inferTimestamp="true", **TYPED) == "struct<a:timestamp>"


def test_a_timestamp_finer_than_a_microsecond_is_inferred_as_the_string_that_keeps_it():
    record = '{"a":"2024-01-31T10:00:00.123456789Z"}'
    assert inferred(record, inferTimestamp="true", **TYPED) == "struct<a:string>"
    whole = record.replace("789", "000")
    assert inferred(whole, inferTimestamp="true", **TYPED) == "struct<a:timestamp>"


def test_leaves_are_strings_by_default_whatever_is_preferred():  # B5, B6
    record = '{"a":1,"b":{"c":2.5}}'
    assert inferred(record, prefersDecimal="true") == "struct<a:string,b:struct<c:string>>"
    assert inferred(record, **TYPED) == "struct<a:bigint,b:struct<c:double>>"
    assert inferred(record, primitivesAsString="true", **TYPED) == (
        "struct<a:string,b:struct<c:string>>"
    )


def test_names_that_differ_in_case_are_one_column():  # B15
    assert inferred('{"foo":1}', '{"Foo":2}', '{"FOO":3}') == "struct<foo:string>"


def test_a_field_that_is_always_null_is_dropped_and_is_nothing():
    records = ['{"a":"x","n":null,"e":[]}', '{"a":"y","n":null}']
    assert inferred(*records, dropFieldIfAllNull="true") == "struct<a:string>"
    reader = JsonReader(SCHEMA, options(dropFieldIfAllNull="true"))
    for _ in range(2):  # the second time it has learned the names
        rows = reader.read([LinePiece("file:///f", "\n".join(records).encode())]).to_pylist()
        assert [row["_rescued_data"] for row in rows] == ['{"e":[],"_file_path":"file:///f"}', None]
    with pytest.raises(UnknownFields):
        reader.read([LinePiece("file:///f", b'{"n":1}')])
    # An empty text tells no type, so it is no new column, but neither is it nothing.
    [row] = reader.read([LinePiece("file:///f", b'{"n":"","m":{"x":""}}')]).to_pylist()
    assert row["_rescued_data"] == '{"m":{"x":""},"n":"","_file_path":"file:///f"}'
    assert inferred(records[1], '{"n":"","m":{"x":""}}', dropFieldIfAllNull="true") == (
        "struct<a:string>"
    )


def test_a_sample_of_the_records_is_the_same_however_they_are_cut():
    records = [f'{{"a{number}":1}}' for number in range(400)]
    few = inferred(*records, samplingRatio="0.1")
    assert few == inferred(*records, samplingRatio="0.1")
    assert 10 < few.count(":string") < 120
    halves = JsonInference(options(samplingRatio="0.1"))
    halves.add("\n".join(records[:200]).encode())
    halves.add("\n".join(records[200:]).encode())
    assert halves.result().names[-1] in few
    known = inferred(*records, samplingRatio="0.1", known=SCHEMA)
    assert known.count(":") == 402  # what is new must be found, however rare


def test_the_words_for_no_number_are_texts_when_they_are_not_allowed():
    schema = StructType([StructField("c", StringType()), StructField("d", LongType())])
    chosen = options(
        **{"allowNonNumericNumbers": "false", "cloudFiles.schemaEvolutionMode": "rescue"}
    )
    rows = (
        JsonReader(schema, chosen)
        .read([LinePiece("file:///f", b'{"c":"NaN"}\n{"c":NaN}')])
        .to_pylist()
    )
    assert rows[0] == {"c": "NaN", "d": None, "_rescued_data": None}
    assert "_corrupt_record" in rows[1]["_rescued_data"]
