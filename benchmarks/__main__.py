"""`make bench`: this engine's ingest run beside Spark's own file source, alternating.

Every run is a process of its own with a new JVM, measured from outside, start to end. Ratios are
this engine's median to Spark's. Without arguments it takes about a quarter of an hour on two idle
cores; `--all` adds ten times the rows and five times the files, about as long again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks import cases, report

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure what the arguments ask for, keep the result, print it."""
    arguments = _arguments()
    arguments.data.mkdir(parents=True, exist_ok=True)
    # In the folder of the input, since some input is linked from there.
    work = Path(tempfile.mkdtemp(prefix="work-", dir=arguments.data))
    # Nothing of the user's own runs is used or changed.
    os.environ["CLOUDFILES_CACHE_DIR"] = str(work / "cache")
    os.environ["CLOUDFILES_JVM_DIR"] = str(work / "jvm")
    bench = cases.Bench(arguments, work)
    about = _about(arguments)
    results: list[dict[str, Any]] = []
    try:
        cases.warm_up(bench)
        about["archive_bytes"] = sum(path.stat().st_size for path in (work / "jvm").glob("*.jsa"))
        for name in arguments.only:
            results.extend(cases.GROUPS[name](bench))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if results:
            path = _keep(about, results)
            print(report.markdown(about, results))
            print(f"\nKept as {path}", file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = list(cases.GROUPS)
    default = [name for name in names if name not in cases.LONG]
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=default,
        metavar="CASES",
        help=f"of {', '.join(names)}; without it all but {', '.join(cases.LONG)}",
    )
    parser.add_argument("--all", action="store_true", help="all cases; long")
    parser.add_argument("--engines", nargs="+", choices=cases.ENGINES, help="of cases beside Spark")
    parser.add_argument("--rows", type=int, default=report.ROWS, help="of big")
    parser.add_argument("--files", type=int, default=report.FILES, help="of files")
    parser.add_argument("--latency-files", type=int, default=report.LATENCY_FILES)
    parser.add_argument("--latency-milliseconds", type=int, default=30)
    parser.add_argument("--files-a-trigger", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; of many files, one")
    parser.add_argument(
        "--no-archive",
        dest="archive",
        action="store_false",
        help="without the class data archive of the JVM",
    )
    parser.add_argument("--master", default="local[2]")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser.add_argument("--data", type=Path, default=cache / "cloudfiles-bench")
    arguments = parser.parse_args()
    if arguments.all:
        arguments.only = names
    return arguments


def _about(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the measuring was done on, and with."""
    return {
        "when": datetime.now(tz=UTC).isoformat(),
        "cores": os.cpu_count(),
        "load": psutil.getloadavg(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "pyarrow", "deltalake")},
        **{
            name: getattr(arguments, name)
            for name in ("master", "rows", "files", "files_a_trigger", "repeat", "archive")
        },
        "latency_files": arguments.latency_files,
        "latency_milliseconds": arguments.latency_milliseconds,
    }


def _keep(about: dict[str, Any], results: list[dict[str, Any]]) -> Path:
    """Write everything measured, with what it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(tz=UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps({"about": about, "results": results}, indent=1), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
