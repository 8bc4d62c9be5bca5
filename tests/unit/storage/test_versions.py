"""A version of an object is removed or copied, and never another one: on a disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.base import (
    LinkedObjectError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from airflow_cloudfiles.engine.storage.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "in"))


@pytest.fixture
def archive(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "archive"))


def _put(store: LocalStore, key: str = "a/b.json", content: bytes = b"rows") -> FileEntry:
    store.put(key, content)
    found = store.head(key)
    assert found is not None
    return found


def _all(folder: Path) -> list[str]:
    """Every file, also hidden ones."""
    return sorted(each.name for each in folder.rglob("*") if not each.is_dir())


def _between(monkeypatch: pytest.MonkeyPatch, call: str, act: Any) -> None:
    """Do something right before a call of the operating system, once."""
    real, done = getattr(os, call), []

    def after(*args: Any, **given: Any) -> Any:
        if not done:
            done.append(act())
        return real(*args, **given)

    monkeypatch.setattr(os, call, after)


def test_a_file_that_is_replaced_at_the_last_moment_stays(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = _put(store)
    draft = tmp_path / "draft"
    draft.write_bytes(b"newer rows")
    _between(monkeypatch, "rename", lambda: draft.replace(tmp_path / "in/a/b.json"))
    with pytest.raises(ObjectChangedError):
        store.delete_version(entry)
    assert store.get("a/b.json") == b"newer rows"
    assert _all(tmp_path / "in") == ["b.json"]


def test_a_file_that_a_killed_deletion_hid_is_put_back(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class _KilledError(BaseException):
        pass

    def killed(name: str) -> None:
        assert name == "after-clean-rename"
        raise _KilledError

    entry = _put(store)
    monkeypatch.setattr("airflow_cloudfiles.engine.storage.local.crash_point", killed)
    with pytest.raises(_KilledError):
        store.delete_version(entry)
    assert [entry.path for entry in store.list()] == []
    found = store.fingerprint("a/b.json")
    assert found is not None
    assert found.entry == entry
    assert _all(tmp_path / "in") == ["b.json"]
    with pytest.raises(_KilledError):
        store.delete_version(entry)
    store.put("a/b.json", b"newer rows")
    monkeypatch.undo()
    with pytest.raises(ObjectChangedError):
        store.delete_version(entry)
    assert store.get("a/b.json") == b"newer rows"
    assert _all(tmp_path / "in") == ["b.json"]


def test_a_link_is_left(store: LocalStore, archive: LocalStore, tmp_path: Path) -> None:
    entry = _put(store)
    (tmp_path / "in/link.json").symlink_to(tmp_path / "in/a/b.json")
    linked = store.head("link.json")
    assert linked is not None
    with pytest.raises(LinkedObjectError):
        store.delete_version(linked)
    with pytest.raises(LinkedObjectError):
        store.copy_version(linked, archive, "link.json")
    assert store.head("a/b.json") == entry


@pytest.mark.parametrize("is_same_disk", [True, False])
def test_a_copy_keeps_content_and_time_and_replaces_nothing(
    store: LocalStore,
    archive: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_same_disk: bool,
) -> None:
    entry = _put(store)
    if not is_same_disk:
        link = os.link

        def across(source: bytes, target: bytes) -> None:
            if b"/in/" in source:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            link(source, target)

        monkeypatch.setattr(os, "link", across)
    assert store.copy_version(entry, archive, "x/b.json")
    there = archive.fingerprint("x/b.json")
    assert there is not None
    assert (there.entry.size, there.entry.modification_time_us) == (
        entry.size,
        entry.modification_time_us,
    )
    assert not store.copy_version(entry, archive, "x/b.json")
    ours = store.fingerprint(entry.path)
    assert ours is not None
    assert bool(ours.checksums & there.checksums) is is_same_disk
    store.delete_version(entry)
    assert archive.get("x/b.json") == b"rows"
    with pytest.raises(ObjectNotFoundError):
        store.copy_version(entry, archive, "y.json")
    changed = FileEntry(**{**_fields(_put(store)), "size": 1})
    with pytest.raises(ObjectChangedError):
        store.copy_version(changed, archive, "y.json")
    assert [each.path for each in archive.list()] == ["x/b.json"]


def _fields(entry: FileEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in FileEntry.__slots__}


def test_a_file_that_is_replaced_while_it_is_linked_is_not_copied(
    store: LocalStore, archive: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = _put(store)
    draft = tmp_path / "draft"
    draft.write_bytes(b"newer rows")
    _between(monkeypatch, "link", lambda: draft.replace(tmp_path / "in/a/b.json"))
    with pytest.raises(ObjectChangedError):
        store.copy_version(entry, archive, "b.json")
    assert _all(tmp_path / "archive") == []
    assert store.get("a/b.json") == b"newer rows"
