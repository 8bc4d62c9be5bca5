"""What do the Python processes of Spark import, and how is it imported before a fork?

A process that others are forked from has no threads: of a thread, a fork has only what it happened
to hold. Some libraries start threads when they are imported, unless the environment says otherwise.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

DAEMON = "pyspark.daemon"
"""The module that Spark runs to have workers forked; its argument is the workers' module."""
PRELOADED = (
    DAEMON,
    "pyspark.worker",
    "deltalake.transaction",
    "pyarrow.compute",
    "pyarrow.parquet",
    "airflow_cloudfiles.engine.batches.delta_writer",
    "airflow_cloudfiles.engine.batches.file_source",
    "airflow_cloudfiles.engine.delta.commit",
    "airflow_cloudfiles.engine.formats.registry",
    "airflow_cloudfiles.engine.reading.fetch",
    "airflow_cloudfiles.engine.stream.definition",
    "airflow_cloudfiles.engine.stream.schema_change",
)
"""What tasks import."""
ICEBERG = (
    "airflow_cloudfiles.engine.iceberg.catalog",
    "airflow_cloudfiles.engine.iceberg.commit",
    "airflow_cloudfiles.engine.iceberg.data_files",
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
    """Whether this process may fork: no library has started a thread."""
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
