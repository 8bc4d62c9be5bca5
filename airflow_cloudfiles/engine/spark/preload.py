"""Configure how Spark and its Python processes start, and what they import before a fork.

A process that others are forked from has no threads: of a thread, a fork has only what it happened
to hold. Some libraries start threads when they are imported, unless the environment says otherwise.

Spark itself does not know them. None changes what a run does. Each is `true` unless it is set
to `false`.
"""

from __future__ import annotations

import difflib
import gc
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Final

from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError

DAEMON = "pyspark.daemon"
"""The module that Spark runs to have workers forked; its argument is the workers' module."""
PRELOADED = (
    DAEMON,
    "pyspark.worker",
    "deltalake.transaction",
    "pyarrow.compute",
    "pyarrow.parquet",
    "airflow_cloudfiles.engine.tables.delta_table",
    "airflow_cloudfiles.engine.batches.file_source",
    "airflow_cloudfiles.engine.tables.delta.commit",
    "airflow_cloudfiles.engine.formats.registry",
    "airflow_cloudfiles.engine.reading.fetch",
    "airflow_cloudfiles.engine.stream.definition",
    "airflow_cloudfiles.engine.stream.schema_change",
)
"""What tasks import."""
ICEBERG = (
    "airflow_cloudfiles.engine.extensions.iceberg.catalog",
    "airflow_cloudfiles.engine.extensions.iceberg.commit",
    "airflow_cloudfiles.engine.extensions.iceberg.data_files",
)
"""What writing and committing import besides where the target is a table of an Iceberg catalog."""
OPTIONAL = (
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pandas",
)
"""Imported where they are installed and not hidden: what tasks of queries import, which an older
Spark lacks; PyArrow imports pandas with its first array."""
NO_THREADS = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment in which none of them starts a thread by being imported."""
ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Environment, unless the user has chosen, in which Arrow keeps 30 MB a process less of what it has
freed than in its own allocators (record 71)."""
FORKABLE = {
    **NO_THREADS,
    # As Spark sets it for its Python processes: all hash alike.
    "PYTHONHASHSEED": "0",
}
"""Environment of a process that Spark's Python processes may be forked from."""


class _Hidden(MetaPathFinder):
    """Refuses pandas.

    `None` in `sys.modules` is for Python code only: PyArrow takes it for the module.
    """

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Fail for pandas; leave all else to others."""
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not used in a local run", name=fullname)
        return None


def has_one_thread() -> bool:
    """Tell whether this process may fork: no library has started a thread."""
    return sum(1 for _ in Path("/proc/self/task").iterdir()) == 1


def hide_pandas() -> None:
    """Have `import pandas` fail here, and in what is forked, as if it was not installed.

    Nothing of a local run needs it, but PyArrow imports it with the first array that it makes:
    20 to 29 MB and a quarter of a second in each process that is not forked after that.
    """
    if not any(isinstance(each, _Hidden) for each in sys.meta_path):
        sys.meta_path.insert(0, _Hidden())


def preload(more: Sequence[str] = (), *, for_iceberg: bool = False) -> None:
    """Import what the processes will need.

    Args:
        more: Modules besides those of tasks.
        for_iceberg: Whether they write to a table of an Iceberg catalog.
    """
    for name in PRELOADED:
        importlib.import_module(name)
    for name in (*OPTIONAL, *more, *(ICEBERG if for_iceberg else ())):
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # pages that the collector does not touch stay shared


PREFIX = "spark.cloudfiles."
FORKED_DAEMON = "spark.cloudFiles.forkedDaemon"
JVM_ARCHIVE = "spark.cloudFiles.jvmArchive"
EXECUTOR_PRELOAD = "spark.cloudFiles.executorPreload"
MEANINGS = {
    FORKED_DAEMON: "local runs and queries: Spark's Python processes are forked from one that has "
    "imported everything; on Linux",
    JVM_ARCHIVE: "local runs: the JVM's classes are kept after the second run on a machine, and "
    "used by later ones",
    EXECUTOR_PRELOAD: "runs on a cluster: an executor imports everything once, not once for each "
    "core; not with `py_files`",
}
"""Every key that turns something on, and what."""


def check(conf: Mapping[str, str]) -> None:
    """Find out whether the keys of this package are some, with values that they take.

    Raises:
        UnknownOptionError: A key that begins like them is none of them.
        OptionError: A value is neither `true` nor `false`.
    """
    for key, value in conf.items():
        if not key.lower().startswith(PREFIX):
            continue
        if key not in MEANINGS:
            names = {each.lower().removeprefix(PREFIX): each for each in MEANINGS}
            near = difflib.get_close_matches(key.lower().removeprefix(PREFIX), names, n=1)
            all_names = ", ".join(MEANINGS)
            hint = f" Did you mean {names[near[0]]}?" if near else f" There are: {all_names}."
            raise UnknownOptionError(f"The Spark configuration {key} does not exist.{hint}")
        if str(value).lower() not in {"true", "false"}:
            raise OptionError(f"{key} must be true or false, got {value!r}.")


def is_on(conf: Mapping[str, str], key: str) -> bool:
    """Tell whether a key is not turned off."""
    return str(conf.get(key, "true")).lower() != "false"


_BANNER: Final = re.compile(
    r"WARNING: Using incubator modules: "
    r"|Using Spark's default log4j profile: "
    r"|Setting default log level to "
    r"|To adjust logging level use sc\.setLogLevel"
    r"|\S+ \S+ WARN (?:NativeCodeLoader|Utils): "
    r"(?:Unable to load native-hadoop library|Your hostname, |Set SPARK_LOCAL_IP )"
)


def is_banner(line: str) -> bool:
    """Is this such a line of a job's log?"""
    return _BANNER.match(line) is not None
