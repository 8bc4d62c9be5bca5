"""Runs from a Delta table on a Spark Connect server, whose checkpoint is in the state."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import BlockedSchemaChangeError, TableEvolvedError
from airflow_cloudfiles.engine.job.launch import LocalPython, launch
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state import spark_checkpoint
from tests.support.connect_server import ConnectServer, ConnectStream
from tests.support.emulators.aws import Aws
from tests.support.landing import rows
from tests.support.table_streams import GrowingTable

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class FromTable(ConnectStream):
    """Runs that read a table."""

    def spec(self, kind: Any = "ingest", **more: Any) -> JobSpec:
        """What the next run is to do."""
        return dataclasses.replace(super().spec(kind, **more), format="delta")

    def ids(self) -> list[int]:
        """The rows of the target."""
        return sorted(row["a"] for row in rows(self.target))


def test_a_table_is_the_source_of_a_run_on_a_server_and_of_one_without(
    server: ConnectServer, tmp_path: Path
) -> None:
    stream = FromTable(tmp_path, maxFilesPerTrigger="1")
    table = GrowingTable(stream.source, "a", "b")
    table.append(1)
    table.append(2)
    report = stream.run(server.remote)
    assert (report["rows"], report["batches"], report["source_version"]) == (2, 2, 2)
    table.append(3)
    assert launch(stream.spec(), LocalPython(), on_log=stream.log.append).wait()["rows"] == 1
    table.append(4)
    assert stream.run(server.remote)["rows"] == 1
    assert stream.run(server.remote)["batches"] == 0
    assert stream.ids() == [1, 2, 3, 4]
    assert spark_checkpoint.numbers(stream.store(), "commits") == [0, 1, 2, 3]

    version = table.rename("b", "c")
    table.append(5)
    with pytest.raises(TableEvolvedError):
        stream.run(server.remote)
    with pytest.raises(BlockedSchemaChangeError):
        stream.run(server.remote)
    stream.options["allowSourceColumnRename"] = str(version)
    assert stream.run(server.remote)["rows"] == 1
    assert stream.ids() == [1, 2, 3, 4, 5]


def test_the_checkpoint_is_in_a_store_that_the_server_cannot_reach(
    server: ConnectServer, tmp_path: Path, aws: Aws
) -> None:
    stream = FromTable(tmp_path, aws.access)
    stream.checkpoint_location = f"{aws.bucket()}/streams/silver"
    table = GrowingTable(stream.source, "a")
    for value in (1, 2):
        table.append(value)
        assert stream.run(server.remote)["rows"] == 1
    assert stream.ids() == [1, 2]
    assert spark_checkpoint.numbers(stream.store(), "commits") == [0, 1]
