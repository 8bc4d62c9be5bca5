"""How does a run get its session on a Spark Connect server?

In the background, as soon as it knows that there is work, and goes on with what needs no Spark. The
session is the run's own, with a configuration of its own; it is released at the end, and whatever
the run still has going on the server ends with it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    OptionError,
    SparkServerError,
    SparkUnreachableError,
)
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery
from airflow_cloudfiles.engine.job.connect.server import USER_ID, SparkConnect, server_of_driver
from airflow_cloudfiles.engine.job.connect.tls import refusal
from airflow_cloudfiles.engine.job.session import SparkStart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.job.spec import JobSpec

CONNECT_SECONDS = 30.0
"""How long a server may take to accept a connection."""
_DOUBT_SECONDS = 3.0
"""After which time it is looked whether it speaks as the client does."""
RETRIES = 7
"""How often a request is sent again while the connection is lost: about two minutes long."""
OLDEST_SPARK = (4, 2)
CONF = {
    # Python processes of the server then serve all runs; with isolation each query would start
    # some of its own and leave them behind (docs/decisions).
    "spark.sql.artifact.isolation.enabled": "false",
    # A query that a killed run left behind is stopped when the next run starts.
    "spark.sql.streaming.stopActiveRunOnRestart": "true",
}
"""Configuration of every run's session."""
_LOST = re.compile(
    r"INVALID_HANDLE\.(?:SESSION|OPERATION)|SESSION_NOT_SAME|RetriesExceeded|StatusCode\.UNAVAILABLE"
    r"|UNAVAILABLE|STREAMING_QUERY_NOT_FOUND|Connection reset|Socket closed"
    # Once a server has said that it does not know the session, the client takes it for closed.
    r"|NO_ACTIVE_SESSION"
)
_REFUSED = re.compile(r"UNAUTHENTICATED|PERMISSION_DENIED|Invalid authentication token")
_SQL = "spark.sql."
_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_ASKED = "${system:java.io.tmpdir}"
_TEMPORARY = "/tmp"  # noqa: S108 - of the server, if it does not say; the name below it is random
_log = logging.getLogger(__name__)


class ConnectStart(SparkStart):
    """The session of one run on the server that the driver was started for.

    Args:
        spec: The run.
    """

    is_elsewhere = True

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._server = server_of_driver()
        self._starting: Future[SparkSession] | None = None
        self.temporary = _TEMPORARY

    @property
    def keeps_queries_on(self) -> SparkConnect | None:
        """The server."""
        return self._server

    def check(self) -> None:
        """Refuse what a server cannot do.

        Raises:
            OptionError: A configuration is not a session's.
        """
        _check_spec(self._spec)

    def begin(self) -> None:
        """Connect in the background; once."""
        if self._starting is None:
            pool = ThreadPoolExecutor(1, thread_name_prefix="cloudfiles-connect")
            self._starting = pool.submit(self._connected)
            pool.shutdown(wait=False)

    def session(self, *, is_one_batch: bool = False) -> SparkSession:  # noqa: ARG002 - a local run's
        """Give the session, with `cloudFiles` registered.

        Raises:
            SparkUnreachableError: The server does not answer.
            SparkServerError: It refuses this client, or has a Spark that is too old.
            OptionError: It refuses the configuration of the run.
        """
        self.begin()
        assert self._starting is not None  # noqa: S101 - `begin` sets it
        return self._starting.result()

    def stop_session(self) -> None:
        """Release the session; harmless when there is none, or no server any more."""
        starting, self._starting = self._starting, None
        if starting is None:
            return
        if starting.exception() is None:
            session: Any = starting.result()
            # Not with all its retries: the server ends a session that nobody uses by itself.
            session.client.set_retry_policies([])
            session.stop()

    def identify(self, query: StreamingQuery) -> LeftQuery:
        """Name a query of this session, for who comes back to it.

        Raises:
            SparkUnreachableError: The server does not answer.
        """
        session: Any = self.session()
        return left_query.identify(
            self._server,
            user_id=_user_of(self._server),
            session_id=session.session_id,
            query_id=str(query.id),
            run_id=str(query.runId),
        )

    def leave_session(self) -> None:
        """Go without releasing the session: what it has going on the server goes on."""
        starting, self._starting = self._starting, None
        if starting is not None and starting.exception() is None:
            session: Any = starting.result()
            session.client.close()

    def close(self) -> None:
        """Release the session."""
        self.stop_session()

    def as_ours(self, error: Exception) -> CloudFilesError | None:
        """What a failure of the connection means; `None` when it is something else."""
        text = self._server.scrubbed(str(error))
        if _REFUSED.search(text):
            return SparkServerError(
                f"The Spark Connect server {self._server.address} refuses this client: "
                f"{_first_line(text)}. Check the token of the connection."
            )
        if _LOST.search(text) or _LOST.search(type(error).__name__):
            return SparkUnreachableError(
                f"The Spark Connect server {self._server.address} was lost during the run, or was "
                f"restarted: {_first_line(text)}. What was committed stays; run again for the rest."
            )
        return None

    def _connected(self) -> SparkSession:
        try:
            session = _create(self._server)
            _check_version(session.version, self._server)
            _configure(session, self._spec)
            self.temporary = _temporary(session)
            from airflow_cloudfiles.engine.spark.register import register  # noqa: PLC0415

            register(session)
        except CloudFilesError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the run
            # Without the cause, whose text may hold the token.
            raise (
                self.as_ours(error)
                or SparkServerError(
                    f"No session could be made on the Spark Connect server {self._server.address}: "
                    f"{type(error).__name__}: {_first_line(self._server.scrubbed(str(error)))}"
                )
            ) from None
        _log.info("Connected to the Spark Connect server %s", self._server.address)
        return session


def _check_spec(spec: JobSpec) -> None:
    """Refuse what a server cannot do, before anything is done."""
    others = [key for key in spec.spark_conf if not key.startswith(_SQL)]
    if others:
        raise OptionError(
            f"The Spark configuration {others[0]} is the server's, not a session's: over Spark "
            "Connect only spark.sql.* can be set for a run. Set it where the server is started."
        )


def _create(server: SparkConnect) -> SparkSession:
    """Make a session, once the server accepts connections."""
    try:
        import grpc  # noqa: PLC0415
        from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415
        from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415
        from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415
    except ImportError as error:
        raise SparkServerError(
            f"The client of Spark Connect is not installed: {error}. Install "
            "airflow-provider-cloudfiles[connect,delta]; beside pyspark, which it would damage, "
            "install pyspark[connect] instead."
        ) from error

    class Ready(DefaultChannelBuilder):
        """A channel that is connected: Spark's own tries for ten minutes, without a word."""

        def toChannel(self) -> grpc.Channel:  # noqa: N802 - Spark's name
            channel = super().toChannel()
            ready = grpc.channel_ready_future(channel)
            try:
                _wait(ready.result, grpc.FutureTimeoutError, server)
            except CloudFilesError:
                channel.close()
                raise
            return channel

    builder: Any = ConnectSession.builder.channelBuilder(Ready(server.remote))
    for key, value in CONF.items():
        builder = builder.config(key, value)
    made: Any = builder.create()
    made.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
    session: SparkSession = made
    return session


def _user_of(server: SparkConnect) -> str:
    """The user of a session, whom PySpark takes from the address or else from the environment."""
    given = re.search(rf";{USER_ID}=([^;]*)", server.remote)
    named = os.environ.get("SPARK_USER", os.environ.get("USER", ""))
    return unquote(given[1]) if given else named


def _wait(ready: Callable[[float], object], timeout: type[Exception], server: SparkConnect) -> None:
    """Wait for a channel; where it lasts, see whether waiting helps."""
    try:
        ready(_DOUBT_SECONDS)
    except timeout:
        found = refusal(server.host, server.port, use_ssl=server.uses_ssl)
        if found is not None:
            raise SparkServerError(f"The Spark Connect server {server.address} {found}.") from None
    else:
        return
    try:
        ready(CONNECT_SECONDS - _DOUBT_SECONDS)
    except timeout:
        raise SparkUnreachableError(
            f"The Spark Connect server {server.address} does not answer within "
            f"{CONNECT_SECONDS:g} seconds. Check the address, and whether it runs."
        ) from None


def _check_version(version: str, server: SparkConnect) -> None:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise SparkServerError(
            f"The Spark Connect server {server.address} has Spark {version}. This package needs "
            f"{oldest} or later: its data source has read limits."
        )


def _configure(session: Any, spec: JobSpec) -> None:
    """Set the configuration of the run, each key so that a refusal is seen."""
    # The server may name a class that writes to its object store only.
    session.conf.unset(_CHECKPOINT_FILES)
    set_conf: Callable[[str, str], None] = session.conf.set
    for key, value in spec.spark_conf.items():
        try:
            set_conf(key, str(value))
        except Exception as error:
            text = _first_line(str(error))
            raise OptionError(
                f"The server refuses the Spark configuration {key}: {text}"
            ) from error


def _temporary(session: Any) -> str:
    """The temporary directory of the server's JVM."""
    found: str = session.sql(f"SELECT 1 AS `{_ASKED}`").columns[0]  # nothing is executed
    # As it was asked for where the server leaves variables in SQL alone.
    return found if found.startswith("/") else _TEMPORARY


def _first_line(text: str) -> str:
    return next((line.strip()[:300] for line in text.splitlines() if line.strip()), "no message")
