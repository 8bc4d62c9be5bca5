"""A driver that is killed while it has a server start its query: each row is there once."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import RunFailedError
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import QueryState
from airflow_cloudfiles.engine.job.launch import launch
from airflow_cloudfiles.engine.job.spark_command import SparkConnect
from tests.support.connect_server import ConnectServer, each_once, ids, land, until
from tests.support.crash_points import QUERY_POINTS

pytestmark = [pytest.mark.spark, pytest.mark.slow]
FILES = 8


@pytest.fixture
def server(plain_server: ConnectServer) -> ConnectServer:
    """The one whose processes can be found."""
    return plain_server


@pytest.mark.parametrize("point", QUERY_POINTS)
def test_the_next_try_finds_the_query_of_a_killed_driver_and_each_row_is_there_once(
    server, stream, monkeypatch, point
):
    land(stream, FILES)
    how = SparkConnect(server.remote)
    spec = stream.spec(leave_after_seconds=10.0)
    with monkeypatch.context() as patch:
        patch.setenv(CRASH_AT, point)
        with pytest.raises(RunFailedError, match="137"):
            launch(spec, how, on_log=stream.log.append).wait()

    noted = left_query.newest_query(stream.store())
    assert noted.run_id == spec.run_id
    found = left_query.started(how, noted.query)
    assert (found is None) == (point == "before-query-start")

    # Another run is not refused: it waits for the query of the killed one.
    if found is not None:
        processes = server.pythons("foreach_batch_worker")
        other = stream.spec(leave_after_seconds=0.2)
        for each in processes:
            each.suspend()
        try:
            left = launch(other, how, on_log=stream.log.append).wait()
        finally:
            for each in processes:
                each.resume()
        assert (left["outcome"], left["query"]["run_id"]) == ("left", found.run_id)

    reports = []

    def is_over():
        reports.append(launch(spec, how, on_log=stream.log.append).wait())
        return reports[-1]["outcome"] == "succeeded"

    until(is_over)
    assert ids(stream) == each_once(FILES)
    assert reports[-1]["rows"] == 3 * FILES
    assert not list(stream.store().list("_source/left"))
    if found is not None:
        until(lambda: left_query.state_of(how, found) is not QueryState.ACTIVE)
    until(lambda: not server.pythons("foreach_batch_worker"))
    land(stream, 1, first=FILES)
    assert stream.run(server.remote)["rows"] == 3  # no lock is left
