"""Get the session of a run on a Spark Connect server, or tell why the server accepts none.

In the background, as soon as it knows that there is work, and goes on with what needs no Spark. The
session is the run's own, with a configuration of its own; it is released at the end, and whatever
the run still has going on the server ends with it.

gRPC tries again and again and does not say what is wrong. A handshake of Python's own tells it, for
the three things that no waiting helps: a certificate that is not trusted, TLS where the server
has none, and none where it has.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_cloudfiles.engine.batches.connect_tasks import ConnectTasks, parallelism_of
from airflow_cloudfiles.engine.batches.task_process import explained
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    OptionError,
    SparkServerError,
    SparkUnreachableError,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spark_command import (
    DAEMON_MODULE,
    USER_ID,
    SparkConnect,
    server_of_driver,
)
from airflow_cloudfiles.engine.messages import install
from airflow_cloudfiles.engine.spark_versions import JOBS, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.batches.run import Executor
    from airflow_cloudfiles.engine.job.spec import JobSpec


ROOTS = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""Environment variable of gRPC: the file of the certificate authorities that are trusted."""
_SECONDS = 5.0


def refusal(host: str, port: int, *, use_ssl: bool) -> str | None:
    """Say what is wrong with the way to a server; `None` when it does not answer, or nothing is.

    Args:
        host: Of the server.
        port: Of the server.
        use_ssl: Whether the client speaks TLS.
    """
    try:
        context = _context(use_ssl=use_ssl)
    except OSError as failure:
        return (
            f"cannot be trusted, because {ROOTS} names {os.environ.get(ROOTS)}, which has no "
            f"certificates: {failure}"
        )
    try:
        with (
            socket.create_connection((host, port), _SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            answers_tls = True
    except ssl.SSLCertVerificationError as error:
        trusted = os.environ.get(ROOTS)
        where = f"those of {trusted}" if trusted else "gRPC's own"
        return (
            f"has a certificate that is not trusted: {error.verify_message}. Trusted authorities "
            f"are {where}; set {ROOTS} to a file with the one that signed it"
        )
    except ssl.SSLError:
        answers_tls = False
    except OSError:
        return None
    if use_ssl and not answers_tls:
        return "does not speak TLS. Leave out use_ssl, or give the address of the proxy that does"
    if answers_tls and not use_ssl:
        return "speaks TLS. Set use_ssl=true"
    return None


def _context(*, use_ssl: bool) -> ssl.SSLContext:
    """Build the TLS context with the authorities that gRPC trusts.

    Without TLS, one that checks nothing: to see whether there is TLS at all; nothing is sent.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if use_ssl:
        import grpc  # noqa: PLC0415

        bundled = Path(grpc.__file__).parent / "_cython" / "_credentials" / "roots.pem"
        context.load_verify_locations(os.environ.get(ROOTS) or bundled)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


CONNECT_SECONDS = 30.0
"""How long a server may take to accept a connection."""
_DOUBT_SECONDS = 3.0
"""After which time it is looked whether it speaks as the client does."""
ASSUMED_PARALLELISM = 8
"""Tasks at a time on a server that does not tell."""
RETRIES = 7
"""How often a request is sent again while the connection is lost: about two minutes long."""
CONF = {
    # Python processes of the server then serve all runs; with isolation each run would start some
    # of its own and leave them behind (docs/decisions).
    "spark.sql.artifact.isolation.enabled": "false",
}
"""Configuration of every run's session."""
_SHARING_SPARK = (4, 1)
"""Whose sessions can share Python processes."""
_DAEMON = "spark.python.daemon.module"
_LOST = re.compile(
    r"INVALID_HANDLE\.(?:SESSION|OPERATION)|SESSION_NOT_SAME|RetriesExceeded|StatusCode\.UNAVAILABLE"
    r"|UNAVAILABLE|STREAMING_QUERY_NOT_FOUND|Connection reset|Socket closed"
    # Once a server has said that it does not know the session, the client takes it for closed.
    r"|NO_ACTIVE_SESSION"
)
_REFUSED = re.compile(r"UNAUTHENTICATED|PERMISSION_DENIED|Invalid authentication token")
_SQL = "spark.sql."
_log = logging.getLogger(__name__)


class ConnectStart(SparkStart):
    """The session of one run on the server that the driver was started for.

    Args:
        spec: The run.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._server = self.keeps_queries_on = server_of_driver()
        self._starting: Future[SparkSession] | None = None
        self.waited_seconds = 0.0
        self.warnings = []

    def check(self) -> None:
        """Refuse what a server cannot do.

        Raises:
            OptionError: A configuration is not a session's.
        """
        _check_spec(self._spec)

    @contextmanager
    def executor(self) -> Iterator[Executor]:
        """Open the executors of the server."""
        yield ConnectTasks(self.session, printable_path(str(self._spec.target)))

    def parallelism(self) -> int:
        """Return how many tasks run at a time, as far as the server tells."""
        session: Any = self.session()
        return int(parallelism_of(session.conf.getAll) or ASSUMED_PARALLELISM)

    def begin(self) -> None:
        """Connect in the background; once."""
        if self._starting is None:
            pool = ThreadPoolExecutor(1, thread_name_prefix="cloudfiles-connect")
            self._starting = pool.submit(self._connected)
            pool.shutdown(wait=False)

    def session(self) -> SparkSession:
        """Give the session.

        Raises:
            SparkUnreachableError: The server does not answer.
            SparkServerError: It refuses this client, or has a Spark that is too old.
            OptionError: It refuses the configuration of the run.
        """
        self.begin()
        assert self._starting is not None  # noqa: S101 - `begin` sets it
        asked = time.monotonic()
        session: SparkSession = self._starting.result()
        self.waited_seconds += round(time.monotonic() - asked, 3)
        return session

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

    def identify(self, query: StreamingQuery | None) -> LeftQuery:
        """Name a query of this session, or the session only, for who comes back to it.

        Raises:
            SparkUnreachableError: The server does not answer.
        """
        session: Any = self.session()
        found = LeftQuery(
            user_id=_user_of(self._server),
            session_id=session.session_id,
            server_session_id="",
            query_id="" if query is None else str(query.id),
            run_id="" if query is None else str(query.runId),
        )
        return found if query is None else left_query.identify(self._server, found)

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
        """Explain a failure of the connection; return `None` when it is something else."""
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
        return explained(text, self._server.address)

    def _connected(self) -> SparkSession:
        try:
            session = _create(self._server)
            version = session.version
            _check_version(version, self._server)
            session = _sharing(session, version)
            self.warnings = _missing(session, version, self._server)
            _configure(session, self._spec)
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
    gc.disable()  # of what is imported nothing is garbage
    try:
        import grpc  # noqa: PLC0415
        from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415
        from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415
        from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415
    except ImportError as error:
        raise SparkServerError(
            f"The client of Spark Connect is not installed: {error}. {install('connect', 'delta')} "
            "Beside pyspark, which the extra connect would damage, install the extra connect of "
            "pyspark instead."
        ) from error
    finally:
        gc.enable()

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


def _sharing(session: Any, version: str) -> SparkSession:
    """Open a session whose tasks use the Python processes of other sessions.

    Spark reads whether a session has processes of its own before a client can say it, and when it
    copies the session once more.
    """
    if numbers(version) < _SHARING_SPARK or not hasattr(session, "cloneSession"):
        own: SparkSession = session
        return own
    copied: Any = session.cloneSession()
    copied.release_session_on_close = True  # Spark 4.1 leaves it out
    copied.client.set_retry_policies(session.client.get_retry_policies())
    type(copied)._set_default_and_active_session(copied)  # noqa: SLF001 - as the builder does
    # Closing a channel that was waited for takes a sixth of a second, under a lock of all sessions.
    threading.Thread(target=session.stop, name="cloudfiles-connect-stop", daemon=True).start()
    shared: SparkSession = copied
    return shared


def _missing(session: Any, version: str, server: SparkConnect) -> list[str]:
    """List what the configuration of a server lacks, and what follows from it."""
    if session.conf.get(_DAEMON, None) == DAEMON_MODULE:
        return []
    left = (
        ""
        if numbers(version) >= _SHARING_SPARK
        else (", and each run leaves Python processes behind")
    )
    warning = (
        f"The Spark Connect server {server.address} was started without {_DAEMON}={DAEMON_MODULE}: "
        f"its tasks import everything when they begin, which takes seconds{left}. Add it to the "
        "configuration of the server (docs/how-to/spark-connect.md)."
    )
    _log.warning("%s", warning)
    return [warning]


def _user_of(server: SparkConnect) -> str:
    """Find the user of a session, whom PySpark takes from the address or the environment."""
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
    if numbers(version) < JOBS:
        oldest = ".".join(map(str, JOBS))
        raise SparkServerError(
            f"The Spark Connect server {server.address} has Spark {version}. This package needs "
            f"{oldest} or later there."
        )


def _configure(session: Any, spec: JobSpec) -> None:
    """Set the configuration of the run, each key so that a refusal is seen."""
    set_conf: Callable[[str, str], None] = session.conf.set
    for key, value in spec.spark_conf.items():
        try:
            set_conf(key, str(value))
        except Exception as error:
            text = _first_line(str(error))
            raise OptionError(
                f"The server refuses the Spark configuration {key}: {text}"
            ) from error


def _first_line(text: str) -> str:
    return next((line.strip()[:300] for line in text.splitlines() if line.strip()), "no message")
