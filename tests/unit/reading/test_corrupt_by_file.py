"""Corrupt records are counted for the file that has them, in every format that has such records."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.files import START, FileEntry, Offset
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.split_reader import SplitReader
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.storage import open_store

A = "a LONG"
FILES = {
    "json": (A, b'{"a": 1}\n{"b"\n{\n', b'{"a": 2}\n'),
    "csv": ("a STRING", b"a\n1\n\xff\n\xfe\n", b"a\n1\n"),
    "xml": (A, b"<t><r><a>1</a></r><r><b></r><r><c></r></t>", b"<t><r><a>1</a></r></t>"),
    "text": ("value STRING", b"good\n\xff\n\xfe\n", b"good\n"),
}


@pytest.mark.parametrize("options", [{}, {"mode": "DROPMALFORMED"}], ids=str)
@pytest.mark.parametrize("name", FILES)
def test_the_files_of_corrupt_records_are_known(
    tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    columns, bad, good = FILES[name]
    files = []
    for path, content in (("good 1", good), ("bad", bad), ("good 2", good)):
        (tmp_path / path).write_bytes(content)
        files.append(FileRange(FileEntry(path, len(content), 1)))
    given = {"cloudFiles.format": name, "rescuedDataColumn": "_rescued_data"}
    given |= {"rowTag": "r"} if name == "xml" else {}
    given |= {"header": "true"} if name == "csv" else {}
    given |= options if name != "text" else {}
    context = BatchContext(
        source_uri=str(tmp_path),
        source_name=str(tmp_path),
        state_uri="",
        schema_uri=None,
        schema_version=-1,
        data_schema=parse_schema(columns).json(),
        partition_schema=StructType().json(),
        start=START,
        end=Offset(1, 0),
        options=CloudFilesOptions.parse(given, path=str(tmp_path)),
    )
    reader = SplitReader(Split(context, tuple(files)))
    assert list(reader.read())
    found = reader.corrupt_by_file
    assert found.total() == reader.counts.corrupt_records > 0
    assert set(found) == {open_store(str(tmp_path)).child_uri("bad")}
