"""A stream that drains the queue of its bucket is killed at each step: no stream loses a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.discovery.queues.base import open_queue
from airflow_cloudfiles.engine.discovery.queues.notifications import NotificationDiscovery
from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.crash_points import EVENT_LOG_POINTS
from tests.support.discovery.places import SqsPlace
from tests.support.discovery.ways import landing, logged
from tests.support.laws import SHARE, some

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
SCRIPT = Path(__file__).with_name("collecting_stream.py")
KEYS = [f"{number:02}" for number in range(12)]
HIDDEN_SECONDS = 2
BEFORE_THE_LOG = ("after-receive", "before-event-log-append")
BEFORE_THE_DELETION = ("after-event-log-append", "before-delete")
TRIED = some(EVENT_LOG_POINTS, 2, name="kills of a drain", always=["after-event-log-append"])
ELSEWHERE = [("azure", "before-delete"), ("gcs", "after-event-log-append")]
if SHARE == 1:  # all of them take minutes, and differ from those of S3 in the clouds' clients only
    ELSEWHERE = [(cloud, point) for cloud in ("azure", "gcs") for point in EVENT_LOG_POINTS]


class Streams:
    """Streams of one source, run in processes of their own or in this one."""

    def __init__(self, source: str, log: str, access: Access, folder: Path) -> None:
        self._source, self._log, self._access, self._folder = source, log, access, folder

    def discover(self, state: str, crash_at: str = "") -> subprocess.Popen[bytes]:
        search = os.pathsep.join(filter(None, [PACKAGE_FOLDER, os.environ.get("PYTHONPATH")]))
        environment = {CRASH_AT: crash_at, "PYTHONPATH": search, **to_environment(self._access)}
        arguments = [self._source, str(self._folder / state), self._log, str(HIDDEN_SECONDS)]
        return subprocess.Popen(
            [sys.executable, SCRIPT, *arguments], env={**os.environ, **environment}
        )

    def discover_here(self, state: str) -> None:
        """Discover as somebody whom nobody kills, which needs no process of its own."""
        options = DiscoveryOptions(use_managed_file_events=True, file_events_location=self._log)
        opened = Intake.open(
            source=self._source,
            format="json",
            checkpoint_location=str(self._folder / state),
            discovery=options,
            access=self._access,
        )
        with contextlib.closing(opened) as intake:
            intake.discover()

    def recorded(self, state: str) -> Counter[str]:
        found = FileLog(open_store(str(self._folder / state)))
        numbers = range(found.latest() + 1)
        return Counter(file.path for n in numbers for file in found.read(n).files)


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Messages are hidden in this process as briefly as in `collecting_stream`."""
    given = NotificationDiscovery.__init__.__kwdefaults__
    monkeypatch.setitem(given, "hidden_seconds", HIDDEN_SECONDS)
    monkeypatch.setitem(given, "renewal_seconds", HIDDEN_SECONDS / 4)


@pytest.fixture
def landed(aws, tmp_path):
    """A bucket, the place of its queue, and what runs a stream over its event log."""
    bucket = aws.bucket()
    place = SqsPlace(aws)
    place.bucket = bucket.removeprefix("s3://")
    # The log is in a cloud, too: there the lease is one that nobody frees when its holder dies.
    log = f"{aws.bucket()}/log"
    create_log(open_store(log, aws.access), bucket, {"cloudFiles.queueUrl": place.url})
    streams = Streams(f"{bucket}/in", log, aws.access, tmp_path)
    store = open_store(f"{bucket}/in", aws.access)
    return place, store, streams


def _land(place, store, keys):
    for key in keys:
        store.put(key, b"x")
    place.send(*(place.event(f"in/{key}") for key in keys))


@pytest.mark.parametrize("point", TRIED)
def test_a_kill_of_the_stream_that_drains_loses_and_repeats_nothing(landed, point):  # B93
    place, store, streams = landed
    for state in ("killed", "other"):
        streams.discover_here(state)  # both have listed the empty source
    _land(place, store, KEYS)
    assert streams.discover("killed", point).wait(300) == -signal.SIGKILL
    place.send(*(place.event(f"in/{key}") for key in KEYS[:3]))  # and duplicates meanwhile
    end = time.monotonic() + 300
    while place.queue.approximate_size() and time.monotonic() < end:
        streams.discover_here("other")
        time.sleep(0.3)
    for state in ("killed", "other"):
        streams.discover_here(state)
        assert streams.recorded(state) == Counter(KEYS), state
    assert place.left() == []


def test_streams_at_once_drain_one_queue_and_each_finds_every_file(landed):
    place, store, streams = landed
    states = [f"state-{number}" for number in range(3)]
    for state in states:
        streams.discover_here(state)
    _land(place, store, KEYS)
    started = [streams.discover(state) for state in states]
    assert [each.wait(300) for each in started] == [0, 0, 0]
    for state in states:
        streams.discover_here(state)
        assert streams.recorded(state) == Counter(KEYS)
    assert place.left() == []


@pytest.mark.parametrize(("cloud", "point"), ELSEWHERE)
def test_on_azure_and_google_a_kill_loses_and_repeats_nothing_either(
    request, tmp_path, cloud, point
):  # B93
    place = landing(f"{cloud} notified", tmp_path, request.getfixturevalue)
    queue = open_queue(place.source, place.options, place.access)
    queue.wait_seconds = 2.0  # of Pub/Sub
    emulator = request.getfixturevalue({"azure": "azurite", "gcs": "gcs"}[cloud])
    place = logged(place, emulator.container() if cloud == "azure" else emulator.bucket())
    log = place.options.file_events_location
    streams = Streams(place.source, log, place.access, tmp_path)
    for state in ("killed", "other"):
        streams.discover_here(state)  # both have listed the empty source
    for key in KEYS:
        place.put(key)
    assert streams.discover("killed", point).wait(300) == -signal.SIGKILL
    events = EventLog.open(log, place.access)
    assert (events.end() == 1) is (point not in BEFORE_THE_LOG)
    come_back = time.monotonic() + HIDDEN_SECONDS
    for key in KEYS[:3]:
        place.tell(key)  # and duplicates meanwhile
    end = time.monotonic() + 300
    while time.monotonic() < end:
        is_over = time.monotonic() > come_back
        streams.discover_here("other")
        if is_over and not queue.receive(1):
            break
        time.sleep(0.3)
    streams.discover_here("killed")
    for state in ("killed", "other"):
        assert streams.recorded(state) == Counter(KEYS), state
    found = Counter(each.path for number in range(events.end()) for each in events.read(number))
    if point in BEFORE_THE_DELETION:
        assert sum(found.values()) > len(KEYS) + 3, "messages came back"
