"""When does a warm Spark begin and end, and who may use it? Without its JVM, which starts last.

The runs fail for want of files, which needs no Spark; or find nothing new.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from airflow_cloudfiles.engine.errors import OptionError, SchemaInferenceError
from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.start_conf import WARM_AGE, WARM_MEMORY, WARM_RUNS
from airflow_cloudfiles.engine.job.warm import listing
from airflow_cloudfiles.engine.job.warm.instances import instances
from tests.support.waiting import until
from tests.support.warm_spark import KEEP, WarmStream, all_have_ended, folders, only, warm_home

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def home() -> Iterator[Path]:
    """Where the warm Sparks of one test are; none is left."""
    with warm_home() as folder:
        yield folder


@pytest.fixture
def stream(home: Path, tmp_path: Path) -> WarmStream:
    """A stream without files: its runs fail before they need a JVM."""
    return WarmStream(tmp_path)


def _run(stream: WarmStream, keep: timedelta = KEEP, **conf: str) -> None:
    with pytest.raises(SchemaInferenceError):
        stream.warm(keep=keep, spark_conf=conf)


def test_it_ends_when_it_was_idle_for_as_long_as_the_last_run_says(
    stream: WarmStream, home: Path
) -> None:
    _run(stream)
    supervisor = psutil.Process(only()["pid"])
    _run(stream, timedelta(milliseconds=50))
    all_have_ended([supervisor])
    assert folders(home) == []


def test_it_outlives_the_session_and_the_process_that_started_it(stream: WarmStream) -> None:
    _run(stream)
    pid = only()["pid"]
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)
    assert pid not in {each.pid for each in psutil.Process().children(recursive=True)}


@pytest.mark.parametrize(
    ("key", "value"), [(WARM_AGE, "2 seconds"), (WARM_MEMORY, "1m"), (WARM_RUNS, "1")]
)
def test_one_that_has_reached_a_bound_takes_no_more_runs_and_ends(
    stream: WarmStream, key: str, value: str
) -> None:
    _run(stream, **{key: value})
    until(lambda: not listing.found())
    _run(stream, **{key: value})
    assert not any("one of its own" in line for line in stream.log)


def test_another_configuration_gets_a_spark_of_its_own(
    stream: WarmStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(stream)
    _run(stream, **{"spark.sql.shuffle.partitions": "3"})
    assert len(listing.found()) == 1
    _run(stream, **{"spark.memory.fraction": "0.5"})
    assert len(listing.found()) == 2
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-another-run")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "of-a-task")
    _run(stream)
    statuses = listing.found()
    assert len(statuses) == 3
    secrets = [psutil.Process(each["pid"]).environ() for each in statuses]
    assert sum(each.get("AWS_SECRET_ACCESS_KEY") == "of-another-run" for each in secrets) == 1
    assert not any("AIRFLOW_CONN_OTHER" in each for each in secrets)
    for path in (each.folder for each in instances()):
        assert not any(b"of-another-run" in file.read_bytes() for file in path.glob("*.json"))


@pytest.mark.parametrize(
    "record", ["", "{", "[]", '{"version": 99, "pid": 1}', '{"version": 1, "pid": 1}']
)
def test_a_record_that_is_damaged_or_anothers_is_passed_over(
    stream: WarmStream, home: Path, record: str
) -> None:
    _run(stream)
    (first,) = instances()
    (first.folder / "server.json").write_text(record)
    _run(stream)
    assert len(listing.found()) == (1 if '"version": 1,' in record else 2)


def test_stop_ends_no_process_that_only_a_record_names(stream: WarmStream, home: Path) -> None:
    dead = home / "0123456789abcdef-00000000"
    dead.mkdir(mode=0o700)
    (dead / "alive").touch()
    bystander = psutil.Popen(["sleep", "600"])
    (dead / "server.json").write_text(json.dumps({"version": 1, "pid": bystander.pid}))
    try:
        assert listing.found() == []
        assert listing.stop_all() == []
        assert bystander.poll() is None
        assert not dead.exists()
    finally:
        bystander.kill()
        bystander.wait()


def test_one_that_hangs_is_ended_and_replaced(
    stream: WarmStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cloudfiles.engine.job.warm.wire.ANSWER_SECONDS", 1.0)
    _run(stream)
    hung = psutil.Process(only()["pid"])
    hung.send_signal(signal.SIGSTOP)
    try:
        _run(stream)
        all_have_ended([hung])
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            hung.kill()
    assert only()["pid"] != hung.pid


def test_one_that_was_killed_is_replaced_and_what_it_left_is_removed(
    stream: WarmStream, home: Path
) -> None:
    _run(stream)
    killed = psutil.Process(only()["pid"])
    killed.kill()
    all_have_ended([killed])
    _run(stream)
    assert len(folders(home)) == 1


def test_a_bound_that_is_none_is_an_error_that_names_it(stream: WarmStream) -> None:
    with pytest.raises(OptionError, match=r"spark\.cloudFiles\.warmMemory must be a size"):
        stream.spec(spark_conf={WARM_MEMORY: "much"})


_JAVA = """#!/bin/sh
# The first JVM that is to serve ends as one does whose port was taken meanwhile.
case "$*" in
    *launcher.Main*) ;;
    *SparkConnectServer*) if mkdir '{mark}' 2>/dev/null; then exit 255; fi ;;
esac
exec '{java}' "$@"
"""


def test_a_jvm_that_cannot_serve_is_followed_by_another_once(
    stream: WarmStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, home, mark = Path(find_java()), tmp_path / "java", tmp_path / "mark"
    (home / "bin").mkdir(parents=True)
    if (real / "release").exists():
        (home / "release").write_bytes((real / "release").read_bytes())
    (home / "bin" / "java").write_text(_JAVA.format(mark=mark, java=real / "bin" / "java"))
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert stream.warm(1)["rows"] == 3
    assert mark.is_dir()
    assert only()["takes_runs"]
