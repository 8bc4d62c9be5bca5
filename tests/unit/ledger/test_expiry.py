"""The index forgets what maxFileAge leaves out, and no file is ingested twice for it (B108)."""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger.base import MARGIN_US, catch_up, forget_old
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder, open_ledger
from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger
from airflow_cloudfiles.engine.intake.ledger.snapshots import maybe_snapshot
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state import file_log
from airflow_cloudfiles.engine.state.file_log import FileLog, encode_files
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing_zone import LandingZone
from tests.support.memory_ledger import MemoryLedger

DAY_US = 24 * 3600 * 1_000_000
NOW_US = int(time.time() * 1_000_000)
AGE = 14 * 24 * 3600.0
OLDEST_US = NOW_US - 14 * DAY_US


@pytest.fixture(params=["memory", "rocksdb"])
def ledger(request, tmp_path):
    made = MemoryLedger() if request.param == "memory" else RocksDBLedger(tmp_path / "index")
    yield made
    made.close()


@pytest.fixture
def state():
    return open_store(f"memory://{uuid.uuid4().hex}")


def days_ago(days: float) -> int:
    return NOW_US - int(days * DAY_US)


def append(state, days: float, *files: FileEntry) -> None:
    """Write an entry as it was written some days ago."""
    written = datetime.now(UTC) - timedelta(days=days)
    log = NumberedLog(state, file_log.PREFIX, format_version=file_log.FORMAT_VERSION)
    header = {
        "created": written.isoformat(timespec="microseconds"),
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "found_by": "listing",
        "position": None,
    }
    assert log.append(log.latest() + 1, header, encode_files(files))


def filled(state) -> FileLog:
    """A log of four entries, two of them old; the last one has a file of the first again."""
    append(state, 40, FileEntry("a", 1, days_ago(41)), FileEntry("b", 1, days_ago(40)))
    append(state, 30, FileEntry("c", 1, days_ago(30)), FileEntry("d", 1, days_ago(-9)))
    append(state, 3, FileEntry("e", 1, days_ago(3)), FileEntry("f", 1, days_ago(99)))
    append(state, 2, FileEntry("a", 2, days_ago(2)))
    return FileLog(state)


def unknown(ledger) -> str:
    asked = [FileEntry(path, 1, 2) for path in "abcdefg"]
    return "".join(file.path for file in ledger.unseen(asked))


def test_old_files_of_old_entries_are_forgotten(ledger, state):
    files = filled(state)
    catch_up(ledger, files)
    assert forget_old(ledger, files, OLDEST_US) == 2
    # `a` is in a newer entry, `d` is of the future, `f` is in an entry that is not old yet.
    assert unknown(ledger) == "bcg"
    assert (ledger.expired_entry, ledger.expired_us) == (2, OLDEST_US - MARGIN_US)
    assert (ledger.caught_up, ledger.files) == (3, 7)
    assert forget_old(ledger, files, OLDEST_US) == 0
    append(state, 1, FileEntry("g", 1, days_ago(1)))
    catch_up(ledger, FileLog(state))
    assert (unknown(ledger), ledger.expired_entry) == ("bc", 2)
    ledger.clear()
    assert (ledger.expired_entry, ledger.expired_us) == (0, 0)


def test_forgetting_goes_on_where_it_ended(ledger, state):
    files = filled(state)
    catch_up(ledger, files)
    assert forget_old(ledger, files, None) == 0
    assert forget_old(ledger, files, OLDEST_US, seconds=0) == 0
    assert ledger.forget(0, files.read(0), OLDEST_US - MARGIN_US) == 1
    assert forget_old(ledger, files, OLDEST_US) == 1
    assert unknown(ledger) == "bcg"


def test_a_damaged_old_entry_fails_no_discovery(ledger, state, caplog):
    catch_up(ledger, filled(state))
    state.put(f"{file_log.PREFIX}/{1:020d}", b"v1\ngarbage")
    assert forget_old(ledger, FileLog(state), OLDEST_US) == 1
    assert "forgets no more" in caplog.text
    assert unknown(ledger) == "bg"


def test_what_was_forgotten_is_still_so_when_the_index_is_opened_again(state):
    files = filled(state)
    stream = uuid.uuid4().hex
    opened = open_ledger(stream, files, oldest_us=OLDEST_US)
    forget_old(opened, files, OLDEST_US)
    opened.close()
    for oldest_us, missing in (
        (OLDEST_US, "bcg"),
        (OLDEST_US + DAY_US, "bcg"),
        (None, "g"),  # an index of its own
        (OLDEST_US, "bcg"),
        (OLDEST_US - 2 * DAY_US, "g"),  # the option was raised, or a clock was wrong: built anew
    ):
        opened = open_ledger(stream, files, oldest_us=oldest_us)
        assert unknown(opened) == missing
        opened.close()


def test_a_snapshot_that_lacks_files_is_for_those_who_do_not_ask_for_them(state):
    files = filled(state)
    stream = uuid.uuid4().hex
    opened = open_ledger(stream, files, oldest_us=OLDEST_US)
    forget_old(opened, files, OLDEST_US)
    assert maybe_snapshot(opened, files, state, worth_entries=1)
    opened.close()
    for oldest_us, missing in ((None, "g"), (OLDEST_US - 2 * DAY_US, "g"), (OLDEST_US, "bcg")):
        shutil.rmtree(cache_folder())
        opened = open_ledger(stream, files, oldest_us=oldest_us)
        assert unknown(opened) == missing
        opened.close()


def test_a_filter_leaves_out_what_the_index_has_forgotten_whatever_the_clock_says():
    options = DiscoveryOptions(max_file_age_seconds=AGE)
    wanted = FileFilter("/in", None, options, clock=lambda: NOW_US / 1e6 - 30 * 86400)
    assert wanted.accepts(FileEntry("a", 1, days_ago(20)))
    wanted.known_from_us = days_ago(15)
    assert not wanted.accepts(FileEntry("a", 1, days_ago(20)))
    assert wanted.accepts(FileEntry("a", 1, days_ago(14.5)))


@pytest.fixture
def zone(tmp_path):
    made = LandingZone(tmp_path / "in")
    made.write("old.json", "x", modified=days_ago(40) / 1e6)
    made.write("new.json", "x", modified=days_ago(2) / 1e6)
    return made


def opened(zone, state, age: float | None) -> Intake:
    options = DiscoveryOptions(max_file_age_seconds=age)
    return Intake(source=open_store(zone.uri), state=state, format="json", discovery=options)


def discovered(zone, state, age: float | None) -> int:
    """How many files are new in a run of its own."""
    with closing(opened(zone, state, age)) as intake:
        return intake.discover(full=True).files


def test_a_file_that_was_forgotten_and_is_listed_again_is_not_ingested_again(
    zone, state, caplog
):  # B108
    opened(zone, state, None).close()
    append(state, 40, FileEntry("old.json", 1, days_ago(40)))
    with caplog.at_level(logging.WARNING):
        assert discovered(zone, state, AGE) == 1
    assert "is ingested, whatever cloudFiles.allowOverwrites is" in caplog.text
    # Still listed; then with a longer age, without the option, and with it again.
    for age in (AGE, 60 * 86400.0, None, AGE):
        assert discovered(zone, state, age) == 0
    shutil.rmtree(cache_folder())
    assert discovered(zone, state, None) == 0


def test_a_forgotten_file_that_is_written_again_counts_as_new(zone, state):  # B108
    opened(zone, state, None).close()
    append(state, 40, FileEntry("old.json", 1, days_ago(40)))
    assert discovered(zone, state, AGE) == 1
    zone.write("old.json", "written again")
    assert discovered(zone, state, None) == 0
    assert discovered(zone, state, AGE) == 1
    assert discovered(zone, state, AGE) == 0
