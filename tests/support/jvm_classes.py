"""The classes of Spark, kept once for all JVMs that tests start.

They are kept after the second run on a machine (`engine.job.jvm_archive`); a run that is killed
keeps none.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from functools import cache
from pathlib import Path

from airflow_cloudfiles.engine.job.jvm import FOLDER, command_line
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, launch
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM
from airflow_cloudfiles.engine.state.locks.run_lock import FileLock
from tests.support.landing import drop
from tests.support.waiting import until

_USED = "-XX:SharedArchiveFile="
_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@cache
def keep_classes() -> str:
    """See to it that the classes are kept, where they can be.

    Returns:
        Options with which any JVM of this Spark starts sooner; without the classes, some of them.
    """
    folder = Path(os.environ[FOLDER])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(str(folder / "tests.lock"))
    until(lock.try_acquire)  # one of the workers of the tests makes them
    try:
        found = _kept()  # which leaves a note, as a first run does
        if not found:
            _run_once()
            until(lambda: any(folder.glob("*.jsa")), every=1)
            found = _kept()
    finally:
        lock.release()
    return f"{_SMALL_JVM} {_USED}{found} -Xshare:auto -Xlog:disable" if found else _SMALL_JVM


def _kept() -> str:
    """The archive that a local run uses; nothing where there is none."""
    how = LocalSpark(master="local[2]").environment()
    options = ["--conf", f"spark.driver.extraJavaOptions={COORDINATOR_JVM}"]
    command, archive = command_line([*options, *shlex.split(how["PYSPARK_SUBMIT_ARGS"])], {}, {})
    if archive is not None and archive.is_wanted:
        archive.leave_to_next()
    return next((word.removeprefix(_USED) for word in command if word.startswith(_USED)), "")


def _run_once() -> None:
    with tempfile.TemporaryDirectory(prefix="cloudfiles-tests-classes-") as name:
        folder = Path(name)
        drop(folder / "in", "one.json", [{"id": 1}])
        spec = JobSpec(
            kind="ingest",
            source=str(folder / "in"),
            format="json",
            checkpoint_location=str(folder / "state"),
            target=str(folder / "table"),
            run_id="run",
        )
        launch(spec, LocalSpark(master="local[2]"), on_log=lambda _: None).wait()


if __name__ == "__main__":  # `make test`, while it checks the types: the tests then need not wait
    os.environ[FOLDER] = str(Path(sys.prefix) / "jvm")
    with tempfile.TemporaryDirectory(prefix="cloudfiles-tests-cache-") as cache:
        os.environ["CLOUDFILES_CACHE_DIR"] = cache
        keep_classes()
