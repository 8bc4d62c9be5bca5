"""How many Python processes a Spark Connect server has after many runs, however it was started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.connect_server import ConnectServer, ConnectStream, each_once, ids, land
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FEW, MORE = 3, 7
LACKS = "was started without spark.python.daemon.module"


def test_more_runs_add_no_process_and_the_daemon_of_an_idle_session_ends(
    plain_server: ConnectServer, stream: ConnectStream
) -> None:
    """The session is of somebody who has not turned the isolation of artifacts off."""
    from pyspark.sql.connect.session import SparkSession

    before = pids(plain_server)
    made: Any = SparkSession.builder.remote(plain_server.remote)
    spark = made.create()
    try:
        work(spark)
        own = pids(plain_server) - before
        assert own
        few = after(FEW, plain_server, stream) - own
        assert len(after(MORE, plain_server, stream) - own) <= len(few)
        assert LACKS not in "\n".join(stream.log)
        # Spark ends idle workers after a minute, and their daemon ends when it has none.
        until(lambda: not own & pids(plain_server), every=1)
        work(spark)
    finally:
        spark.stop()


def test_more_runs_add_no_process_to_a_server_that_lacks_the_configuration_and_each_says_so(
    tmp_path: Path, stream: ConnectStream
) -> None:
    with ConnectServer(tmp_path / "server", python=sys.executable, is_bare=True) as server:
        few = after(FEW, server, stream)
        assert len(after(MORE, server, stream)) <= len(few)
        land(stream, 1, first=MORE)
        stream.log.clear()
        report = stream.run(server.remote)
    assert [LACKS in warning for warning in report["warnings"]] == [True]
    assert sum(LACKS in line for line in stream.log) == 1


def after(count: int, server: ConnectServer, stream: ConnectStream) -> set[int]:
    """The processes after so many runs in all, each of which has read a file."""
    done = len(list(stream.source.iterdir()))
    for number in range(done, count):
        land(stream, 1, first=number)
        stream.run(server.remote)
    assert ids(stream) == each_once(count)
    return pids(server)


def pids(server: ConnectServer) -> set[int]:
    """The server's Python processes."""
    return {each.pid for each in server.pythons()}


def work(spark: Any) -> None:
    """Have Spark run Python."""
    found = spark.range(0, 4, 1, 2).mapInArrow(lambda batches: batches, "id bigint").collect()
    assert [row.id for row in found] == [0, 1, 2, 3]
