"""From the shell: one set-up of an event log for all streams, and what drains its queue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.clouds.aws.queue import SqsQueue
from airflow_cloudfiles.engine.extensions.event_log import collector
from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.emulators.aws import Aws


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))


def _run(capsys, *arguments):
    assert cli.main([*arguments, "--json", "--quiet"]) == 0
    return json.loads(capsys.readouterr().out)


def test_one_set_up_serves_all_streams_of_a_bucket_until_it_is_torn_down(
    aws: Aws, monkeypatch, capsys, tmp_path
):
    for key, value in to_environment(aws.access).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(SqsQueue, "wait_seconds", 0)
    monkeypatch.setattr(collector, "FRESH_SECONDS", -1000.0)
    bucket, log = aws.bucket(), f"{aws.bucket()}/log"
    where = ("--source", bucket, "--name", f"cli-{uuid.uuid4().hex[:8]}", "--events-location", log)
    assert _run(capsys, "notifications", "set-up", *where, "--dry-run")["is_plan"]
    assert cli.main(["events", "show", "--events-location", log]) == 2
    assert "no event log" in capsys.readouterr().err
    options = _run(capsys, "notifications", "set-up", *where, "--keep-days", "3")["options"]
    assert options == {
        "cloudFiles.useManagedFileEvents": "true",
        "cloudFiles.fileEventsLocation": log,
    }
    assert _run(capsys, "notifications", "set-up", *where, "--keep-days", "3")["is_complete"]
    listed = _run(capsys, "notifications", "list", "--events-location", log)
    assert (listed["source"], listed["keep_seconds"]) == (bucket, 3 * 86400)
    assert [each["is_complete"] for each in listed["services"]] == [True]

    given = [f"--option={key}={value}" for key, value in options.items()]

    def discovered(folder):
        source = ("--source", f"{bucket}/{folder}")
        state = ("--checkpoint-location", str(tmp_path / folder))
        return _run(capsys, "discover", *source, *state, *given)

    for folder in ("a", "b"):
        assert discovered(folder)["listing"] is not None
        open_store(f"{bucket}/{folder}", aws.access).put("1.json", b"{}")
    for folder in ("a", "b"):
        found = discovered(folder)
        assert (found["new_files"], found["listing"]) == (1, None)
    assert _run(capsys, "events", "show", "--events-location", log)["next_entry"] in {1, 2}
    told = _run(capsys, "notifications", "tear-down", *where)
    assert {part["done"] for part in told["parts"]} == {"removed"}
    assert _run(capsys, "notifications", "tear-down", *where)["parts"]
    assert cli.main(["events", "collect", "--events-location", log, "--once"]) == 2
    assert "no event log" in capsys.readouterr().err


def test_a_collector_drains_until_it_is_stopped_and_one_that_stands_by_says_so(
    aws: Aws, monkeypatch, capsys, tmp_path
):
    for key, value in to_environment(aws.access).items():
        monkeypatch.setenv(key, value)
    queue = aws.queue()
    location = str(tmp_path / "log")
    create_log(open_store(location), "s3://bucket", {"cloudFiles.queueUrl": queue})
    command = ["events", "collect", "--events-location", location, "--poll-seconds", "0.1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "airflow_cloudfiles.cli", *command, "--json", "--quiet"],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        text=True,
    )
    log = EventLog.open(location)
    until(lambda: log.look(0).collected_us > 0)
    assert cli.main(["events", "collect", "--events-location", location, "--once"]) == 1
    assert "Another collector" in capsys.readouterr().out
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert json.loads(text)["rounds"] > 0
