"""`make bench-discovery`: finding files, beside Spark's own file source on the same local tree.

For 10 thousand, 100 thousand and 1 million files in a tree partitioned by day and hour:

1. The first, full listing, and Spark's.
2. A run that finds nothing new, listing everything and incrementally.
3. A thousand new files behind the others, listing everything and incrementally.

Then the largest tree again through an S3 server that serves its folder, where each page is a
request, and with a ledger of 10 million keys. Every run is a process of its own.

`--events` measures an event log that two hundred streams read instead.

`--state` measures a state of so many files instead, over a source whose listing is computed;
`--inventory` a first listing of so many files by a report of each format, beside LIST; `--runs` a
state that so many runs have made, beside one of three hundred.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import event_log, measure

RESULTS = Path(__file__).parent / "results"
BUCKET = "landing"
FILES_A_FOLDER = 1000
NEW = 1000
YOUNG_RUNS = 300
FIRST_HOUR = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Run all cases, print a table, keep the result."""
    arguments = _arguments()
    results: list[dict[str, Any]] = []
    try:
        if arguments.events:
            work = Path(tempfile.mkdtemp(prefix="cloudfiles-bench-", dir=arguments.data))
            try:
                _events(work, results)
            finally:
                shutil.rmtree(work, ignore_errors=True)
            return
        for files in arguments.state:
            _state(files, arguments, results)
        for files in arguments.inventory:
            _inventory(files, arguments, results)
        for runs in (YOUNG_RUNS, *arguments.runs) if arguments.runs else ():
            _runs(runs, arguments, results)
        if arguments.state or arguments.inventory or arguments.runs:
            return
        for files in arguments.files:
            work = Path(tempfile.mkdtemp(prefix="cloudfiles-bench-", dir=arguments.data))
            try:
                _tree(work / BUCKET, 0, files)
                if files == max(arguments.files) and not arguments.no_s3:
                    _s3(files, work, results)
                _local(files, work, arguments, results)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    finally:
        _keep(results, arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.discovery", description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--no-s3", action="store_true")
    parser.add_argument("--keys", type=int, default=10_000_000, help="keys in the large ledger")
    parser.add_argument("--state", type=int, nargs="+", default=[], help="files in a large state")
    parser.add_argument("--listed", type=int, default=10_000_000, help="keys of it in a listing")
    parser.add_argument("--events", action="store_true", help="an event log, and nothing else")
    parser.add_argument("--inventory", type=int, nargs="+", default=[], help="files in a report")
    parser.add_argument("--runs", type=int, nargs="+", default=[], help="that have made a state")
    parser.add_argument("--formats", nargs="+", default=["csv", "orc", "parquet"], help="of it")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--data", type=Path, default=None, help="where the trees are made")
    return parser.parse_args()


def _events(work: Path, results: list[dict[str, Any]]) -> None:
    """All cases of an event log."""
    for each in event_log.run(work):
        results.append(each)
        sys.stdout.write(json.dumps(each, indent=1) + "\n")


def _local(
    files: int, work: Path, arguments: argparse.Namespace, results: list[dict[str, Any]]
) -> None:
    """All cases of one local tree."""
    source = work / BUCKET
    task = {"source": str(source), "files": files, "cache": str(work / "cache")}
    for engine in ("cloudFiles", *(() if arguments.no_spark else ("spark",))):
        state = str(work / f"state-{engine}")
        _run(f"{files:,} files, first listing", {**task, "engine": engine, "state": state}, results)
    ours = {**task, "engine": "cloudFiles", "state": str(work / "state-cloudFiles")}
    _nothing_and_new(files, ours, partial(_tree, source, count=NEW), results)
    if files == max(arguments.files) and arguments.keys > files:
        keys = arguments.keys
        ours = {**ours, "state": str(work / "state-large")}
        _fill(ours, keys - files)
        _run(f"{files:,} files, {keys:,} keys known, first listing", ours, results)
        _run(f"{files:,} files, {keys:,} keys known, nothing new", ours, results)


def _nothing_and_new(
    files: int,
    task: dict[str, Any],
    add: Callable[[int], None],
    results: list[dict[str, Any]],
    *,
    where: str = "",
) -> None:
    """Cases 2 and 3; `add` puts a thousand files behind the others."""
    ways = [("false", "full"), ("true", "incremental")]
    for incremental, how in ways:
        asked = {**task, "incremental": incremental}
        _run(f"{where}{files:,} files, nothing new, {how}", asked, results)
    for turn, (incremental, how) in enumerate(reversed(ways)):
        add(files + turn * NEW)
        asked = {**task, "incremental": incremental}
        _run(f"{where}{files:,} files, 1,000 new, {how}", asked, results)


def _tree(source: Path, first: int, count: int) -> None:
    """Make `count` files; numbers go on where the tree ends, in later hours."""
    for number in range(first, first + count):
        folder = source / _hour(number)
        if number % FILES_A_FOLDER == 0 or number == first:
            folder.mkdir(parents=True, exist_ok=True)
        os.close(os.open(folder / f"part-{number:09}.json", os.O_CREAT | os.O_WRONLY))


def _hour(number: int) -> str:
    hour = FIRST_HOUR + timedelta(hours=number // FILES_A_FOLDER)
    return f"day={hour:%Y-%m-%d}/hour={hour:%H}"


def _fill(task: dict[str, Any], keys: int) -> None:
    """Record files that are gone by now, so that the ledger is large and the tree is not."""
    os.environ["CLOUDFILES_CACHE_DIR"] = task["cache"]
    from airflow_cloudfiles.engine.files import FileEntry  # noqa: PLC0415
    from airflow_cloudfiles.engine.intake.intake import Intake  # noqa: PLC0415
    from airflow_cloudfiles.engine.state.file_log import FileBatch  # noqa: PLC0415

    intake = Intake.open(source=task["source"], format="json", checkpoint_location=task["state"])
    for number, first in enumerate(range(0, keys, 100_000)):
        count = min(100_000, keys - first)
        gone = (
            FileEntry(f"day=2025-01-01/hour=00/gone-{at:09}.json", 0, 0)
            for at in range(first, first + count)
        )
        intake.files.append(number, FileBatch(tuple(gone)))
    intake.close()


def _s3(files: int, work: Path, results: list[dict[str, Any]]) -> None:
    """The same cases through a server of S3, in which every page is a request."""
    from benchmarks.s3 import Gateway  # noqa: PLC0415

    with Gateway(work) as s3:
        task = {
            "engine": "cloudFiles",
            "source": f"s3://{BUCKET}",
            "state": str(work / "state-s3"),
            "cache": str(work / "cache"),
            "s3": s3.access,
        }
        _run(f"S3: {files:,} files, first listing", task, results)
        add = partial(_tree, work / BUCKET, count=NEW)
        _nothing_and_new(files, task, add, results, where="S3: ")
    for number in range(files, files + 2 * NEW):
        (work / BUCKET / _key(number)).unlink()


def _tell(count: int, case: str, figures: dict[str, Any]) -> None:
    told = {name: figures[name] for name in _TOLD if name in figures}
    print(
        f"{count:>13,} {case:44}{figures['seconds']:9.2f} s{figures['cpu_seconds']:9.2f} CPU s"
        f"{figures['resident_mb']:7.0f} MB  {told}",
        flush=True,
    )


def _state(files: int, arguments: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """A state of very many files: its size, and what it costs to open, to list, to grow."""
    work = Path(tempfile.mkdtemp(prefix="cloudfiles-bench-", dir=arguments.data))
    task = {"engine": "cloudFiles", "state": str(work / "state"), "files": files}
    os.environ["CLOUDFILES_CACHE_DIR"] = str(work / "cache")

    def step(case: str, what: str, **more: Any) -> None:
        result = measure.contender({**task, "step": what, **more}, module="benchmarks.large_state")
        _tell(files, case, result.figures)
        results.append({"case": f"{files:,} files in the state, {case}", **asdict(result)})

    grown, listed = files + files // 100, min(files, arguments.listed)
    try:
        step("the state is made", "make")
        step("opened", "open")
        step(f"{listed:,} listed, alone", "list", files=listed)
        step(f"{listed:,} listed, nothing new", "discover", files=listed, incremental="false")
        step("nothing new, incremental", "discover", incremental="true")
        step("1,000 new, incremental", "discover", files=files + NEW, incremental="true")
        step("a hundredth new, incremental", "discover", files=grown, incremental="true")
        late = {"files": listed, "late": 100_000, "incremental": "false"}
        step("100,000 new between the others", "discover", **late)
        step("opened on an empty disk", "open", is_empty=True, files=grown)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _inventory(files: int, arguments: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """A first listing: by LIST, and by a report of each format."""
    work = Path(tempfile.mkdtemp(prefix="cloudfiles-bench-", dir=arguments.data))

    def step(case: str, module: str, **task: Any) -> None:
        os.environ["CLOUDFILES_CACHE_DIR"] = str(work / task["name"] / "cache")
        given = {"engine": "cloudFiles", "files": files, **task}
        result = measure.contender(given, module=f"benchmarks.{module}")
        _tell(files, case, result.figures)
        results.append({"case": f"{files:,} files, {case}", **asdict(result)})

    try:
        state = str(work / "list" / "state")
        step("LIST", "large_state", step="discover", name="list", state=state, incremental="false")
        for each in arguments.formats:
            given = {"name": each, "format": each, "reports": str(work / each / "reports")}
            step(f"a report is written, {each}", "inventory", step="write", **given)
            state = str(work / each / "state")
            step(f"a report is read, {each}", "inventory", step="read", state=state, **given)
            shutil.rmtree(work / each)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _runs(runs: int, arguments: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """A state that so many runs have made: its size, and what it costs to open."""
    from benchmarks.s3 import Emulator  # noqa: PLC0415

    work = Path(tempfile.mkdtemp(prefix="cloudfiles-bench-", dir=arguments.data))
    task = {"engine": "cloudFiles", "state": str(work / "state"), "runs": runs}
    os.environ["CLOUDFILES_CACHE_DIR"] = str(work / "cache")

    def step(case: str, what: str, **more: Any) -> None:
        result = measure.contender({**task, "step": what, **more}, module="benchmarks.many_runs")
        _tell(runs, case, result.figures)
        results.append({"case": f"{runs:,} runs, {case}", **asdict(result)})

    try:
        step("the state is made", "make")
        step("opened", "open")
        step("opened on an empty disk", "open", is_empty=True)
        with Emulator(work) as s3:
            state = work / "state"
            files = (path for path in state.rglob("*") if path.is_file())
            s3.put((str(path.relative_to(state)), path.read_bytes()) for path in files)
            step("opened in S3", "open", state=s3.uri, s3=s3.access)
            step("opened in S3, empty disk", "open", state=s3.uri, s3=s3.access, is_empty=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


_TOLD = (
    *("kind", "listed", "new", "list_calls", "requests", "close_seconds", "in_index_seconds"),
    *("index_bytes", "tables", "log_bytes", "snapshot_bytes", "uploaded_bytes"),
    *("report_bytes", "data_files", "report_requests"),
    *("index_seconds", "index_requests", "objects", "most_objects", "bytes", "table_bytes"),
)
"""What of the figures of a step is printed."""


def _key(number: int) -> str:
    return f"{_hour(number)}/part-{number:09}.json"


def _run(case: str, task: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Measure one discovery and print its line."""
    task = {"incremental": "false", **task}
    os.environ["CLOUDFILES_CACHE_DIR"] = task["cache"]
    result = measure.contender(task, module="benchmarks.discoverer")
    figures = result.figures
    if not results:
        heads = ("seconds", "files/s", "LIST", "new", "peak MB", "CPU s")
        print(f"{'':56}{'':12}" + "".join(f"{head:>11}" for head in heads))
    calls = "" if figures["list_calls"] is None else f"{figures['list_calls']:,}"
    print(
        f"{case:56}{task['engine']:12}{figures['seconds']:11.2f}"
        f"{figures['listed'] / figures['seconds']:11,.0f}{calls:>11}{figures['new']:11,}"
        f"{result.peak_memory_mb:11.0f}{figures['cpu_seconds']:11.2f}",
        flush=True,
    )
    results.append({"case": case, "engine": task["engine"], **asdict(result)})


def _keep(results: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(tz=UTC)
    path = RESULTS / f"discovery-{now:%Y%m%d-%H%M%S}.json"
    about = {
        "when": now.isoformat(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "rocksdict": version("rocksdict"),
        "files": arguments.files,
    }
    path.write_text(json.dumps({"about": about, "results": results}, indent=1), encoding="utf-8")
    print(f"\nKept as {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
