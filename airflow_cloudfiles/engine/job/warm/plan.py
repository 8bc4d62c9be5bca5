"""Which runs may share a warm Spark, and what is it started with?

Runs share one when all is alike that a server cannot change for a session: the software, master and
memory, the Spark configuration that is not a session's, the umask, and the environment. A server
gets no variable that is not in this comparison. So a credential of one run reaches a server only
if each run on that server has the same one, and nothing else of a task's environment reaches it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.job import start_conf
from airflow_cloudfiles.engine.job.jvm import software
from airflow_cloudfiles.engine.job.spark_command import spark_home
from airflow_cloudfiles.engine.options import values

_PREFIXES = (
    *("AWS_", "AZURE_", "GOOGLE_", "GCE_", "GCLOUD_", "CLOUDSDK_", "CLOUDFILES_", "STORAGE_"),
    *("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "JAVA_", "_JAVA_", "JDK_", "CLASSPATH"),
    *("PYTHON", "LC_", "LD_", "SSL_", "MALLOC_", "ARROW_", "OMP_", "KRB5"),
)
_NAMES = frozenset(
    {
        *("HOME", "USER", "LOGNAME", "PATH", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "PUBSUB_EMULATOR_HOST"),
    }
)
_OF_A_RUN = frozenset(
    {
        *("CLOUDFILES_LAUNCHED", "CLOUDFILES_SPARK_REMOTE", "CLOUDFILES_WARM_SOCKET"),
        "CLOUDFILES_RUN_FOLDER",
        *("SPARK_REMOTE", "SPARK_CONNECT_MODE", "SPARK_CONNECT_AUTHENTICATE_TOKEN"),
        *("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"),
        *("PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"),
    }
)
_SESSION = "spark.sql."
_STATIC = re.compile(
    r"(?i)spark\.sql\.(extensions|warehouse\.dir|catalogImplementation|catalog\..*|hive\..*|ui\..*"
    r"|cache\.serializer|codegen\.(cache\.maxEntries|comments)|globalTempDatabase|defaultUrl.*"
    r"|filesourceTableRelationCacheSize|metadataCacheTTLSeconds|queryExecutionListeners"
    r"|streaming\.(streamingQueryListeners|ui\..*)|sources\.schemaStringLengthThreshold"
    r"|event\.truncate\.length|legacy\.sessionInitWithConfigDefaults|artifact\..*)"
)
"""Configuration of Spark SQL that a session cannot change."""
_DISTRIBUTIONS = ("pyspark", "pyarrow", "deltalake")
_LEAST_BYTES = 2 * values.GIB
_RUNS = 300
_AGE_SECONDS = 12 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a warm Spark is.

    Attributes:
        master: `local[n]`.
        driver_memory: Memory of its JVM; `None` for Spark's default.
        conf: Spark configuration of the server.
        environment: Its variables. They may hold credentials, and are written nowhere.
        umask: Of the files that it writes.
        software: Versions, and what tells an installation from another one.
        most_bytes: Memory from which on it takes no more runs, all processes together.
        most_seconds: Age from which on it takes no more runs.
        most_runs: How many runs it serves.
    """

    master: str
    driver_memory: str | None
    conf: Mapping[str, str]
    environment: Mapping[str, str] = field(repr=False)
    umask: int
    software: tuple[str, ...]
    most_bytes: int
    most_seconds: float
    most_runs: int

    @property
    def key(self) -> str:
        """A name that equal plans share, and others do not."""
        text = json.dumps([os.getuid(), asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def settings(self) -> dict[str, Any]:
        """What the server's process reads of it: all but the environment, which it has."""
        found = asdict(self)
        del found["environment"]
        return found


def plan_of(
    master: str,
    driver_memory: str | None,
    spark_conf: Mapping[str, str],
    environment: Mapping[str, str],
) -> Plan:
    """Say what a warm Spark for a run has to be.

    Args:
        master: `local[*]` or `local[n]`.
        driver_memory: Memory of its JVM.
        spark_conf: The Spark configuration of the run.
        environment: That of the run's driver, with `JAVA_HOME`.

    Raises:
        OptionError: A bound is no size, or no interval.
    """
    memory = spark_conf.get(start_conf.WARM_MEMORY)
    age = spark_conf.get(start_conf.WARM_AGE)
    runs = spark_conf.get(start_conf.WARM_RUNS)
    return Plan(
        master=master,
        driver_memory=driver_memory,
        conf={key: str(spark_conf[key]) for key in spark_conf if not is_of_session(key)},
        environment=dict(_kept(environment)),
        umask=_umask(),
        software=tuple(_software(environment)),
        most_bytes=values.size.read(start_conf.WARM_MEMORY, memory) if memory else _default_bytes(),
        most_seconds=values.interval.read(start_conf.WARM_AGE, age) if age else _AGE_SECONDS,
        most_runs=values.positive.read(start_conf.WARM_RUNS, runs) if runs else _RUNS,
    )


def is_of_session(key: str) -> bool:
    """Whether a session can set a Spark configuration for itself."""
    return key.startswith(_SESSION) and not _STATIC.fullmatch(key)


def _kept(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(environment.items()):
        if name not in _OF_A_RUN and (name in _NAMES or name.startswith(_PREFIXES)):
            yield name, value


def _default_bytes() -> int:
    """A quarter of the machine's memory, and at least 2 GiB."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_LEAST_BYTES, machine // 4)


def _umask() -> int:
    """The umask of this process, without changing it meanwhile, as other threads would see."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(text.partition("\nUmask:")[2].split()[0], 8)


def _software(environment: Mapping[str, str]) -> Iterator[str]:
    """This Python, what is installed, Java and Spark."""
    yield from (sys.executable, sys.version)
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield f"{name} {importlib.metadata.version(name)}"
    # Not by its version: a checkout changes without one.
    package = Path(__file__).parents[3]
    newest = max(path.stat().st_mtime_ns for path in package.rglob("*.py"))
    yield f"{package} {newest}"
    java = Path(environment["JAVA_HOME"], "bin", "java")
    yield from map(str, software(java, spark_home()))
