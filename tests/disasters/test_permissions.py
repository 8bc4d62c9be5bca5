"""A permission that is lost half way fails a run by name; given back, nothing is lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileUnreadableError,
    LedgerAccessError,
    SourceAccessError,
    StateError,
    TargetAccessError,
)
from airflow_cloudfiles.engine.intake.ledger.opening import CACHE_DIR
from tests.support.ingested import Ingested
from tests.support.unprivileged import NOBODY, unprivileged

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ingested]:
    """A stream of a user without privileges, of whose three files one is ingested."""
    with unprivileged() as folder:
        monkeypatch.setenv(CACHE_DIR, str(folder / "cache"))
        found = Ingested(folder)
        found.add("a", "b", "c")
        found.run(batches=1)
        yield found


LOST: dict[str, tuple[str, int, type[CloudFilesError]]] = {
    "the file log": ("state/_source/files", 0o500, StateError),
    "reading the plan log": ("state/_source/plans", 0o000, StateError),
    "the records of batches": ("state/_source/sink/0", 0o500, StateError),
    "the lock": ("state/_source/run.lock", 0o000, StateError),
    "the metadata": ("state/_source/metadata.json", 0o000, StateError),
    "the schema log": ("state/_schemas/0", 0o000, StateError),
    "the table's log": ("table/_delta_log", 0o500, TargetAccessError),
    "reading the table's log": ("table/_delta_log", 0o000, TargetAccessError),
    "the table's folder": ("table", 0o500, TargetAccessError),
    "listing the source": ("in", 0o300, SourceAccessError),
    "entering the source": ("in", 0o600, SourceAccessError),
    "a file of the source": ("in/b.json", 0o000, FileUnreadableError),
    "the cache": ("cache", 0o000, LedgerAccessError),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_permission_fails_by_name_and_nothing_is_lost(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, mode, kind = LOST[lost]
    with begun(monkeypatch) as stream:
        path = stream.source.parent / name
        before = path.stat().st_mode
        stream.add("d")
        path.chmod(mode)
        with pytest.raises(CloudFilesError) as caught:
            stream.run()
        path.chmod(before)
        stream.run()
        assert stream.rows() == ["a", "b", "c", "d"]
    assert isinstance(caught.value, kind), repr(caught.value)
    assert not caught.value.is_retryable
    assert str(path) in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_a_cache_of_another_user_is_refused_by_name_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv(CACHE_DIR, str(cache))
    stream = Ingested(tmp_path)
    stream.add("a")
    stream.run()
    (theirs,) = (path for path in cache.iterdir() if len(path.name) == 32)
    os.chown(theirs, NOBODY, NOBODY)
    before = sorted((path, path.stat().st_mtime_ns) for path in theirs.rglob("*"))
    stream.add("b")
    with pytest.raises(LedgerAccessError, match=f"{theirs}.*{CACHE_DIR}") as caught:
        stream.run()
    assert not caught.value.is_retryable
    assert sorted((path, path.stat().st_mtime_ns) for path in theirs.rglob("*")) == before
    monkeypatch.setenv(CACHE_DIR, str(tmp_path / "mine"))
    stream.run()
    assert stream.rows() == ["a", "b"]
