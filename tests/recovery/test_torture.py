"""A short form of `make torture`: the tool works, and what it plays leaves each row once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.job.jvm import FOLDER
from tests.support.jvm_classes import keep_classes

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _tortured(folder: Path, root: Path, *arguments: str) -> list[dict[str, Any]]:
    # A Java that is given classes is to keep none.
    java = {"JAVA_TOOL_OPTIONS": keep_classes(), FOLDER: str(folder.with_name("jvm"))}
    done = subprocess.run(
        [sys.executable, "-m", "torture", "--work", str(folder), "--cold", "never", *arguments],
        env={**os.environ, "PYTHONPATH": str(root), **java},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    lines = (folder / "results.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _kills(results: list[dict[str, Any]]) -> int:
    return sum(hit["is_hit"] for each in results for hit in each["hits"])


def test_random_schedules_leave_each_row_once(tmp_path: Path, repository: Path) -> None:
    results = _tortured(tmp_path / "t", repository, "--seed", "61", "--schedules", "3")
    assert [each["seed"] for each in results] == [61, 62, 63]
    assert _kills(results) > 0


@pytest.mark.emulator
def test_random_schedules_in_s3_leave_each_row_once(tmp_path: Path, repository: Path) -> None:
    arguments = ("--seed", "47", "--schedules", "2", "--stores", "s3")
    results = _tortured(tmp_path / "t", repository, *arguments)
    assert [(each["store"], each["seed"]) for each in results] == [("s3", 47), ("s3", 48)]
    assert _kills(results) > 0
