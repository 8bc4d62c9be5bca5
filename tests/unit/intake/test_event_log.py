"""A stream that reads the event log of its bucket: what it records, and when it lists."""

from __future__ import annotations

import contextlib
import uuid

import pytest

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.event_log import collector, reading
from airflow_cloudfiles.engine.extensions.event_log import reading as position_module
from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog, LoggedEvent
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake import announcements
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.compaction import KEPT
from airflow_cloudfiles.engine.storage import memory, open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.memory_queue import MemoryQueue
from tests.support.memory_ledger import MemoryLedger

QUEUE = {"cloudFiles.queueUrl": "https://sqs.eu-central-1.amazonaws.com/1/q"}


class Bucket:
    """A bucket in memory, whose events this class appends to a log, as a collector would."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.store = MemoryStore(f"memory://{self.name}/bucket")
        self.location = f"memory://{self.name}/log"
        create_log(open_store(self.location), self.store.uri, QUEUE)
        self.log = EventLog.open(self.location)
        self.log.mark_collected()

    def put(self, *keys: str) -> None:
        for key in keys:
            self.store.put(key, b"{}\n")
        self.tell(*keys)

    def tell(self, *keys: str) -> None:
        self.log.append([LoggedEvent("created", key, 3, 5, "e", "s") for key in keys])
        self.log.mark_collected()

    def open(self, source: str = "in", state: str = "state", **options) -> Intake:
        found = {"use_managed_file_events": True, "file_events_location": self.location, **options}
        return Intake(
            source=MemoryStore(f"{self.store.uri}/{source}"),
            format="json",
            state=MemoryStore(f"memory://{self.name}/{state}"),
            discovery=DiscoveryOptions(**found),
            ledger=MemoryLedger(),
        )


@pytest.fixture
def bucket():
    return Bucket()


def recorded(intake):
    return [file.path for file in intake.files.slice(START, intake.head())]


def test_streams_of_a_folder_its_parent_and_its_child_each_find_every_file_once(bucket):
    bucket.put("in/a/0", "in/b/0", "other/0")
    places = {"in": "one", "in/a": "two", "other": "three"}
    streams = {name: bucket.open(place, name) for place, name in places.items()} | {
        "four": bucket.open("in", "four", path_glob_filter="*1")
    }
    found = {
        "one": ["a/0", "b/0", "a/1", "b/1"],
        "two": ["0", "1"],
        "three": ["0"],
        "four": ["a/1", "b/1"],
    }
    for each in streams.values():
        each.discover()
    bucket.put("in/a/1", "in/b/1", "in/b/_hidden")
    bucket.tell("in/a/1")
    for name, each in streams.items():
        report = each.discover()
        assert report.listing is None, name
        assert sorted(recorded(each)) == sorted(found[name])
        assert not each.discover().files


def test_a_listing_is_made_where_nothing_else_would_find_the_files_and_never_otherwise(
    bucket, monkeypatch
):
    bucket.put("in/0")
    with contextlib.closing(bucket.open()) as intake:  # a new stream
        assert intake.discover().listing is not None
    with contextlib.closing(bucket.open()) as intake:
        assert intake.discover().listing is None
        bucket.put("in/1")
        assert intake.discover().by == {"notification": 1}
    with contextlib.closing(bucket.open(list_on_start=True)) as intake:
        assert [intake.discover().listing is None for _ in range(2)] == [False, True]
    with contextlib.closing(bucket.open(path_glob_filter="*")) as intake:  # other files are meant
        assert [intake.discover().listing is None for _ in range(2)] == [False, True]
    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
    for _ in range(KEPT + 1):
        bucket.tell("other/0")
    bucket.store.put("in/lost", b"{}\n")
    bucket.log.store.delete(f"events/{2:020}")  # as the log does with what it does not keep
    with contextlib.closing(bucket.open()) as intake:  # the position is older than the log keeps
        assert intake.arrivals().unrecorded
        assert intake.discover().listing is not None
        assert intake.discover().listing is None
        assert sorted(recorded(intake)) == ["0", "1", "lost"]


def test_a_check_that_listed_for_a_lost_position_is_not_made_again(bucket):
    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
    for _ in range(KEPT + 1):
        bucket.tell("other/0")
    bucket.log.store.delete(f"events/{0:020}")
    with contextlib.closing(bucket.open()) as intake:
        before = intake.source.requests["list"]
        assert [intake.has_arrivals() for _ in range(3)] == [False] * 3
        assert intake.source.requests["list"] - before == 1
        bucket.put("in/a")
        assert intake.arrivals().unrecorded
        found = intake.discover()
        assert (found.files, found.listing) == (1, None)


def test_a_full_listing_that_is_asked_for_goes_on_from_the_end_of_the_log(bucket):
    bucket.put("in/a", "in/b")
    with contextlib.closing(bucket.open()) as intake:
        assert intake.discover(full=True).listing.kind == "full"
    bucket.put("in/c")
    with contextlib.closing(bucket.open()) as intake:
        found = intake.discover()
        assert (found.listing, found.file_events.start, found.files) == (None, 1, 1)


def test_another_queue_of_the_log_has_missed_what_came_in_between(bucket):
    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
    create_log(
        open_store(bucket.location), bucket.store.uri, {"cloudFiles.queueUrl": "https://sqs/2/q"}
    )
    bucket.store.put("in/missed", b"{}\n")
    with contextlib.closing(bucket.open()) as intake:
        assert [intake.discover().files for _ in range(2)] == [1, 0]


def test_who_drains_a_queue_that_was_left_alone_for_too_long_lists_at_once(bucket, monkeypatch):
    queue = MemoryQueue(bucket.store.uri)
    monkeypatch.setattr(collector, "open_queue", lambda *_: queue)
    for state in ("one", "two"):
        with contextlib.closing(bucket.open(state=state)) as intake:
            intake.discover()
    then_us = memory.now_us() - 8 * 86400 * 10**6
    with monkeypatch.context() as patched:
        patched.setattr(memory, "now_us", lambda: then_us)
        bucket.log.mark_collected()
    bucket.store.put("in/dropped", b"{}\n")
    for state in ("one", "two"):
        with contextlib.closing(bucket.open(state=state)) as intake:
            assert [intake.discover().listing is None for _ in range(2)] == [False, True]
            assert recorded(intake) == ["dropped"]


def test_a_quiet_stream_asks_the_log_once_and_the_queue_never(bucket):
    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
        log = intake._announced()._log.store
        before = log.requests.copy()
        assert not intake.discover().files
        made = log.requests - before
        assert made == {"list": 1}, made


def test_the_position_is_in_the_entry_of_the_last_of_its_files(bucket, monkeypatch):
    monkeypatch.setattr(reading, "RECORDED_EVENTS", 3)
    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
        for number in range(5):
            bucket.put(f"in/{number}-0", f"in/{number}-1")
        intake.discover()
        summaries = [intake.files.summary(n) for n in range(intake.head().entry)]
        log = bucket.log.description.id
        assert [(each.files, each.position) for each in summaries] == [
            (4, f"events:{log}:2"),
            (4, f"events:{log}:4"),
            (2, f"events:{log}:5"),
        ]


@pytest.mark.parametrize("point", ["before-event-position", "after-file-log-append"])
def test_an_interrupted_reading_goes_on_where_it_was(bucket, monkeypatch, point):
    from airflow_cloudfiles.engine.state import file_log

    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
    bucket.put("in/a", "in/b")

    def stop(name):
        if name == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, contextlib.closing(bucket.open()) as intake:
        for module in (reading, file_log):
            patched.setattr(module, "crash_point", stop)
        with pytest.raises(KeyboardInterrupt):
            intake.discover()
    with contextlib.closing(bucket.open()) as intake:
        assert recorded(intake) == ["a", "b"]
        found = intake.discover()
        assert not found.files
    bucket.put("in/c")
    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
        assert recorded(intake) == ["a", "b", "c"]


@pytest.mark.parametrize("content", [None, b"x"])
def test_a_lost_or_damaged_position_costs_a_listing_and_no_file(bucket, content):
    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
        bucket.put("in/a")
    with contextlib.closing(bucket.open()) as intake:
        if content is None:
            intake.state.delete(position_module.KEY)
        else:
            intake.state.put(position_module.KEY, content)
        assert intake.discover().files == 1
        bucket.put("in/b")
        assert intake.discover().files == 1
        assert recorded(intake) == ["a", "b"]


def test_from_listing_to_a_log_and_back_no_file_is_lost_or_doubled(bucket):  # B100
    listed = {"use_managed_file_events": False, "file_events_location": None}
    for number in range(6):
        bucket.put(f"in/{number}")
        bucket.store.put(f"in/{9 - number}-lost", b"{}\n")
        with contextlib.closing(bucket.open(**(listed if number % 2 else {}))) as intake:
            intake.discover()
            found = recorded(intake)
            assert len(found) == len(set(found)) == 2 * (number + 1)


def test_from_a_queue_of_its_own_to_a_log_and_back_no_file_is_lost_or_doubled(  # B100
    bucket, monkeypatch
):
    """Both get each message, before, in between and after; one is left unread at each move."""
    own = MemoryQueue(bucket.store.uri)
    monkeypatch.setattr(announcements, "open_queue", lambda *_: own)
    options = {"use_managed_file_events": False, "file_events_location": None}
    options |= {
        "use_notifications": True,
        "queue_url": "https://sqs.eu-central-1.amazonaws.com/1/o",
    }
    wanted = []

    def land(*keys):
        bucket.put(*(f"in/{key}" for key in keys))
        own.send(*(f"in/{key}".encode() for key in keys))
        wanted.extend(keys)

    for number in range(6):
        land(f"{number}-unread")
        bucket.store.put(f"in/{number}-lost", b"{}\n")
        wanted.append(f"{number}-lost")
        with contextlib.closing(bucket.open(**({} if number % 2 else options))) as intake:
            assert intake.discover().listing is not None, "once at each move"
            land(f"{number}-read")
            found = intake.discover()
            assert (found.listing, found.by) == (None, {"notification": 1})
            assert sorted(recorded(intake)) == sorted(wanted)
            if not number % 2:
                assert own.approximate_size() == 0, "what was left there is acknowledged"


def test_what_was_there_before_is_left_out_where_that_is_asked_for(bucket):  # B88
    bucket.put("in/old")
    with contextlib.closing(bucket.open(include_existing_files=False)) as intake:
        bucket.tell("in/old")
        report = intake.discover()
        assert report.listing is not None
        bucket.put("in/new")
        intake.discover()
        assert recorded(intake) == ["new"]


def test_an_arrival_shows_until_it_is_recorded(bucket):
    with contextlib.closing(bucket.open()) as intake:
        intake.discover()
        bucket.put("other/a", "in/_hidden")
        assert not intake.has_arrivals()
        bucket.put("in/a")
        assert intake.arrivals().unrecorded
        assert recorded(intake) == []
        intake.discover()
        assert not intake.arrivals().unrecorded


def test_a_log_of_another_bucket_or_of_a_part_of_the_source_is_refused(bucket):
    other = Bucket()
    with (
        contextlib.closing(bucket.open(file_events_location=other.location)) as intake,
        pytest.raises(OptionError, match="is not below that"),
    ):
        intake.discover()
    nowhere = bucket.open(file_events_location="memory://nowhere/log")
    with contextlib.closing(nowhere), pytest.raises(OptionError, match="no event log"):
        nowhere.discover()
