"""`ignoreMissingFiles` gives up files that were deleted, and none whose storage is away."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import FileMissingError, FileUnreachableError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.reading.missing_files import check_deleted, check_root
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.local import LocalStore
from tests.support.ingested import Ingested
from tests.unit.stream.test_every_format import Landing

IGNORING = {"ignoreMissingFiles": "true"}


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _unmount_below(source: Path) -> None:
    _empty(source / "disk")
    (source / "disk/_mark").touch()


AWAY: dict[str, Callable[[Path], object]] = {
    "the root is gone": shutil.rmtree,
    "the root is a mount point without its disk": _empty,
    "the mount point has a mark": lambda each: (_empty(each), (each / ".unmounted").touch()),
    "the root is another file system's file": lambda each: (shutil.rmtree(each), each.touch()),
    "a disk below the root is not mounted": _unmount_below,
    "a folder below the root is gone": lambda each: shutil.rmtree(each / "disk"),
}


@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("size", ["1", "100"])
def test_files_of_a_source_that_is_away_are_not_given_up(
    tmp_path: Path, away: str, size: str
) -> None:
    stream = Ingested(tmp_path, **IGNORING, **{"cloudFiles.maxFilesPerTrigger": size})
    stream.add("first")
    stream.run()
    (stream.source / "disk").mkdir()
    stream.add("disk/1", "disk/2")
    kept = tmp_path / "kept"
    batches = stream.plan()
    shutil.copytree(stream.source, kept)
    AWAY[away](stream.source)
    for _ in range(2):
        with pytest.raises(FileUnreachableError, match=r"No file was given up") as caught:
            stream.batch_again(batches)
        assert caught.value.is_retryable
    if stream.source.is_file():
        stream.source.unlink()
    shutil.copytree(kept, stream.source, dirs_exist_ok=True)
    stream.run()
    assert stream.rows() == ["disk/1", "disk/2", "first"]


def test_files_that_were_deleted_are_given_up(tmp_path: Path) -> None:  # B96
    stream = Ingested(tmp_path, **IGNORING)
    stream.add("1", "2")
    stream.run()
    stream.add("3")
    batch = stream.plan()
    (stream.source / "3.json").unlink()
    stream.batch_again(batch)
    stream.add("4")
    stream.run()
    assert stream.rows() == ["1", "2", "4"]


def test_a_root_that_is_gone_is_an_outage_where_missing_files_are_errors_too(
    tmp_path: Path,
) -> None:
    stream = Ingested(tmp_path)
    stream.add("1")
    batch = stream.plan()
    (stream.source / "1.json").unlink()
    with pytest.raises(FileMissingError):
        stream.batch_again(batch)
    stream.source.rmdir()
    with pytest.raises(FileUnreachableError, match="does not exist any more"):
        stream.batch_again(batch)


def test_a_batch_read_of_a_source_that_is_away_is_no_empty_one(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**IGNORING)
    stream.run()
    landing.drop("2", [{"a": 2}])
    [task] = stream.tasks()
    shutil.rmtree(landing.source)
    with pytest.raises(FileUnreachableError):
        list(task.read())


class _Flickering(LocalStore):
    """A disk that is away until it is looked at twice."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.looks = 0

    def head(self, key: str) -> FileEntry | None:
        self.looks += 1
        return None if self.looks == 1 else super().head(key)


def test_a_file_that_is_back_at_once_is_not_given_up(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("1")
    store = _Flickering(str(tmp_path))
    file = next(iter(store.list()))
    assert store.head("1") is None
    with pytest.raises(FileUnreachableError, match="gone for a moment"):
        check_deleted(store, [file], lambda: [file])


class _Refusing(LocalStore):
    """A store that answers no listing any more, as of a bucket that was deleted."""

    def list(self, *_: object, **__: object) -> Iterator[FileEntry]:
        msg = "there is no such bucket"
        raise FileNotFoundError(msg)


def test_a_source_that_cannot_be_listed_is_away(tmp_path: Path) -> None:
    with pytest.raises(FileUnreachableError, match="no such bucket"):
        check_root(_Refusing(str(tmp_path)), is_in_use=True)
    check_root(open_store(str(tmp_path)))
