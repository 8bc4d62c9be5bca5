"""An entry of a job's log is an entry of the task's log, at the same level."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.operators.job import JobLog

pytestmark = pytest.mark.airflow

TIME = "2026-11-23 13:14:15,123"
BANNER = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/23 13:14:15 WARN Utils: Your hostname, box, resolves to a loopback address: 127.0.1.1
26/11/23 13:14:15 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
26/11/23 13:14:15 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel)."""


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> Any:
    """Pass lines on; what came of them, as level and text."""
    log = logging.getLogger("of a task")

    def write(*lines: str) -> list[tuple[str, str]]:
        with caplog.at_level(logging.DEBUG, log.name):
            passed_on = JobLog(log)  # type: ignore[arg-type]  # a logger of Python's is enough
            for line in lines:
                passed_on.write(line)
        return [(each.levelname, each.getMessage()) for each in caplog.records]

    return write


@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
def test_an_entry_keeps_its_level_and_loses_its_time(written: Any, level: str) -> None:
    line = f"{TIME} {level} airflow_cloudfiles.engine.job.run: it: says"
    assert written(line) == [(level, "it: says")]


def test_an_entry_of_another_library_names_it(written: Any) -> None:
    lines = (f"{TIME} WARNING py4j.clientserver: gone", "26/11/23 13:14:15 ERROR TaskSet: lost")
    assert written(*lines) == [("WARNING", "py4j.clientserver: gone"), ("ERROR", "TaskSet: lost")]


def test_the_lines_of_an_entry_have_one_level(written: Any) -> None:
    lines = ("early", f"{TIME} ERROR a.b: failed", "Traceback", "  here", f"{TIME} INFO a.b: on")
    levels = [level for level, _ in written(*lines, "and on")]
    assert levels == ["INFO", "ERROR", "ERROR", "ERROR", "INFO", "INFO"]


def test_the_banner_of_spark_is_for_debugging(written: Any) -> None:
    found = written(f"{TIME} ERROR a.b: failed", *BANNER.splitlines(), "of the failure")
    assert [level for level, _ in found] == ["ERROR", *["DEBUG"] * 7, "ERROR"]


def test_what_a_driver_writes_is_understood(written: Any) -> None:
    """In the driver's own format, from a process: the two must agree."""
    code = (
        "import contextlib, logging\n"
        "from airflow_cloudfiles.engine.job import __main__ as driver\n"
        "from airflow_cloudfiles.engine.errors import CorruptedStateError\n"
        "with contextlib.suppress(CorruptedStateError):\n"  # there is no such run
        "    driver.main(['job', 'memory://none', 'none'])\n"
        "logging.getLogger('airflow_cloudfiles.x').error('from a driver')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=600
    )
    assert written(*done.stderr.splitlines())[-1] == ("ERROR", "from a driver")


def test_a_task_logs_at_the_level_of_its_job(capfd: pytest.CaptureFixture[str]) -> None:
    task = CloudFilesIngestOperator(
        task_id="t", source="/in", format="json", checkpoint_location="/state", target="/table"
    )
    task.log_line(f"{TIME} WARNING airflow_cloudfiles.engine.job.run: rescued")
    task.log_line("and more of it")
    printed = capfd.readouterr()
    entries = (printed.out + printed.err).splitlines()
    assert [("warning" in line.lower(), TIME in line) for line in entries] == [(True, False)] * 2
    assert "rescued" in entries[0]
    assert "and more of it" in entries[1]
