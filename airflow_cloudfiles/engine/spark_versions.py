"""State which Spark each use of this package needs, and refuse an older one by its version.

Importing this module imports no Spark.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Final

from airflow_cloudfiles.engine.errors import SparkVersionError

JOBS: Final = (3, 5)
"""The oldest Spark that carries what operators, `launch` and commands start."""
QUERIES: Final = (4, 2)
"""The oldest Spark whose Python data sources have what queries need: limits of what a micro-batch
reads, `Trigger.AvailableNow`, and sinks that take record batches of a stream."""
_DECLARED: Final = re.compile(r"""__version__\s*(?::\s*str\s*)?=\s*["']([^"']+)""")


def installed() -> str | None:
    """Find the version of the PySpark that this process would import, without importing it.

    Returns:
        Such as `3.5.6`; `None` where there is none, or it does not say. That of a cluster is a
        zip archive on the path of Python.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    path = str(Path(found.origin).with_name("version.py"))
    read = getattr(found.loader, "get_data", None)
    try:
        text = "" if read is None else read(path).decode()
    except OSError:
        return None
    declared = _DECLARED.search(text)
    return declared[1] if declared else None


def require_for_jobs(version: str) -> None:
    """Refuse a Spark that cannot carry a job.

    Args:
        version: Of PySpark.

    Raises:
        SparkVersionError: It is older than 3.5.
    """
    if numbers(version) < JOBS:
        raise SparkVersionError(
            f"PySpark {version} is too old: operators and commands need {_shown(JOBS)} or later. "
            "Install a later one, or leave Spark out with engine=local."
        )


def too_old_for_queries(version: str) -> SparkVersionError:
    """Give the error of a Spark that plain queries cannot use this package with.

    Args:
        version: Of PySpark, or of the server that a session is of.
    """
    return SparkVersionError(
        "register, readStream and writeStream of this package need Spark "
        f"{_shown(QUERIES)} or later, for its Python data sources; this is Spark {version}. With "
        f"Spark {_shown(JOBS)} or later use jobs instead, which keep the same state and write the "
        "same tables: CloudFilesIngestOperator, `cloudfiles ingest` or "
        "airflow_cloudfiles.engine.job.launch."
    )


def require_for_queries(version: str) -> None:
    """Refuse a Spark that plain queries cannot use this package with.

    Args:
        version: As of `too_old_for_queries`.

    Raises:
        SparkVersionError: It is older than 4.2.
    """
    if numbers(version) < QUERIES:
        raise too_old_for_queries(version)


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: of `4.2.0.dev1` 4 and 2."""
    return tuple(int(each) for each in re.findall(r"\d+", version)[:2])


def _shown(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
