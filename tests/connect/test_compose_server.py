"""The script that runs the server of the compose file."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import psutil
import pytest

from airflow_cloudfiles.engine.job.java import find_java
from tests.support.connect_server import each_once, free_port, ids, is_open, land
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_server_of_the_compose_file_runs_a_stream_and_writes_nowhere_else(
    repository, stream, tmp_path
):
    script = repository / "docs" / "how-to" / "compose" / "connect-server.sh"
    scratch, token, port = tmp_path / "scratch", "t0123456789", free_port()
    scratch.mkdir()
    (tmp_path / "token").write_text(f"{token}\n")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JAVA_HOME": find_java(),
        "CONNECT_TOKEN_FILE": str(tmp_path / "token"),
        "CONNECT_PORT": str(port),
        "CONNECT_MEMORY": "1g",
        "CONNECT_SCRATCH": str(scratch),
    }
    log = tmp_path / "server.log"
    with log.open("wb") as written:
        server = psutil.Popen(
            ["sh", script], env=environment, cwd=scratch, stdout=written, stderr=written
        )
    try:
        until(lambda: is_open(port), more=log.read_text)
        commands = _commands(server)
        assert "SparkConnectServer" in commands
        assert token not in commands
        land(stream, 2)
        assert stream.run(f"sc://localhost:{port}/;token={token}")["rows"] == 6
        assert ids(stream) == each_once(2)
        until(lambda: not list(scratch.glob("cloudfiles-checkpoint-*")))
    finally:
        server.terminate()
        server.wait(PATIENCE_SECONDS)


def _commands(server: psutil.Process) -> str:
    """The command lines of the server and what it has started, as long as they run."""
    found = ""
    for each in [server, *server.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += " ".join(each.cmdline())
    return found
