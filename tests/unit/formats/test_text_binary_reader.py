"""Text files line by line or whole, and files as they are."""

from __future__ import annotations

import gzip
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import (
    FileUnreadableError,
    IncompatibleSchemaError,
    OptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats import fixed_columns as binary_reader
from airflow_cloudfiles.engine.formats import fixed_columns as text_reader
from airflow_cloudfiles.engine.formats.base import FileReader
from airflow_cloudfiles.engine.formats.registry import fixed_schema, open_reader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading import opened
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore


def _reader(name: str, ddl: str | None = None, **given: str) -> FileReader:
    options = CloudFilesOptions.parse(
        {"cloudFiles.format": name, "path": "/in", **given}, has_schema=ddl is not None
    )
    schema = fixed_schema(options) if ddl is None else parse_schema(ddl)
    assert schema is not None
    reader = open_reader(schema, options)
    assert isinstance(reader, FileReader)
    return reader


def _file(tmp_path: Path, data: bytes, name: str = "f.txt") -> StoreFile:
    (tmp_path / name).write_bytes(data)
    store = open_store(str(tmp_path))
    entry = store.head(name)
    assert entry is not None
    return StoreFile(store, entry)


def _rows(reader: FileReader, file: StoreFile, *part: int) -> list[dict[str, Any]]:
    return [row for batch in reader.read_file(file, *part) for row in batch.to_pylist()]


def _values(tmp_path: Path, data: bytes, **given: str) -> list[str | None]:
    return [row["value"] for row in _rows(_reader("text", **given), _file(tmp_path, data))]


# Text ----------------------------------------------------------------------------------------


def test_the_columns_are_those_of_spark() -> None:  # B14
    text = CloudFilesOptions.parse({"cloudFiles.format": "text", "path": "/in"})
    assert fixed_schema(text) == parse_schema("value STRING")
    binary = CloudFilesOptions.parse({"cloudFiles.format": "binaryFile", "path": "/in"})
    assert fixed_schema(binary) == parse_schema(
        "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
    )


@pytest.mark.law
@settings(max_examples=150)
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))),
    ends=st.sampled_from(["\n", "\r\n", "\r"]),
    seed=st.integers(0, 999),
)
def test_the_lines_give_back_the_file_in_whatever_parts(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends: str, seed: int
) -> None:
    data = "".join(line + ends for line in lines).encode()
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return
    file = _file(tmp_path_factory.getbasetemp(), data)
    reader = _reader("text")
    assert [row["value"] for row in _rows(reader, file)] == lines
    cuts = sorted(random.Random(seed).sample(range(len(data)), min(3, len(data))))
    parts = zip([0, *cuts], [*cuts, len(data)], strict=True)
    found = [row for start, end in parts if end > start for row in _rows(reader, file, start, end)]
    assert [row["value"] for row in found] == lines
    assert reader.counts.rows == 2 * len(lines)
    assert "".join(_values(file_folder(file), data, wholeText="true")[0] or "") == data.decode()


def file_folder(file: StoreFile) -> Path:
    return Path(file.uri.removeprefix("file://")).parent


@pytest.mark.parametrize(
    ("given", "data", "lines"),
    [
        ({"lineSep": "||"}, b"a|b||c\n||||d", ["a|b", "c\n", "", "d"]),
        ({"lineSep": "é"}, "aéb".encode(), ["a", "b"]),
        ({"encoding": "ISO-8859-1"}, "é\nü\n".encode("latin1"), ["é", "ü"]),
        ({"charset": "UTF-16LE", "lineSep": ";"}, "é;ü".encode("utf-16-le"), ["é", "ü"]),
        ({}, "é\r\nü".encode("utf-16"), ["é", "ü"]),
        ({"wholeText": "true", "encoding": "Cp1252"}, b"a\r\n\x80", ["a\r\n€"]),
        ({"wholeText": "true"}, b"", [""]),
        ({}, gzip.compress(b"a\nb\n", mtime=0), ["a", "b"]),
        ({}, b"", []),
        ({}, b"\n", [""]),
    ],
)
def test_line_ends_and_encodings(
    tmp_path: Path, given: dict[str, str], data: bytes, lines: list[str]
) -> None:
    assert _values(tmp_path, data, **given) == lines


@pytest.mark.parametrize("block_bytes", [1, 3, 2**20])
@pytest.mark.parametrize(
    ("line_sep", "data", "lines"),
    [("||", b"a|||b||||||c", ["a", "|b", "", "", "c"]), ("\n\n", b"a\n\n\nb\n", ["a", "\nb\n"])],
)
def test_a_separator_that_overlaps_itself_is_found_from_the_beginning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    block_bytes: int,
    line_sep: str,
    data: bytes,
    lines: list[str],
) -> None:
    monkeypatch.setattr(opened, "BLOCK_BYTES", block_bytes)
    assert _values(tmp_path, data, lineSep=line_sep) == lines


def test_bytes_that_are_no_utf_8_are_escaped_and_counted(tmp_path: Path) -> None:
    file = _file(tmp_path, b"good\nb\xffd\nfine \xc3\xa9\n")
    reader = _reader("text")
    assert [row["value"] for row in _rows(reader, file)] == ["good", "b\\xffd", "fine é"]
    assert reader.counts.corrupt_records == 1


def test_with_a_rescued_data_column_they_go_there(tmp_path: Path) -> None:
    file = _file(tmp_path, b"good\nb\xffd\n")
    reader = _reader("text", "line STRING", rescuedDataColumn="_r")
    good, bad = _rows(reader, file)
    assert good == {"line": "good", "_r": None}
    assert bad["line"] is None
    assert json.loads(bad["_r"]) == {"line": "b\\xffd", "_file_path": file.uri}
    assert (reader.counts.corrupt_records, reader.counts.rescued_rows) == (1, 1)


def test_a_text_that_is_not_in_its_encoding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadableError, match=r"f\.txt is not in ASCII: byte 1 "):
        _values(tmp_path, b"a\xff", encoding="US-ASCII")


def test_a_text_that_is_too_large_for_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadableError, match=r"maxRecordBytes.*Set wholeText=false"):
        _values(tmp_path, b"x\n" * 600, wholeText="true", maxRecordBytes="1000")
    assert len(_values(tmp_path, b"x\n" * 600)) == 600


def test_only_one_string_is_a_schema_of_text() -> None:
    for ddl in ("a STRING, b STRING", "a INT"):
        with pytest.raises(IncompatibleSchemaError, match="one column, a string"):
            _reader("text", ddl)


def test_rows_may_have_no_column_at_all(tmp_path: Path) -> None:
    options = CloudFilesOptions.parse({"cloudFiles.format": "text", "path": "/in"})
    reader = text_reader.TextReader(StructType(), options)
    [batch] = reader.read_file(_file(tmp_path, b"a\nb\nc\n"))
    assert (batch.num_rows, batch.num_columns) == (3, 0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lineSep": ""}, "lineSep must not be empty"),
        ({"lineSep": "x", "wholeText": "true"}, "Leave one of them out"),
        ({"encoding": "UTF-9"}, "no encoding of text"),
        ({"encoding": "UTF-8", "charset": "UTF-16"}, "two names of one option"),
        ({"wholeText": "perhaps"}, "wholeText"),
    ],
)
def test_bad_options_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        CloudFilesOptions.parse({"cloudFiles.format": "text", "path": "/in", **given})


@pytest.mark.parametrize("name", ["mode", "badRecordsPath", "readerCaseSensitive", "mergeSchema"])
def test_options_of_other_formats_are_refused_by_name(name: str) -> None:
    for fixed in ("text", "binaryFile"):
        with pytest.raises(UnsupportedOptionError, match=f"not of {fixed}"):
            CloudFilesOptions.parse({"cloudFiles.format": fixed, "path": "/in", name: "true"})


def test_only_lines_in_utf_8_are_read_in_parts() -> None:
    def splits(**given: str) -> bool:
        named = {"cloudFiles.format": "text", "path": "/in", **given}
        return CloudFilesOptions.parse(named).format_options.can_split()

    assert splits()
    assert splits(encoding="utf8", lineSep="x\n")
    assert not splits(lineSep="\n\n")  # of three line feeds it must be known which one was first
    assert not splits(encoding="latin1")
    assert not splits(wholeText="true")


# Binary files --------------------------------------------------------------------------------


def test_a_file_is_a_row_with_its_bytes_as_they_are(tmp_path: Path) -> None:
    content = gzip.compress(b"text")
    file = _file(tmp_path, content, "a b.gz")
    reader = _reader("binaryFile")
    [row] = _rows(reader, file)
    changed = row.pop("modificationTime")
    assert row == {"path": file.uri, "length": len(content), "content": content}
    assert changed == datetime.fromtimestamp(file.entry.modification_time_us // 10**6, UTC).replace(
        microsecond=file.entry.modification_time_us % 10**6
    )
    assert reader.counts.rows == 1
    assert _rows(reader, file, 5) == []  # the row of the part the file begins in


def test_an_empty_file_is_a_row_too(tmp_path: Path) -> None:
    [row] = _rows(_reader("binaryFile"), _file(tmp_path, b"", "empty"))
    assert (row["length"], row["content"]) == (0, b"")


def test_content_is_not_read_where_nobody_asks_for_it() -> None:
    store = MemoryStore("memory://nothing")  # has no such file: reading it would fail
    file = StoreFile(store, FileEntry("f", 2**40, 10**15))
    [row] = _rows(_reader("binaryFile", "length LONG, path STRING", rescuedDataColumn="_r"), file)
    assert row == {"length": 2**40, "path": file.uri, "_r": None}
    with pytest.raises(FileUnreadableError, match=f"{2**40} bytes, more than"):
        _rows(_reader("binaryFile"), file)


def test_other_columns_are_refused() -> None:
    for ddl in ("name STRING", "length INT", "content STRING"):
        with pytest.raises(IncompatibleSchemaError, match="Its columns are: path STRING"):
            _reader("binaryFile", ddl)
    assert binary_reader._MAX_CONTENT_BYTES == 2**31 - 1
