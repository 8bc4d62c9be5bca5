"""Teach a Spark session `format("cloudFiles")`.

What takes long is done side by side: the JVM makes the state of the session, a process imports what
Spark's Python processes need (`fork_server`), and this one imports the rest of the package. So this
module imports little.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.spark import (
    data_source_api,  # noqa: F401 - refuses an older Spark
    fork_server,
)
from airflow_cloudfiles.engine.spark.preload import FORKED_DAEMON, is_on
from airflow_cloudfiles.engine.spark_versions import require_for_queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `cloudFiles` and the jar-less sinks of Delta and Iceberg known to a Spark session.

    Calling it again, or for another session, is harmless.

    Args:
        spark: A session of Spark 4.2 or later, also one of Spark Connect, whose server needs this
            package on its Python. Of an older one `SparkVersionError` says so.
    """
    require_for_queries(spark.version)
    if _is_connect(spark):
        from airflow_cloudfiles.engine.spark import load_and_start  # noqa: PLC0415

        load_and_start.register_with_connect(spark)
        return
    is_this_python = _use_this_python(spark)
    with ThreadPoolExecutor(1, thread_name_prefix="cloudfiles-session") as other:
        state = other.submit(_make_state, spark)
        from airflow_cloudfiles.engine.spark import load_and_start  # noqa: PLC0415

        state.result()
    with _as_active(spark):
        load_and_start.register_with_jvm(spark, is_this_python=is_this_python)


def _is_connect(spark: object) -> bool:
    return any(each.__module__.startswith("pyspark.sql.connect.") for each in type(spark).__mro__)


def _make_state(spark: Any) -> None:
    """Have Spark make the state of a session, which it would with the first source."""
    with _as_active(spark):
        spark._jsparkSession.sessionState()  # noqa: SLF001


@contextlib.contextmanager
def _as_active(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one; of another, Spark refuses a name that only the active has."""
    sessions: Any = spark._jvm.SparkSession  # type: ignore[union-attr]  # noqa: SLF001
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _use_this_python(spark: SparkSession) -> bool:
    """Let local workers run the Python that has this package, unless the user chose another.

    Spark takes `python3` from the path, which in an environment that is not activated is another
    one, and lacks this package. Its processes are forked from one that has imported everything,
    where that is possible.

    Returns:
        Whether they run it.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None or not str(context.master).startswith("local"):
        return False
    conf = dict(context.getConf().getAll())
    chosen = os.environ.get("PYSPARK_PYTHON") or conf.get("spark.pyspark.python")
    if chosen and chosen != sys.executable:
        return False
    launcher = fork_server.launcher() if is_on(conf, FORKED_DAEMON) else None
    context.pythonExec = launcher or sys.executable
    return True
