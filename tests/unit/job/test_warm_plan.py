"""Which runs share a warm Spark, and what is written of it."""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.spark_command import LocalSpark
from airflow_cloudfiles.engine.job.start_conf import WARM_AGE, WARM_MEMORY, WARM_RUNS
from airflow_cloudfiles.engine.job.warm import instances, wire
from airflow_cloudfiles.engine.job.warm.plan import Plan, is_of_session, plan_of

ENVIRONMENT = {"JAVA_HOME": "/java", "AWS_SECRET_ACCESS_KEY": "very-secret", "AIRFLOW_CTX_TRY": "1"}


def _plan(
    master: str = "local[2]",
    memory: str | None = None,
    conf: dict[str, str] | None = None,
    **environment: str,
) -> Plan:
    return plan_of(master, memory, conf or {}, {**ENVIRONMENT, **environment})


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Not below `tmp_path`, which is too long for a socket.
    with tempfile.TemporaryDirectory(prefix="w-") as folder:
        monkeypatch.setenv(instances.FOLDER, str(Path(folder, "w")))
        yield Path(folder, "w")


@pytest.mark.parametrize(
    "alike",
    [
        {},
        {"AIRFLOW_CTX_TRY": "2"},
        {"CLOUDFILES_LAUNCHED": "local"},
        {"conf": {"spark.sql.session.timeZone": "UTC"}},
    ],
)
def test_runs_that_differ_in_what_is_a_runs_share_one(alike) -> None:
    assert _plan(**alike).key == _plan().key


@pytest.mark.parametrize(
    "other",
    [
        {"master": "local[3]"},
        {"memory": "2g"},
        {"conf": {"spark.memory.fraction": "0.5"}},
        {"conf": {"spark.sql.warehouse.dir": "/other"}},
        {"conf": {WARM_MEMORY: "3g"}},
        {"conf": {WARM_AGE: "1 hour"}},
        {"conf": {WARM_RUNS: "7"}},
        {"AWS_SECRET_ACCESS_KEY": "another"},
        {"CLOUDFILES_ACCESS": "{}"},
        {"JAVA_HOME": "/other"},
        {"PYTHONPATH": "/other"},
        {"TZ": "Asia/Tokyo"},
    ],
)
def test_runs_that_differ_in_what_a_server_is_do_not(other) -> None:
    assert _plan(**other).key != _plan().key


def test_the_umask_of_a_run_is_that_of_its_server() -> None:
    before = _plan()
    old = os.umask(0o077)
    try:
        assert _plan().umask == 0o077
        assert _plan().key != before.key or old == 0o077
    finally:
        os.umask(old)


def test_a_server_gets_no_variable_that_is_not_compared_and_writes_none() -> None:
    plan = _plan()
    assert plan.environment == {"JAVA_HOME": "/java", "AWS_SECRET_ACCESS_KEY": "very-secret"}
    assert "very-secret" not in json.dumps(plan.settings())
    assert "very-secret" not in repr(plan)


def test_what_a_session_can_set_is_the_sessions() -> None:
    assert is_of_session("spark.sql.shuffle.partitions")
    assert not is_of_session("spark.sql.extensions")
    assert not is_of_session("spark.driver.memory")


def test_bounds_are_sizes_and_intervals() -> None:
    plan = _plan(conf={WARM_MEMORY: "3g", WARM_AGE: "90 minutes", WARM_RUNS: "7"})
    assert (plan.most_bytes, plan.most_seconds, plan.most_runs) == (3 * 2**30, 5400.0, 7)
    assert _plan().most_bytes >= 2 * 2**30


def test_keep_warm_is_longer_than_nothing() -> None:
    from datetime import timedelta

    with pytest.raises(OptionError, match="longer than nothing"):
        LocalSpark(keep_warm=timedelta(0))


def test_the_folder_of_one_is_private_and_its_lock_tells_whether_it_lives(home: Path) -> None:
    one = instances.new_instance("0" * 16)
    lock = one.take_lock()
    one.write_record(pid=os.getpid())
    for path in (home, one.folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (one.folder / name for name in ("alive", "server.json")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert one.is_alive()
    instances.remove_dead_ones()
    assert [each.folder for each in instances.instances("0" * 16)] == [one.folder]
    assert list(instances.instances("1" * 16)) == []

    os.close(lock)
    assert not one.is_alive()
    instances.remove_dead_ones()
    assert list(instances.instances()) == []


def test_dead_ones_stay_while_somebody_starts_one(home: Path) -> None:
    dead = instances.new_instance("0" * 16)
    starting = instances.FileLock(instances.start_lock())
    assert starting.try_acquire()
    instances.remove_dead_ones()
    assert dead.folder.exists()
    starting.release()


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"version": 2}'])
def test_a_record_that_is_none_is_passed_over(home: Path, content: str) -> None:
    one = instances.new_instance("0" * 16)
    assert one.record() is None
    (one.folder / "server.json").write_text(content)
    assert one.record() is None


def test_a_path_too_long_for_a_socket_is_refused_with_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(instances.FOLDER, str(tmp_path / ("w" * 100)))
    with pytest.raises(OSError, match="too long for a socket; set CLOUDFILES_WARM_DIR"):
        instances.new_instance("0" * 16)


def test_a_process_of_another_user_is_not_spoken_to(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert wire.peer(ours) == os.getpid()
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        with pytest.raises(wire.ForeignPeerError, match="not of 12345"):
            wire.peer(ours)


def test_an_answer_that_is_cut_off_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            wire.send(theirs, {"port": 1})
            assert wire.receive(ours) == {"port": 1}
            theirs.sendall(b"\0\0\0\x10{")
        with pytest.raises(EOFError):
            wire.receive(ours)
