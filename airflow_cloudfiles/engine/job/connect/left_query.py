"""How does somebody ask a server about a query whose client has left?

The session of the client is still there, since the client has not released it: whoever knows its
id, and may use the server, can ask. That is one request, without a session of one's own. A server
that was restarted, or has ended the session, says that it does not know it. Importing this module
imports no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

from airflow_cloudfiles.engine.errors import SparkServerError, SparkUnreachableError
from airflow_cloudfiles.engine.job.connect.server import SparkConnect

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

    def to_json(self) -> dict[str, str]:
        """As it is stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, str]) -> Self:
        """Read what `to_json` has written."""
        return cls(**stored)


def identify(
    server: SparkConnect, *, user_id: str, session_id: str, query_id: str, run_id: str
) -> LeftQuery:
    """Name a query so that it is found again, and no other one.

    Raises:
        SparkUnreachableError: The server does not answer, or does not know the query.
        SparkServerError: It refuses this client.
    """
    query = LeftQuery(
        user_id=user_id,
        session_id=session_id,
        server_session_id="",
        query_id=query_id,
        run_id=run_id,
    )
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
    """What the server answers; nothing when it knows no such query."""
    request = _request(query)
    asked = request.plan.command.streaming_query_command
    asked.query_id.id, asked.query_id.run_id = query.query_id, query.run_id
    for name, value in command.items():
        setattr(asked, name, value)
    return _answered(server, request)


def _request(query: LeftQuery) -> Any:
    """A request in the session of a query, without its command."""
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
    """The server's service; that it does not know the session ends the block, without an error."""
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
