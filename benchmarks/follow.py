"""A table that follows its files: one file in a hundred has changed, beside loading all anew."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.cases import Bench, Record, measured

TIMES_FILES = 10
"""As many times as files are measured elsewhere: 100,000."""
_SHARE = 100
_OPTIONS = {
    "cloudFiles.metadataColumns": "file_path",
    "cloudFiles.onOverwrite": "replace",
    "cloudFiles.onDelete": "delete",
}


def cases(bench: Bench) -> Iterator[Record]:
    """The first run, one after changes, one after none; and a load of the same folder."""
    count = TIMES_FILES * bench.arguments.files
    made = data.json_files(bench.arguments.data, 2 * count, 2)
    with bench.folder() as folder:
        source = folder / "in"
        shutil.copytree(made, source)
        task = bench.task(source, folder, options=_OPTIONS)
        name = f"{count:,} files of 2 rows"
        yield _run(task, f"{name}, the first run of a table that follows them", 2 * count)
        rows = 2 * count + _change(source, count)
        yield _run(task, f"{name}, 1 % overwritten, deleted or new", rows)
        yield _run(task, f"{name}, nothing has changed", rows)
        fresh = bench.task(source, folder / "anew", options={})
        yield _run(fresh, f"{name}, all loaded anew", rows)


def _run(task: dict[str, Any], title: str, rows: int) -> Record:
    record = measured("table-follow", title, "local", task)
    found = data.row_count(task["target"], is_delta=True)
    if found != rows:
        sys.exit(f"{title}: {found} rows, not {rows}")
    return {**record, "rows": rows}


def _change(source: Path, count: int) -> int:
    """Overwrite a file in 200, delete one in 400, add as many; how many rows there are more."""
    files = sorted(source.rglob("*.json"))[::_SHARE]
    if len(files) != count // _SHARE:
        sys.exit(f"{source} has {len(files)} files to change, not {count // _SHARE}")
    more = 0
    for number, path in enumerate(files):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if number % 2:
            path.write_text("".join([*lines, lines[0]]), encoding="utf-8")
            more += 1
        elif number % 4:
            path.unlink()
            more -= 2
        else:
            path.with_name(f"new-{path.name}").write_text("".join(lines), encoding="utf-8")
            more += 2
    return more
