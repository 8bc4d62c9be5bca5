"""A file of another format, or with a mistake in its first record, is recognized and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import FileUnreadableError, SchemaInferenceError
from tests.unit.stream.test_every_format import WRITERS, Landing

RECORDS = [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
NAMES = {
    "json": "JSON",
    "csv": "CSV",
    "excel": "Excel",
    "xml": "XML",
    "parquet": "Parquet",
    "orc": "ORC",
    "avro": "Avro",
    "html": "HTML",
    "zip": "zip",
}
CONTENTS = {name: write(RECORDS) for name, write in WRITERS.items()} | {
    "html": b"<!DOCTYPE html>\n<html><body>Not found</body></html>",
    "zip": b"PK\x03\x04\x14\x00\x00\x00\x08\x00",
}
BINARY = {"excel", "parquet", "orc", "avro", "zip"}
PAIRS = [(asked, found) for asked in WRITERS for found in CONTENTS if asked != found]


@pytest.mark.parametrize(("asked", "found"), PAIRS)
def test_inference_names_the_file_and_its_format(tmp_path: Path, asked: str, found: str) -> None:
    landing = Landing(asked, tmp_path)
    landing.put("1", CONTENTS[found])
    with pytest.raises((FileUnreadableError, SchemaInferenceError)) as caught:
        landing.stream().run()
    message = caught.value.message
    assert f"looks like a{'n' if NAMES[found][0] in 'AEHOX' else ''} {NAMES[found]} file" in message
    assert ("/1 " in message) or ("(such as 1)" in message)
    if found in WRITERS:
        assert f"Set cloudFiles.format={found}." in message
    assert len(message) < 500


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "found"), PAIRS)
def test_a_file_of_another_format_is_not_read_as_columns(
    tmp_path: Path, asked: str, found: str
) -> None:
    landing = Landing(asked, tmp_path)
    landing.drop("1", [{"a": "1"}])
    stream = landing.stream(ignoreCorruptFiles="true")
    stream.run()
    landing.put("2", CONTENTS[found])
    rows = stream.run()
    assert landing.versions() == [0]
    assert all(row["a"] is None for row in rows), "kept as a corrupt record"
    refuses = asked not in {"json", "xml"} or found in BINARY
    assert sum(each.fetched.corrupt_files for each in stream.counts) == refuses
    if refuses:
        del stream.given["ignoreCorruptFiles"]
        landing.put("3", CONTENTS[found])
        with pytest.raises(FileUnreadableError, match=f"/3 looks like .*{NAMES[found]}"):
            stream.run()


@pytest.mark.parametrize(
    ("name", "content", "options", "says"),
    [
        ("json", '{"a": 1,}\n', {}, r"comma stands before a closing bracket \(line 1, character"),
        ("json", "\n\n{'a': b}\n", {}, r"not valid JSON: .* \(line 3"),
        ("json", '{\n "a": 1\n}\n', {}, "Set multiLine=true|set multiLine=true"),
        ("json", '{\n "a": 1,\n}', {"multiLine": "true"}, r"comma stands .*\(line 3"),
        ("json", "[]\n", {}, "lacks a JSON object with a field"),
        ("xml", "<rows><row>&nbsp;</row></rows>", {}, "undefined entity.*&#160;"),
        ("xml", "<rows><row><a>1</b></row></rows>", {}, "not well-formed XML: mismatched tag"),
        ("xml", "<books><book><a>1</a></book></books>", {}, "Elements there are books, book, a:"),
        ("csv", "\n", {}, "lacks a line of CSV"),
    ],
)
def test_a_mistake_in_the_first_record_is_named(
    tmp_path: Path, name: str, content: str, options: dict[str, str], says: str
) -> None:
    landing = Landing(name, tmp_path)
    landing.put("1", content.encode())
    with pytest.raises(SchemaInferenceError, match=says) as caught:
        landing.stream(**options).run()
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("PAR1,ORC\n1,2\n", ["PAR1", "ORC"]),
        ("ORC\n1\n", ["ORC"]),
        ("<OPEN>,<HIGH>\n1,2\n", ["<OPEN>", "<HIGH>"]),
        ("{id},name\n1,2\n", ["{id}", "name"]),
    ],
)
def test_an_odd_header_is_a_header(tmp_path: Path, content: str, columns: list[str]) -> None:
    landing = Landing("csv", tmp_path)
    landing.put("1", content.encode())
    [row] = landing.stream().run()
    assert list(row)[:-1] == columns
