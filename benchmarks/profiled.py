"""One ingest run without Spark, part by part: `python -m benchmarks.profiled '<json>'`.

What driver, planning process, tasks and commit of a run do, one after the other in this process,
through the functions that they call. Prints the CPU seconds of each part; with `"profile": true`
also how they are shared by groups of functions, as `cProfile` saw it.
"""

from __future__ import annotations

import time

STARTED = time.process_time()

import cProfile  # noqa: E402 - what comes before is not measured
import json  # noqa: E402
import logging  # noqa: E402
import pstats  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import closing, contextmanager  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.job.spec import JobSpec

ENGINE = str(Path(__file__).parents[1] / "airflow_cloudfiles" / "engine")
GROUPS = (
    ("formats/json/tokens.py", "check lines and UTF-8"),
    ("formats/base.py", "check lines and UTF-8"),
    ("formats/json/infer.py", "infer"),
    ("formats/json/reader.py", "decode with msgspec"),
    ("formats/json/columns.py", "take fields out"),
    ("formats/", "convert to Arrow"),
    ("reading/", "open and read files"),
    ("storage/", "open and read files"),
    ("tables/", "write Parquet and Delta's log"),
    ("discovery/", "list"),
    ("intake/", "index and file log"),
    ("state/", "index and file log"),
    ("files.py", "index and file log"),
)
"""Beginnings of paths below the engine, and what they are for; the first that fits."""
REST = "the rest"

Function = tuple[str, int, str]


class Parts:
    """CPU seconds of parts of the run, and of groups of functions in them.

    Args:
        is_profiled: Whether functions are told apart, which makes everything slower.
    """

    def __init__(self, *, is_profiled: bool) -> None:
        self._is_profiled = is_profiled
        self.seconds: dict[str, float] = {}
        self.groups: dict[str, dict[str, float]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure what is done in this context."""
        profile = cProfile.Profile(time.process_time) if self._is_profiled else None
        began = time.process_time()
        if profile is not None:
            profile.enable()
        try:
            yield
        finally:
            if profile is not None:
                profile.disable()
            spent = time.process_time() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            if profile is not None:
                self.groups[name] = by_group(pstats.Stats(profile))


def by_group(stats: pstats.Stats) -> dict[str, float]:
    """Seconds of each group; what is not of this package belongs to those who call it."""
    functions: dict[Function, Any] = stats.stats  # type: ignore[attr-defined]
    known: dict[Function, dict[str, float]] = {}
    total: Counter[str] = Counter()
    for function, (_, _, own, _, _) in functions.items():
        for group, share in _shares(function, functions, known).items():
            total[group] += own * share
    return dict(total)


def _shares(
    function: Function, functions: dict[Function, Any], known: dict[Function, dict[str, float]]
) -> dict[str, float]:
    """Which groups a function works for, in shares of one."""
    group = _group(function[0])
    if group is not None:
        return {group: 1.0}
    if function not in known:
        known[function] = {REST: 1.0}  # of a function that calls itself
        callers = functions[function][4] if function in functions else {}
        spent = {caller: max(times[3], 1e-9) for caller, times in callers.items()}
        found: Counter[str] = Counter()
        for caller, seconds in spent.items():
            for name, share in _shares(caller, functions, known).items():
                found[name] += share * seconds / sum(spent.values())
        known[function] = dict(found) or {REST: 1.0}
    return known[function]


def _group(file: str) -> str | None:
    """The group of a file of the engine; `None` for a file of others."""
    if not file.startswith(ENGINE):
        return None
    path = file[len(ENGINE) + 1 :]
    return next((name for begin, name in GROUPS if path.startswith(begin)), REST)


def main() -> None:
    """Carry out a run and print what it took."""
    task = json.loads(sys.argv[1])
    logging.disable(logging.WARNING)
    parts = Parts(is_profiled=task["profile"])
    from airflow_cloudfiles.engine.job import run  # noqa: F401, PLC0415 - as the driver does
    from airflow_cloudfiles.engine.spark import source  # noqa: F401, PLC0415
    from airflow_cloudfiles.engine.spark.tables import sink  # noqa: F401, PLC0415
    from benchmarks.contender import spec_of  # noqa: PLC0415

    parts.seconds["start, imports"] = time.process_time() - STARTED
    spec = spec_of(task)
    rows = _batch(_looked(spec, parts), parts)
    print("FIGURES " + json.dumps({"rows": rows, "parts": parts.seconds, "groups": parts.groups}))


def _looked(spec: JobSpec, parts: Parts) -> JobSpec:
    """As the driver: infer, then discover; the run for what was found."""
    from airflow_cloudfiles.engine.intake.intake import Intake  # noqa: PLC0415
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions  # noqa: PLC0415
    from airflow_cloudfiles.engine.stream import definition  # noqa: PLC0415

    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    with parts.part("driver: infer"):
        definition.resolve_schema(options)
    with (
        parts.part("driver: discover"),
        closing(
            Intake.open(
                source=spec.source,
                format=spec.format,
                checkpoint_location=spec.checkpoint_location,
                discovery=options.discovery,
            )
        ) as intake,
    ):
        intake.discover()
        last = intake.known_head().entry - 1
    return replace(spec, batch={"last_entry": last})


def _batch(spec: JobSpec, parts: Parts) -> int:
    """As a run: plan, carry out the tasks here and commit; every batch of it; gives the rows."""
    from airflow_cloudfiles.engine.batches.file_source import FileBatches  # noqa: PLC0415
    from airflow_cloudfiles.engine.files import Offset  # noqa: PLC0415
    from airflow_cloudfiles.engine.job.counts import new_writer  # noqa: PLC0415
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions  # noqa: PLC0415

    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    up_to = Offset(int((spec.batch or {})["last_entry"]) + 1, 0)
    rows = 0
    with closing(
        FileBatches(options, spec.checkpoint_location, up_to=up_to, parallelism=8)
    ) as source:
        with parts.part("planning"):
            source.open()
        while True:
            with parts.part("planning"):
                planned = source.plan()
            if planned is None:
                return rows
            writer = new_writer(spec, written="files")
            task = source.task(writer)
            with parts.part("tasks"):
                written = [task(each) for each in planned.parts]
            with parts.part("commit"):
                writer.commit(written, planned.number)
                source.committed(planned)
            rows += sum(each.counts["rows"] for each in written)


if __name__ == "__main__":
    main()
