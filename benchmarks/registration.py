"""`make bench-registration`: Parquet files that are registered, beside copies of them.

Runs without Spark, into a new table each, alternating; the tree of a run's processes is measured
from outside. With twice the rows a file, copying costs about twice as much, and registering what it
did. Which bytes are read of a file, tests count.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import uuid
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.job.ingest import ingest
from airflow_cloudfiles.engine.job.session import NoSpark
from airflow_cloudfiles.engine.job.spec import JobSpec
from benchmarks import measure

FIGURES = "FIGURES "
MODES = ("copy", "reference")


def main() -> None:
    """Measure what the arguments ask for, and print a table."""
    arguments = _arguments()
    work = Path(tempfile.mkdtemp(prefix="cloudfiles-bench-"))
    os.environ["CLOUDFILES_CACHE_DIR"] = str(work / "cache")
    print("| files | MB | rows a file | mode | wall s | CPU s | files/s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    try:
        for rows in (arguments.rows, arguments.rows * 2):
            _compare(work / str(rows), rows, arguments)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registration", description=__doc__)
    parser.add_argument("--files", type=int, default=2000, help="files in the folder")
    parser.add_argument("--rows", type=int, default=5000, help="rows a file; then twice as many")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each mode")
    return parser.parse_args()


def _compare(folder: Path, rows: int, arguments: argparse.Namespace) -> None:
    """Run both modes, alternating, and print their medians."""
    source = folder / "files"
    size = _write(source, arguments.files, rows)
    found: dict[str, list[measure.Measured]] = {mode: [] for mode in MODES}
    for _ in range(arguments.repeat):
        for mode in MODES:
            place = folder / mode
            (place / "table").mkdir(parents=True)
            shutil.copytree(source, place / "table" / "_landing", copy_function=os.link)
            task = {"engine": mode, "mode": mode, "folder": str(place)}
            found[mode].append(measure.contender(task, "benchmarks.registration"))
            shutil.rmtree(place)
    shutil.rmtree(source)
    for mode, runs in found.items():
        wall = median(each.wall_seconds for each in runs)
        cpu = median(each.cpu_seconds for each in runs)
        print(
            f"| {arguments.files:,} | {size / 1e6:,.0f} | {rows:,} | {mode} | {wall:.2f} | "
            f"{cpu:.2f} | {arguments.files / wall:,.0f} |"
        )
    ratio = [
        median(getattr(each, name) for each in found["reference"])
        / median(getattr(each, name) for each in found["copy"])
        for name in ("wall_seconds", "cpu_seconds")
    ]
    print(f"\nregistered to copied: wall {ratio[0]:.2f}, CPU {ratio[1]:.2f}\n", flush=True)


def _write(folder: Path, files: int, rows: int) -> int:
    """Write the files; their bytes together."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for number in range(files):
        columns: dict[str, Any] = {f"n{each}": random.integers(0, 10**9, rows) for each in range(6)}
        columns |= {f"f{each}": random.random(rows) for each in range(2)}
        texts = random.integers(0, 10**6, rows).astype(str)
        columns |= {"text": pa.array(texts), "id": pa.array(np.arange(rows) + number * rows)}
        pq.write_table(pa.table(columns), folder / f"{number:06}.parquet", use_dictionary=False)
    return sum(each.stat().st_size for each in folder.iterdir())


def contend(task: dict[str, Any]) -> None:
    """Ingest the files of a folder, in a process of its own."""
    folder = Path(task["folder"])
    spec = JobSpec(
        kind="ingest",
        source=str(folder / "table" / "_landing"),
        format="parquet",
        checkpoint_location=str(folder / "state"),
        target=str(folder / "table"),
        run_id=uuid.uuid4().hex,
        options={
            "cloudFiles.loadMode": task["mode"],
            "cloudFiles.maxFilesPerTrigger": "100000",
            "cloudFiles.schemaInference.sampleSize.numFiles": "10",
        },
    )
    report: dict[str, Any] = {"warnings": []}
    ingest(spec, NoSpark(spec), report, {})
    print(FIGURES + json.dumps({"rows": report["rows"]}))


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        contend(json.loads(sys.argv[1]))
    else:
        main()
