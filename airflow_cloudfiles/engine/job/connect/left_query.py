"""Ask a server about a query whose client has left, and find what it wrote down.

The session of the client is still there, since the client has not released it: whoever knows its
id, and may use the server, can ask. That is one request, without a session of one's own. A server
that was restarted, or has ended the session, says that it does not know it. Importing this module
imports no Spark.

1. `_source/left_runs/<run id>.json` is for the run itself: what it had found, where it began, and
   which query goes on. It is written before the driver ends, and deleted when the run has ended.
2. `_source/left_query.json` is for all others: the query of the stream that was left last. Whether
   it still goes on, the server says, never this file.

Neither says what is committed: that is in the records of the sink.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from airflow_cloudfiles.engine.errors import SparkServerError, SparkUnreachableError
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.job.spark_command import SparkConnect
from airflow_cloudfiles.engine.state.run_history import LEFT_RUNS_PREFIX
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, as_record

CONNECT_SECONDS = 10.0
"""How long a server may take to accept a connection."""
ANSWER_SECONDS = 20.0
"""How long it may take to answer; stopping a query ends in that time or goes on by itself."""
_UNKNOWN = re.compile(
    r"INVALID_HANDLE|SESSION_NOT_FOUND|SESSION_CHANGED|SESSION_CLOSED|SESSION_NOT_SAME"
    r"|STREAMING_QUERY_NOT_FOUND|STREAMING_QUERY_RUN_ID_MISMATCH"
)


class QueryState(StrEnum):
    """What a server says of a query."""

    ACTIVE = "active"
    ENDED = "ended"
    UNKNOWN = "unknown"
    """The server was restarted, or has forgotten the query or its session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftQuery:
    """A query on a server, and the session that it belongs to. It opens nothing by itself.

    Attributes:
        user_id: Of the session.
        session_id: Of the session.
        server_session_id: The server's own, which another server, or the same one after a restart,
            does not have.
        query_id: Of the query; empty while the driver has the server start it.
        run_id: Of the query; empty as its id.
    """

    user_id: str
    session_id: str
    server_session_id: str
    query_id: str
    run_id: str


def identify(server: SparkConnect, query: LeftQuery) -> LeftQuery:
    """Name a query so that it is found again, and no other one: by the server's session, too.

    Raises:
        SparkUnreachableError: The server does not answer, or does not know the query.
        SparkServerError: It refuses this client.
    """
    answers = _answers(server, query, status=True)
    if not answers:
        raise SparkUnreachableError(
            f"The Spark Connect server {server.address} does not know the query that it has just "
            "started. What was committed stays; run again for the rest."
        )
    return replace(query, server_session_id=answers[0].server_side_session_id)


def started(server: SparkConnect, query: LeftQuery) -> LeftQuery | None:
    """Find the query of a session whose driver was killed while it had the server start it.

    Returns:
        The query, also one whose ids are known; `None` where none of the session is active.

    Raises:
        SparkUnreachableError: The server does not answer.
        SparkServerError: It refuses this client.
    """
    if query.query_id:
        return query
    request = _request(query)
    request.plan.command.streaming_query_manager_command.active = True
    for each in _answered(server, request):
        for found in each.streaming_query_manager_command_result.active.active_queries:
            return replace(
                query,
                server_session_id=each.server_side_session_id,
                query_id=found.id.id,
                run_id=found.id.run_id,
            )
    return None


def state_of(server: SparkConnect, query: LeftQuery) -> QueryState:
    """Ask whether a query goes on.

    Raises:
        SparkUnreachableError: The server does not answer.
        SparkServerError: It refuses this client.
    """
    found = _asked(server, query, status=True)
    if found is None:
        return QueryState.UNKNOWN
    return QueryState.ACTIVE if found.status.is_active else QueryState.ENDED


def failure_of(server: SparkConnect, query: LeftQuery) -> str | None:
    """Ask what a query has failed with; `None` when it has not, or nobody knows any more.

    Raises:
        SparkUnreachableError: The server does not answer.
        SparkServerError: It refuses this client.
    """
    found = _asked(server, query, exception=True)
    if found is None or not found.exception.HasField("exception_message"):
        return None
    return f"{found.exception.exception_message}\n{found.exception.stack_trace}"


def stop(server: SparkConnect, query: LeftQuery) -> None:
    """Stop a query, and no other; harmless when it has ended.

    Raises:
        SparkUnreachableError: The server does not answer.
        SparkServerError: It refuses this client.
    """
    _asked(server, query, stop=True)


def release(server: SparkConnect, query: LeftQuery) -> None:
    """End the session of a query that has ended; harmless when it is not there any more.

    Raises:
        SparkUnreachableError: The server does not answer.
        SparkServerError: It refuses this client.
    """
    from pyspark.sql.connect.proto import base_pb2  # noqa: PLC0415

    request = base_pb2.ReleaseSessionRequest(session_id=query.session_id)
    request.user_context.user_id = query.user_id
    with _service(server) as (stub, metadata):
        stub.ReleaseSession(request, metadata=metadata, timeout=ANSWER_SECONDS)


def _asked(server: SparkConnect, query: LeftQuery, **command: bool) -> Any:
    """Send a command for the query; `None` when the server knows no such query."""
    results = [
        each.streaming_query_command_result
        for each in _answers(server, query, **command)
        if each.HasField("streaming_query_command_result")
    ]
    return results[0] if results else None


def _answers(server: SparkConnect, query: LeftQuery, **command: bool) -> list[Any]:
    """Return the server's answers; nothing when it knows no such query."""
    request = _request(query)
    asked = request.plan.command.streaming_query_command
    asked.query_id.id, asked.query_id.run_id = query.query_id, query.run_id
    for name, value in command.items():
        setattr(asked, name, value)
    return _answered(server, request)


def _request(query: LeftQuery) -> Any:
    """Build a request in the session of a query, without its command."""
    from pyspark.sql.connect.proto import base_pb2  # noqa: PLC0415

    request = base_pb2.ExecutePlanRequest(session_id=query.session_id)
    if query.server_session_id:
        request.client_observed_server_side_session_id = query.server_session_id
    request.user_context.user_id = query.user_id
    return request


def _answered(server: SparkConnect, request: Any) -> list[Any]:
    """Send a request; nothing when the server does not know what it is about."""
    answers: list[Any] = []
    with _service(server) as (stub, metadata):
        answers += stub.ExecutePlan(request, metadata=metadata, timeout=ANSWER_SECONDS)
    return answers


@contextmanager
def _service(server: SparkConnect) -> Iterator[tuple[Any, list[tuple[str, str]]]]:
    """Open the server's service; an unknown session ends the block, without an error."""
    import grpc  # noqa: PLC0415
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415
    from pyspark.sql.connect.proto import base_pb2_grpc  # noqa: PLC0415

    make_stub: Callable[[object], Any] = base_pb2_grpc.SparkConnectServiceStub
    builder = DefaultChannelBuilder(server.remote)
    channel = builder.toChannel()
    try:
        grpc.channel_ready_future(channel).result(CONNECT_SECONDS)
        yield make_stub(channel), list(builder.metadata())
    except grpc.FutureTimeoutError:
        raise SparkUnreachableError(
            f"The Spark Connect server {server.address} does not answer within "
            f"{CONNECT_SECONDS:g} seconds. Check the address, and whether it runs."
        ) from None
    except grpc.RpcError as error:
        _judge(error, server)
    finally:
        channel.close()


def _judge(error: Any, server: SparkConnect) -> None:
    """Raise what an answer means, unless it means that the query is not known.

    Without the cause, whose text may hold the token.
    """
    import grpc  # noqa: PLC0415

    text = server.scrubbed(str(error.details()))[:300]
    if error.code() in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
        raise SparkServerError(
            f"The Spark Connect server {server.address} refuses this client: {text}. Check the "
            "token of the connection."
        ) from None
    if _UNKNOWN.search(text):
        return
    raise SparkUnreachableError(
        f"The Spark Connect server {server.address} does not say how the query is: {text}."
    ) from None


QUERY_KEY = "_source/left_query.json"
_VERSION = 1
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRun:
    """A run whose driver has left.

    Attributes:
        run_id: Its name.
        before: The last batch that was committed when it began; -1 for none.
        last_entry: Last entry of the file log that it ingests.
        started: When it began, in ISO form.
        query: The query that goes on; `None` when what remains needs another one.
        after_batch: The last batch that was committed when the query started.
        query_started: When that was.
        next_line: Number of the first batch that the log does not have.
        discovered: What its discovery did; `None` where it made none.
        report: What else of its report is known.
        durations: How long its parts took, in seconds.
    """

    run_id: str
    before: int
    last_entry: int
    started: str
    query: LeftQuery | None = None
    after_batch: int = -1
    query_started: str = ""
    next_line: int = 0
    discovered: Mapping[str, Any] | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    durations: Mapping[str, float] = field(default_factory=dict)

    @property
    def end(self) -> Offset:
        """Where in the file log the run ends."""
        return Offset(self.last_entry + 1, 0)


def read_run(state: ObjectStore, run_id: str) -> LeftRun | None:
    """Read what a run has left; `None` when it has left nothing."""
    return _read(state, _key(run_id))


def write_run(state: ObjectStore, run: LeftRun) -> None:
    """Write what a run leaves, for itself; its query for the others, too."""
    content = seal({FIELD: _VERSION, **asdict(run)})
    with reaching_state(state):
        state.put(_key(run.run_id), content)
        if run.query is not None:
            state.put(QUERY_KEY, content)


def delete_run(state: ObjectStore, run_id: str) -> None:
    """Delete what a run has left: it has ended, in whatever way."""
    with reaching_state(state):
        state.delete(_key(run_id))
    newest = newest_query(state)
    if newest is not None and newest.run_id == run_id:
        forget_query(state)


def newest_query(state: ObjectStore) -> LeftRun | None:
    """Read which query of the stream was left last; `None` when there is none."""
    return _read(state, QUERY_KEY)


def forget_query(state: ObjectStore) -> None:
    """Delete the note of a query that does not go on any more."""
    with reaching_state(state):
        state.delete(QUERY_KEY)


def _key(run_id: str) -> str:
    return f"{LEFT_RUNS_PREFIX}/{run_id}.json"


def _read(state: ObjectStore, key: str) -> LeftRun | None:
    """Read a note; one of another version is none: it only saves work."""
    try:
        with reaching_state(state):
            stored = unseal(state.get(key))
        if stored.get(FIELD) != _VERSION:
            _log.warning(
                "%s has format version %s, and is left aside: this version of "
                "airflow-provider-cloudfiles understands %s.",
                state.child_uri(key),
                stored.get(FIELD),
                _VERSION,
            )
            return None
        return as_record(stored, LeftRun)
    except ObjectNotFoundError:
        return None
    except (ValueError, AttributeError) as error:
        _log.warning("%s cannot be understood and is left aside: %s", key, error)
        return None
