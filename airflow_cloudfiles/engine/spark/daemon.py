"""PySpark's daemon, which has imported what the tasks of a stream need.

An executor starts one daemon, and the daemon forks a worker for each core. Spark's own imports
nothing but PySpark, so the first task of every worker imports the rest. `SparkSubmit` names this
module as `spark.python.daemon.module`.
"""

from __future__ import annotations

import os
import sys

from airflow_cloudfiles.engine.spark.preload import NO_THREADS, preload

if __name__ == "__main__":
    given = dict(os.environ)
    os.environ.update(NO_THREADS)
    try:
        preload()
    except ImportError as error:
        print(f"Tasks import everything by themselves: {error}", file=sys.stderr)  # noqa: T201
    os.environ.clear()
    os.environ.update(given)
    from pyspark.daemon import manager

    manager()
