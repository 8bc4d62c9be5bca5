"""What does `make bench` measure?

Each function here measures one group of cases and gives its records: one for each run, with the
case, the engine, and what `measure.Measured` has. Contenders of a case run in turn.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import data, measure

ENGINES = ("ingest", "local", "query", "rows", "spark", "spark-infers", "spark-warm")
SCHEMA_TRIES = {
    "plain": "no new column",
    "failing": "a new column: the try that fails",
    "healing": "a new column: the try after it",
    "ahead-plain": "`evolveAhead`, no new column",
    "ahead-new": "`evolveAhead`, a new column",
}
"""What is measured of a schema change, by the name it has as an engine."""

Record = dict[str, Any]
ARCHIVE_SECONDS = 900.0
"""How long a class data archive may take to be made, by a process of low priority."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all cases share.

    Attributes:
        arguments: Those of the command.
        work: A folder for states and tables.
    """

    arguments: argparse.Namespace
    work: Path

    def task(self, source: Path | str, folder: Path, **more: Any) -> dict[str, Any]:
        """What a contender is told; its state and its table are in the folder."""
        conf = {} if self.arguments.archive else {"spark.cloudFiles.jvmArchive": "false"}
        return {
            "types": "strings",
            "source": str(source),
            "state": str(folder / "state"),
            "target": str(folder / "table"),
            "files_a_trigger": self.arguments.files_a_trigger,
            "master": self.arguments.master,
            "spark_conf": conf,
            **more,
        }

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder for one run, removed after it."""
        folder = self.work / "run"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def measured(case: str, title: str, engine: str, task: dict[str, Any]) -> Record:
    """Measure one run, and say on standard error that it goes on and what it took."""
    print(f"{title}: {engine} ...", end=" ", file=sys.stderr, flush=True)
    found = measure.contender({"engine": engine, **task})
    print(f"{found.wall_seconds:.1f} s, {found.cpu_seconds:.1f} CPU s", file=sys.stderr)
    return {"case": case, "title": title, "engine": engine, **asdict(found)}


def warm_up(bench: Bench) -> None:
    """Run twice, not measured, and wait for the class data archive that is made after that."""
    source = data.json_files(bench.arguments.data, 1000, 1000)
    for turn in (1, 2):
        with bench.folder() as folder:
            print(f"warm-up {turn}, not measured", file=sys.stderr)
            task = json.dumps({"engine": "ingest", **bench.task(source, folder)})
            run = [sys.executable, "-m", "benchmarks.contender", task]
            subprocess.run(run, check=True, capture_output=True)
    until = time.monotonic() + ARCHIVE_SECONDS
    while bench.arguments.archive and not any((bench.work / "jvm").glob("*.jsa")):
        if time.monotonic() > until:
            sys.exit(f"No class data archive was made within {ARCHIVE_SECONDS:g} seconds.")
        time.sleep(1)


@dataclass(frozen=True, slots=True)
class Input:
    """What contenders are measured on.

    Attributes:
        case: Names it in the result.
        title: Names it for a reader.
        source: A folder that `data.json_files` has made.
        types: `strings` or `typed`.
    """

    case: str
    title: str
    source: Path
    types: str = "strings"


def small(bench: Bench) -> Iterator[Record]:
    """One file, 20 files, and nothing new after these."""
    one = data.json_files(bench.arguments.data, 1000, 1000)
    twenty = data.json_files(bench.arguments.data, 1000, 50)
    engines = bench.arguments.engines or ("ingest", "local", "spark")
    yield from _beside(bench, Input("one", "1 file of 1,000 rows", one), engines)
    first = Input("twenty", "20 files of 50 rows", twenty)
    again = Input("nothing", "nothing new after 20 files", twenty)
    for engine in _in_turn(engines, bench.arguments.repeat):
        with bench.folder() as folder:
            yield _checked(bench, first, engine, folder)
            yield _checked(bench, again, engine, folder)


def big(bench: Bench) -> Iterator[Record]:
    """Many rows in files of 100,000, as strings and typed."""
    rows = bench.arguments.rows
    source = data.json_files(bench.arguments.data, rows, data.ROWS_A_FILE)
    for types in ("strings", "typed"):
        what = Input(types, f"{rows:,} rows, {types}", source, types)
        yield from _beside(
            bench, what, bench.arguments.engines or ("ingest", "local", "query", "rows", "spark")
        )


def more_rows(bench: Bench) -> Iterator[Record]:
    """Ten times as many rows."""
    rows = 10 * bench.arguments.rows
    source = data.json_files(bench.arguments.data, rows, data.ROWS_A_FILE)
    what = Input("more-rows", f"{rows:,} rows, strings", source)
    engines = ("ingest", "local", "spark", "spark-infers")
    yield from _beside(bench, what, bench.arguments.engines or engines, repeat=1)


def files(bench: Bench) -> Iterator[Record]:
    """Many files of two rows."""
    yield from _many_files(bench, "files", bench.arguments.files)


def more_files(bench: Bench) -> Iterator[Record]:
    """Five times as many files."""
    yield from _many_files(bench, "more-files", 5 * bench.arguments.files)


def _many_files(bench: Bench, case: str, count: int) -> Iterator[Record]:
    source = data.json_files(bench.arguments.data, 2 * count, 2)
    what = Input(case, f"{count:,} files of 2 rows", source)
    engines = bench.arguments.engines or ("ingest", "local", "spark")
    for record in _beside(bench, what, engines, repeat=1):
        yield {**record, "input_files": count}


def _beside(
    bench: Bench, what: Input, engines: Sequence[str], *, repeat: int | None = None
) -> Iterator[Record]:
    """Each engine in turn, each time on an empty state and table."""
    for engine in _in_turn(engines, repeat or bench.arguments.repeat):
        with bench.folder() as folder:
            yield _checked(bench, what, engine, folder)


def _in_turn(engines: Sequence[str], repeat: int) -> Iterator[str]:
    for _ in range(repeat):
        yield from engines


def _checked(bench: Bench, what: Input, engine: str, folder: Path) -> Record:
    """Measure one run, and look whether all rows are in its target."""
    task = bench.task(what.source, folder, types=what.types)
    record = measured(what.case, what.title, engine, task)
    return {**record, "rows": _all_rows(task, data.rows_of(what.source), engine)}


def _all_rows(task: dict[str, Any], expected: int, engine: str = "ingest") -> int:
    """The rows of a target; ends the benchmark where they are not all."""
    found = data.row_count(task["target"], is_delta=not engine.startswith("spark"))
    if found != expected:
        sys.exit(f"{task['source']}: {engine} has {found} rows in its target, not {expected}")
    return found


def schema(bench: Bench) -> Iterator[Record]:
    """A run over files of which the second half has a new column, beside one without it."""
    rows, parts = bench.arguments.rows // 5, 10
    base = data.json_files(bench.arguments.data, 1000, 1000)
    plain = data.json_files(bench.arguments.data, rows, rows // parts)
    new = data.json_files(bench.arguments.data, rows, rows // parts, new_from=parts // 2)
    ahead = {"cloudFiles.evolveAhead": "true"}
    for _ in range(bench.arguments.repeat):
        with _after_first_run(bench, base, plain) as task:
            yield _schema_try("plain", rows, task)
        with _after_first_run(bench, base, new) as task:
            yield _schema_try("failing", rows, {**task, "fails_with": "UnknownFieldException"})
            yield _schema_try("healing", rows, task)
        for name, second in (("ahead-plain", plain), ("ahead-new", new)):
            with _after_first_run(bench, base, second) as task:
                yield _schema_try(name, rows, {**task, "options": ahead})


def _schema_try(name: str, rows: int, task: dict[str, Any]) -> Record:
    record = measured("schema", f"{rows:,} rows, {SCHEMA_TRIES[name]}", "ingest", task)
    if "fails_with" not in task:
        _all_rows(task, 1000 + rows)
    return {**record, "engine": name, "rows": rows}


@contextmanager
def _after_first_run(bench: Bench, base: Path, second: Path) -> Iterator[dict[str, Any]]:
    """A stream that has ingested one folder and finds another one."""
    with bench.folder() as folder:
        source = folder / "in"
        # The folders of this benchmark are in one file system.
        shutil.copytree(base, source / "base", copy_function=os.link)
        task = bench.task(source, folder)
        measured("", "the run before, not measured", "ingest", task)
        shutil.copytree(second, source / "second", copy_function=os.link)
        yield task


def floor(bench: Bench) -> Iterator[Record]:
    """What is below every run: Spark that starts and stops, the reader alone, the disk."""
    one = data.json_files(bench.arguments.data, 1000, 1000)
    rows = bench.arguments.rows
    many = data.json_files(bench.arguments.data, rows, data.ROWS_A_FILE)
    for engine, source, title in _in_turn_of(
        bench,
        ("jvm", one, "Spark as PySpark starts it, stopped at once"),
        ("our-jvm", one, "Spark as a local run starts it, stopped at once"),
        ("reader", one, "the reader alone, 1,000 rows"),
        ("reader", many, f"the reader alone, {rows:,} rows"),
        ("disk", many, f"the disk alone: {rows:,} rows read, as many bytes written"),
    ):
        with bench.folder() as folder:
            yield measured("floor", title, engine, bench.task(source, folder))


def _in_turn_of(bench: Bench, *each: tuple[str, Path, str]) -> Iterator[tuple[str, Path, str]]:
    for _ in range(bench.arguments.repeat):
        yield from each


def together(bench: Bench) -> Iterator[Record]:
    """Six streams at once, each with 20 files."""
    source = data.json_files(bench.arguments.data, 1000, 50)
    title = "6 streams at once, 20 files of 50 rows each"
    engines = bench.arguments.engines or ("ingest", "local", "spark")
    for engine in _in_turn(engines, bench.arguments.repeat):
        with bench.folder() as folder:
            tasks = [
                {"engine": engine, **bench.task(source, folder / str(number))}
                for number in range(6)
            ]
            record = measured("together", title, "at-once", {"tasks": tasks})
            yield {**record, "engine": engine}
            for task in tasks:
                _all_rows(task, data.rows_of(source), engine)


def elsewhere(module: str) -> Callable[[Bench], Iterator[Record]]:
    """Measure the cases of a module that needs an extra or an emulator.

    Args:
        module: Its name, which is imported when it is measured.
    """

    def cases(bench: Bench) -> Iterator[Record]:
        yield from importlib.import_module(f"benchmarks.{module}").cases(bench)

    return cases


GROUPS: dict[str, Callable[[Bench], Iterator[Record]]] = {
    "small": small,
    "big": big,
    "files": files,
    "together": together,
    "connect": elsewhere("connect"),
    "schema": schema,
    "floor": floor,
    "latency": elsewhere("latency"),
    "tables": elsewhere("tables"),
    "follow": elsewhere("follow"),
    "deltas-sink": elsewhere("deltas_sink"),
    "more-rows": more_rows,
    "more-files": more_files,
}
LONG = ("follow", "more-rows", "more-files")
"""Those that take long: measured only when asked for."""
