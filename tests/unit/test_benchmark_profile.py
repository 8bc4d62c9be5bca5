"""What `make bench-profile` says is what a run does, and adds up."""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.formats.json import tokens
from benchmarks import data
from benchmarks.profile import table
from benchmarks.profiled import REST, by_group

ROWS = 3000
PARTS = {"start, imports", "driver: infer", "driver: discover", "planning", "tasks", "commit"}


def _profiled(folder: Path, *, profile: bool) -> dict[str, Any]:
    source = data.json_files(folder, ROWS, 1000)
    run = folder / f"run-{profile}"
    task = {
        "types": "strings",
        "source": str(source),
        "state": str(run / "state"),
        "target": str(run / "table"),
        "files_a_trigger": 2,  # two micro-batches
        "profile": profile,
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.profiled", json.dumps(task)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "CLOUDFILES_CACHE_DIR": str(run / "cache")},
    )
    assert data.row_count(str(run / "table"), is_delta=True) == ROWS
    figures: dict[str, Any] = json.loads(done.stdout.partition("FIGURES ")[2])
    return figures


@pytest.mark.slow
def test_the_run_that_is_profiled_ingests_everything(tmp_path: Path) -> None:
    plain, profiled = (_profiled(tmp_path, profile=each) for each in (False, True))
    assert plain["rows"] == profiled["rows"] == ROWS
    assert set(plain["parts"]) == set(profiled["parts"]) == PARTS
    assert not plain["groups"]
    tasks = profiled["groups"]["tasks"]
    assert {"decode with msgspec", "take fields out", "convert to Arrow"} <= set(tasks)
    assert "write Parquet and Delta's log" in profiled["groups"]["commit"]
    # The clock of the profiler has ticks that the process's own has too: what functions used
    # themselves is no more than their part took, but for rounding.
    for part, groups in profiled["groups"].items():
        assert sum(groups.values()) <= profiled["parts"][part] + 0.1
    text = table({"3,000 rows": (plain["parts"], profiled["groups"])})
    assert "| **tasks** |  |" in text
    assert "| **all** |" in text


def test_what_others_do_belongs_to_the_group_that_calls_them() -> None:
    profile = cProfile.Profile()
    text = b'{"a": "b"}\n' * 2000
    profile.enable()
    for _ in range(200):
        tokens.clean_lines(text)
    profile.disable()
    groups = by_group(pstats.Stats(profile))
    assert max(groups, key=lambda name: groups[name]) == "check lines and UTF-8"
    assert sum(groups.values()) == pytest.approx(pstats.Stats(profile).total_tt)  # type: ignore[attr-defined]
    assert set(groups) <= {"check lines and UTF-8", REST}
