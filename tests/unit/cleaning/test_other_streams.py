"""What another stream of the same source has not committed stays where it is."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    LostBatchesError,
    OptionError,
    StateError,
)
from airflow_cloudfiles.engine.extensions.cleaning.one_file import read_cleaned
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage import ObjectStore
from tests.support.cleaned import Cleaned
from tests.support.written_state import WrittenState


@pytest.fixture
def root() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def stream(root: str) -> Cleaned:
    return Cleaned(root)


@pytest.fixture
def other(root: str) -> Cleaned:
    return Cleaned(root, state="other")


def _both(stream: Cleaned, other: Cleaned, *names: str) -> list[FileEntry]:
    files = stream.ingest(*names, days_ago=1)
    other.discover(*files)
    return files


def test_a_file_stays_until_the_other_stream_has_committed_it(
    stream: Cleaned, other: Cleaned
) -> None:
    _both(stream, other, "a.json", "b.json")
    for step in (lambda: None, lambda: other.written.plan(1)):
        step()
        report = stream.clean(others=(other.written.uri,))
        assert (report.files, report.others) == (0, {"waiting": 2})
    other.written.commit()
    report = stream.clean(others=(other.written.uri,))
    assert (report.files, report.others) == (1, {"waiting": 1})
    assert stream.left() == ["b.json"]
    other.commit()
    assert stream.clean(others=(other.written.uri,)).files == 1
    assert read_cleaned(stream.written.state).again == ()


def test_a_file_that_the_other_stream_has_not_seen_stays(stream: Cleaned, other: Cleaned) -> None:
    stream.ingest("a.json", days_ago=1)
    assert stream.clean(others=(other.written.uri,)).others == {"waiting": 1}
    stream.source.put("a.json", b"a newer version")
    newer = stream.source.head("a.json")
    assert newer is not None
    other.discover(newer)
    other.commit()
    assert stream.clean(others=(other.written.uri,)).others == {"changed": 1}


def test_an_older_version_at_the_other_stream_is_not_the_file(
    stream: Cleaned, other: Cleaned
) -> None:
    other.ingest("a.json")
    stream.source.put("a.json", b"newer")
    newer = stream.source.head("a.json")
    assert newer is not None
    stream.discover(newer)
    stream.commit(days_ago=1)
    assert stream.clean(others=(other.written.uri,)).others == {"waiting": 1}


def test_a_stream_that_was_notified_may_know_another_time(stream: Cleaned, other: Cleaned) -> None:
    files = stream.ingest("a.json", "b.json", days_ago=1)
    [first, second] = [replace(each, modification_time_us=7) for each in files]
    other.discover(first)
    other.commit()
    other.discover(second)
    assert stream.clean(others=(other.written.uri,)).others == {"waiting": 1}
    assert stream.left() == ["b.json"]
    other.commit()
    assert stream.clean(others=(other.written.uri,)).files == 1


def test_what_the_other_stream_never_ingests_is_no_concern_of_it(
    root: str, stream: Cleaned, other: Cleaned
) -> None:
    [existing] = stream.ingest("existing.json", days_ago=1)
    other.discover(existing, found_by="existing")
    stream.ingest("csv/a.csv", days_ago=1)
    elsewhere = WrittenState(f"{root}/elsewhere", f"{root}/in/json")
    pattern = WrittenState(f"{root}/pattern", f"{root}/in/{{json,xml}}/*.json")
    others = (elsewhere.uri, pattern.uri)
    report = stream.clean(others=(*others, other.written.uri))
    assert (report.files, report.others) == (1, {"waiting": 1})
    assert stream.left() == ["csv/a.csv"]
    assert stream.clean(others=others).files == 1


def test_a_part_of_the_source_is_read_by_the_other_stream(root: str, stream: Cleaned) -> None:
    [file] = stream.ingest("json/a.json", days_ago=1)
    part = Cleaned(root, source="in/json", state="part")
    assert stream.clean(others=(part.written.uri,)).others == {"waiting": 1}
    part.discover(FileEntry("a.json", file.size, file.modification_time_us, file.etag))
    part.commit()
    assert stream.clean(others=(part.written.uri,)).files == 1


def test_a_state_that_cannot_be_read_stops_the_cleaning(
    root: str, stream: Cleaned, other: Cleaned
) -> None:
    _both(stream, other, "a.json")
    other.commit()
    with pytest.raises(StateError, match=r"no state in memory://\w+/none, which cloudFiles"):
        stream.clean(others=(other.written.uri, f"{root}/none"))
    other.written.state.put("_source/metadata.json", b"v1\n{}")
    with pytest.raises(CorruptedStateError, match="other/_source/metadata"):
        stream.clean(others=(other.written.uri,))
    assert stream.left() == ["a.json"]


def test_a_stream_whose_table_has_lost_batches_stops_the_cleaning(
    stream: Cleaned, other: Cleaned
) -> None:
    _both(stream, other, "a.json")
    other.commit()

    def lost(state: ObjectStore) -> None:
        assert state.uri == other.written.uri
        raise LostBatchesError("the table lacks batch 0")

    with pytest.raises(LostBatchesError):
        stream.clean(others=(other.written.uri,), verify=lost)
    assert stream.left() == ["a.json"]


def test_a_stream_of_another_source_is_taken_for_a_mistake(root: str, stream: Cleaned) -> None:
    stream.ingest("a.json", days_ago=1)
    other = WrittenState(f"{root}/other", f"{root}/in2")
    with pytest.raises(OptionError, match="does not read this source"):
        stream.clean(others=(other.uri,))
    assert stream.left() == ["a.json"]


def test_a_source_is_known_by_every_name_on_a_disk(tmp_path: Path) -> None:
    stream = Cleaned(str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path / "in")
    other = Cleaned(str(tmp_path), source="link", state="other")
    stream.ingest("a.json", days_ago=1)
    assert stream.clean(others=(other.written.uri,)).others == {"waiting": 1}


@pytest.mark.parametrize("source", ["", "arch*", "{in,archive}/*.json", "*/below/*.json"])
def test_files_are_not_moved_into_the_source_of_another_stream(
    root: str, stream: Cleaned, source: str
) -> None:
    stream.ingest("a.json", days_ago=1)
    other = WrittenState(f"{root}/other", f"{root}/{source}".rstrip("/"))
    with pytest.raises(OptionError, match="where another stream finds its files"):
        stream.clean(others=(other.uri,))
    assert stream.left() == ["a.json"]


def test_the_index_of_the_other_stream_is_free_afterwards(stream: Cleaned, other: Cleaned) -> None:
    _both(stream, other, "a.json")
    for _ in range(2):
        stream.clean(others=(other.written.uri, other.written.uri))
    other.commit()
    assert stream.clean(others=(other.written.uri,)).files == 1
