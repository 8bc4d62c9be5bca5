"""How is a run started, followed and stopped from outside Spark?

The Airflow-facing packages call `launch`: it stores the job specification in the state, starts the
Spark driver in a process of its own under a supervisor (so that it dies with whoever started it),
passes on every line the driver prints, and reads the report. Importing this module imports no
Spark.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from airflow_cloudfiles.engine.errors import (
    JavaNotFoundError,
    OptionError,
    RunError,
    RunFailedError,
    from_name,
)
from airflow_cloudfiles.engine.job.spec import JobSpec, refuse_secrets
from airflow_cloudfiles.engine.storage import (
    ObjectNotFoundError,
    ObjectStore,
    normalize_uri,
    open_store,
)
from airflow_cloudfiles.engine.storage.access import Access, to_environment
from airflow_cloudfiles.engine.storage.outage import reaching_state

__all__ = ["JobSpec", "LocalPython", "LocalSpark", "Run", "SparkSubmit", "launch"]

JAVA_MINIMUM = 17
DEFAULT_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Spark configuration of a run unless the user says otherwise: a task has no one to look at a UI,
and a log is no place for a progress bar."""
LOCAL_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
}
"""Spark configuration of a run in one process on this machine. Spark itself listens on the address
of the machine, without a password; whoever connects there can run code. Here it listens on the
loopback interface only, and asks other users of this machine for a secret that it makes itself."""
TAIL_LINES = 60
"""How many of the driver's last lines an error without a report shows."""
COORDINATOR_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options of a local run: its JVM only coordinates, rows stay in Python. Compiling less and one
collector thread start it sooner and leave the cores to the tasks (docs/decisions)."""
LAUNCHED = "CLOUDFILES_LAUNCHED"
"""Environment variable: `local` or `submit`, when the master was chosen with the driver's start."""
_LOCAL_MASTER = re.compile(r"local(\[.*\])?")
_MODULE = "airflow_cloudfiles.engine.job"


class How(Protocol):
    """A way to start the Spark driver of a run."""

    def command(self, state: str, run_id: str) -> list[str]:
        """The command to run."""

    def environment(self) -> dict[str, str]:
        """Environment variables to add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSpark:
    """Spark in one process on this machine.

    Attributes:
        master: `local[*]`, or `local[n]` for n tasks at a time.
        driver_memory: Memory of the JVM as Spark writes it (`2g`); default is Spark's (1g).
    """

    master: str = "local[*]"
    driver_memory: str | None = None

    def command(self, state: str, run_id: str) -> list[str]:
        """Python runs the driver, which starts the JVM."""
        return [sys.executable, "-m", _MODULE, state, run_id]

    def environment(self) -> dict[str, str]:
        """PySpark takes master and memory of a JVM it starts itself from one variable."""
        check_pyspark()
        arguments = ["--master", self.master, *_as_flags(default_conf(self.master))]
        if self.driver_memory:
            arguments += ["--driver-memory", self.driver_memory]
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        java_home = find_java()
        return {
            **python,
            "PYSPARK_SUBMIT_ARGS": " ".join([*map(_quoted, arguments), "pyspark-shell"]),
            LAUNCHED: "local",
            **({"JAVA_HOME": java_home} if java_home else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPython:
    """A process of this Python, for jobs that need no Spark."""

    def command(self, state: str, run_id: str) -> list[str]:
        """Python runs the job."""
        return [sys.executable, "-m", _MODULE, state, run_id]

    def environment(self) -> dict[str, str]:
        """Nothing is added."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSubmit:
    """Spark on a cluster, through `spark-submit`.

    The executors need Python with this package and its `spark` and `delta` extras (docs/how-to/
    run-on-a-cluster.md), and must reach the source, the state and the target by the same URIs.

    Attributes:
        master: `spark://host:port`, `yarn` or `k8s://https://host:port`.
        deploy_mode: `client` or `cluster`.
        conf: Spark configuration.
        packages: Maven coordinates.
        files: Files for the executors' working directories.
        py_files: Python archives for driver and executors.
        archives: Archives to unpack, such as a packed environment.
        queue: YARN queue.
        principal: Kerberos principal.
        keytab: Kerberos keytab.
        binary: Path of `spark-submit`; default is the one of the installed `pyspark`.
        executor_python: Python on the executors; default is `PYSPARK_PYTHON` of this process'
            environment, else `python3`. The configuration `spark.pyspark.python` wins over it.
        env: Environment variables for `spark-submit`, such as `HADOOP_CONF_DIR`.
    """

    master: str
    deploy_mode: str = "client"
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()
    files: Sequence[str] = ()
    py_files: Sequence[str] = ()
    archives: Sequence[str] = ()
    queue: str | None = None
    principal: str | None = None
    keytab: str | None = None
    binary: str | None = None
    executor_python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_secrets(self.conf)

    def command(self, state: str, run_id: str) -> list[str]:
        """`spark-submit` with this package's entry point."""
        if self.deploy_mode not in {"client", "cluster"}:
            raise OptionError(f"deploy_mode must be client or cluster, got {self.deploy_mode!r}.")
        words = [self.binary or _spark_submit(), "--master", self.master]
        words += ["--deploy-mode", self.deploy_mode, "--name", f"cloudfiles-{run_id}"]
        for flag, value in (
            ("--packages", ",".join(self.packages)),
            ("--files", ",".join(self.files)),
            ("--py-files", ",".join(self.py_files)),
            ("--archives", ",".join(self.archives)),
            ("--queue", self.queue),
            ("--principal", self.principal),
            ("--keytab", self.keytab),
        ):
            if value:
                words += [flag, value]
        words += _as_flags(self._conf())
        return [*words, str(Path(__file__).with_name("__main__.py")), state, run_id]

    def environment(self) -> dict[str, str]:
        """The driver's Python is this one in client mode."""
        java_home = None if self.binary else find_java()
        client = {"PYSPARK_DRIVER_PYTHON": sys.executable} if self.deploy_mode == "client" else {}
        return {
            **client,
            "PYSPARK_PYTHON": self.executor_python or os.environ.get("PYSPARK_PYTHON", "python3"),
            LAUNCHED: "submit",
            **({"JAVA_HOME": java_home} if java_home else {}),
            **self.env,
        }

    def _conf(self) -> dict[str, str]:
        """In cluster mode wait for the end, and tell the driver that its master was chosen."""
        waits = {}
        if self.deploy_mode == "cluster":
            waits = {
                "spark.yarn.submit.waitAppCompletion": "true",
                "spark.kubernetes.submission.waitAppCompletion": "true",
                f"spark.yarn.appMasterEnv.{LAUNCHED}": "submit",
                f"spark.kubernetes.driverEnv.{LAUNCHED}": "submit",
            }
        return {**DEFAULT_CONF, **waits, **self.conf}


class Run:
    """A run that was started; `wait` for it, or `kill` it."""

    def __init__(
        self,
        spec: JobSpec,
        process: subprocess.Popen[str],
        on_log: Callable[[str], None],
        state: ObjectStore,
    ) -> None:
        self._spec = spec
        self._state = state
        self._process = process
        self._on_log = on_log
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._killed = False

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        return self._process.pid

    def wait(self) -> dict[str, Any]:
        """Pass on the driver's lines until it ends, and return its report.

        Raises:
            CloudFilesError: What the run failed with; `RunFailedError` with the last lines when
                it left no report.
        """
        with self._process:
            for line in self._process.stdout or ():
                self._tail.append(line.rstrip("\n"))
                self._on_log(line.rstrip("\n"))
        code = self._process.returncode
        report = self._report()
        if report is None:
            how = "was killed" if self._killed else f"ended with exit code {code}"
            tail = "\n".join(self._tail)
            raise RunFailedError(
                f"The Spark driver {how} before it wrote a report. Nothing is lost: run again. "
                f"Its last lines were:\n{tail}"
            )
        if report.get("outcome") != "succeeded":
            error = report.get("error", {})
            raise from_name(str(error.get("class")), str(error.get("message")))
        return report

    def kill(self) -> None:
        """End the driver and everything it started; harmless when it has ended."""
        self._killed = True
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _report(self) -> dict[str, Any] | None:
        try:
            with reaching_state(self._state):
                content = self._state.get(self._spec.report_key)
        except ObjectNotFoundError:
            return None
        loaded: dict[str, Any] = json.loads(content)
        return loaded


def launch(
    spec: JobSpec, how: How, *, on_log: Callable[[str], None], access: Access | None = None
) -> Run:
    """Start a run.

    Args:
        spec: What to do.
        how: `LocalSpark`, `SparkSubmit` or `LocalPython`.
        on_log: Called with every line the driver prints, in the thread that calls `wait`.
        access: How source, state and target are reached, for this process and for the driver,
            which gets it in its environment. The executors of a cluster, and a driver that is
            deployed there, have an identity of their own. `None`: the environment's own chain.

    Raises:
        StateUnreachableError: The store of the checkpoint location does not answer.
        StateError: The checkpoint location cannot be written.
        JavaNotFoundError: There is no Java 17 or newer for a local Spark.
        RunError: PySpark is missing or damaged, or the command cannot be started.
    """
    store = open_store(spec.checkpoint_location, access)
    command = how.command(normalize_uri(spec.checkpoint_location), spec.run_id)
    environment = {**os.environ, **how.environment(), "PYTHONUNBUFFERED": "1"}
    if access is not None:
        environment |= to_environment(access)
    with reaching_state(store):
        store.delete(spec.report_key)
        store.put(spec.spec_key, spec.to_json().encode())
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{_MODULE}.supervisor", "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise RunError(f"{command[0]} cannot be started: {error}.") from error
    return Run(spec, process, on_log, store)


def default_conf(master: str) -> dict[str, str]:
    """Spark configuration for a master, unless the user says otherwise."""
    return {**DEFAULT_CONF, **(LOCAL_CONF if _LOCAL_MASTER.fullmatch(master) else {})}


def check_pyspark() -> None:
    """Find out whether PySpark is there, and whole.

    `pyspark-client` overwrites files of `pyspark`, and leaves it broken when it is removed.

    Raises:
        RunError: It is missing, or its files are of another version than its metadata.
    """
    folder = spark_home()
    declared = importlib.metadata.version("pyspark")
    text = (folder / "version.py").read_text(encoding="utf-8")
    found = re.search(r"""__version__\s*(?::\s*str\s*)?=\s*["']([^"']+)""", text)
    actual = found[1] if found else "unknown"
    if actual != declared:
        raise RunError(
            f"PySpark is damaged: its metadata says {declared}, its files {actual}. The package "
            "pyspark-client overwrites files of pyspark; reinstall pyspark after it, or install "
            "both in the same version."
        )


def spark_home() -> Path:
    """Where PySpark is installed (which is a `SPARK_HOME`), found without importing it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise RunError(
            "PySpark is not installed. Install airflow-provider-cloudfiles[spark,delta]."
        )
    return Path(found.origin).parent


def find_java() -> str | None:
    """Find Java 17 or newer.

    Returns:
        The `JAVA_HOME` to use; `None` when `java` on the path will do.

    Raises:
        JavaNotFoundError: There is none; the text says how to get one.
    """
    candidates = [os.environ.get("JAVA_HOME"), None]
    candidates += sorted(map(str, Path("/usr/lib/jvm").glob("*")), reverse=True)
    seen = []
    for home in candidates:
        binary = shutil.which("java") if home is None else str(Path(home, "bin", "java"))
        version = _java_version(binary) if binary else None
        if version is not None and version >= JAVA_MINIMUM:
            return home
        if version is not None:
            seen.append(f"{binary} is Java {version}")
    found = f" Found: {'; '.join(seen)}." if seen else ""
    raise JavaNotFoundError(
        f"Spark needs Java {JAVA_MINIMUM} or newer.{found} Install one (Debian, Ubuntu: apt-get "
        "install openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless; macOS: "
        "brew install openjdk@17) or set JAVA_HOME to it."
    )


def _java_version(binary: str) -> int | None:
    """Major version of a Java; `None` when it cannot be run."""
    try:
        said = subprocess.run(
            [binary, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def _spark_submit() -> str:
    """The `spark-submit` of the installed PySpark."""
    check_pyspark()
    return str(spark_home() / "bin" / "spark-submit")


def _as_flags(conf: Mapping[str, str]) -> list[str]:
    """Spark configuration as `spark-submit` takes it."""
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]


def _quoted(word: str) -> str:
    """A word for `PYSPARK_SUBMIT_ARGS`, which PySpark takes apart with `shlex`."""
    return shlex.quote(word)
