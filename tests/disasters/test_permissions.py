"""A permission that is lost half way fails a run by name; given back, nothing is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileUnreadableError,
    LedgerAccessError,
    SourceAccessError,
    StateError,
    TargetAccessError,
)
from airflow_cloudfiles.engine.ledger.opening import CACHE_DIR
from tests.support.ingested import Ingested
from tests.support.unprivileged import unprivileged

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
