"""`python -m benchmarks.profile`: what each part of an ingest run costs, without the JVM.

Each input is ingested twice, in a process of its own: once for the CPU seconds of the parts, once
under `cProfile` for how functions share them. Seconds of a group are its share of the seconds that
its part takes without the profiler, which makes calls look dearer than they are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import data, report

LEAST_SECONDS = 0.05
"""A group with less in every input is left out."""


def main() -> None:
    """Profile the inputs that the arguments ask for, and print a table."""
    arguments = _arguments()
    arguments.data.mkdir(parents=True, exist_ok=True)
    inputs = {
        **{f"{rows:,} rows": (rows, data.ROWS_A_FILE) for rows in arguments.rows},
        **{f"{files:,} files of 2 rows": (2 * files, 2) for files in arguments.files},
    }
    found = {}
    for title, (rows, rows_a_file) in inputs.items():
        print(f"{title} ...", file=sys.stderr)
        source = data.json_files(arguments.data, rows, rows_a_file)
        plain, profiled = (_run(source, arguments, profile=each) for each in (False, True))
        if not plain["rows"] == profiled["rows"] == rows:
            sys.exit(f"{source}: {plain['rows']} and {profiled['rows']} rows were ingested")
        found[title] = (plain["parts"], profiled["groups"])
    print(table(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[report.ROWS, 10 * report.ROWS])
    parser.add_argument("--files", type=int, nargs="*", default=[5 * report.FILES])
    parser.add_argument("--types", choices=("strings", "typed"), default="strings")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser.add_argument("--data", type=Path, default=cache / "cloudfiles-bench")
    return parser.parse_args()


def _run(source: Path, arguments: argparse.Namespace, *, profile: bool) -> dict[str, Any]:
    """Ingest once, on an empty state and table."""
    with tempfile.TemporaryDirectory(prefix="work-", dir=arguments.data) as folder:
        task = {
            "types": arguments.types,
            "source": str(source),
            "state": str(Path(folder, "state")),
            "target": str(Path(folder, "table")),
            "files_a_trigger": 10_000,
            "profile": profile,
        }
        env = {**os.environ, "CLOUDFILES_CACHE_DIR": str(Path(folder, "cache"))}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "benchmarks.profiled", json.dumps(task)]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        shutil.rmtree(Path(folder, "state"))
    line = next(line for line in done.stdout.splitlines() if line.startswith("FIGURES "))
    figures: dict[str, Any] = json.loads(line.removeprefix("FIGURES "))
    return figures


Found = Mapping[str, tuple[Mapping[str, float], Mapping[str, Mapping[str, float]]]]
"""By input the CPU seconds of its parts, and those of groups of functions under the profiler."""


def table(found: Found) -> str:
    """A table in Markdown: a line for each part, and below it one for each of its groups."""
    rows: list[Sequence[str]] = []
    parts = list(dict.fromkeys(part for seconds, _ in found.values() for part in seconds))
    for part in parts:
        rows.append(
            (f"**{part}**", "", *(_cell(seconds.get(part)) for seconds, _ in found.values()))
        )
        columns = [
            _scaled(seconds.get(part, 0.0), groups.get(part, {}))
            for seconds, groups in found.values()
        ]
        names = {
            name: sum(each.get(name, 0.0) for each in columns)
            for column in columns
            for name in column
        }
        rows += [
            ("", name, *(_cell(each.get(name)) for each in columns))
            for name in sorted(names, key=lambda name: -names[name])
            if any(each.get(name, 0.0) >= LEAST_SECONDS for each in columns)
        ]
    total = [sum(seconds.values()) for seconds, _ in found.values()]
    rows.append(("**all**", "", *map(_cell, total)))
    return report.table(
        "CPU seconds of an ingest run, without the JVM", ("part", "functions", *found), rows
    )


def _scaled(seconds: float, groups: Mapping[str, float]) -> dict[str, float]:
    whole = sum(groups.values())
    return {name: seconds * own / whole for name, own in groups.items()} if whole else {}


def _cell(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"


if __name__ == "__main__":
    main()
