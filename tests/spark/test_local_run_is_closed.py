"""A local run listens on the loopback interface only, and Spark there asks for a secret."""

from __future__ import annotations

import ipaddress
import os
import stat
import threading
from pathlib import Path

import psutil
import pytest

from airflow_cloudfiles.engine.job.launch import LocalSpark, launch
from airflow_cloudfiles.engine.job.spec import JobSpec
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _listening(root: int) -> set[tuple[str, int]]:
    """Addresses that a process or one of its descendants listens on."""
    found: set[tuple[str, int]] = set()
    try:
        family = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    except psutil.NoSuchProcess:
        return found
    for process in family:
        try:
            for each in process.net_connections("inet"):
                if each.status == psutil.CONN_LISTEN:
                    found.add((each.laddr.ip, each.laddr.port))
        except psutil.NoSuchProcess:
            continue
    return found


def _folders(temporary: Path) -> dict[str, int]:
    """The modes of what a run has put into the temporary folder."""
    found = {}
    for path in temporary.iterdir():
        try:
            found[path.name] = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            continue
    return found


def test_a_local_run_listens_on_loopback_only_and_leaves_its_folders_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, temporary = tmp_path / "in", tmp_path / "temporary"
    source.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    for number in range(3):
        drop(source, f"{number}.json", [{"a": number}])
    spec = JobSpec(
        kind="ingest",
        source=str(source),
        format="json",
        checkpoint_location=str(tmp_path / "state"),
        run_id="closed",
        target=str(tmp_path / "table"),
        options={"cloudFiles.maxFilesPerTrigger": "1"},
    )
    before = os.umask(0)  # the most open one
    try:
        run = launch(spec, LocalSpark(master="local[2]"), on_log=print)
    finally:
        os.umask(before)
    listening: set[tuple[str, int]] = set()
    modes: dict[str, int] = {}
    seen_in: dict[str, set[str]] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            listening.update(_listening(run.pid))
            modes.update(_folders(temporary))
            for path in temporary.glob("airflow-cloudfiles-*/blockmgr-*"):
                seen_in.setdefault(path.parent.name, set()).add(path.name)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        report = run.wait()
    finally:
        ended.set()
        watcher.join()
    assert report["rows"] == 3
    assert len(rows(tmp_path / "table")) == 3
    assert listening, "the JVM listens for its Python"
    assert {ip for ip, _ in listening if not _is_loopback(ip)} == set()
    closed = [name for name in modes if name.startswith("airflow-cloudfiles-")]
    assert any(blocks for name in closed for blocks in seen_in.get(name, ())), "Spark is in there"
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


def _is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
