"""The stream reader works in the processes that Spark sends it to, without a Spark here."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles
from pyspark.sql.types import LongType, StructField, StructType

from airflow_cloudfiles.engine.errors import OptionError, StaleSchemaError, TableEvolvedError
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.tables.sink import DeltaDataSource
from airflow_cloudfiles.engine.spark.tables.stream_reader import (
    IS_STREAM,
    TOKEN,
    DeltaTableStreamReader,
)
from tests.support.table_streams import GrowingTable


@pytest.fixture
def table(tmp_path: Path) -> GrowingTable:
    found = GrowingTable(tmp_path / "t", "a")
    found.append(1)
    found.append(2)
    return found


def loaded(table: GrowingTable, **options: Any) -> DeltaTableStreamReader:
    """A reader in the planning process, as `load()` and `start()` send it there."""
    given = {"path": str(table.folder), IS_STREAM: "true", **options}
    source = DeltaDataSource(given)  # type: ignore[arg-type]
    schema = source.schema()
    there: DeltaDataSource = pickle.loads(pickle.dumps(source))
    return there.streamReader(schema)


def rows(reader: DeltaTableStreamReader, start: Any, end: Any) -> list[Any]:
    """What the tasks of a micro-batch read."""
    found = []
    for part in reader.partitions(start, end):
        there, sent = pickle.loads(pickle.dumps((reader, part)))
        found += [row for batch in there.read(sent) for row in batch.to_pylist()]
    return found


def test_a_micro_batch_is_planned_here_and_read_elsewhere(table: GrowingTable) -> None:
    reader = loaded(table, maxFilesPerTrigger="1")
    assert reader.getDefaultReadLimit() == ReadMaxFiles(1)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxFiles(1))
    assert rows(reader, start, first) == [{"a": 1}]
    second = reader.latestOffset(first, ReadAllAvailable())
    assert rows(reader, first, second) == [{"a": 2}]
    assert reader.latestOffset(second, ReadMaxFiles(1)) == second
    assert reader.reportLatestOffset() == second
    assert reader.partitions(second, second) == []
    reader.commit(second)
    reader.stop()


def test_columns_of_a_stream_are_nullable_and_those_of_a_batch_are_the_tables(
    table: GrowingTable,
) -> None:
    table.evolve(lambda columns: columns[0].update(nullable=False))
    options = {"path": str(table.folder)}
    batch = DeltaDataSource(options).schema()  # type: ignore[arg-type]
    stream = DeltaDataSource({**options, IS_STREAM: "true"}).schema()  # type: ignore[arg-type]
    assert batch == StructType([StructField("a", LongType(), nullable=False)])
    assert stream == StructType([StructField("a", LongType())])
    [read] = {batch.schema for batch in _batches(loaded(table))}
    assert read == pa.schema([pa.field("a", pa.int64())])


def _batches(reader: DeltaTableStreamReader) -> list[pa.RecordBatch]:
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    return [batch for part in reader.partitions(start, end) for batch in reader.read(part)]


def test_where_the_checkpoint_is_comes_from_start_or_from_an_option(
    table: GrowingTable, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    tracking = {"schemaTrackingLocation": str(checkpoint / "schemas")}
    with pytest.raises(OptionError, match="does not know its checkpoint location"):
        loaded(table, **tracking).initialOffset()
    given = loaded(table, checkpointLocation=str(checkpoint), **tracking)
    given.latestOffset(given.initialOffset(), ReadAllAvailable())
    [log] = (checkpoint / "schemas").iterdir()
    assert f"file:{checkpoint}/sources/0" in (log / "0").read_text()
    (log / "0").unlink()

    token = handoff.new_token()
    reader = loaded(table, **{TOKEN: token}, **tracking)
    place = {"checkpoint": str(checkpoint), "ordinal": 1, "settings": {}, "mirror": None}
    handoff.put(token, place)
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert handoff.is_received(token)
    assert f"file:{checkpoint}/sources/1" in (log / "0").read_text()


def test_a_reader_that_was_defined_before_a_change_is_refused(
    table: GrowingTable, tmp_path: Path
) -> None:
    options = {
        "checkpointLocation": str(tmp_path),
        "schemaTrackingLocation": str(tmp_path / "schemas"),
    }
    reader = loaded(table, **options)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    table.add("b", 2)
    barrier = reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(TableEvolvedError):
        reader.latestOffset(barrier, ReadAllAvailable())
    reader.stop()
    with pytest.raises(StaleSchemaError):
        reader.latestOffset(barrier, ReadAllAvailable())
    again = loaded(table, **options)
    assert again.latestOffset(barrier, ReadAllAvailable())["index"] == -1


def test_options_of_a_batch_and_a_schema_of_ones_own_are_refused(table: GrowingTable) -> None:
    with pytest.raises(OptionError, match="versionasof is an option of batch reads"):
        loaded(table, versionAsOf="1")
    source = DeltaDataSource({"path": str(table.folder)})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"leave out schema\(\.\.\.\)"):
        source.streamReader(StructType([StructField("a", LongType())]))
