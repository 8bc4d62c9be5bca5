"""A real Spark Connect server on this machine, and the runs that use it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.jvm import ClassArchive, command_line
from airflow_cloudfiles.engine.job.launch import JobSpec, Run, SparkConnect, launch
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM, DAEMON_MODULE, spark_home
from airflow_cloudfiles.engine.spark.fork_server import launcher
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.access import Access
from tests.support.emulators.aws import REGION, Aws
from tests.support.landing import drop, rows
from tests.support.waiting import PATIENCE_SECONDS, until

MANY = 20
"""Files of a run that a test disturbs: batches enough that it has not ended before."""
STOP_SECONDS = 60.0
"""How long a server may take to end. Longer than its supervisor waits before it kills it."""
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_FOLDER, _PORT = "@folder@", "@port@"


class ConnectServer:
    """A server in a process of its own, on loopback and a free port, with a token.

    It runs under the supervisor, so it ends with the tests, in whatever way those end.

    Args:
        folder: Of its log and its temporary files.
        python: What it starts as Python. Unless one is given, its processes are forked from one
            that has imported PySpark, as those of a local session: starting them anew takes two
            thirds of a query's time. Only what is started anew can be found below the server;
            so are, in any case, the daemon that the documentation asks for and its workers.
        is_bare: Whether it lacks the configuration that the documentation asks for.
        environment: Besides that of the tests.
        conf: Configuration of Spark, besides.
    """

    def __init__(
        self,
        folder: Path,
        *,
        python: str | None = None,
        is_bare: bool = False,
        environment: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._python = python or launcher() or sys.executable
        self._is_bare = is_bare
        self._environment = dict(environment or {})
        self._conf = dict(conf or {})
        self.port = free_port()
        self.token = f"t{uuid.uuid4().hex}"
        self._process: subprocess.Popen[bytes] | None = None
        self._archive: ClassArchive | None = None

    @property
    def remote(self) -> str:
        """Its address, with the token."""
        return self.at(self.port)

    def at(self, port: int) -> str:
        """The address when it is reached by another port."""
        return f"sc://localhost:{port}/;token={self.token}"

    @property
    def temporary(self) -> Path:
        """Its temporary directory."""
        return self._folder / "tmp"

    def checkpoints(self) -> list[Path]:
        """The folders in which Spark keeps its checkpoints of queries that runs leave."""
        return list(self.temporary.glob("temporary-*"))

    @property
    def pids(self) -> list[int]:
        """The server's JVM and all that it has started."""
        assert self._process is not None
        return [each.pid for each in psutil.Process(self._process.pid).children(recursive=True)]

    def pythons(self, word: str = "") -> list[psutil.Process]:
        """Its Python processes; with a word, those whose command line has it."""
        found = []
        for pid in self.pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                command = " ".join(process.cmdline())
                if "python" in process.name() and "supervisor" not in command and word in command:
                    found.append(process)
        return found

    def log(self) -> str:
        """Everything it has written."""
        return (self._folder / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, also again on the same port; on another one where that was taken meanwhile."""
        before = len(self.log()) if (self._folder / "server.log").exists() else 0
        self._begin()

        def logged(text: str) -> bool:
            return text in self.log()[before:]

        # That the port is open does not suffice: Spark's own driver may have drawn it.
        until(
            lambda: logged("BindException") or (logged("server started at") and self._listens()),
            more=self.log,
        )
        if logged("BindException"):
            self.stop()
            self.port = free_port()
            self.start()

    def _begin(self) -> None:
        """Start its process.

        As the JVM of a local run starts: `java` itself, with the classes of an earlier server.
        """
        self.temporary.mkdir(exist_ok=True)
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": _PORT,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"{COORDINATOR_JVM} -Djava.io.tmpdir={_FOLDER}/tmp",
            "spark.local.dir": f"{_FOLDER}/local",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{_FOLDER}/warehouse",
            "spark.ui.enabled": "false",
            **({} if self._is_bare else {"spark.python.daemon.module": DAEMON_MODULE}),
            **self._conf,
        }
        flags = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        command, self._archive = command_line(
            ["--master", "local[2]", *flags, "--class", _MAIN, "spark-internal"],
            {_FOLDER: str(self._folder), _PORT: str(self.port)},
            {},
            use=(_MAIN,),
        )
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "airflow_cloudfiles.engine.job.supervisor", "--", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    # With it, Python imports PySpark from a zip file, and compiles it each time.
                    **({"SPARK_HOME": str(spark_home())} if self._is_bare else {}),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_CONNECT_AUTHENTICATE_TOKEN": self.token,
                    "PYSPARK_PYTHON": self._python,
                    "PYSPARK_DRIVER_PYTHON": self._python,
                    "JAVA_HOME": find_java(),
                    **self._environment,
                },
                cwd=self._folder,
            )

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"The server has ended: {self.log()[-3000:]}"
        return is_open(self.port)

    def kill(self) -> None:
        """Kill it and its Python processes, as a lost machine would."""
        if self._archive is not None and self._archive.is_wanted:
            self._archive.leave_to_next()
        for pid in self.pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        self.stop()

    def stop(self) -> None:
        """End it, and fail when it does not end."""
        process, self._process = self._process, None
        archive, self._archive = self._archive, None
        if process is None:
            return
        try:
            if archive is not None and archive.is_wanted:
                archive.make_in_background()
            assert process.stdin is not None
            process.stdin.close()  # its supervisor ends it then
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            below = psutil.Process(process.pid).children(recursive=True)
            for each in (process, *below):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait(STOP_SECONDS)
            ending = f"{below} did not end within {STOP_SECONDS:g} seconds"
            raise AssertionError(f"{ending}: {self.log()[-3000:]}") from None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def identity(aws: Aws) -> dict[str, str]:
    """The environment of a server that has credentials of its own."""
    return {
        "AWS_ENDPOINT_URL": aws.endpoint,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "server",
        "AWS_SECRET_ACCESS_KEY": "server-secret",
    }


class ConnectStream:
    """One stream, which is run again and again.

    Args:
        folder: Of its source, state and table.
        access: How the client reaches the store of the state.
        options: Of the stream.
    """

    def __init__(self, folder: Path, access: Access | None = None, **options: str) -> None:
        self.source, self.state, self.target = (folder / n for n in ("in", "state", "table"))
        self.source.mkdir(parents=True, exist_ok=True)
        self.checkpoint_location = str(self.state)
        self.table = str(self.target)
        self.access = access
        self.options = options
        self.log: list[str] = []

    def spec(self, kind: Any = "ingest", **more: Any) -> JobSpec:
        """What the next run is to do."""
        return JobSpec(
            kind=kind,
            source=str(self.source),
            format="json",
            checkpoint_location=self.checkpoint_location,
            target=self.table,
            run_id=uuid.uuid4().hex,
            options=self.options,
            **more,
        )

    def run(self, remote: str, kind: Any = "ingest", **more: Any) -> dict[str, Any]:
        """Run to the end."""
        return self._launched(self.spec(kind, **more), remote).wait()

    def begin(self, remote: str, **more: Any) -> Begun:
        """Start a run, and go on while it runs."""
        return Begun(self._launched(self.spec(**more), remote))

    def take_the_rest_at_once(self) -> None:
        """Let the next runs have one micro-batch: what they show does not depend on the number."""
        self.options.pop("cloudFiles.maxFilesPerTrigger", None)

    def batches(self) -> int:
        """How many micro-batches the sink has committed."""
        return len(list(self.store().list("_source/batches/")))

    def store(self) -> ObjectStore:
        """The state."""
        return open_store(self.checkpoint_location, self.access)

    def _launched(self, spec: JobSpec, remote: str) -> Run:
        return launch(spec, SparkConnect(remote), on_log=self.log.append, access=self.access)


def land(stream: ConnectStream, count: int, first: int = 0, **more: object) -> None:
    """Write files of three records each."""
    for number in range(first, first + count):
        records = [{"id": 3 * number + each, **more} for each in range(3)]
        drop(stream.source, f"{number:04}.json", records)


def ids(stream: ConnectStream) -> Counter[str]:
    """How often each record is in the table."""
    return Counter(str(row["id"]) for row in rows(stream.target))


def each_once(count: int) -> Counter[str]:
    """Each record of so many files, once."""
    return Counter(str(number) for number in range(3 * count))


class Begun:
    """A run that somebody waits for."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.report: dict[str, Any] | None = None
        self.error: CloudFilesError | None = None
        self._thread = threading.Thread(target=self._wait, daemon=True)  # it hangs for no test
        self._thread.start()

    def driver(self) -> psutil.Process:
        """The client of the server: what the supervisor has started."""
        return psutil.Process(self.run.pid).children()[0]

    def end(self) -> Self:
        """Wait for the end."""
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        return self

    def _wait(self) -> None:
        try:
            self.report = self.run.wait()
        except CloudFilesError as error:
            self.error = error


class Wire:
    """A way to the server that can be cut: every connection on it ends, and none is let in."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """End every connection; return how many there were."""
        self._is_cut = True
        ends, self._ends = self._ends, []
        for each in ends:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        return len(ends) // 2

    def mend(self) -> None:
        """Let connections in again."""
        self._is_cut = False

    def close(self) -> None:
        """End it."""
        self.cut()
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self._is_cut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while received := one.recv(65536):
            other.sendall(received)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def free_port() -> int:
    """A port of loopback that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
