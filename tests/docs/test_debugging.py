"""What docs/how-to/debug-a-run.md says: one process, one stack, and a breakpoint at each step."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.spark_command import LAUNCHED, WITHOUT_SPARK
from tests.docs.pages import ROOT
from tests.support.ingested import Ingested

PAGE = ROOT / "docs/how-to/debug-a-run.md"


@pytest.mark.skipif(shutil.which("taskset") is None, reason="taskset is not installed (util-linux)")
def test_each_step_of_a_run_stops_in_a_debugger_in_one_stack(tmp_path: Path) -> None:
    stream = Ingested(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"})
    stream.add("a", "b", "c")
    spec = stream.spec()
    spec_file = stream.state / spec.spec_key
    spec_file.parent.mkdir(parents=True)
    spec_file.write_bytes(spec.sealed())
    steps = re.findall(r"`break (\S+)`", PAGE.read_text(encoding="utf-8"))
    assert len(steps) == 5
    modules = [re.sub(r"(\.[A-Z]\w*)?\.\w+$", "", each) for each in steps]
    commands = [f"import {each}" for each in modules]
    commands += [f"break {each}" for each in steps]
    commands += ["continue", "where"] * len(steps) + ["clear", "y", "continue", "quit"]
    command = [sys.executable, "-m", "pdb", "-m", "airflow_cloudfiles.engine.job"]
    done = subprocess.run(
        ["taskset", "--cpu-list", "0", *command, str(stream.state), spec.run_id],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        env={**os.environ, LAUNCHED: WITHOUT_SPARK},
        check=False,
        timeout=120,
    )
    stacks = done.stdout.split("\n> ")
    for step in steps:
        name = step.rsplit(".", maxsplit=1)[1]
        stops = [each for each in stacks if re.search(rf"\d\){name}\(\)\n-> ", each)]
        assert stops, f"{step}: {done.stdout[-3000:]} {done.stderr[-1000:]}"
        assert any("run_batches()" in each for each in stops), step
    assert stream.rows() == ["a", "b", "c"]
