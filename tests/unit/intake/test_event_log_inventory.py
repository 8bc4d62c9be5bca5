"""A new stream that reads an inventory report and the event log: when no listing is needed."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog, LoggedEvent
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake import announcements
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state import file_log
from airflow_cloudfiles.engine.storage import memory, open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.inventories import Row, write_report
from tests.support.memory_ledger import MemoryLedger

NOW = datetime.now(tz=UTC)
QUEUE = {"cloudFiles.queueUrl": "https://sqs.eu-central-1.amazonaws.com/1/q"}
COVER = 2
"""How many listings show that a report is of all of the source."""


class Bucket:
    """A bucket with a report that was begun two days ago, and a log that is as old as wanted."""

    def __init__(self, monkeypatch, log_days: float = 10) -> None:
        self._monkeypatch = monkeypatch
        self.name = f"b{uuid.uuid4().hex}"
        self.store = MemoryStore(f"memory://{self.name}")
        self.reports = MemoryStore(f"memory://{self.name}-reports")
        self.location = f"memory://{self.name}-log"
        with self.ago(log_days):
            create_log(open_store(self.location), self.store.uri, QUEUE)
        self.log = EventLog.open(self.location)

    @contextlib.contextmanager
    def ago(self, days: float):
        """Let it be some days earlier for all stores."""
        then_us = int((NOW - timedelta(days=days)).timestamp() * 1_000_000)
        with self._monkeypatch.context() as patched:
            patched.setattr(memory, "now_us", lambda: then_us)
            yield

    def land(self, key: str, days: float, *, is_told: bool = True) -> None:
        with self.ago(days):
            self.store.put(f"in/{key}", b"{}\n")
            if is_told:
                self.tell(key)

    def tell(self, key: str) -> None:
        time_us = self.store.head(f"in/{key}").modification_time_us
        self.log.append([LoggedEvent("created", f"in/{key}", 3, time_us, "e", "s")])

    def report(self, *keys: str, days: float = 2) -> None:
        rows = [Row(each.path, each.size, each.modification_time_us) for each in self.store.list()]
        rows = [row for row in rows if row.key.removeprefix("in/") in keys]
        started = NOW - timedelta(days=days)
        write_report(self.reports, "s3 csv", rows, bucket=self.name, started=started)

    def open(self, **options) -> Intake:
        self.log.mark_collected()
        found = {"use_managed_file_events": True, "file_events_location": self.location}
        return Intake(
            source=MemoryStore(f"{self.store.uri}/in"),
            format="json",
            state=MemoryStore(f"memory://{self.name}-state"),
            discovery=DiscoveryOptions(**found, inventory=self.reports.uri, **options),
            ledger=MemoryLedger(),
        )


def recorded(intake):
    return [file.path for file in intake.files.slice(START, intake.head())]


def landed(monkeypatch, log_days: float = 10) -> Bucket:
    """A bucket with a file a day, of which those from four days ago on are announced."""
    bucket = Bucket(monkeypatch, log_days)
    for days in (9, 8, 7, 6, 5):
        bucket.land(f"{days}-days", days, is_told=False)
    for days in (4, 2.5, 1):
        bucket.land(f"{days}-days", days)
    bucket.report("9-days", "8-days", "7-days", "6-days", "5-days", "4-days", "2.5-days")
    return bucket


ALL = Counter(f"{days}-days" for days in (9, 8, 7, 6, 5, 4, 2.5, 1))


def test_a_log_that_is_old_enough_completes_a_report_and_nothing_is_listed(monkeypatch):
    bucket = landed(monkeypatch, log_days=8)
    with contextlib.closing(bucket.open()) as intake:
        assert intake.arrivals().unrecorded
        found = intake.discover()
        assert (found.listing, found.inventory.completed_by) == (None, "notifications")
        # Of the log's entries, the first had been appended before the report's day of doubt.
        assert (found.file_events.start, found.file_events.new) == (1, 1)
        assert Counter(recorded(intake)) == ALL
        assert not intake.arrivals().unrecorded
    with contextlib.closing(bucket.open()) as intake:
        bucket.land("later", 0)
        found = intake.discover()
        assert (found.listing, found.inventory, found.by) == (None, None, {"notification": 1})
        assert Counter(recorded(intake)) == ALL + Counter(["later"])
        assert intake.source.requests["list"] == 0


def test_reading_a_report_that_the_log_completes_lists_its_edges_only(monkeypatch):
    bucket = landed(monkeypatch)
    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
        intake.discover()
        assert intake.source.requests["list"] == COVER


def _young(bucket):
    """The log was made, or made again, when the report's day of doubt had begun."""
    with bucket.ago(2.9):
        other = {"cloudFiles.queueUrl": "https://sqs.eu-central-1.amazonaws.com/1/other"}
        create_log(open_store(bucket.location), bucket.store.uri, other)
    bucket.log = EventLog.open(bucket.location)


def _dropped(bucket):
    """The log does not go back to then any more."""
    bucket.log.store.delete(f"events/{0:020}")


def _undrained(bucket):
    """Nobody drained the queue for longer than it keeps messages."""
    for number in range(3):
        bucket.log.store.delete(f"events/{number:020}")
    with bucket.ago(5):
        bucket.log = EventLog.open(bucket.location)
        bucket.tell("9-days")


def _read_before(bucket):
    """The stream has read on once, and may have left out what is wanted now."""
    with contextlib.closing(bucket.open(path_glob_filter="none")) as intake:
        intake._announced().begin()
        intake._announced().nothing_listed()


@pytest.mark.parametrize("change", [_young, _dropped, _undrained, _read_before])
def test_a_log_that_may_lack_a_file_is_followed_by_one_listing(monkeypatch, change):
    bucket = landed(monkeypatch)
    change(bucket)
    bucket.land("lost", 2.2, is_told=False)
    with contextlib.closing(bucket.open()) as intake:
        found = intake.discover()
        assert (found.listing, found.inventory.completed_by) == (None, "full listing")
        assert intake.arrivals().unrecorded
        bucket.land("later", 0)
        assert intake.discover().listing.kind == "full"
        bucket.land("last", 0)
        assert intake.discover().listing is None
        assert Counter(recorded(intake)) == ALL + Counter(["lost", "later", "last"])


@pytest.mark.parametrize(
    ("module", "point", "passage", "is_listed"),
    [
        (file_log, "after-file-log-append", 1, False),  # of the report
        (announcements, "before-inventory-position", 1, True),
        (file_log, "after-file-log-append", 2, False),  # of the log
    ],
)
def test_an_interrupted_beginning_loses_and_doubles_nothing(
    monkeypatch, module, point, passage, is_listed
):
    bucket = landed(monkeypatch)
    passed = Counter()

    def stop(name):
        passed[name] += 1
        if name == point and passed[name] == passage:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, contextlib.closing(bucket.open()) as intake:
        patched.setattr(module, "crash_point", stop)
        with pytest.raises(KeyboardInterrupt):
            intake.discover()
    bucket.land("later", 0)
    with contextlib.closing(bucket.open()) as intake:
        assert (intake.discover().listing is not None) == is_listed
        assert Counter(recorded(intake)) == ALL + Counter(["later"])
        assert intake.discover().listing is None
