"""PySpark's daemon, which has imported what the tasks of a stream need.

An executor starts one daemon, and the daemon forks a worker for each core. Spark's own imports
nothing but PySpark, so the first task of every worker imports the rest. `SparkSubmit` names this
module as `spark.python.daemon.module`.

Spark starts another daemon for each session of a Spark Connect server whose artifacts are its own,
and never ends it. One of this module ends when it has had no worker for a while; where its session
has work again, Spark starts another.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from airflow_cloudfiles.engine.spark.preload import ALLOCATOR, NO_THREADS, preload

LOOK_SECONDS = 20.0
"""How often a daemon looks whether it has workers. Spark itself ends those that idle for 60 s."""
_IDLE_LOOKS = 3
_ARTIFACTS = "SPARK_JOB_ARTIFACT_UUID"
_SHARED = {None, "", "default"}


def end_when_idle(look_seconds: float = LOOK_SECONDS) -> None:
    """Have this process end, as Spark ends it, after some looks at which it had no worker.

    The one that all sessions without artifacts of their own share stays.
    """
    workers = Path(f"/proc/self/task/{os.getpid()}/children")
    if os.environ.get(_ARTIFACTS) in _SHARED or not workers.exists():
        return
    idle = 0

    def look(*_: object) -> None:
        nonlocal idle
        idle = 0 if workers.read_text() else idle + 1
        if idle >= _IDLE_LOOKS:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, look_seconds, look_seconds)  # a fork has no timer


if __name__ == "__main__":
    given = dict(os.environ)
    os.environ.update({**ALLOCATOR, **given, **NO_THREADS})
    try:
        preload()
    except ImportError as error:
        print(f"Tasks import everything by themselves: {error}", file=sys.stderr)  # noqa: T201
    os.environ.clear()
    os.environ.update(given)
    from pyspark.daemon import manager

    end_when_idle()
    manager()
