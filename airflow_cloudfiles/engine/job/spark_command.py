"""Build the command and the environment that start a driver.

`LocalSpark` and `LocalPython` run the job in a Python process on this machine, `SparkSubmit` hands
it to a cluster. With `SparkConnect` the driver is a Python process without a JVM, too: a client of
the server, for which the package `pyspark-client` is enough. The address of the server may hold a
token, so it reaches the driver in its environment and nothing else. Importing this module imports
no Spark.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

from airflow_cloudfiles.engine import spark_versions
from airflow_cloudfiles.engine.errors import OptionError, RunError
from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.spec import refuse_secrets
from airflow_cloudfiles.engine.messages import install
from airflow_cloudfiles.engine.spark.preload import EXECUTOR_PRELOAD, FORKABLE, check, is_on
from airflow_cloudfiles.engine.storage.access import check_environment, check_secret

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
COORDINATOR_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms40m -Xmn10m "
    "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
)
"""JVM options of a local run: its JVM only coordinates, rows stay in Python. Compiling less and one
collector thread start it sooner and leave the cores to the tasks; a heap that begins small, and not
with a 64th of the machine's memory, stays small. The class data archive lies where it was made for:
elsewhere, Java would patch each pointer in it, and no page of it could be shared (decision 71)."""
LAUNCHED = "CLOUDFILES_LAUNCHED"
"""Environment variable: `local` or `submit`, when the master was chosen with the driver's start;
`python` where there is none."""
WITHOUT_SPARK = "python"
"""The value of that variable for a driver that starts no Spark."""
_LOCAL_MASTER = re.compile(r"local(\[.*\])?")
IMAGE_ENTRY_POINT = "local:///opt/cloudfiles/job.py"
"""The entry point in a container image as the documentation builds one: a driver on Kubernetes
starts from a file of its image, and not from one of the machine that submits it."""
IMAGE_PYTHON = "/opt/cloudfiles/bin/python"
"""The Python of such an image."""
DAEMON_MODULE = "airflow_cloudfiles.engine.spark.daemon"
JOB_MODULE = "airflow_cloudfiles.engine.job"


class DriverStart(Protocol):
    """A way to start the Spark driver of a run."""

    def command(self, state: str, run_id: str) -> list[str]:
        """Build the command to run: Python carries out the run, and starts a JVM where needed."""
        return [sys.executable, "-m", JOB_MODULE, state, run_id]

    def environment(self) -> dict[str, str]:
        """Environment variables to add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSpark(DriverStart):
    """Spark in one process on this machine.

    Attributes:
        master: `local[*]`, or `local[n]` for n tasks at a time.
        driver_memory: Memory of the JVM as Spark writes it (`2g`); default is Spark's (1g).
    """

    master: str = "local[*]"
    driver_memory: str | None = None

    def environment(self) -> dict[str, str]:
        """PySpark takes master and memory of a JVM it starts itself from one variable."""
        check_pyspark()
        arguments = ["--master", self.master, *_as_flags(default_conf(self.master))]
        if self.driver_memory:
            arguments += ["--driver-memory", self.driver_memory]
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        return {
            **python,
            **FORKABLE,
            # PySpark takes it apart with `shlex`.
            "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
            LAUNCHED: "local",
            "JAVA_HOME": find_java(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPython(DriverStart):
    """Processes of this Python, for jobs that need no Spark, and for the engine `local`."""

    def environment(self) -> dict[str, str]:
        """Say that there is no Spark."""
        return {LAUNCHED: WITHOUT_SPARK}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSubmit(DriverStart):
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
        entry_point: What `spark-submit` submits; default is this package's own file, for a driver
            that Kubernetes starts `IMAGE_ENTRY_POINT`.
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
    entry_point: str | None = None

    def __post_init__(self) -> None:
        refuse_secrets(self.conf)
        check(self.conf)

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
        return [*words, self._entry_point(), state, run_id]

    def environment(self) -> dict[str, str]:
        """Build the environment; in client mode, the driver's Python is this one."""
        java = {} if self.binary else {"JAVA_HOME": find_java()}
        client = {"PYSPARK_DRIVER_PYTHON": sys.executable} if self.deploy_mode == "client" else {}
        return {
            **client,
            "PYSPARK_PYTHON": self.executor_python or os.environ.get("PYSPARK_PYTHON", "python3"),
            LAUNCHED: "submit",
            **java,
            **self.env,
        }

    def _entry_point(self) -> str:
        """Find the file that the driver's Python runs."""
        if self.entry_point:
            return self.entry_point
        if self.deploy_mode == "cluster" and self.master.startswith("k8s://"):
            return IMAGE_ENTRY_POINT
        return str(Path(__file__).with_name("__main__.py"))

    def _conf(self) -> dict[str, str]:
        """Configure cluster mode to wait for the end, and say that the master was chosen."""
        waits = {}
        if self.deploy_mode == "cluster" and self.master == "yarn":
            waits = {
                "spark.yarn.submit.waitAppCompletion": "true",
                f"spark.yarn.appMasterEnv.{LAUNCHED}": "submit",
            }
        elif self.deploy_mode == "cluster":
            waits = {
                "spark.kubernetes.submission.waitAppCompletion": "true",
                f"spark.kubernetes.driverEnv.{LAUNCHED}": "submit",
            }
        return {**DEFAULT_CONF, **self._preload(), **waits, **self.conf}

    def _preload(self) -> dict[str, str]:
        """Have Python workers import everything once an executor, not once a core.

        Not when the package comes as a Python archive: the daemon cannot import it from there.
        """
        if self.py_files or not is_on(self.conf, EXECUTOR_PRELOAD):
            return {}
        return {"spark.python.daemon.module": DAEMON_MODULE}


def default_conf(master: str) -> dict[str, str]:
    """Spark configuration for a master, unless the user says otherwise."""
    return {**DEFAULT_CONF, **(LOCAL_CONF if _LOCAL_MASTER.fullmatch(master) else {})}


def check_pyspark() -> None:
    """Find out whether PySpark is there, whole, and new enough.

    `pyspark-client` overwrites files of `pyspark`, and leaves it broken when it is removed.

    Raises:
        RunError: It is missing, or its files are of another version than its metadata.
        SparkVersionError: It is older than 3.5.
    """
    import importlib.metadata  # noqa: PLC0415 - slow, and only a Spark of ones own is checked

    spark_home()
    actual = spark_versions.installed() or "unknown"
    try:
        declared = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:  # a cluster's own, on the path of Python
        declared = actual
    if actual != declared:
        raise RunError(
            f"PySpark is damaged: its metadata says {declared}, its files {actual}. The package "
            "pyspark-client overwrites files of pyspark; reinstall pyspark after it, or install "
            "both in the same version."
        )
    spark_versions.require_for_jobs(actual)


def spark_home() -> Path:
    """Find where Spark is, with its `bin` and `jars`, without importing PySpark.

    The folder of an installed PySpark is that; one of a cluster, in an archive or a folder on the
    path of Python, has it in `SPARK_HOME`.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise RunError(f"PySpark is not installed. {install('spark', 'delta')}")
    folder, given = Path(found.origin).parent, os.environ.get("SPARK_HOME")
    return folder if (folder / "bin").is_dir() or not given else Path(given)


def _spark_submit() -> str:
    """Find the `spark-submit` of the installed PySpark."""
    check_pyspark()
    return str(spark_home() / "bin" / "spark-submit")


def _as_flags(conf: Mapping[str, str]) -> list[str]:
    """Spark configuration as `spark-submit` takes it."""
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]


REMOTE = "CLOUDFILES_SPARK_REMOTE"
"""Environment variable of a driver: the address of the server, with its token."""
CONNECT = "connect"
"""What `CLOUDFILES_LAUNCHED` is for such a driver."""
DEFAULT_PORT = 15002
TOKEN, USER_ID, USE_SSL = "token", "user_id", "use_ssl"
_SHOWN = frozenset({USER_ID, USE_SSL, "session_id", "user_agent"})
"""Parameters that are no secret; any other may be one, since it is sent as a header."""
_HIDDEN = "***"
_USER_INFO = re.compile(r"^sc://[^/;]*@")
_ADVICE = "Write sc://host:port, or sc://host:port/;use_ssl=true;token=..."


@dataclass(frozen=True, slots=True)
class SparkConnect(DriverStart):
    """A Spark Connect server.

    The server's Python needs this package in the version of the client, with its extras `spark` and
    `delta`, and it must reach the source, the state and the target by the same URIs
    (docs/how-to/spark-connect.md).

    Attributes:
        remote: Its address as Spark writes it: `sc://host:port/;token=...;use_ssl=true`.
    """

    remote: str = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "remote", self.remote.strip())
        if _USER_INFO.match(self.remote):
            raise OptionError(f"The address of a Spark Connect server has no user. {_ADVICE}")
        try:
            split = urlsplit(self.remote)
            parts = (split.scheme, split.hostname, split.port)
        except ValueError:  # without the cause, whose text may hold the token
            raise OptionError(
                f"The port of a Spark Connect server is a number. {_ADVICE}"
            ) from None
        if parts[0] != "sc" or not parts[1]:
            raise OptionError(
                f"The address of a Spark Connect server begins with sc:// and a host. {_ADVICE}"
            )
        if split.query or split.fragment or split.path.partition(";")[0] not in {"", "/"}:
            raise OptionError(f"The address of a Spark Connect server has no path. {_ADVICE}")
        for each in self._parameters():
            if "=" not in each:
                raise OptionError(
                    f"A parameter of the Spark Connect server {self.address} lacks a value. "
                    f"{_ADVICE}"
                )
        for value in self._secrets():
            check_secret(f"A parameter of the Spark Connect server {self.address}", unquote(value))

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        split = urlsplit(self.remote)
        host = f"[{split.hostname}]" if ":" in str(split.hostname) else split.hostname
        return f"{host}:{self.port}"

    @property
    def host(self) -> str:
        """Name or address of the machine."""
        return str(urlsplit(self.remote).hostname)

    @property
    def port(self) -> int:
        """Its port."""
        return urlsplit(self.remote).port or DEFAULT_PORT

    @property
    def uses_ssl(self) -> bool:
        """Whether the client is to speak TLS."""
        pairs = (each.partition("=") for each in self._parameters())
        return any(name == USE_SSL and value.lower() == "true" for name, _, value in pairs)

    @property
    def has_secrets(self) -> bool:
        """Whether the address holds what others should not see."""
        return bool(self._secrets())

    def scrubbed(self, text: str) -> str:
        """Remove from a text what is secret in the address."""
        for value in self._secrets():
            for written in (value, unquote(value)):
                text = text.replace(written, _HIDDEN)
        return text

    def environment(self) -> dict[str, str]:
        """Return the address of the server as variables, which no other process can read."""
        return {LAUNCHED: CONNECT, REMOTE: self.remote}

    def _secrets(self) -> list[str]:
        pairs = (each.partition("=") for each in self._parameters())
        return [
            value
            for name, _, value in pairs
            if name not in _SHOWN and value.lower() not in {"", "true", "false"}
        ]

    def _parameters(self) -> list[str]:
        return [each for each in urlsplit(self.remote).path.split(";")[1:] if each]


def remote_of(
    host: str, port: int | None, *, user: str | None, token: str | None, use_ssl: object
) -> str:
    """Write the address of a server from the fields of an Airflow connection."""
    authority = host.removeprefix("sc://").rstrip("/")
    if port:
        authority = f"{authority}:{port}"
    parameters = []
    for name, value in ((USER_ID, user), (TOKEN, token), (USE_SSL, use_ssl)):
        if value not in {None, ""}:
            text = str(value).lower() if isinstance(value, bool) else str(value).strip()
            parameters.append(f";{name}={quote(text, safe='')}")
    return f"sc://{authority}/{''.join(parameters)}"


def server_of_driver() -> SparkConnect:
    """Return the server that this driver was started for; its child processes get no address."""
    check_environment("SPARK_CONNECT_AUTHENTICATE_TOKEN")
    return SparkConnect(os.environ.pop(REMOTE))
