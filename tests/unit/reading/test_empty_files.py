"""A file without a row adds no row, and fails nothing: empty ones, and ones with a schema only."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from airflow_cloudfiles.engine.errors import FileUnreadableError, SchemaInferenceError
from tests.unit.stream.test_every_format import WRITERS, Landing

COLUMNS = pa.schema([("a", pa.string())])


def _written(write: object) -> bytes:
    sink = io.BytesIO()
    write(pa.Table.from_pylist([], COLUMNS), sink)  # type: ignore[operator]
    return sink.getvalue()


def _avro() -> bytes:
    sink = io.BytesIO()
    fields = [{"name": "a", "type": ["null", "string"]}]
    fastavro.writer(sink, {"type": "record", "name": "row", "fields": fields}, [])
    return sink.getvalue()


WITHOUT_ROWS = {
    "json": b"\n",
    "csv": b"a\n",
    "xml": b"<rows></rows>",
    "parquet": _written(pyarrow.parquet.write_table),
    "orc": _written(pyarrow.orc.write_table),
    "avro": _avro(),
}
FILES = [
    *((name, b"") for name in WRITERS),
    *WITHOUT_ROWS.items(),
    *((name, gzip.compress(b"", mtime=0)) for name in ("json", "csv", "xml")),
]


@pytest.mark.slow
@pytest.mark.parametrize("comes", ["first", "later"])
@pytest.mark.parametrize(("name", "content"), FILES)
def test_a_file_without_a_row_adds_no_row_and_fails_nothing(
    tmp_path: Path, name: str, content: bytes, comes: str
) -> None:
    landing = Landing(name, tmp_path)
    landing.drop("1", [{"a": "x"}])
    stream = landing.stream()
    if comes == "later":
        stream.run()
    landing.put("2.gz" if content.startswith(b"\x1f\x8b") else "2", content)
    landing.drop("3", [{"a": "y"}])
    stream.run()
    assert sorted(row["a"] for row in stream.rows) == ["x", "y"]
    assert sum(each.fetched.files for each in stream.counts) == (2 if comes == "later" else 3)
    assert sum(each.fetched.corrupt_files for each in stream.counts) == 0
    assert landing.versions() == [0]


@pytest.mark.parametrize("name", WRITERS)
def test_a_sample_of_empty_files_is_nothing_to_infer_from(tmp_path: Path, name: str) -> None:
    landing = Landing(name, tmp_path)
    for number in range(3):
        landing.put(str(number), b"")
    with pytest.raises(SchemaInferenceError, match=r"Each of the 3 sampled files.* is empty"):
        landing.stream().run()


@pytest.mark.parametrize("name", ["parquet", "orc", "avro"])
def test_a_file_that_was_cut_off_is_not_an_empty_one(tmp_path: Path, name: str) -> None:
    landing = Landing(name, tmp_path)
    content = landing.drop("1", [{"a": "x"}]).read_bytes()
    stream = landing.stream()
    stream.run()
    landing.put("2", content[:1])
    with pytest.raises(FileUnreadableError, match="/2 cannot be read as"):
        stream.run()


@pytest.mark.parametrize(("name", "rows"), [("text", 0), ("binaryFile", 1)])
def test_an_empty_text_has_no_line_and_an_empty_binary_file_is_a_row(
    tmp_path: Path, name: str, rows: int
) -> None:
    landing = Landing(name, tmp_path)
    landing.put("1", b"")
    assert len(landing.stream(**{"cloudFiles.partitionColumns": ""}).run()) == rows
