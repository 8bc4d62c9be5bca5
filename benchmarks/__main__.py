"""`make bench`: this engine beside Spark's own file source, alternating in one run.

1. A million JSON rows in ten files of about 30 MB, with the default string schema, and typed.
2. Fifty thousand files of two rows, and then a run that finds nothing new.

Every run is a process of its own with a new JVM. Ratios are this engine to Spark's file source
over medians. The result is kept as JSON beside the printed table.
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

from benchmarks import data, measure

RESULTS = Path(__file__).parent / "results"
ENGINES = ("ingest", "rows", "spark")
NAMES = {
    "ingest": "cloudFiles, ingest job to Delta",
    "rows": "cloudFiles, readStream to Delta",
    "spark": "Spark readStream.json to Parquet",
}


def main() -> None:
    """Run the benchmarks the arguments ask for, print a table, keep the result."""
    arguments = _arguments()
    work = Path(tempfile.mkdtemp(prefix="cloudfiles-bench-"))
    results: list[dict[str, Any]] = []
    try:
        if "big" in arguments.only:
            source = data.big_files(arguments.data, arguments.rows)
            for types in ("strings", "typed"):
                name = f"{arguments.rows:,} rows, {types}"
                results += _case(name, source, types, arguments, work)
        if "small" in arguments.only:
            source = data.small_files(arguments.data, arguments.files)
            results += _case(f"{arguments.files:,} small files", source, "strings", arguments, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _print(results)
    path = _keep(results, arguments)
    print(f"\nKept as {path}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=("big", "small"), default=["big", "small"])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--files-a-trigger", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, big files")
    parser.add_argument("--repeat-small", type=int, default=1, help="runs of each, small files")
    parser.add_argument("--master", default="local[2]")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser.add_argument("--data", type=Path, default=cache / "cloudfiles-bench")
    return parser.parse_args()


def _case(
    name: str, source: Path, types: str, arguments: argparse.Namespace, work: Path
) -> list[dict[str, Any]]:
    """Measure all engines on one input, in turn."""
    small = "small" in name
    repeat = arguments.repeat_small if small else arguments.repeat
    found: list[dict[str, Any]] = []
    for turn in range(repeat):
        for engine in arguments.engines:
            folder = work / f"{types}-{small}-{turn}-{engine}"
            task = {
                "engine": engine,
                "types": types,
                "source": str(source),
                "state": str(folder / "state"),
                "target": str(folder / "table"),
                "files_a_trigger": arguments.files_a_trigger,
                "master": arguments.master,
            }
            for first in (True, False) if small else (True,):
                case = name if first else f"{name}, nothing new"
                print(f"{case}: {NAMES[engine]}, run {turn + 1}", file=sys.stderr)
                result = measure.contender({**task, "first": first})
                found.append({"case": case, "engine": engine, "turn": turn, **asdict(result)})
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _print(results: list[dict[str, Any]]) -> None:
    """A table a case: medians, and the ratio to Spark's own file source."""
    for case in dict.fromkeys(result["case"] for result in results):
        rows = {
            engine: _medians([r for r in results if (r["case"], r["engine"]) == (case, engine)])
            for engine in ENGINES
            if any((r["case"], r["engine"]) == (case, engine) for r in results)
        }
        print(f"\n{case}")
        heads = (("wall s", 9), ("CPU s", 9), ("query s", 9), ("query CPU", 11), ("peak MB", 9))
        print(" " * 34 + "".join(f"{h:>{w}}" for h, w in (*heads, ("rows", 11))))
        for engine, row in rows.items():
            print(
                f"{NAMES[engine]:34}{row['wall']:9.1f}{row['cpu']:9.1f}{row['query']:9.1f}"
                f"{row['query_cpu']:11.1f}{row['peak']:9.0f}{row['rows']:11,.0f}"
            )
        if "spark" in rows:
            for engine in rows:
                if engine != "spark":
                    ratio = {
                        key: rows[engine][key] / (rows["spark"][key] or 1) for key in rows["spark"]
                    }
                    print(
                        f"  {engine} to spark: {'':15}{ratio['wall']:9.2f}{ratio['cpu']:9.2f}"
                        f"{ratio['query']:9.2f}{ratio['query_cpu']:11.2f}{ratio['peak']:9.2f}"
                    )
        if "small" in case and "nothing" not in case:
            for engine, row in rows.items():
                print(f"  {engine}: {row['rows'] / 2 / row['query']:,.0f} files a second")


def _medians(results: list[dict[str, Any]]) -> dict[str, float]:
    return {
        "wall": median(r["wall_seconds"] for r in results),
        "cpu": median(r["cpu_seconds"] for r in results),
        "query": median(r["figures"]["query_seconds"] for r in results),
        "query_cpu": median(r["figures"]["query_cpu_seconds"] for r in results),
        "peak": median(r["peak_memory_mb"] for r in results),
        "rows": median(r["figures"]["rows"] for r in results),
    }


def _keep(results: list[dict[str, Any]], arguments: argparse.Namespace) -> Path:
    """Write everything measured, with what it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(tz=UTC)
    path = RESULTS / f"{now:%Y%m%d-%H%M%S}.json"
    about = {
        "when": now.isoformat(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "pyarrow": version("pyarrow"),
        "deltalake": version("deltalake"),
        "master": arguments.master,
        "files_a_trigger": arguments.files_a_trigger,
    }
    path.write_text(json.dumps({"about": about, "results": results}, indent=1), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
