"""Files on an SFTP server go into a table with their new columns, through Spark's own processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles import UnknownFieldException
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.landing import rows, run, stream
from tests.support.sftp_servers import FaultyServer, faulty
from tests.support.shared_spark import with_variables


@pytest.fixture
def server(spark: SparkSession, tmp_path: Path) -> Iterator[FaultyServer]:
    """A server for which every process of the session has the credentials."""
    with (
        faulty(tmp_path / "server") as found,
        with_variables(spark, to_environment(found.served.access)),
    ):
        yield found


def _drop(server: FaultyServer, name: str, *records: object) -> None:
    path = Path(os.fsdecode(os.fsencode(str(server.folder)) + b"/" + os.fsencode(name)))
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in records))


def test_json_on_a_server_goes_into_a_table_with_its_new_columns(
    spark: SparkSession, server: FaultyServer, tmp_path: Path
) -> None:
    state, target = tmp_path / "state", tmp_path / "table"
    source = server.served.location + "inbox"
    _drop(server, "inbox/a b#%.json", {"a": 1})
    _drop(server, "inbox/\udcff.json", {"a": 2})
    move = {
        "cloudFiles.cleanSource": "MOVE",
        "cloudFiles.cleanSource.retentionDuration": "0 seconds",
        "cloudFiles.cleanSource.moveDestination": server.served.location + "done",
    }
    run(stream(spark, source, state, **move), state, target)
    _drop(server, "inbox/b.json", *({"a": number, "currency": "CHF"} for number in range(3, 2000)))
    with pytest.raises(UnknownFieldException, match="currency"):  # B46
        run(stream(spark, source, state, **move), state, target)
    server.faults.cut_after = 2  # of three
    run(stream(spark, source, state, **move), state, target)
    assert server.faults.cuts == 1
    found = rows(target)
    assert sorted(int(each["a"]) for each in found) == list(range(1, 2000))
    assert {each["currency"] for each in found} == {None, "CHF"}
