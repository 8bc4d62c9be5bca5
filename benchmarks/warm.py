"""Runs on a warm Spark of this machine, ours and Spark's own on the same server in turn.

The JVM of a warm Spark is one that only coordinates: it compiles little. That is slow for Spark's
own stream of many rows, so `--warm-jvm spark` gives the server the JVM that Spark has by default.

What a run costs is what its own process tree takes, as in every case, and what the server's takes
meanwhile. Its memory is the peak of its own, and that of the server with all its processes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from airflow_cloudfiles.engine.job.warm import listing, wire
from airflow_cloudfiles.engine.job.warm.instances import FOLDER, Instance
from airflow_cloudfiles.engine.processes import memory_bytes
from benchmarks import cases, contender, data, measure

if TYPE_CHECKING:
    from benchmarks.cases import Bench, Record

KEEP_SECONDS = 3600.0
JVMS = {"ours": {}, "spark": {"spark.driver.extraJavaOptions": "-Dspark.of=default"}}
"""Configuration of the server, by `--warm-jvm`."""
STREAMS = 6
MARKS = (10, 50, 100, 200)
"""After how many runs processes and memory are counted."""
_REMOTE = "SPARK_REMOTE"
_ENGINES = ("ingest", "spark")
_PLAIN = "rows"
"""Plain `readStream` of `cloudFiles` to Delta."""
_FILES_A_RUN = 5


@dataclass(frozen=True, slots=True)
class _Server:
    """The warm Spark that is measured."""

    folder: Path
    pid: int

    def processes(self) -> list[psutil.Process]:
        """All of it."""
        found = psutil.Process(self.pid)
        return [found, *found.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """What it has taken so far, ended processes included."""
        total = 0.0
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])
        return total

    def memory_mb(self) -> float:
        """Proportional set size of all of it."""
        return memory_bytes(process.pid for process in self.processes()) / 2**20


class _Peak(threading.Thread):
    """The most memory of a server while something is measured."""

    def __init__(self, server: _Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._ended = threading.Event()
        self.mb = 0.0

    def run(self) -> None:
        """Sample until stopped."""
        while not self._ended.wait(measure.SAMPLE_SECONDS):
            self.mb = max(self.mb, self._server.memory_mb())

    def stop(self) -> float:
        """End it, and give what it found."""
        self._ended.set()
        self.join()
        return self.mb


def warm(bench: Bench) -> Iterator[Record]:
    """Small runs, nothing new, many rows, many files, and several streams at once."""
    arguments = bench.arguments
    twenty = data.json_files(arguments.data, 1000, 50)
    rows = data.json_files(arguments.data, arguments.warm_rows, data.ROWS_A_FILE)
    files = data.json_files(arguments.data, 2 * arguments.files, 2)
    with _server(bench, twenty) as server:
        for engine in _ENGINES * arguments.repeat:
            with bench.folder() as folder:
                yield _checked(
                    bench, server, "twenty", "20 files of 50 rows", engine, twenty, folder
                )
                title = "nothing new after 20 files"
                yield _checked(bench, server, "nothing", title, engine, twenty, folder)
        for engine in (*_ENGINES, _PLAIN) * arguments.repeat:
            with bench.folder() as folder:
                title = f"{arguments.warm_rows:,} rows, strings"
                yield _checked(bench, server, "rows", title, engine, rows, folder)
        for engine in _ENGINES:
            with bench.folder() as folder:
                title = f"{arguments.files:,} files of 2 rows"
                found = _checked(bench, server, "files", title, engine, files, folder)
                yield {**found, "input_files": arguments.files}
        for engine in _ENGINES * arguments.repeat:
            with bench.folder() as folder:
                yield _at_once(bench, server, engine, twenty, folder)


def warm_runs(bench: Bench) -> Iterator[Record]:
    """One run after another on one server: how many processes and how much memory there are."""
    twenty = data.json_files(bench.arguments.data, 1000, 50)
    files = sorted(twenty.rglob("*.json"))
    with _server(bench, twenty) as server, bench.folder() as folder:
        source = folder / "in"
        source.mkdir()
        for number in range(1, bench.arguments.warm_runs + 1):
            for each in range(_FILES_A_RUN):
                path = files[(number * _FILES_A_RUN + each) % len(files)]
                os.link(path, source / f"{number:06}-{each}.json")
            title = f"run {number}: {_FILES_A_RUN} new files"
            record = _measured(bench, server, "warm-run", title, "ingest", source, folder)
            if number in {*MARKS, bench.arguments.warm_runs}:
                count, megabytes = len(server.processes()), server.memory_mb()
                print(f"after {number}: {count} processes, {megabytes:.0f} MB", file=sys.stderr)
                yield {
                    **record,
                    "case": "warm-runs",
                    "runs": number,
                    "processes": count,
                    "memory_mb": megabytes,
                }


@contextmanager
def _server(bench: Bench, source: Path) -> Iterator[_Server]:
    """A warm Spark; the second before it has kept the classes of its JVM."""
    home = tempfile.mkdtemp(prefix="cf-")  # the path of a socket is short
    os.environ[FOLDER] = home
    try:
        # The first two keep the classes of the JVM, for the one that is measured.
        before = (0.05, 0.05) if bench.arguments.archive else ()
        for keep in (*before, KEEP_SECONDS):
            _wait_for_end()
            with bench.folder() as folder:
                # In this process: what a measured one starts ends with its measurement.
                contender.ingest(_task(bench, source, folder, keep))
        (status,) = listing.found()
        server = _Server(Path(status["folder"]), status["pid"])
        found = wire.ask(Instance(server.folder), wire.SPARK)
        os.environ[_REMOTE] = f"sc://localhost:{found['port']}/;token={found['token']}"
        yield server
    finally:
        os.environ.pop(_REMOTE, None)
        listing.stop_all()
        os.environ.pop(FOLDER, None)
        shutil.rmtree(home, ignore_errors=True)


def _task(bench: Bench, source: Path, folder: Path, keep: float = KEEP_SECONDS) -> dict[str, Any]:
    """What a contender on the warm Spark is to do."""
    task = bench.task(source, folder, keep_warm=keep, remote=True)
    return {**task, "spark_conf": {**task["spark_conf"], **JVMS[bench.arguments.warm_jvm]}}


def _wait_for_end() -> None:
    """Wait until the warm Spark has ended by itself, and kept its classes."""
    while listing.found():  # one that is ending does not say which process it is
        time.sleep(0.1)


def _checked(  # noqa: PLR0913, PLR0917 - what a case is
    bench: Bench,
    server: _Server,
    case: str,
    title: str,
    engine: str,
    source: Path,
    folder: Path,
) -> Record:
    """Measure one run, and look whether all rows are in its target."""
    record = _measured(bench, server, f"warm-{case}", f"warm: {title}", engine, source, folder)
    _count(engine, source, folder)
    return record


def _count(engine: str, source: Path, folder: Path) -> None:
    found = data.row_count(str(folder / "table"), is_delta=engine != "spark")
    if found != data.rows_of(source):
        sys.exit(f"{source}: {engine} has {found} rows in its target")


def _measured(  # noqa: PLR0913, PLR0917 - what a case is
    bench: Bench,
    server: _Server,
    case: str,
    title: str,
    engine: str,
    source: Path,
    folder: Path,
) -> Record:
    task = _task(bench, source, folder)
    return _with_server(server, case, title, engine, task)


def _at_once(bench: Bench, server: _Server, engine: str, source: Path, folder: Path) -> Record:
    """Several streams, each with a state and a table of its own, in processes of their own."""
    tasks = []
    for number in range(STREAMS):
        mine = folder / str(number)
        mine.mkdir()
        tasks.append(_task(bench, source, mine))
    title = f"warm: {STREAMS} streams of 20 files at once"
    record = _with_server(
        server,
        "warm-at-once",
        title,
        "at-once",
        {"tasks": [{"engine": engine, **t} for t in tasks]},
    )
    for number in range(STREAMS):
        _count(engine, source, folder / str(number))
    return {**record, "engine": engine}


def _with_server(
    server: _Server, case: str, title: str, engine: str, task: dict[str, Any]
) -> Record:
    """Measure one run, and add what the server has taken meanwhile."""
    before, peak = server.cpu_seconds(), _Peak(server)
    peak.start()
    try:
        record = cases.measured(case, title, engine, task)
    finally:
        most = peak.stop()
    own, served = record["cpu_seconds"], server.cpu_seconds() - before
    return {
        **record,
        "cpu_seconds": own + served,
        "cpu_seconds_of_client": own,
        "peak_memory_mb": record["peak_memory_mb"] + most,
        "cpu_by_kind": {},
    }
