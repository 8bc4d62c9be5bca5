"""With `allowOverwrites`, each version of a file is read at most once, and the newest is."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.errors import FileChangedError, FileMissingError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger.changed import OVERWRITTEN, note_overwritten
from airflow_cloudfiles.engine.intake.recorder import LedgerRecorder, record_overwritten
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landed import Stream
from tests.support.lines import fetch
from tests.support.memory_ledger import MemoryLedger


class Overwritten(Stream):
    """A stream of which files are changed between discovery and reading."""

    def __init__(self, folder: Path, **options: object) -> None:
        given = {"cloudFiles.allowOverwrites": "true", **options}
        super().__init__(folder / "in", folder / "state", "json", **given)
        self.source.mkdir()
        self.between: Callable[[], Any] = lambda: None
        self._version = 0

    def _planned(self) -> tuple[BatchContext, list[FileEntry]]:
        found = super()._planned()
        act, self.between = self.between, lambda: None
        act()
        return found

    def write(self, name: str = "f", *, mtime: int | None = None) -> str:
        """Write another version of a file, of the same size; its value."""
        self._version += 1
        value = f"{name}{self._version:04}"
        path = self.source / f"{name}.json"
        path.write_text(f'{{"a": "{value}"}}\n')
        os.utime(path, ns=(0, 10**18 + (mtime or self._version) * 10**6))
        return value

    def remove(self, name: str = "f") -> None:
        (self.source / f"{name}.json").unlink(missing_ok=True)

    def discover(self) -> None:
        """Somebody else's discovery."""
        options = self.options
        with closing(
            Intake.open(
                source=options.path,
                format="json",
                checkpoint_location=str(options.checkpoint_location),
                discovery=options.discovery,
            )
        ) as intake:
            intake.discover()

    def read(self) -> list[str]:
        """The values of one run."""
        return sorted(row["a"] for row in self.run())

    @property
    def superseded(self) -> int:
        return sum(each.fetched.superseded_files for each in self.counts)

    def notes(self) -> list[str]:
        return [
            each.path
            for each in open_store(str(self.options.checkpoint_location)).list(OVERWRITTEN)
        ]


@pytest.fixture
def stream(tmp_path: Path) -> Overwritten:
    """A stream that has read one version of a file."""
    found = Overwritten(tmp_path)
    value = found.write()
    assert found.read() == [value]
    return found


def test_a_version_that_is_gone_is_left_to_the_next(stream: Overwritten) -> None:
    stream.write()
    newest: list[str] = []
    stream.between = lambda: newest.append(stream.write())
    assert stream.read() == []
    assert stream.superseded == 1
    assert len(stream.notes()) == 1
    assert stream.read() == newest
    assert stream.notes() == []
    assert stream.read() == []


def test_two_overwrites_of_which_one_was_discovered(stream: Overwritten) -> None:
    stream.write()
    stream.discover()
    stream.write()
    newest: list[str] = []
    stream.between = lambda: newest.append(stream.write())
    assert stream.read() == []
    assert stream.superseded == 2
    assert stream.read() == newest
    assert stream.read() == []


def test_an_overwrite_that_was_discovered_in_time_is_read_once(stream: Overwritten) -> None:
    stream.write()
    stream.discover()
    newest = stream.write()
    assert stream.read() == [newest]  # its entry, and not that of the version before
    assert stream.superseded == 1
    assert stream.read() == []


def test_a_version_that_cannot_be_told_from_the_one_before_is_read_once(
    stream: Overwritten,
) -> None:
    stream.write(mtime=77)
    newest: list[str] = []
    stream.between = lambda: newest.append(stream.write(mtime=77))
    assert stream.read() == newest
    assert stream.superseded == 0
    assert stream.read() == []


def test_a_file_deleted_after_it_was_overwritten(stream: Overwritten) -> None:
    stream.write()
    stream.between = stream.write
    assert stream.read() == []
    stream.remove()
    stream.write("other")
    stream.between = lambda: stream.remove("other")
    with pytest.raises(FileMissingError, match="other"):
        stream.read()
    assert stream.notes() == []


def test_without_overwrites_a_path_is_read_once_as_it_is(tmp_path: Path) -> None:  # B103
    stream = Overwritten(tmp_path, **{"cloudFiles.allowOverwrites": "false"})
    stream.write()
    newest: list[str] = []
    stream.run()
    stream.write("g")
    stream.between = lambda: newest.append(stream.write("g"))
    assert stream.read() == newest
    assert stream.read() == []


def test_an_overwrite_in_the_middle_of_reading_is_refused_then_left(
    stream: Overwritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.write()
    newest: list[str] = []
    head = type(open_store(str(stream.source))).head
    asked: list[str] = []

    def overwriting(store: Any, key: str) -> FileEntry | None:
        found: FileEntry | None = head(store, key)
        if key == "f.json" and not asked:
            asked.append(key)
            newest.append(stream.write())
        return found

    monkeypatch.setattr(type(open_store(str(stream.source))), "head", overwriting)
    with pytest.raises(FileChangedError):
        stream.read()
    monkeypatch.undo()
    assert stream.read() == newest
    assert stream.superseded == 1
    assert stream.read() == []


def test_a_range_of_a_file_that_was_cut_is_refused_not_left(stream: Overwritten) -> None:
    # Another task may have read the other ranges; the next try does not cut it.
    stream.write()
    store = open_store(str(stream.source))
    entry = store.head("f.json")
    assert entry is not None
    stream.write()
    counts = FetchCounts()
    told: list[FileEntry] = []
    with pytest.raises(FileChangedError):
        list(
            fetch(
                store, FileRange(entry, 0, 5), counts, ignore_missing=False, superseded=told.append
            )
        )
    assert (told, counts.superseded_files) == ([], 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_no_version_is_read_twice_and_the_last_is_read(
    tmp_path: Path, seed: int
) -> None:  # B104
    chance = random.Random(seed)
    stream = Overwritten(tmp_path)
    newest = {name: stream.write(name) for name in "fgh"}

    def overwrite() -> None:
        for name in chance.sample("fgh", chance.randint(0, 3)):
            newest[name] = stream.write(name)

    for _ in range(6):
        overwrite()
        if chance.random() < 0.4:
            stream.discover()
        stream.between = overwrite
        stream.run()
    stream.run()
    stream.run()
    read = [row["a"] for row in stream.rows]
    assert len(read) == len(set(read))
    assert set(newest.values()) <= set(read)


def test_a_note_is_enough_for_a_discovery_that_does_not_see_the_file(tmp_path: Path) -> None:
    source, state = (
        open_store(f"memory://{tmp_path.name}/in"),
        open_store(f"memory://{tmp_path.name}"),
    )
    files, ledger = FileLog(state), MemoryLedger()
    recorder = LedgerRecorder(ledger, files, versions=True)
    source.put("a.json", b"1")
    source.put("gone.json", b"1")
    recorder.record(list(source.list()), "notification")
    source.put("a.json", b"22")
    found = source.head("a.json")
    gone = source.head("gone.json")
    assert found is not None
    assert gone is not None
    source.delete("gone.json")
    for entry in (found, found, gone):
        note_overwritten(state, entry)

    wanted = FileFilter(source.uri, None, DiscoveryOptions(allow_overwrites=True), [])
    listing = DirectoryListing(source, wanted)
    assert record_overwritten(state, source, wanted, recorder, listing) == 1
    assert [file.size for file in files.read(1).files] == [2]
    assert list(state.list(OVERWRITTEN)) == []
    note_overwritten(state, found)  # by a task that was slow
    assert record_overwritten(state, source, wanted, recorder, listing) == 0
    assert files.latest() == 1
