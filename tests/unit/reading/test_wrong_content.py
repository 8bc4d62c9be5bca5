"""A file of another format, or with a mistake in its first record, is recognized and named."""

from __future__ import annotations

import gzip
import io
import tarfile
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


def _tar(kind: int, mode: str = "w") -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode=mode, format=kind) as archive:  # type: ignore[call-overload]
        for name in ("a", "b"):
            member = tarfile.TarInfo(name)
            member.size = len(CONTENTS["json"])
            archive.addfile(member, io.BytesIO(CONTENTS["json"]))
    return sink.getvalue()


def _old_tar() -> bytes:
    """An archive from before there was a mark (Unix V7)."""
    header = bytearray(_tar(tarfile.USTAR_FORMAT))
    header[257:265] = bytes(8)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\x00 " % sum(header[:512])
    return bytes(header)


_PDF = b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n"
NO_TEXT = {
    "ustar": (_tar(tarfile.USTAR_FORMAT), "tar"),
    "gnu": (_tar(tarfile.GNU_FORMAT), "tar"),
    "pax": (_tar(tarfile.PAX_FORMAT), "tar"),
    "old": (_old_tar(), "tar"),
    "t.gz": (_tar(tarfile.GNU_FORMAT, "w:gz"), "tar"),
    "t.bz2": (_tar(tarfile.GNU_FORMAT, "w:bz2"), "tar"),
    "t.xz": (_tar(tarfile.GNU_FORMAT, "w:xz"), "tar"),
    "z": (CONTENTS["zip"], "zip"),
    "z.gz": (gzip.compress(CONTENTS["zip"]), "zip"),
    "p.gz": (gzip.compress(CONTENTS["parquet"]), "Parquet"),
    "seven": (b"7z\xbc\xaf\x27\x1c\x00\x04", "7z"),
    "d.pdf": (_PDF, "PDF"),
    "d.gz": (gzip.compress(_PDF), "PDF"),
    "i.png": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "PNG"),
    "i.jpg": (b"\xff\xd8\xff\xe0\x00\x10JFIF", "JPEG"),
    "s": (b"SQLite format 3\x00", "SQLite"),
}


@pytest.mark.parametrize("asked", ["csv", "json", "xml"])
@pytest.mark.parametrize("name", NO_TEXT)
def test_what_is_no_text_is_refused_by_its_bytes(tmp_path: Path, asked: str, name: str) -> None:
    content, kind = NO_TEXT[name]
    landing = Landing(asked, tmp_path)
    landing.put(name, content)
    with pytest.raises(FileUnreadableError, match=f"/{name} looks like a {kind} file"):
        landing.stream().run()
    (landing.source / name).unlink()
    landing.drop("1", RECORDS)
    stream = landing.stream()
    stream.run()
    landing.put(name, content)
    with pytest.raises(FileUnreadableError, match=f"/{name} looks like a {kind} file"):
        stream.run()
    assert landing.versions() == [0]


def test_what_is_compressed_twice_is_refused(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    landing.put("1.gz", gzip.compress(gzip.compress(CONTENTS["json"])))
    with pytest.raises(FileUnreadableError, match=r"/1.gz is compressed twice"):
        landing.stream().run()


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("asked", ["csv", "json", "xml"])
def test_wide_texts_without_a_mark_are_read(tmp_path: Path, asked: str, codec: str) -> None:
    landing = Landing(asked, tmp_path)
    landing.put("1", CONTENTS[asked].decode().replace("4", "é日").encode(codec))
    landing.put("2.gz", gzip.compress(CONTENTS[asked].decode().encode(codec)))
    rows = landing.stream().run()
    assert sorted((row["a"], row["b"]) for row in rows) == [
        *(("1", "2"), ("1", "2"), ("3", "4"), ("3", "é日"))
    ]
    assert {row["_rescued_data"] for row in rows} == {None}


@pytest.mark.parametrize("codec", ["UTF-16LE", "UTF-16BE"])
def test_a_wide_text_that_does_not_begin_with_ascii_is_named(tmp_path: Path, codec: str) -> None:
    landing = Landing("csv", tmp_path)
    landing.put("1", "日付,値\n2024,1\n".encode(codec))
    with pytest.raises(FileUnreadableError, match=f"Set encoding={codec}"):
        landing.stream().run()
    [row] = landing.stream(encoding=codec).run()
    assert row["値"] == "1"


def test_a_wide_text_is_no_null_of_a_variant(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    landing.put("1", CONTENTS["json"].decode().encode("utf-16-le"))
    rows = landing.stream(singleVariantColumn="v").run()
    assert [row["v"] is None for row in rows] == [False, False]
    assert {row["_rescued_data"] for row in rows} == {None}
