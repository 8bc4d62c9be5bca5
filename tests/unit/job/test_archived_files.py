"""The table of files says which were removed or moved, when and where to (B117)."""

from __future__ import annotations

import shutil
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles import cloud_files_state
from airflow_cloudfiles.engine.extensions.cleaning.of_stream import clean_source
from airflow_cloudfiles.engine.files import FileEntry, Offset
from airflow_cloudfiles.engine.state import batch_states
from airflow_cloudfiles.engine.state.batch_states import (
    KEY,
    NOTHING,
    CleanedFiles,
    CleaningHistory,
    read_archived,
    write_archived,
)
from airflow_cloudfiles.engine.storage import open_store
from tests.support.ingested import Ingested

MODE = "cloudFiles.cleanSource"
NOW = datetime(2026, 11, 23, tzinfo=UTC)


class Source(Ingested):
    """A stream whose files are moved at once."""

    def __init__(self, folder: Path) -> None:
        self.archive = folder / "archive"
        options = {
            MODE: "MOVE",
            f"{MODE}.retentionDuration": "0 seconds",
            f"{MODE}.moveDestination": str(self.archive),
        }
        super().__init__(folder, **options)

    def clean(self) -> dict[str, Any]:
        return clean_source(self.spec("clean", clean={}))

    def told(self) -> dict[str, tuple[Any, ...]]:
        """Name, then how each file was archived."""
        rows = cloud_files_state(str(self.state)).read_all().to_pylist()
        names = ("archive_time", "archive_mode", "move_location")
        return {Path(row["path"]).stem: tuple(row[name] for name in names) for row in rows}


@pytest.fixture
def stream(tmp_path: Path) -> Source:
    found = Source(tmp_path)
    found.add("a", "b", "c")
    found.run()
    return found


def test_a_moved_file_says_when_and_where_to(stream: Source) -> None:
    before = datetime.now(UTC)
    assert set(stream.told().values()) == {(None, None, None)}
    (stream.archive).mkdir()
    (stream.archive / "a.json").write_text("another one of this name")
    (stream.source / "b.json").write_text("changed since it was ingested")
    stream.clean()
    stream.add("d")
    stream.run()
    told = stream.told()
    assert before < told["a"][0] < datetime.now(UTC)
    assert told["c"][1:] == ("MOVE", f"file://{stream.archive}/c.json")
    assert (told["b"], told["d"]) == ((None, None, None), (None, None, None))
    (renamed,) = (each for each in stream.archive.iterdir() if each.name not in "a.json c.json")
    assert told["a"][1:] == ("MOVE", f"file://{renamed}")


@pytest.mark.slow
def test_a_later_cleaning_adds_to_it(stream: Source) -> None:
    stream.clean()
    first = stream.told()
    stream.add("d")
    stream.run()
    stream.clean()
    told = stream.told()
    assert {name: told[name] for name in first} == first
    assert told["d"][0] > first["c"][0]
    open_store(str(stream.state)).delete("_source/cleaned")  # cleaning begins anew
    stream.clean()
    assert stream.told() == told


def test_of_what_was_cleaned_before_anything_was_noted_nothing_is_said(stream: Source) -> None:
    stream.clean()
    state = open_store(str(stream.state))
    state.delete(KEY)
    assert set(stream.told().values()) == {(None, None, None)}
    stream.add("d")
    stream.run()
    stream.clean()
    told = stream.told()
    assert (told["a"], told["d"][1]) == ((None, None, None), "MOVE")
    state.put(KEY, b"v1\ngarbage")
    assert set(stream.told().values()) == {(None, None, None)}
    shutil.rmtree(stream.archive)


def file(name: str) -> FileEntry:
    return FileEntry(name, 1, 2, "e")


def mark(entry: int, index: int = 0, mode: str = "DELETE") -> CleanedFiles:
    return CleanedFiles(Offset(entry, index), NOW + timedelta(days=entry), mode)


def test_it_is_read_as_it_was_written() -> None:
    state = open_store(f"memory://{uuid.uuid4().hex}")
    assert read_archived(state) == NOTHING
    found = NOTHING.after(mark(1, 2), {file("a\udcff"): "a.1"}, [file("b")])
    write_archived(state, found)
    assert read_archived(state) == found


def test_a_file_that_had_to_wait_is_archived_when_it_is_cleaned() -> None:
    waits, here = file("w"), Offset(0, 0)
    first = NOTHING.after(mark(1), {file("a"): ""}, [waits])
    assert first.of(waits, here) is None
    assert first.of(file("a"), Offset(0, 1)) == (mark(1), "a")
    assert first.of(file("z"), Offset(1, 0)) is None
    second = first.after(mark(1), {waits: ""}, [])
    assert second.of(waits, here) == (mark(1), "w")
    assert second.marks == first.marks


def test_it_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_states, "MAX_MARKS", 8)
    monkeypatch.setattr(batch_states, "MAX_NAMED", 3)
    found: CleaningHistory = NOTHING
    for number in range(1, 100):
        found = found.after(mark(number, mode="DELETE" if number < 50 else "MOVE"), {}, [])
    assert len(found.marks) <= 8
    for number in range(99):
        told = found.of(file("x"), Offset(number, 0))
        assert told is not None
        assert told[0].mode == ("DELETE" if number < 49 else "MOVE")
        assert told[0].time >= mark(number + 1).time
    assert found.marks[-1] == mark(99, mode="MOVE")
    found = found.after(mark(100), {}, [file(name) for name in "abcd"])
    assert found.of(file("x"), Offset(98, 0)) is None, "too many are to be named"
    found = found.after(mark(101), {}, [])
    assert found.of(file("x"), Offset(99, 0)) is None
    assert found.of(file("x"), Offset(100, 0)) == (mark(101), "x")
