"""The how-to for registered files is true: a reader who follows it gets what it says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, blocks
from tests.docs.test_docs import run_block

PAGE = ROOT / "docs/how-to/register-parquet-files.md"


def test_a_reader_who_follows_the_page_registers_files(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    done = 0
    for block in blocks(PAGE):
        if block.language == "sh":
            command = block.code.replace("/data/", f"{tmp_path}/data/").replace("\\\n", " ")
            words = shlex.split(command)
            assert words[0] == "cloudfiles"
            program = [str(Path(sys.executable).with_name("cloudfiles")), *words[1:]]
            ended = subprocess.run(
                program, capture_output=True, text=True, check=False, env=dict(os.environ)
            )
            assert ended.returncode == 0, ended.stderr[-3000:]
            assert "registered_files: 2" in ended.stdout
            assert "copied_files: 0" in ended.stdout
        elif block.language == "python" and not block.is_dag:
            run_block(block, names, tmp_path)
        else:
            continue
        done += 1
    assert done == 3
