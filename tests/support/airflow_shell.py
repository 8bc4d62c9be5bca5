"""What a person at a shell beside Airflow is shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping


def shell_knows_the_stream(environment: Mapping[str, str], dag_id: str) -> None:
    """Check that commands find a stream by its task, which has healed itself, and no other."""

    def said(code: int | None, *arguments: str) -> str:
        command = [sys.executable, "-m", "airflow_cloudfiles.cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        text = done.stdout + done.stderr
        assert code in {None, done.returncode}, text
        return text

    name = f"{dag_id}/ingest"
    assert f"{name}  ok " in said(0, "status", "--stream", name)
    runs = said(0, "runs", "--stream", name)
    assert (runs.count("ingest failed"), runs.count("ingest succeeded")) == (1, 2), runs
    assert "cloudFiles.format" in said(0, "explain", "--stream", name)
    every = said(None, "status", "--all").splitlines()  # other streams may be in trouble
    assert [name, "ok"] in [line.split()[:2] for line in every]
    missing = said(2, "state", "--stream", f"{dag_id}/ingst")
    assert f"The DAG has {dag_id}/arrived, {name}" in missing
