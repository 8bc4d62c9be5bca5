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
from tests.support import laws
from tests.support.jvm_classes import keep_classes

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _tortured(folder: Path, root: Path, *arguments: str) -> list[dict[str, Any]]:
    # A Java that is given classes is to keep none.
    java = {"JAVA_TOOL_OPTIONS": keep_classes(), FOLDER: str(folder.with_name("jvm"))}
    done = subprocess.run(
        [sys.executable, "-m", "torture", "--work", str(folder), *arguments],
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


PLAYED = [
    pytest.param("local", 61, 3, id="local"),
    pytest.param("local", 21, 2, id="registered"),
    pytest.param("s3", 47, 2, id="s3", marks=pytest.mark.emulator),
]


@pytest.mark.parametrize(("store", "seed", "count"), laws.some(PLAYED, 1, name="torture"))
def test_random_schedules_leave_each_row_once(
    tmp_path: Path, repository: Path, store: str, seed: int, count: int
) -> None:
    arguments = ("--seed", str(seed), "--schedules", str(count), "--stores", store)
    results = _tortured(tmp_path / "t", repository, *arguments)
    expected = [(store, each) for each in range(seed, seed + count)]
    assert [(each["store"], each["seed"]) for each in results] == expected
    assert _kills(results) > 0
    for each in results:
        registers = "cloudFiles.loadMode" in each["options"]
        assert bool(each["registered"]) == registers, each["seed"]
