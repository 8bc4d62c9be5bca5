"""Files of the source are removed or moved when they are committed and due, and no others."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.extensions.cleaning import clean as clean_module
from airflow_cloudfiles.engine.extensions.cleaning.clean import CleaningReport, clean
from airflow_cloudfiles.engine.extensions.cleaning.one_file import (
    KEY,
    FileCleaner,
    encode_cleaned,
    own_name,
    read_cleaned,
)
from airflow_cloudfiles.engine.extensions.cleaning.one_file import CleaningProgress as Record
from airflow_cloudfiles.engine.files import FileEntry, Offset
from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.state.sink_log import (
    Decision,
    Position,
    SinkLog,
    SinkRecord,
    position,
)
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.cleaned import Cleaned


@pytest.fixture(params=["memory", "local"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> Cleaned:
    root = str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}"
    return Cleaned(root)


def test_a_file_is_moved_under_its_path_when_it_is_due(stream: Cleaned) -> None:  # B120
    stream.ingest("2026/a.json", days_ago=2)
    stream.ingest("2026/b.json", days_ago=0.5)
    report = stream.clean("MOVE", 1)
    assert (stream.left(), stream.moved()) == (["2026/b.json"], ["2026/a.json"])
    assert stream.archive.get("2026/a.json") == b"rows"
    assert (report.files, report.bytes, report.others) == (1, 4, {})
    assert report.is_complete


def test_a_file_is_deleted_when_it_is_due(stream: Cleaned) -> None:
    stream.ingest("a.json", days_ago=9)
    stream.ingest("b.json", days_ago=7)
    assert stream.clean("DELETE", 8).files == 1
    assert (stream.left(), stream.moved()) == (["b.json"], [])


def test_an_uncommitted_file_stays(stream: Cleaned) -> None:  # B122
    stream.ingest("committed.json", days_ago=2)
    stream.discover(*stream.land("planned.json"))
    stream.written.plan()
    stream.discover(*stream.land("discovered.json"))
    stream.land("unknown.json")
    assert stream.clean().files == 1
    assert stream.left() == ["discovered.json", "planned.json", "unknown.json"]


def test_only_batches_up_to_a_position_are_cleaned(stream: Cleaned) -> None:
    stream.ingest("before.json", days_ago=1)
    before = position(stream.written.state)
    stream.ingest("by this run.json", days_ago=1)
    assert stream.clean(up_to=before).files == 1
    assert stream.left() == ["by this run.json"]
    assert stream.clean(up_to=Position()).files == 0
    assert stream.clean().files == 1


def test_the_current_setting_wins(stream: Cleaned) -> None:  # B123
    stream.ingest("a.json", days_ago=9)
    assert stream.clean("MOVE", 30).files == 0
    assert stream.left() == ["a.json"]
    assert stream.clean("DELETE", 8).files == 1
    assert (stream.left(), stream.moved()) == ([], [])


def test_existing_and_lost_files_stay(stream: Cleaned) -> None:
    stream.discover(*stream.land("existing.json"), found_by="existing")
    stream.ingest("lost.json", days_ago=1)
    log = SinkLog(stream.written.state)
    log.decide(Decision(number=0, kind="acceptLoss", first=0, last=0, batches=(0,), target="t"))
    SinkLog(stream.written.state).add(
        SinkRecord(batch=0, is_accepted=True, end=position(stream.written.state).end)
    )
    assert stream.clean().files == 0
    assert stream.left() == ["existing.json", "lost.json"]


def test_a_file_that_has_changed_stays_and_is_told(stream: Cleaned) -> None:
    stream.ingest("a.json", "b.json", days_ago=1)
    stream.source.put("a.json", b"other rows")
    report = stream.clean("DELETE", 0.5)
    assert stream.left() == ["a.json"]
    assert report.others == {"changed": 1}
    assert report.examples == {"changed": [stream.source.child_uri("a.json")]}
    assert stream.clean("DELETE", 0.5).others == {}


def test_each_version_is_cleaned_when_it_is_due(stream: Cleaned) -> None:
    stream.ingest("a.json", days_ago=3)
    stream.source.put("a.json", b"second")
    second = stream.source.head("a.json")
    assert second is not None
    stream.discover(second)
    stream.commit(days_ago=1)
    assert stream.clean(days=2, is_exact=True).others == {"changed": 1}
    assert stream.source.get("a.json") == b"second"
    assert stream.clean(days=0.5, is_exact=True).files == 1
    assert (stream.left(), stream.archive.get("a.json")) == ([], b"second")


def test_a_version_that_was_moved_before_is_not_overwritten(stream: Cleaned) -> None:
    stream.ingest("in/a.tar.json", days_ago=1)
    stream.archive.put("in/a.tar.json", b"somebody's")
    assert stream.clean().files == 1
    [name, other] = sorted(stream.moved(), key=len)
    assert (name, stream.archive.get(name)) == ("in/a.tar.json", b"somebody's")
    assert other.startswith("in/a.")
    assert other.endswith(".tar.json")
    assert stream.archive.get(other) == b"rows"


def test_a_file_whose_names_are_taken_stays(stream: Cleaned) -> None:
    [file] = stream.ingest("a.json", days_ago=1)
    stream.archive.put("a.json", b"else")
    stream.archive.put(own_name(file), b"more")
    report = stream.clean()
    assert (report.files, report.others) == (0, {"taken": 1})
    assert stream.left() == ["a.json"]


def test_a_copy_that_a_killed_cleaning_left_counts(stream: Cleaned) -> None:
    [file] = stream.ingest("a.json", days_ago=1)
    assert stream.source.copy_version(file, stream.archive, "a.json")
    assert stream.clean().files == 1
    assert (stream.left(), stream.moved()) == ([], ["a.json"])


def test_an_equal_object_at_the_destination_counts_as_the_copy(stream: Cleaned) -> None:
    stream.ingest("a.json", days_ago=1)
    stream.archive.put("a.json", b"rows")
    assert stream.clean().files == 1
    assert (stream.left(), stream.moved()) == ([], ["a.json"])


def test_a_copy_that_goes_while_it_is_compared_is_no_copy() -> None:
    stream = Cleaned(f"memory://{uuid.uuid4().hex}")
    [file] = stream.ingest("a.json", days_ago=1)
    stream.archive.put("a.json", b"else")
    archive = stream.archive
    assert isinstance(archive, MemoryStore)
    read = archive.get_range

    def gone(key: str, *given: int, **more: str | None) -> bytes:
        archive.delete(key)
        return read(key, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "get_range", gone)
        assert FileCleaner(stream.source, archive).clean(file) == "cleaned"
    assert stream.left() == []
    assert stream.moved() == [own_name(file)]


def test_a_file_that_is_gone_is_passed_over(stream: Cleaned) -> None:
    stream.ingest("a.json", "b.json", days_ago=1)
    stream.source.delete("a.json")
    report = stream.clean()
    assert (report.files, report.others) == (1, {"gone": 1})


def test_files_of_a_batch_that_gave_one_up_stay(stream: Cleaned) -> None:
    stream.ingest("torn.json", days_ago=1, corrupt_files=1)
    stream.ingest("whole.json", days_ago=1)
    report = stream.clean()
    assert (report.files, report.others) == (1, {"corrupt": 1})
    assert stream.left() == ["torn.json"]


def test_a_batch_that_gave_one_up_is_known_by_its_record_alone(stream: Cleaned) -> None:
    """As a job leaves it that is killed before its note."""
    stream.ingest("torn.json", days_ago=1, is_noted=False, corrupt_files=1)
    stream.ingest("whole.json", days_ago=1, is_noted=False)
    report = stream.clean(keeps_given_up=True)
    assert (report.files, report.others) == (1, {"corrupt": 1})
    assert stream.left() == ["torn.json"]


def test_without_counts_it_depends_on_whether_files_may_be_given_up(
    stream: Cleaned,
) -> None:
    stream.ingest("a.json", days_ago=1, is_counted=False)
    assert stream.clean(is_dry_run=True, keeps_given_up=True).others == {"corrupt": 1}
    assert stream.clean(is_dry_run=True).files == 1


def test_a_dry_run_changes_nothing(stream: Cleaned) -> None:
    stream.ingest("a.json", "b.json", days_ago=1)
    stream.source.delete("b.json")
    before = stream.written.content()
    report = stream.clean("DELETE", 0.5, is_dry_run=True)
    assert (report.files, report.bytes, report.others) == (1, 4, {"gone": 1})
    assert stream.left() == ["a.json"]
    assert stream.written.content() == before


def test_what_was_cleaned_is_not_looked_at_again(stream: Cleaned) -> None:
    for number in range(4):
        stream.ingest(f"{number}.json", days_ago=2)
    stream.discover(*stream.land("existing.json"), found_by="existing")
    stream.ingest("late.json", days_ago=0.5)
    assert stream.clean(days=1).files == 4
    assert read_cleaned(stream.written.state) == Record(Offset(5, 0), 3)
    used = stream.source.requests
    assert stream.clean(days=1).files == 0
    assert stream.source.requests == used


def test_a_large_batch_is_cleaned_part_by_part(
    stream: Cleaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cloudfiles.engine.extensions.cleaning.clean.PART_FILES", 3)
    monkeypatch.setattr(clean_module, "PART_FILES", 3)
    monkeypatch.setattr(clean_module, "_WAVE", 2)
    stream.ingest(*(f"{number}.json" for number in range(8)), days_ago=1)
    task = stream.task()
    written: list[Record] = []
    record = clean_module.write_cleaned
    monkeypatch.setattr(
        clean_module, "write_cleaned", lambda state, it: (written.append(it), record(state, it))
    )
    report = CleaningReport("MOVE")
    clean(task, report)
    assert report.files == 8
    assert [(each.position, each.batch) for each in written] == [
        (Offset(0, 3), -1),
        (Offset(0, 6), -1),
        (Offset(1, 0), 0),
    ]


def test_it_goes_on_where_the_time_was_over(
    stream: Cleaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cloudfiles.engine.extensions.cleaning.clean.PART_FILES", 2)
    monkeypatch.setattr(clean_module, "PART_FILES", 2)
    monkeypatch.setattr(clean_module, "RUN_SECONDS", -1.0)
    stream.ingest("a", "b", "c", days_ago=1)
    task = stream.task()
    object.__setattr__(task.options, "wait_for_completion", False)
    for expected, is_complete in ((2, False), (1, True)):
        report = CleaningReport("MOVE")
        clean(task, report)
        assert (report.files, report.is_complete) == (expected, is_complete)


class _Failing(MemoryStore):
    """A store that cannot remove some objects."""

    failing: tuple[str, ...] = ()

    def delete_version(self, entry: FileEntry) -> None:
        if entry.path in self.failing:
            raise ConnectionError(f"{entry.path} could not be deleted")
        super().delete_version(entry)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Cleaned:
    """A stream whose source is such a store."""
    monkeypatch.setattr("airflow_cloudfiles.engine.storage.memory.MemoryStore", _Failing)
    monkeypatch.setattr(_Failing, "failing", ())
    return Cleaned(f"memory://{uuid.uuid4().hex}")


def test_a_file_that_fails_is_tried_again(failing: Cleaned) -> None:
    failing.ingest("a.json", "b.json", days_ago=2)
    _Failing.failing = ("a.json",)
    report = failing.clean(days=1)
    assert (report.files, report.others) == (1, {"failed": 1})
    [again] = read_cleaned(failing.written.state).again
    assert again.file.path == "a.json"
    assert failing.clean(days=1).others == {"failed": 1}
    _Failing.failing = ()
    assert failing.clean(days=3).files == 0, "the current retention counts"
    assert failing.left() == ["a.json"]
    assert failing.clean(days=1).files == 1
    assert read_cleaned(failing.written.state).again == ()
    assert (failing.left(), failing.moved()) == ([], ["a.json", "b.json"])


def test_a_source_that_refuses_everything_is_not_asked_for_each_file(
    failing: Cleaned,
) -> None:
    names = [f"{number:03}.json" for number in range(200)]
    failing.ingest(*names, days_ago=1)
    _Failing.failing = tuple(names)
    with pytest.raises(ConnectionError, match="could not be deleted"):
        failing.clean("DELETE")
    assert failing.left() == names
    assert read_cleaned(failing.written.state) == Record()


def test_too_many_files_that_fail_stop_it(
    failing: Cleaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean_module, "MAX_TRIED_AGAIN", 1)
    failing.ingest("a", "b", "c", days_ago=1)
    _Failing.failing = ("a", "b")
    report = failing.clean("DELETE")
    assert not report.is_complete
    assert "More than 1 files could not be cleaned" in report.warnings[0]
    assert read_cleaned(failing.written.state) == Record()


def test_a_clock_that_runs_ahead_removes_nothing_early(
    stream: Cleaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.ingest("a.json", days_ago=2)
    behind = stream.source.clock_us() - 10 * 86400 * 10**6
    monkeypatch.setattr(type(stream.source), "clock_us", lambda _: behind)
    assert stream.clean(days=1).files == 0
    assert stream.left() == ["a.json"]


def test_the_record_reads_as_it_was_written(tmp_path: Path) -> None:
    state = open_store(str(tmp_path))
    content = (
        b'v1\n{"id": "0", "created": "2026-11-23T00:00:00", "position": {"entry": 7, "index": 2}, '
        b'"batch": 4, "crc32": "00000000"}\n["caf\\u00e9 \\udcff.json",12,1763880000000000,"e",'
        b"1763880000000001]\n"
    )
    state.put(KEY, _checksummed(content))
    found = read_cleaned(state)
    assert (found.position, found.batch) == (Offset(7, 2), 4)
    [again] = found.again
    assert again.file == FileEntry("caf\u00e9 \udcff.json", 12, 1763880000000000, "e")
    state.put(KEY, encode_cleaned(found))
    assert read_cleaned(state) == found


def _checksummed(content: bytes) -> bytes:
    _, header, body = content.split(b"\n", 2)
    value = json.loads(header)
    value.pop("crc32")
    return encode_entry(value, body, format_version=1)


@pytest.mark.parametrize(
    ("content", "error", "what"),
    [
        (b"", CorruptedStateError, "_source/cleaned cannot be read"),
        (b"v2\n{}", IncompatibleStateError, "format version 2"),
    ],
)
def test_a_record_that_cannot_be_read_stops_it(
    stream: Cleaned, content: bytes, error: type[Exception], what: str
) -> None:
    stream.ingest("a.json", days_ago=1)
    stream.written.state.put(KEY, content)
    with pytest.raises(error, match=what):
        stream.clean()
    assert stream.left() == ["a.json"]
    stream.written.state.delete(KEY)
    assert stream.clean().files == 1


def test_how_much_a_cleaning_asks_for_does_not_depend_on_what_was_cleaned() -> None:
    costs = []
    for before in (3, 60):
        stream = Cleaned(f"memory://{uuid.uuid4().hex}")
        for number in range(before):
            stream.ingest(f"{number}.json", days_ago=2)
        stream.clean(days=1)
        stream.ingest("new.json", days_ago=2)
        costs.append(_requests(stream))
    few, many = costs
    assert many["get"] <= few["get"] + 2


def _requests(stream: Cleaned) -> Counter[str]:
    """What a cleaning asks of the state."""
    seen: Counter[str] = Counter()
    add = MemoryStore.get

    def counted(store: MemoryStore, key: str) -> bytes:
        if store.uri == stream.written.uri:
            seen["get"] += 1
        return add(store, key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "get", counted)
        assert stream.clean(days=1).files == 1
    return seen
