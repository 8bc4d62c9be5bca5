"""`make test-matrix`: does it work with every supported version of Python, Airflow and Spark?

Each cell has an environment of its own below build/matrix, with the package from a wheel. A cell
that has passed for the same commit is not run again. docs/reference/tested-versions.md gets what
was run. Exit code: 0 if every cell that was asked for has passed, 1 if one has failed, 2 if none
has, but a Python is missing.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matrix import environment, page, running
from matrix.declared import Cell, DeclarationError, Matrix, choose, read
from matrix.environment import FOLDER
from matrix.parts import PARTS, Part

RESULT = "result.json"
AXES = ("python", "airflow", "spark")


def main(arguments: Sequence[str] | None = None) -> int:
    """Test the cells that the arguments ask for."""
    given = _arguments(arguments)
    try:
        matrix = read()
        only = {axis: getattr(given, axis) for axis in AXES}
        cells = choose(matrix, everything=given.all, names=given.cell or (), only=only)
    except DeclarationError as error:
        print(error, file=sys.stderr)
        return 1
    if given.list:
        print(_listed(cells, given.list))
        return 0
    parts = [part for part in PARTS if not given.part or part.name in given.part]
    missing = _test_all(cells, matrix, parts, is_again=given.again)
    results = {cell: found for cell in cells if (found := _result(cell)) is not None}
    if results and not given.no_page:
        with _locked(FOLDER / "page.lock"):
            page.write(results, matrix.covering)
    print(f"\n{page.table(cells, results)}")
    for version in missing:
        print(environment.how_to_get(version))
    return _code(cells, parts, results, missing)


def _code(
    cells: Sequence[Cell],
    parts: Sequence[Part],
    results: dict[Cell, dict[str, Any]],
    missing: Sequence[str],
) -> int:
    for cell in cells:
        found = results.get(cell, {"parts": {}})["parts"]
        if cell.python in missing:
            continue
        asked = (part for part in parts if part.is_for(cell.spark))
        if not all(page.has_passed(found.get(part.name)) for part in asked):
            return 1
    return 2 if missing else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='make test-matrix ARGS="..."', description=__doc__)
    parser.add_argument("--all", action="store_true", help="every combination")
    parser.add_argument("--cell", action="append", help="only this one, by its name")
    for axis in AXES:
        parser.add_argument(f"--{axis}", help="only this version, such as 3.11, 3.1 or 4.2")
    names = [part.name for part in PARTS]
    parser.add_argument("--part", action="append", choices=names, help="only this part")
    parser.add_argument("--again", action="store_true", help="also what has passed already")
    parser.add_argument("--no-page", action="store_true", help="leave the page as it is")
    parser.add_argument(
        "--list", choices=("text", "json"), nargs="?", const="text", help="say which, and end"
    )
    return parser.parse_args(arguments)


def _listed(cells: Sequence[Cell], how: str) -> str:
    """Say which cells; CI makes a job of each."""
    if how == "json":
        return json.dumps([{"name": cell.name, "python": cell.python} for cell in cells])
    return "\n".join(cell.name for cell in cells)


@contextmanager
def _locked(path: Path, who: str | None = None) -> Iterator[None]:
    """Keep other runs of this command away from a cell, or from the page.

    Args:
        path: Of the lock.
        who: What is in use, to end with that; `None` waits.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if who else 0))
        except BlockingIOError:
            sys.exit(f"Another `make test-matrix` is at work on {who}.")
        yield


def _test_all(
    cells: Sequence[Cell], matrix: Matrix, parts: Sequence[Part], *, is_again: bool
) -> list[str]:
    """Test cells, one behind the other.

    Returns:
        The versions of Python that are missing.
    """
    pythons = {each: environment.find_python(each) for each in sorted({c.python for c in cells})}
    commit = environment.commit()
    for cell in cells:
        python = pythons[cell.python]
        asked = [part for part in parts if part.is_for(cell.spark)]
        wanted = asked if is_again else page.left(asked, _result(cell), commit)
        if python is None:
            print(f"{cell.name}: not run, there is no Python {cell.python}", flush=True)
        elif not wanted:
            print(f"{cell.name}: has passed for {commit}", flush=True)
        else:
            with _locked(FOLDER / cell.name / "lock", cell.name):
                _test(cell, matrix, python, wanted, commit)
    return [version for version, found in pythons.items() if found is None]


def _test(cell: Cell, matrix: Matrix, python: str, parts: Sequence[Part], commit: str) -> None:
    """Test a cell; its result is written behind each part."""
    print(f"{cell.name}: installing", flush=True)
    before = _result(cell)
    kept = before["parts"] if before is not None and before["commit"] == commit else {}
    found: dict[str, Any] = {"commit": commit, "parts": dict(kept)}
    try:
        installed = environment.prepare(cell, matrix, python)
    except subprocess.CalledProcessError as error:
        print(f"{cell.name}: the environment cannot be made: {error}", flush=True)
        (FOLDER / cell.name / RESULT).unlink(missing_ok=True)
        return
    for part in parts:
        counts = running.run(FOLDER / cell.name, installed, part)
        found["parts"][part.name] = asdict(counts)
        found["date"] = datetime.now(tz=UTC).date().isoformat()
        found["versions"] = environment.versions(installed)
        (FOLDER / cell.name / RESULT).write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(
            f"{cell.name}: {part.name}: {counts.passed} passed, {counts.failed} failed, "
            f"{counts.skipped} skipped in {counts.seconds:.0f} s",
            flush=True,
        )
        for each in counts.failures:
            print(f"    {each}", flush=True)


def _result(cell: Cell) -> dict[str, Any] | None:
    path = FOLDER / cell.name / RESULT
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    sys.exit(main())
