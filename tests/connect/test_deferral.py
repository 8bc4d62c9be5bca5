"""A task that defers while its query goes on: nothing is lost, doubled or shown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from airflow_cloudfiles.engine.errors import (
    SparkUnreachableError,
    StateLockedError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery, QueryState
from airflow_cloudfiles.engine.job.spark_command import SparkConnect
from tests.support.connect_server import (
    ConnectServer,
    ConnectStream,
    Wire,
    each_once,
    ids,
    land,
    until,
)
from tests.support.landing import rows

pytest.importorskip("airflow.sdk")

from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.operators.spark_job import TaskDeferralTimeout
from airflow_cloudfiles.triggers import spark_connect
from airflow_cloudfiles.triggers.spark_connect import SparkConnectQueryTrigger

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.airflow]

SMALL = {"cloudFiles.maxFilesPerTrigger": "1"}
MANY = 8
"""Micro-batches that no machine commits in the time after which a driver leaves."""
AT_ONCE, LATE = 0.2, 300.0
TOKEN_FIELDS = {"query", "spark_conn_id", "spark_remote", "poke_interval", "is_own"}


@pytest.fixture
def server(plain_server: ConnectServer) -> ConnectServer:
    """The one whose processes can be found."""
    return plain_server


@pytest.fixture
def connect(monkeypatch):
    """Name a server by a connection, as Airflow's users do."""

    def named(server, name="server", port=None):
        given = {"conn_type": "spark_connect", "host": "localhost", "port": port or server.port}
        monkeypatch.setenv(
            f"AIRFLOW_CONN_{name.upper()}", json.dumps({**given, "password": server.token})
        )
        return name

    return named


def in_one_go(stream):
    """Let the next run have all that is left in one micro-batch."""
    stream.options = {**stream.options, "cloudFiles.maxFilesPerTrigger": "1000"}
    return stream


@contextlib.contextmanager
def held(server):
    """Have no query of a server go on: what plans its micro-batches stands still."""
    processes = server.pythons("foreach_batch_worker")
    assert processes
    for each in processes:
        each.suspend()
    try:
        yield
    finally:
        for each in processes:
            each.resume()


class Task:
    """A try of a task, driven as Airflow drives it."""

    def __init__(self, stream, name="ingest", try_number=1, **changes):
        self.operator = CloudFilesIngestOperator(
            task_id=name,
            source=str(stream.source),
            format="json",
            checkpoint_location=stream.checkpoint_location,
            target=stream.table,
            options=stream.options,
            **{"deferrable": True, "spark_conn_id": "server", "poke_interval": 0.1, **changes},
        )
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id=name, map_index=-1)
        ti.try_number, ti.start_date = try_number, datetime.now(tz=UTC)
        self.context = {"ti": ti}
        self.operator.leave_after_seconds = LATE

    def defer(self, event=None):
        """Begin, or come back, and leave at once; return what defers the task."""
        self.operator.leave_after_seconds = AT_ONCE
        begin = self.operator.execute if event is None else self.operator.execute_complete
        with pytest.raises(TaskDeferred) as caught:
            begin(self.context)
        self.operator.leave_after_seconds = LATE
        return caught.value

    def trigger(self):
        """Begin, and give the trigger, made again from what Airflow stores of it."""
        return stored(self.defer())

    def come_back(self, trigger):
        """Wait for the trigger and resume, until the task ends; return its report."""
        while True:
            event = asyncio.run(first(trigger))
            try:
                return self.operator.execute_complete(self.context, event.payload)
            except TaskDeferred as again:
                trigger = stored(again)

    def run(self):
        """Do all of it, without leaving."""
        return self.operator.execute(self.context)


def stored(deferred):
    """The trigger of a deferral, after its way through the database."""
    assert deferred.method_name == "execute_complete"
    path, arguments = deferred.trigger.serialize()
    assert path == f"{spark_connect.__name__}.SparkConnectQueryTrigger"
    assert set(arguments) == TOKEN_FIELDS
    return SparkConnectQueryTrigger(**json.loads(json.dumps(arguments)))


async def first(trigger):
    """The event of a trigger."""
    async with contextlib.aclosing(trigger.run()) as events:
        return await asyncio.wait_for(anext(events), 300)


def state(server, trigger):
    """What the server says of the query that a trigger waits for."""
    return left_query.state_of(SparkConnect(server.remote), LeftQuery(**trigger.query))


def test_a_deferred_run_ends_as_any_other_and_shows_no_token(
    server, stream, connect, tmp_path, capsys, caplog
):
    connect(server)
    land(stream, MANY)
    task = Task(stream)
    trigger = task.trigger()
    assert state(server, trigger) is QueryState.ACTIVE

    wire = Wire(server.port)
    try:
        other = SparkConnectQueryTrigger(
            **{**trigger.serialize()[1], "spark_conn_id": connect(server, "wire", wire.port)}
        )
        wire.cut()

        async def both():
            # Two triggers wait at once; the way of one is cut for a while.
            waiting = [asyncio.create_task(first(each)) for each in (trigger, other)]
            await asyncio.to_thread(until, lambda: "does not" in caplog.text)
            wire.mend()
            return await asyncio.gather(*waiting)

        with caplog.at_level(logging.WARNING), pytest.MonkeyPatch.context() as patch:
            patch.setattr(left_query, "CONNECT_SECONDS", 0.5)
            events = asyncio.run(both())
    finally:
        wire.close()
    assert [event.payload for event in events] == [{"query": "ended"}] * 2

    report = task.operator.execute_complete(task.context, events[0].payload)
    counted = ("outcome", "files", "rows", "batches", "batches_recovered", "schema_version")
    assert [report[name] for name in counted] == ["succeeded", MANY, 3 * MANY, MANY, 0, 0]
    assert (report["evolved_ahead"], report["schema"][:3]) == (False, "id ")
    assert report["discovery"]["new_files"] == MANY
    assert report["durations"]["query_seconds"] > 0
    assert json.loads(json.dumps(report)) == report
    assert ids(stream) == each_once(MANY)
    assert not list(stream.store().list("_source/left"))
    until(lambda: state(server, trigger) is QueryState.UNKNOWN)  # its session was released

    said = capsys.readouterr()
    assert f"Batch {MANY - 1}: 1 file," in said.out + said.err + caplog.text
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(server.token.encode() in content for content in written)
    shown = (said.out, said.err, caplog.text, repr(trigger), repr(events), json.dumps(report))
    assert not any(server.token in text for text in shown)


def test_a_new_column_in_the_deferred_query_fails_the_task_by_name_and_the_retry_has_it(
    server, stream, connect
):
    connect(server)
    land(stream, 1)
    stream.run(server.remote)
    land(stream, MANY - 2, first=1)
    land(stream, 1, first=MANY - 1, color="red")
    task = Task(stream)
    trigger = task.trigger()
    with pytest.raises(UnknownFieldException, match="color") as caught:
        task.come_back(trigger)
    assert caught.value.is_retryable
    assert type(caught.value) is UnknownFieldException

    assert Task(stream, try_number=2).run()["rows"] == 3
    assert ids(stream) == each_once(MANY)
    assert sum(row["color"] == "red" for row in rows(stream.target)) == 3


def test_a_server_that_is_killed_meanwhile_is_a_retryable_error_and_the_retry_finishes(
    tmp_path, stream, connect, monkeypatch
):
    land(stream, MANY)
    server = ConnectServer(tmp_path / "server")
    connect(server)
    try:
        server.start()
        task = Task(stream)
        trigger = task.trigger()
        server.kill()
        with monkeypatch.context() as patch:
            patch.setattr(left_query, "CONNECT_SECONDS", 0.2)
            patch.setattr(spark_connect, "UNREACHABLE_SECONDS", 0.5)
            assert asyncio.run(first(trigger)).payload == {"query": "unknown"}
        server.start()
        with pytest.raises(SparkUnreachableError, match="has lost the query") as caught:
            task.come_back(trigger)
        assert caught.value.is_retryable
        Task(in_one_go(stream), try_number=2).run()
    finally:
        server.stop()
    assert ids(stream) == each_once(MANY)


def test_a_killed_task_stops_its_query_and_no_other(server, tmp_path, connect):
    connect(server)
    one, other = (ConnectStream(tmp_path / name, **SMALL) for name in ("one", "other"))
    land(one, MANY)
    land(other, 2 * MANY)  # so that it goes on when the other one ends
    kept, ended = Task(other), Task(one)
    goes_on, trigger = kept.trigger(), ended.trigger()

    async def is_shut_down():
        # As a triggerer that is restarted does.
        running = asyncio.create_task(first(trigger))
        await asyncio.sleep(0)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await trigger.cleanup()

    watcher = SparkConnectQueryTrigger(**{**trigger.serialize()[1], "is_own": False})
    with held(server):  # else a slow machine asks when all is ingested
        asyncio.run(is_shut_down())
        asyncio.run(watcher.on_kill())
        assert state(server, trigger) is QueryState.ACTIVE
    asyncio.run(trigger.on_kill())
    assert state(server, trigger) is QueryState.ENDED
    asyncio.run(trigger.on_kill())

    assert one.batches() < MANY
    assert kept.come_back(goes_on)["rows"] == 6 * MANY
    assert Task(in_one_go(one), try_number=2).run()["outcome"] == "succeeded"  # as after "clear"
    assert (ids(one), ids(other)) == (each_once(MANY), each_once(2 * MANY))


def test_other_runs_wait_for_a_deferred_query_or_are_refused(server, stream, connect):
    connect(server)
    land(stream, MANY)
    task = Task(stream)
    trigger = task.trigger()
    until(lambda: stream.batches() >= 1)
    with held(server):
        with pytest.raises(StateLockedError, match="without a driver") as caught:
            Task(stream, "impatient", deferrable=False).run()
        assert caught.value.is_retryable
        land(stream, 1, first=MANY)
        patient = Task(stream, "patient")
        waits = patient.trigger()
        assert (waits.query, waits.is_own) == (trigger.query, False)

    assert patient.come_back(waits)["rows"] == 3
    assert task.come_back(trigger)["rows"] == 3 * MANY
    assert ids(stream) == each_once(MANY + 1)


def test_a_query_that_was_stopped_is_finished_and_each_run_counts_its_own(server, stream, connect):
    connect(server)
    land(stream, MANY)
    task = Task(stream, execution_timeout=timedelta(hours=1))
    trigger = task.trigger()
    with pytest.raises(TaskDeferralTimeout):
        task.operator.resume_execution("__fail__", {"error": "Trigger timeout"}, task.context)
    assert state(server, trigger) is QueryState.ENDED
    done = stream.batches()
    assert done < MANY

    # Airflow would not come back after that; a query may be stopped by others, too.
    trigger = SparkConnectQueryTrigger(**trigger.serialize()[1])
    event = asyncio.run(first(trigger))
    deferred = task.defer(event)
    again = stored(deferred)
    assert again.query["run_id"] != trigger.query["run_id"]
    assert timedelta(minutes=50) < deferred.timeout < timedelta(hours=1)

    left_query.forget_query(stream.store())  # so that the next run takes the query over
    taken = in_one_go(stream).run(server.remote)
    report = task.come_back(again)
    assert report["rows"] >= 3 * done
    assert report["rows"] + taken["rows"] == 3 * MANY
    assert ids(stream) == each_once(MANY)
