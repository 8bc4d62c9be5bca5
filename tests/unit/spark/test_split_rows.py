"""A row is a split only for the sink that a job told so, with the token of its query."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import OptionError, RunFailedError
from airflow_cloudfiles.engine.files import FileEntry, Offset
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.registry import FORMATS
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.tables.sink import DeltaLakeDataSource
from airflow_cloudfiles.engine.spark.tables.stream_writer import TaskWritten

TOKEN = split_rows.new_token()
DATA = StructType([StructField("a", StringType())])


class Touches:
    """Pickles as a command that creates a file."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._trace}",)


def _split(folder: str, *files: FileEntry, name: str = "json", **given: str) -> Split:
    given = {"cloudFiles.format": name, "rowTag": "r", **given}
    if name != "xml":
        del given["rowTag"]
    context = BatchContext(
        source_uri=f"file://{folder}",
        source_name=f"file://{folder}",
        state_uri=f"file://{folder}-state",
        schema_uri=None,
        schema_version=-1,
        data_schema=DATA.json(),
        partition_schema=StructType().json(),
        start=Offset(0, 0),
        end=Offset(1, 0),
        options=CloudFilesOptions.parse(given, path=folder),
    )
    ranges = (FileRange(file, 0, file.size // 2 or None) for file in files)
    return Split(context, tuple(ranges))


@pytest.mark.parametrize("name", FORMATS)
def test_a_split_of_every_format_is_read_as_it_was_written(name: str) -> None:
    given = {"modifiedAfter": "2024-01-01", "pathGlobFilter": "*.x", "partitionColumns": "a"}
    given["cloudFiles.partitionColumns"] = given.pop("partitionColumns") + ",b"
    split = _split("/in", FileEntry("a/b", 10, 2, "e"), FileEntry("c", 0, 3), name=name, **given)
    assert split_rows.decode(split_rows.encode(split, TOKEN), TOKEN) == split


@pytest.mark.law
@given(st.binary(min_size=1, max_size=40), st.integers(0, 2**62), st.integers(0, 2**62))
def test_any_path_survives(path: bytes, size: int, time: int) -> None:
    split = _split("/in", FileEntry(os.fsdecode(path), size, time))
    assert split_rows.decode(split_rows.encode(split, TOKEN), TOKEN) == split


def test_a_row_holds_no_token() -> None:
    split = _split("/in", FileEntry("a", 1, 2))
    options = replace(split.context.options, split_token=TOKEN, token="/tmp/handed-over")
    split = replace(split, context=replace(split.context, options=options))
    row = split_rows.encode(split, TOKEN)
    assert TOKEN.encode() not in row
    assert b"handed-over" not in row
    assert TOKEN not in repr(options)
    assert "token" in split_rows.SPLIT_TOKEN.lower()  # as Spark's `spark.redaction.regex` says


SIGNED = split_rows.encode(_split("/in", FileEntry("a", 1, 2)), TOKEN)


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"{}",
        SIGNED.partition(b"{")[2],
        SIGNED.replace(b'"a"', b'"b"'),
        SIGNED[:-1],
        SIGNED + b" ",
        split_rows.encode(_split("/in", FileEntry("a", 1, 2)), split_rows.new_token()),
    ],
)
def test_a_row_that_was_not_signed_with_the_token_is_refused(row: bytes) -> None:
    with pytest.raises(RunFailedError, match="not written by the source of this query"):
        split_rows.decode(row, TOKEN)


def test_a_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with pytest.raises(RunFailedError):
        split_rows.decode(pickle.dumps(Touches(trace)), TOKEN)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [("schema_version", "0"), ("source_uri", None), ("start", {"entry": []}), ("options", [])],
)
def test_a_signed_split_of_other_types_is_refused(field: str, value: object) -> None:
    version, _, body = SIGNED.split(b" ", 2)
    written = json.loads(body)
    written["context"][field] = value
    body = json.dumps(written).encode()
    row = b" ".join((version, split_rows._signature(body, TOKEN), body))
    with pytest.raises(RunFailedError, match="cannot be read"):
        split_rows.decode(row, TOKEN)


@pytest.mark.parametrize("name", ["__cloudfiles_split", split_rows.SPLIT_SCHEMA.fieldNames()[0]])
def test_a_binary_column_of_any_name_is_a_column_to_the_sink(name: str, tmp_path: Path) -> None:
    trace, target = tmp_path / "trace", tmp_path / "table"
    schema = StructType([StructField(name, BinaryType())])
    options = {"path": str(target), "txnAppId": "app"}
    writer = DeltaLakeDataSource(options).streamWriter(schema, overwrite=False)
    payloads = [pickle.dumps(Touches(trace)), SIGNED]
    rows = pa.RecordBatch.from_arrays([pa.array(payloads, pa.binary())], [name])
    written = writer.write(iter([rows]))
    assert isinstance(written, TaskWritten)
    writer.commit([written], 0)
    assert not trace.exists()
    table = DeltaTable(str(target)).to_pyarrow_dataset().to_table()
    assert table.column(name).to_pylist() == payloads


@pytest.mark.parametrize(
    ("token", "schema"),
    [("splits", split_rows.SPLIT_SCHEMA), ("A" * 64, split_rows.SPLIT_SCHEMA), (TOKEN, DATA)],
    ids=["a word", "capitals", "rows of another schema"],
)
def test_the_sink_refuses_a_token_that_no_job_set(token: str, schema: StructType) -> None:
    options = {"path": "/table", split_rows.SPLIT_TOKEN: token}
    with pytest.raises(OptionError, match="set by this package itself"):
        DeltaLakeDataSource(options).streamWriter(schema, overwrite=False)


@pytest.mark.parametrize("option", ["cloudFiles.internal.splitToken", "CLOUDFILES.INTERNAL.token"])
def test_a_job_refuses_internal_options(option: str) -> None:
    with pytest.raises(OptionError, match="set by this package itself"):
        JobSpec(
            kind="ingest",
            source="/in",
            format="json",
            checkpoint_location="/state",
            run_id="r",
            target="/table",
            options={option: "x"},
        )
