"""A table lacks batches of a stream from another table, and the error says how to go on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructField, StructType

from airflow_cloudfiles.engine.errors import LostBatchesError
from airflow_cloudfiles.engine.extensions.replay import replay
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import target_table
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta_table import DeltaTargetTable
from tests.support.table_streams import GrowingTable, Query

A = StructType([StructField("a", LongType())])


class Silver:
    """A stream from a table into another one, as a run makes it, without Spark."""

    def __init__(self, folder: Path, source: GrowingTable, name: str = "1", **options: str) -> None:
        self.state, self.target = folder / name, folder / "silver"
        self.query = Query(source.folder, self.state / "x", **options)
        for log in ("offsets", "commits"):
            (self.state / log).mkdir(parents=True)
        (self.state / "metadata").write_text(json.dumps({"id": str(uuid5(NAMESPACE_URL, name))}))

    def run(self) -> None:
        """Ingest what is new, batch by batch."""
        self.query.start()
        while self.query.plan():
            batch = len(self.query.offsets) - 1
            self.query.execute()
            lines = ("v1", "{}", json.dumps(self.query.offsets[batch]))
            (self.state / "offsets" / str(batch)).write_text("\n".join(lines))
            options, state = SinkOptions.read({}), str(self.state)
            writer = DeltaTargetTable(str(self.target)).writer(options, state=state, schema=A)
            rows = pa.RecordBatch.from_pylist(
                self.query.batches[batch], pa.schema({"a": pa.int64()})
            )
            writer.commit([writer.write_rows(iter([rows]))], batch)
            (self.state / "commits" / str(batch)).write_text("v1\n{}")

    def check(self) -> None:
        """What a run does before it starts Spark."""
        target_table(str(self.target)).check_before_run(open_store(str(self.state)))

    def rows(self) -> list[int]:
        return sorted(DeltaTable(self.target).to_pyarrow_table()["a"].to_pylist())


@pytest.fixture
def source(tmp_path: Path) -> GrowingTable:
    """Version 0 made the table, the versions 1 and 2 have a file each."""
    found = GrowingTable(tmp_path / "bronze", "a")
    found.append(1)
    found.append(2)
    return found


@pytest.fixture
def silver(tmp_path: Path, source: GrowingTable) -> Silver:
    """Its batch 0 has the versions 1 and 2, batch 1 version 3, batch 2 version 4."""
    found = Silver(tmp_path, source)
    found.run()
    for value in (3, 4):
        source.append(value)
        found.run()
    assert found.rows() == [1, 2, 3, 4]
    return found


def test_the_versions_of_lost_batches_are_read_again_as_the_error_says(
    silver: Silver, source: GrowingTable, tmp_path: Path
) -> None:
    DeltaTable(silver.target).restore(2)
    assert silver.rows() == [1, 2, 3]
    with pytest.raises(LostBatchesError) as told:
        silver.check()
    message = told.value.message
    assert "lacks batch 2" in message
    assert "or ingest the batches again with: cloudfiles replay" not in message
    assert "--from-batch 2 --accept-loss" in message
    found = re.search(r"new checkpoint location and startingVersion=(\d+)", message)
    assert found is not None
    again = Silver(tmp_path, source, "2", startingversion=found[1])
    source.append(5)
    again.run()
    assert again.rows() == [1, 2, 3, 4, 5]


def test_a_stream_goes_on_without_the_batches_that_were_given_up(
    silver: Silver, source: GrowingTable
) -> None:
    DeltaTable(silver.target).restore(2)
    spec = JobSpec(
        kind="replay",
        source=str(silver.state),
        format="json",
        checkpoint_location=str(silver.state),
        target=str(silver.target),
        replay={"from_batch": 2, "accept_loss": True},
        run_id="r",
    )
    assert replay(spec)["batches"] == [2]
    silver.check()
    source.append(5)
    silver.run()
    assert silver.rows() == [1, 2, 3, 5]


def _all(silver: Silver) -> None:
    for path in (silver.target / "_delta_log").iterdir():
        path.unlink()


def _forgotten(silver: Silver) -> None:
    """Spark keeps the offsets of 100 batches."""
    DeltaTable(silver.target).restore(2)
    (silver.state / "offsets" / "1").unlink()


@pytest.mark.parametrize(
    ("lose", "what"),
    [
        (_all, "from where the stream began, with a new checkpoint location"),
        (_forgotten, "into a new table: no version begins with batch 2;"),
    ],
)
def test_where_no_version_begins_with_the_batches_all_is_read_again(
    silver: Silver, lose: Callable[[Silver], None], what: str
) -> None:
    lose(silver)
    with pytest.raises(LostBatchesError, match=what):
        silver.check()


def test_a_batch_that_begins_in_the_middle_of_a_version_is_not_read_twice(
    tmp_path: Path, source: GrowingTable
) -> None:
    silver = Silver(tmp_path, source, maxFilesPerTrigger="1")
    silver.run()  # batch 0 has one of the two files of the initial snapshot
    DeltaTable(silver.target).restore(1)
    with pytest.raises(LostBatchesError, match="which begins in the middle of version 2"):
        silver.check()
