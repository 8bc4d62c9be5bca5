"""Every row says what file it came from, in Spark's words, in every format."""

from __future__ import annotations

import gzip
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    OptionError,
    SchemaHintError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.reading import splits
from airflow_cloudfiles.engine.reading.file_columns import file_path, metadata_values
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.schema.source_columns import FIELDS
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landed import Stream
from tests.unit.stream.test_every_format import OPTIONS, WRITERS

ALL = {"cloudFiles.metadataColumns": "_metadata"}
PATH = {"cloudFiles.metadataColumns": "file_path"}
ODD = ("a b+c%20é", "k=1/x#y?z", "~*'(!)&,;:@$", '[{<|>}]^`"', "\u00a0\u3000日本\U0001f600")
QUOTED = (
    "a%20b+c%2520é",
    "k=1/x%23y%3Fz",
    "~*'(!)&,;:@$",
    "%5B%7B%3C%7C%3E%7D%5D%5E%60%22",
    "%C2%A0%E3%80%80日本\U0001f600",
)


@pytest.mark.parametrize(("path", "quoted"), list(zip(ODD, QUOTED, strict=True)))
def test_a_path_is_quoted_as_a_uri_of_java(path: str, quoted: str) -> None:
    assert file_path("file:///", path) == f"file:/{quoted}"
    assert file_path("file:///in x", path) == f"file:/in%20x/{quoted}"
    assert file_path("s3://bucket", path) == f"s3://bucket/{quoted}"
    assert file_path("abfss://c@a.dfs.core.windows.net/in", path) == (
        f"abfss://c@a.dfs.core.windows.net/in/{quoted}"
    )


def test_bytes_that_are_no_text_are_quoted() -> None:
    assert file_path("file:///in", os.fsdecode(b"caf\xe9\\")) == "file:/in/caf%E9%5C"


def test_the_length_of_a_part_is_that_of_its_bytes() -> None:
    file = FileEntry("k=1/a b", 100, 1_700_000_000_123_456)
    whole = metadata_values("s3://bucket/in", FileRange(file))
    assert whole == {
        "file_path": "s3://bucket/in/k=1/a%20b",
        "file_name": "a%20b",
        "file_size": 100,
        "file_block_start": 0,
        "file_block_length": 100,
        "file_modification_time": 1_700_000_000_123_456,
    }
    part = metadata_values("s3://bucket/in", FileRange(file, 40, 100))
    assert (part["file_block_start"], part["file_block_length"], part["file_size"]) == (40, 60, 100)


def landed(path: Path, content: bytes, number: int = 0) -> dict[str, Any]:
    """Write a file with a time of its own, and give what is known of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    moment = 1_700_000_000_000_000 + number * 1_000_001
    os.utime(path, ns=(moment * 1000 + 999, moment * 1000 + 999))
    return dict(metadata_values(f"file://{path.parent}", FileRange(_entry(path, moment))))


def _entry(path: Path, moment: int) -> FileEntry:
    return FileEntry(path.name, path.stat().st_size, moment)


def known(value: dict[str, Any]) -> dict[str, Any]:
    """What a row says, with the time in microseconds."""
    since = value["file_modification_time"] - datetime(1970, 1, 1, tzinfo=UTC)
    return {**value, "file_modification_time": since // timedelta(microseconds=1)}


def _content(name: str, number: int) -> bytes:
    if name in WRITERS:
        return WRITERS[name]([{"a": number, "b": "x"}, {"a": number, "b": "y"}])
    return f"{number}\n{number}\n".encode()


@pytest.mark.parametrize("name", [*WRITERS, "text", "binaryFile"])
def test_rows_of_every_format_say_where_they_are_from(tmp_path: Path, name: str) -> None:
    source = tmp_path / "in ä"
    files = [f"{each}.{number}" for number, each in enumerate(("a b", "c+d%20", "k=v", "日"))]
    expected = [
        landed(source / each, _content(name, number), number) for number, each in enumerate(files)
    ]
    stream = Stream(source, tmp_path / "state", name, **OPTIONS.get(name, {}), **ALL)
    rows = stream.run(parallelism=1)
    sheet = {"sheet_name": "Sheet1"} if name == "excel" else {}
    expected = [each | sheet for each in expected]
    times = 1 if name == "binaryFile" else 2
    found = sorted((known(row["_metadata"]) for row in rows), key=lambda each: each["file_path"])
    assert found == sorted(expected * times, key=lambda each: each["file_path"])
    assert list(rows[0])[-1] == "_metadata"
    assert list(rows[0]["_metadata"]) == [*FIELDS.names, *sheet]


def test_columns_stand_behind_all_others_under_their_names(tmp_path: Path) -> None:
    file = landed(tmp_path / "in/day=1/x.json.gz", gzip.compress(b'{"a":1}\n{"a":2}\n'))
    given = {"cloudFiles.metadataColumns": "file_size AS bytes, file_path"}
    stream = Stream(tmp_path / "in", tmp_path / "state", "json", **given)
    assert stream.run() == [
        {
            "a": number,
            "day": "1",
            "_rescued_data": None,
            "bytes": file["file_size"],
            "file_path": file["file_path"],
        }
        for number in ("1", "2")
    ]


@pytest.mark.parametrize("name", ["json", "csv", "text"])
def test_each_part_of_a_file_says_which_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(splits, "MIN_SPLIT_BYTES", 1000)
    monkeypatch.setattr(splits, "OPEN_COST_BYTES", 0)
    lines = [json.dumps({"a": f"{number:04}"}) if name == "json" else f"{number:04}"
             for number in range(1000)]  # fmt: skip
    content = "".join(f"{each}\n" for each in lines).encode()
    file = landed(tmp_path / "in/x", content)
    width = len(lines[0]) + 1
    stream = Stream(
        tmp_path / "in",
        tmp_path / "state",
        name,
        schema=parse_schema("value STRING, _metadata STRUCT<" + _struct() + ">")
        if name == "text"
        else parse_schema("a STRING, _metadata STRUCT<" + _struct() + ">"),
        **ALL,
    )
    rows = stream.run(parallelism=3)
    assert len(rows) == len(lines)
    parts = {}
    for row in rows:
        start, length = (row["_metadata"][f"file_block_{each}"] for each in ("start", "length"))
        parts[start] = length
        first = int(row.get("a") or row["value"]) * width
        assert start <= first < start + length
        assert row["_metadata"]["file_size"] == file["file_size"]
    assert len(parts) > 1
    ends = [start + parts[start] for start in sorted(parts)]
    assert [*sorted(parts), len(content)] == [0, *ends]


def _struct() -> str:
    return ", ".join(f"{each.name}: {each.dataType.simpleString()}" for each in FIELDS.fields)


def test_a_file_that_was_overwritten_since_says_what_was_read(tmp_path: Path) -> None:
    landed(tmp_path / "in/x", b'{"a":1}\n')
    stream = Stream(tmp_path / "in", tmp_path / "state", "json", **ALL)
    [task] = stream.tasks()
    again = landed(tmp_path / "in/x", b'{"a":"other"}\n', 7)
    [row] = [row for batch in task.read() for row in batch.to_pylist()]
    assert known(row["_metadata"]) == again


# What has the name of such a column ------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_a_field_of_that_name_is_rescued_and_never_evolves(tmp_path: Path, name: str) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    write = WRITERS[name]
    first = landed(source / "1", write([{"a": 1, "file_path": "mine"}]))
    stream = Stream(source, state, name, **OPTIONS.get(name, {}), **PATH)
    [row] = stream.run()
    assert row["file_path"] == first["file_path"]
    assert json.loads(row["_rescued_data"])["file_path"] == "mine"

    landed(source / "2", write([{"a": 2, "file_path": "again", "new": 0.5}]))
    with pytest.raises(UnknownFieldException) as caught:
        stream.run()
    assert set(caught.value.fields) == {"new"}
    [row] = stream.run()
    assert json.loads(row["_rescued_data"])["file_path"] == "again"
    log = SchemaLog(open_store(str(state)), open_store(str(source)).uri)
    assert [log.read(each).data_schema.names for each in log.versions()] == [
        ["a"],
        ["a", "new"],
    ]


def test_a_column_that_the_stream_has_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    landed(source / "1", b'{"a":1,"File_Path":"mine"}\n')
    Stream(source, state, "json").run()
    with pytest.raises(IncompatibleSchemaError, match="file_path AS another_name"):
        Stream(source, state, "json", **PATH).run()
    renamed = {"cloudFiles.metadataColumns": "file_path AS source_file"}
    [row] = Stream(source, state, "json", **renamed).run()
    assert row["File_Path"] == "mine"
    assert row["source_file"].startswith("file:/")


def test_a_folder_of_that_name_is_refused_before_a_schema_is_written(tmp_path: Path) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    landed(source / "file_path=x/1", b'{"a":1}\n')
    with pytest.raises(IncompatibleSchemaError, match="file_path of the files"):
        Stream(source, state, "json", **PATH).run()
    assert SchemaLog(open_store(str(state)), open_store(str(source)).uri).versions() == []


def test_a_hint_of_that_name_is_refused(tmp_path: Path) -> None:
    landed(tmp_path / "in/1", b'{"a":1}\n')
    hints = {"cloudFiles.schemaHints": "file_path STRING"}
    with pytest.raises(SchemaHintError, match="metadataColumns makes"):
        Stream(tmp_path / "in", tmp_path / "state", "json", **hints, **PATH).run()


@pytest.mark.parametrize(
    ("ddl", "error"),
    [
        ("a STRING", "Add `file_path string`"),
        ("a STRING, file_path INT", "Leave it out"),
        ("a STRING, FILE_PATH STRING", "has FILE_PATH string"),
    ],
)
def test_a_given_schema_has_the_column_as_it_is(tmp_path: Path, ddl: str, error: str) -> None:
    landed(tmp_path / "in/1", b'{"a":1}\n')
    schema: StructType = parse_schema(ddl)
    with pytest.raises((IncompatibleSchemaError, OptionError), match=error):
        Stream(tmp_path / "in", tmp_path / "state", "json", schema=schema, **PATH).run()


def test_a_given_schema_may_have_the_column_anywhere(tmp_path: Path) -> None:
    file = landed(tmp_path / "in/1", b'{"a":1,"file_path":"mine"}\n')
    schema = parse_schema("file_path STRING, a STRING")
    [row] = Stream(tmp_path / "in", tmp_path / "state", "json", schema=schema, **PATH).run()
    assert list(row.items()) == [("file_path", file["file_path"]), ("a", "1")]


def test_types_widen_beside_such_columns(tmp_path: Path) -> None:
    source = tmp_path / "in"
    given = {
        "cloudFiles.inferColumnTypes": "true",
        "cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening",
    }
    landed(source / "1", b'{"a":1}\n')
    stream = Stream(source, tmp_path / "state", "json", **given, **PATH)
    stream.run()
    big = landed(source / "2", b'{"a":30000000000000000000}\n')
    with pytest.raises(UnknownFieldException, match="wider types"):
        stream.run()
    [row] = stream.run()
    assert (row["a"], row["file_path"]) == (3 * 10**19, big["file_path"])
