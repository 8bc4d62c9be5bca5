"""What arrives is recorded once; what is outstanding is what Spark has not committed."""

from __future__ import annotations

import logging
import shutil
import uuid

import pytest

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    LedgerError,
    OptionError,
    SourceNotFoundError,
    StateConflictError,
)
from airflow_cloudfiles.engine.files import START, Offset, ReadLimit
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder
from airflow_cloudfiles.engine.state import file_log
from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing_zone import LandingZone
from tests.support.memory_ledger import MemoryLedger

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


@pytest.fixture
def zone(tmp_path):
    return LandingZone(tmp_path / "in")


@pytest.fixture
def opened(zone, tmp_path):
    """Open the intake of the zone; all are closed at the end."""
    intakes = []

    def open_one() -> Intake:
        intakes.append(
            Intake.open(source=zone.uri, format="json", checkpoint_location=str(tmp_path / "state"))
        )
        return intakes[-1]

    yield open_one
    for one in intakes:
        one.close()


def recorded(intake: Intake) -> list[str]:
    return [file.path for file in intake.files.slice(START, intake.head())]


def commit(intake: Intake, batch: int, *sources: str) -> None:
    """Write what Spark writes for a committed batch."""
    lines = "\n".join(["v1", METADATA, *sources])
    intake.state.put(f"offsets/{batch}", lines.encode())
    intake.state.put(f"offsets/.{batch}.crc", b"")
    intake.state.put(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
    intake.state.put(f"commits/.{batch}.crc", b"")


def test_what_arrived_is_recorded_in_order_with_its_size_and_time(zone, opened):
    zone.write("b.json", "12345", modified=1_700_000_000.25)
    zone.write("a/x.json", "1", modified=5)
    found = opened().discover()
    assert (found.listed, found.files, found.bytes) == (2, 2, 6)
    assert (found.first_entry, found.last_entry) == (0, 0)
    assert found.sample == ("a/x.json", "b.json")
    (first, second) = opened().files.read(0).files
    assert (first.path, first.size, first.modification_time_us) == ("a/x.json", 1, 5_000_000)
    assert second.modification_time_us == 1_700_000_000_250_000


def test_nothing_new_appends_nothing(zone, opened):
    intake = opened()
    assert intake.discover().files == 0
    assert intake.head() == START
    zone.write("a")
    assert intake.discover().files == 1
    again = intake.discover()
    assert (again.listed, again.files, again.first_entry, again.sample) == (1, 0, None, ())
    assert opened().discover().files == 0
    assert intake.head() == Offset(1, 0)


def test_a_file_that_changed_is_not_new(zone, opened):  # B103
    zone.write("a", "old", modified=1)
    intake = opened()
    intake.discover()
    zone.write("a", "new and longer", modified=2)
    assert intake.discover().files == 0


def test_the_same_content_under_a_new_name_is_new(zone, opened):  # B105
    zone.write("a", "same")
    intake = opened()
    intake.discover()
    zone.write("b", "same")
    assert intake.discover().sample == ("b",)


def test_a_file_that_went_and_came_back_is_not_new(zone, opened):
    zone.write("a")
    intake = opened()
    intake.discover()
    zone.remove("a")
    assert intake.discover().listed == 0
    zone.write("a")
    assert intake.discover().files == 0


def test_a_new_checkpoint_begins_anew(zone, opened, tmp_path):  # B107
    zone.write("a")
    opened().discover()
    other = Intake.open(source=zone.uri, format="json", checkpoint_location=str(tmp_path / "new"))
    assert other.discover().files == 1
    other.close()


def test_a_checkpoint_below_the_source_is_not_ingested(zone):  # B91
    zone.write("a")
    state = str(zone.folder / "checkpoint")
    intake = Intake.open(source=zone.uri, format="json", checkpoint_location=state)
    commit(intake, 0, '{"entry":0,"index":0}')
    assert intake.discover().files == 1
    assert intake.discover().listed == 1
    intake.close()


def test_a_checkpoint_that_is_the_source_is_refused(zone):
    with pytest.raises(OptionError, match="source folder itself"):
        Intake.open(source=zone.uri, format="json", checkpoint_location=zone.uri)


def test_excluded_locations_are_not_ingested(zone, tmp_path):
    for name in ("a", "table/part-0.parquet", "schemas/0"):
        zone.write(name)
    intake = Intake.open(
        source=zone.uri,
        format="json",
        checkpoint_location=str(tmp_path / "state"),
        exclude=[str(zone.folder / "table"), zone.uri + "/schemas"],
    )
    assert intake.discover().sample == ("a",)
    intake.close()


def test_a_second_source_is_refused(zone, opened, tmp_path):
    zone.write("a.json")
    opened().discover()
    other = LandingZone(tmp_path / "other")
    with pytest.raises(StateConflictError, match="checkpoint location of its own"):
        Intake.open(source=other.uri, format="json", checkpoint_location=str(tmp_path / "state"))


def test_a_source_that_does_not_exist_is_an_error_until_it_does(tmp_path):
    intake = Intake.open(
        source=str(tmp_path / "later"), format="json", checkpoint_location=str(tmp_path / "state")
    )
    with pytest.raises(SourceNotFoundError):
        intake.discover()
    LandingZone(tmp_path / "later").write("a")
    assert intake.discover().files == 1
    intake.close()


def test_a_large_find_is_split_into_entries(zone, opened, monkeypatch):
    monkeypatch.setattr(file_log, "MAX_ENTRY_FILES", 10)
    for number in range(25):
        zone.write(f"{number:03d}", "x" * number)
    intake = opened()
    found = intake.discover()
    assert (found.files, found.first_entry, found.last_entry) == (25, 0, 2)
    assert [intake.files.summary(number).files for number in range(3)] == [10, 10, 5]
    assert recorded(intake) == zone.paths()


def test_a_lost_or_damaged_ledger_changes_nothing(zone, opened):
    for number in range(50):
        zone.write(str(number))
    opened().discover()
    for slot in cache_folder().glob("*/*"):
        if slot.is_dir():
            shutil.rmtree(slot)
            slot.write_text("damaged")
    zone.write("new")
    assert opened().discover().sample == ("new",)
    assert sorted(recorded(opened())) == sorted(zone.paths())


class _DamagedLedger(MemoryLedger):
    """An index whose damage shows in the middle of a scan."""

    damaged = True

    def unseen(self, entries, *, versions=False, changed=None):
        for number, entry in enumerate(super().unseen(entries)):
            if self.damaged and number == 3:
                raise LedgerError("block checksum mismatch")
            yield entry

    def clear(self):
        self.damaged = False
        super().clear()


def test_a_ledger_found_damaged_while_discovering_is_rebuilt_and_nothing_repeated(
    zone, monkeypatch
):
    monkeypatch.setattr(file_log, "MAX_ENTRY_FILES", 2)
    for number in range(8):
        zone.write(str(number))
    intake = Intake(
        source=open_store(zone.uri),
        state=open_store(f"memory://{uuid.uuid4().hex}"),
        format="json",
        ledger=_DamagedLedger(),
    )
    assert intake.discover().listed == 8
    assert sorted(recorded(intake)) == zone.paths()


def test_an_index_damaged_on_the_disk_is_rebuilt_and_nothing_repeated():
    name = f"memory://{uuid.uuid4().hex}"
    source, state = open_store(f"{name}/in"), open_store(f"{name}/state")
    for number in range(5000):
        source.put(f"{number:05d}", b"")
    intake = Intake(source=source, state=state, format="json")
    assert intake.discover().files == 5000
    intake.close()
    tables = list(cache_folder().joinpath(intake.stream_id).rglob("*.sst"))
    assert tables
    for path in tables:
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 64] = bytes(64)
        path.write_bytes(bytes(content))
    source.put("05000", b"")
    assert intake.discover().files == 1
    intake.close()


def test_a_file_log_of_a_newer_version_stops_discovery(zone, opened):
    zone.write("a")
    intake = opened()
    intake.state.put("_source/files/" + "0" * 20, encode_entry({"id": "x"}, b"", format_version=2))
    with pytest.raises(IncompatibleStateError, match="version 2"):
        intake.discover()


def test_a_damaged_file_log_stops_discovery_by_name(zone, opened, tmp_path):
    zone.write("a")
    opened().discover()
    shutil.rmtree(cache_folder())
    entry = tmp_path / "state/_source/files" / ("0" * 20)
    entry.write_bytes(entry.read_bytes()[:-5])
    zone.write("b")
    with pytest.raises(CorruptedStateError, match=r"_source/files/0{20}"):
        opened().discover()


def test_a_discovery_says_what_it_found(zone, opened, caplog):
    zone.write("a", "123")
    with caplog.at_level(logging.INFO):
        opened().discover()
    assert f"{zone.uri}: 1 file listed, 1 new, 3 bytes" in caplog.text


def test_nothing_is_committed_before_spark_has(opened):
    intake = opened()
    assert intake.committed() == START
    intake.state.put("offsets/0", b"v1\n{}\n{}")
    assert intake.committed() == START
    assert intake.outstanding().files == 0
    assert intake.outstanding().first_entry is None


def test_committed_is_the_end_of_the_last_committed_batch(opened):
    intake = opened()
    commit(intake, 0, '{"entry":0,"index":2}')
    assert intake.committed() == Offset(0, 2)
    commit(intake, 2, '{"entry":1,"index":0}')
    commit(intake, 10, '{"index":7,"entry":1}')
    intake.state.put("offsets/11", b'v1\n{}\n{"entry":9,"index":9}')
    assert intake.committed() == Offset(1, 7)


def test_the_source_is_found_among_others(opened):
    intake = opened()
    commit(intake, 0, "-", '{"topic":{"0":5}}', "17", '{"entry":3,"index":4}')
    assert intake.committed() == Offset(3, 4)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"v2\n{}\n{}", IncompatibleStateError),
        (b"", CorruptedStateError),
        (b'v1\n{}\n{"topic":{}}', CorruptedStateError),
        (b"v1\n{}\ntorn", CorruptedStateError),
        (None, CorruptedStateError),
    ],
)
def test_a_checkpoint_that_cannot_be_understood_is_named(opened, content, error):
    intake = opened()
    if content is not None:
        intake.state.put("offsets/0", content)
    intake.state.put("commits/0", b"v1\n{}")
    with pytest.raises(error, match="offsets/0"):
        intake.committed()


def test_outstanding_is_what_was_recorded_and_not_committed(zone, opened):  # B116
    for number in range(4):
        zone.write(f"a{number}", "x" * (number + 1))
    intake = opened()
    intake.discover()
    zone.write("b", "x" * 100)
    intake.discover()
    left = intake.outstanding()
    assert (left.files, left.bytes, left.first_entry, left.last_entry) == (5, 110, 0, 1)
    assert left.sample == ("a0", "a1", "a2", "a3", "b")
    commit(intake, 0, '{"entry":0,"index":3}')
    left = intake.outstanding()
    assert (left.files, left.bytes, left.sample) == (2, 104, ("a3", "b"))
    commit(intake, 1, '{"entry":1,"index":0}')
    left = intake.outstanding()
    assert (left.files, left.first_entry, left.last_entry) == (1, 1, 1)
    commit(intake, 2, '{"entry":2,"index":0}')
    assert intake.outstanding().files == 0


def test_a_sample_is_short_and_printable(zone, opened):
    for number in range(9):
        zone.write(f"{number}-\udcff")
    intake = opened()
    found = intake.discover()
    assert found.sample == intake.outstanding().sample == tuple(f"{n}-\\xff" for n in range(5))


def test_a_checkpoint_ahead_of_the_file_log_is_refused(opened):
    intake = opened()
    commit(intake, 0, '{"entry":5,"index":0}')
    with pytest.raises(CorruptedStateError, match="belong together"):
        intake.outstanding()


def test_discovered_files_can_be_planned(zone, opened):
    for number in range(5):
        zone.write(str(number))
    intake = opened()
    intake.discover()
    end = intake.plans.plan(intake.files, START, ReadLimit(max_files=3), intake.head())
    assert end == Offset(0, 3)


def test_an_intake_can_be_closed_twice_and_used_again(zone, opened):
    zone.write("a")
    intake = opened()
    intake.discover()
    intake.close()
    intake.close()
    assert intake.discover().files == 0
