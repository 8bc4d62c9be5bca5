"""Start the Spark session of a run.

A local run starts its JVM, and has a process that becomes Spark's Python daemon import what tasks
need, in the background, as soon as it knows that there is work for them, and goes on with what
needs no Spark. On a cluster, and for whoever calls this without a driver of its own, PySpark starts
Spark.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from itertools import pairwise
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.local import LocalProcesses, cores
from airflow_cloudfiles.engine.batches.spark_tasks import SparkTasks
from airflow_cloudfiles.engine.errors import RunFailedError, UnsupportedOptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.jvm import Jvm
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM, LAUNCHED, default_conf
from airflow_cloudfiles.engine.spark import forked_python, handoff
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from airflow_cloudfiles.engine.batches.run import Executor
    from airflow_cloudfiles.engine.errors import CloudFilesError
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.spark.forked_python import ForkedDaemon

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")
_OF_PY4J = re.compile(r"py4j\.")
_log = logging.getLogger(__name__)


class SparkStart:
    """The Spark of one run: begun in the background, then a session; stopped at the end.

    Args:
        spec: The run.
        daemon: What becomes its Python daemon, if there is one; closed with this.
    """

    def __init__(self, spec: JobSpec, daemon: ForkedDaemon | None = None) -> None:
        self._spec = spec
        self._conf = _configuration(spec)
        self._jvm: Jvm | None = None
        self._daemon = daemon

    _context: SparkContext | None = None
    waited_seconds = 0.0
    """How long the run has waited for the session."""
    warnings: Sequence[str] = ()
    """What the run is to say of its Spark."""
    name = "Spark"
    """Of what carries the tasks, for errors."""

    keeps_queries_on: Any = None
    """The server (`SparkConnect`) on which a query goes on when its driver leaves, as
    `ConnectStart` has one; `None` where none does."""

    def check(self) -> None:
        """Refuse a run that this Spark cannot do, before anything is done."""

    def as_ours(self, error: Exception) -> CloudFilesError | None:
        """Say that the JVM has ended; return `None` where that is not what failed."""
        modules = (each.f_globals["__name__"] for each, _ in walk_tb(error.__traceback__))
        if not isinstance(error, ConnectionError) or not any(map(_OF_PY4J.match, modules)):
            return None
        return RunFailedError(
            "Spark's JVM has ended, with what its tasks were doing. Nothing is lost: run again. "
            "Its end is in the log above, or in that of the cluster."
        )

    def begin(self) -> None:
        """Start Spark in the background, in a local run; once.

        Raises:
            JavaNotFoundError: There is no Java that will do.
        """
        if self._jvm is None and os.environ.get(LAUNCHED) == "local":
            _log.info("Starting Spark")
            self._daemon = forked_python.start(
                handoff.process_folder(),
                self._conf,
                self._daemon,
                for_iceberg=target_of(str(self._spec.target)).layer == "iceberg",
            )
            self._jvm = Jvm(handoff.process_folder(), self._conf)

    @contextmanager
    def executor(self) -> Iterator[Executor]:
        """Open what carries tasks; wait for the session when there are some."""
        yield SparkTasks(self.context, printable_path(str(self._spec.target)))

    def parallelism(self) -> int:
        """Return how many tasks run at a time, without waiting for a session just for that."""
        found = _LOCAL.fullmatch(self._master())
        if found is None:
            return self.context().defaultParallelism
        return cores() if found[1] in {None, "*"} else int(found[1])

    def _master(self) -> str:
        given = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
        master = dict(pairwise(given)).get("--master", "")
        return self._conf.get("spark.master") or master

    def context(self) -> SparkContext:
        """Give the connection to the cluster, or to the Spark of this machine.

        The master comes from `spark-submit` or the specification; the default is `local[*]`.

        Raises:
            RunError: Java ended before Spark was there.
        """
        if self._context is None:
            asked = time.monotonic()
            self.begin()
            if self._jvm is not None:
                self._jvm.connect()
            self._context = _context(self._spec, self._conf)
            self.waited_seconds = round(time.monotonic() - asked, 3)
            _log.info("Spark %s is ready, after %.1f s", self._context.version, self.waited_seconds)
        return self._context

    def settings(self) -> Mapping[str, str]:
        """Return the configuration of the run; once connected, with all that a cluster adds."""
        found = [] if self._context is None else self._context.getConf().getAll()
        return {**dict(found), **self._spec.spark_conf}

    def session(self) -> SparkSession:
        """Give the session, for what is made of DataFrames.

        Raises:
            RunError: As of `context`.
        """
        self.context()
        from pyspark.sql import SparkSession  # noqa: PLC0415

        return SparkSession.builder.config(map={**self._conf}).getOrCreate()

    def stop_session(self) -> None:
        """Stop the session; harmless when there is none."""
        context, self._context = self._context, None
        if context is not None:
            context.stop()

    def close(self) -> None:
        """Stop Spark; harmless when it was not begun."""
        self.stop_session()
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.close()
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.close()


class NoSpark(SparkStart):
    """The Spark of a run that has none: processes of this machine carry its tasks."""

    name = "The run"

    @contextmanager
    def executor(self) -> Iterator[Executor]:
        """Open processes of this machine."""
        with LocalProcesses(cores()) as processes:
            yield processes

    def parallelism(self) -> int:
        """Return one task for each core."""
        return cores()

    def as_ours(self, error: Exception) -> CloudFilesError | None:
        """Say what the end of a process means."""
        if not isinstance(error, BrokenExecutor):
            return None
        return RunFailedError(
            "A process that read files has died, perhaps for lack of memory. Nothing of this "
            "micro-batch was committed: run again, with smaller micro-batches "
            "(cloudFiles.maxFilesPerTrigger, cloudFiles.maxBytesPerTrigger) or more memory."
        )

    def check(self) -> None:
        """Refuse a run that needs Spark.

        Raises:
            UnsupportedOptionError: It has a function over DataFrames.
        """
        if self._spec.kind == "ingest" and self._spec.transform:
            raise UnsupportedOptionError(
                "The engine local has no Spark, and cannot be used with transform, whose function "
                "is given DataFrames of Spark. Leave out engine=local."
            )


def _configuration(spec: JobSpec) -> dict[str, str]:
    """Build the Spark configuration of a run."""
    # Whoever launched the driver has set master and defaults already, before the user's own; so has
    # a service whose `spark-submit` runs a program that carries out a run.
    launched = os.environ.get(LAUNCHED) or os.environ.get("PYSPARK_GATEWAY_PORT")
    master = spec.spark_conf.get("spark.master", "local[*]")
    defaults: Mapping[str, str] = (
        {} if launched else {"spark.master": master, **default_conf(master)}
    )
    if launched == "local":
        # Where Spark keeps blocks that it spills, unless `spark.local.dir` says another place: it
        # leaves the folder open to whom the umask does.
        temporary = f'"-Djava.io.tmpdir={handoff.process_folder()}"'
        defaults = {"spark.driver.extraJavaOptions": f"{COORDINATOR_JVM} {temporary}"}
    return {**defaults, **spec.spark_conf}


def _context(spec: JobSpec, conf: Mapping[str, str]) -> SparkContext:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    given = SparkConf().setAppName(f"cloudfiles-{spec.run_id}").setAll(list(conf.items()))
    context = SparkContext.getOrCreate(given)
    context.setLogLevel(os.environ.get("CLOUDFILES_SPARK_LOG_LEVEL", "FATAL"))
    return context
