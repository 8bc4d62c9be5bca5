"""`make bench-formats`: each format beside Spark's own reader of it, alternating in one run.

1. The whole way: the ingest job to Delta, and Spark's file source to Parquet.
2. Reading alone: our reader to Arrow in one process, and Spark's batch reader into its sink that
   does nothing, the second time in a JVM that is warm by then.
3. Inference over a thousand files.

Ours has rescued data and evolution on, as by default; Spark's has the schema given, and neither.
Text formats are read as strings and typed; the others have types of their own. Every run is a
process of its own. CPU seconds are those of the whole process tree. Ratios are ours to Spark's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import format_data, measure

RESULTS = Path(__file__).parent / "results"
STRINGS_TOO = frozenset({"csv", "excel", "json", "xml"})
CASES = {
    "ingest": ("ingest", "spark"),
    "read": ("reader", "spark reader"),
    "infer": ("infer", "spark infer"),
}
INFERRED = ("json", "csv", "xml", "parquet")
ROWS_A_SMALL_FILE = 1000

Result = dict[str, Any]


def main() -> None:
    """Measure what the arguments ask for, print tables, keep the result."""
    arguments = _arguments()
    results: list[Result] = []
    work = Path(tempfile.mkdtemp(prefix="cloudfiles-bench-"))
    try:
        for case in arguments.cases:
            _measure(case, arguments, work, results)
            _print(case, results)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if results:
            print(f"\nKept as {_keep(results, arguments)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__)
    every = list(format_data.FORMATS)
    parser.add_argument("--formats", nargs="+", choices=every, default=every)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=1000, help="of the inference")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each")
    parser.add_argument("--master", default="local[2]")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser.add_argument("--data", type=Path, default=cache / "cloudfiles-bench")
    return parser.parse_args()


def _measure(case: str, arguments: argparse.Namespace, work: Path, results: list[Result]) -> None:
    """Run both engines on each format, in turn."""
    for name in arguments.formats:
        if case == "infer" and name not in INFERRED:
            continue
        rows, in_a_file = arguments.rows, format_data.ROWS_A_FILE
        if case == "infer":
            rows, in_a_file = arguments.files * ROWS_A_SMALL_FILE, ROWS_A_SMALL_FILE
        source = format_data.folder(arguments.data, name, rows, in_a_file)
        for types in ("strings", "typed") if name in STRINGS_TOO else ("own types",):
            for turn in range(arguments.repeat):
                for engine in CASES[case]:
                    print(f"{case}: {name}, {types}, {engine}, run {turn + 1}", file=sys.stderr)
                    task = {
                        "engine": engine,
                        "format": name,
                        "types": "strings" if types == "strings" else "typed",
                        "source": str(source),
                        "state": str(work / "state"),
                        "target": str(work / "table"),
                        "master": arguments.master,
                    }
                    result = measure.contender(task, module="benchmarks.format_contender")
                    what = {"case": case, "format": name, "types": types, "engine": engine}
                    results.append({**what, "turn": turn, **asdict(result)})
                    print(f"  {_told(result.figures)}", file=sys.stderr)
                    shutil.rmtree(work / "state", ignore_errors=True)
                    shutil.rmtree(work / "table", ignore_errors=True)


def _told(figures: dict[str, Any]) -> str:
    if "not_read" in figures:
        return str(figures["not_read"])
    return f"{figures['seconds']:.1f} s, {figures['work_cpu_seconds']:.1f} CPU s"


def _print(case: str, results: list[Result]) -> None:
    """A line a format: ours, Spark's, and the ratio of CPU seconds."""
    ours, theirs = CASES[case]
    print(f"\n{case}")
    heads = ("rows/s", "CPU s", "peak MB")
    if case == "infer":
        heads = ("seconds", "CPU s", "peak MB")
    line = "".join(f"{head:>11}" for head in heads)
    print(f"{'':24}{'ours':>11}{'':22}{'Spark':>11}{'':22}{'ratio of':>22}")
    print(f"{'':24}{line}{line}{heads[0]:>11}{'CPU':>11}")
    mine = [result for result in results if result["case"] == case]
    for name, types in dict.fromkeys((result["format"], result["types"]) for result in mine):
        both = [
            _row([r for r in mine if (r["format"], r["types"], r["engine"]) == (name, types, who)])
            for who in (ours, theirs)
        ]
        cells = "".join(
            f"{row[0]:11,.1f}{row[1]:11.1f}{row[2]:11,.0f}" if row else f"{'n/a':>11}{'':22}"
            for row in both
        )
        one, other = both
        ratios = f"{one[0] / other[0]:11.2f}{one[1] / other[1]:11.2f}" if one and other else ""
        print(f"{name + ', ' + types:24}{cells}{ratios}", flush=True)


def _row(results: list[Result]) -> tuple[float, float, float] | None:
    """Medians of speed (of inference: seconds), CPU seconds and memory; `None` for no figures."""
    read = [result for result in results if "not_read" not in result["figures"]]
    if not read:
        return None
    speeds = [
        r["figures"]["rows"] / r["figures"]["seconds"]
        if r["figures"]["rows"]
        else r["figures"]["seconds"]
        for r in read
    ]
    cpu = median(r["figures"]["work_cpu_seconds"] for r in read)
    return median(speeds), cpu, median(r["peak_memory_mb"] for r in read)


def _keep(results: list[Result], arguments: argparse.Namespace) -> Path:
    """Write everything measured, with what it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(tz=UTC)
    path = RESULTS / f"formats-{now:%Y%m%d-%H%M%S}.json"
    about = {
        "when": now.isoformat(),
        "cores": os.cpu_count(),
        "load": psutil.getloadavg(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "pyarrow", "deltalake")},
        "master": arguments.master,
        "rows": arguments.rows,
        "files": arguments.files,
    }
    path.write_text(json.dumps({"about": about, "results": results}, indent=1), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
