"""Notifications of Azure and Google Cloud against their stores: renames, versions, real events."""

from __future__ import annotations

import base64
import json

import pytest

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.queues.base import open_queue
from airflow_cloudfiles.engine.discovery.queues.notifications import NotificationDiscovery
from airflow_cloudfiles.engine.intake.recorder import LedgerRecorder
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.notified import azure_event
from tests.support.memory_ledger import MemoryLedger

pytest.importorskip("azure.storage.queue")


class Stream:
    """A source, its queue, and a file log."""

    def __init__(self, source, access, queue_access=None, **options) -> None:
        self.source = source
        self.options = DiscoveryOptions(use_notifications=True, **options)
        self.queue = open_queue(source.uri, self.options, queue_access or access)
        self.log = FileLog(MemoryStore(f"memory://{source.uri.replace('/', '')}/state"))
        self.recorder = LedgerRecorder(
            MemoryLedger(), self.log, versions=self.options.allow_overwrites
        )

    def run(self):
        wanted = FileFilter(self.source.uri, None, self.options)
        return NotificationDiscovery(self.queue, self.source, wanted, self.options).run(
            self.recorder
        )

    def files(self):
        numbers = range(self.log.latest() + 1)
        return {file.path: file for n in numbers for file in self.log.read(n).files}


# ── Azure ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def stream(azurite):
    """A stream below `in` of a new container."""
    source = open_store(f"{azurite.container()}/in", azurite.access)
    return Stream(source, azurite.access, queue_name=azurite.queue())


@pytest.fixture
def notify(azurite, stream):
    """`notify(name, size, …)`: send an event about a name in the container."""
    client = azurite.queue_client(stream.options.queue_name)
    container = stream.source.uri.partition("://")[2].partition("@")[0]

    def send(name, size, *, encode=True, array=False, **event) -> None:
        event = azure_event(container, name, size, account=azurite.account, **event)
        body = json.dumps([event] if array else event)
        client.send_message(base64.b64encode(body.encode()).decode() if encode else body)

    return send


def test_each_way_of_writing_a_file_to_azure_makes_it_new_once(stream, notify):  # B99
    for name in ("flushed", "put", "copied", "renamed", "caf\u00e9 a+b%2B"):
        stream.source.put(name, b"x" * len(name))
    notify("in/flushed", 0, api="CreateFile")
    notify("in/flushed", 7, api="FlushWithClose", cloud_event=True)
    notify("in/put", 3, encode=False)
    notify("in/caf\u00e9 a+b%2B", 10, api="PutBlockList", array=True)
    notify("in/copied", 0, api="CopyBlob")  # begun: the event tells the size of then
    notify("in/renamed", None, kind="BlobRenamed", api="RenameFile")
    notify("in/renamed", None, kind="BlobRenamed", api="RenameFile")
    notify("out/renamed", None, kind="BlobRenamed", api="RenameFile")
    notify("in/put", None, kind="BlobDeleted", api="DeleteBlob")
    report = stream.run()
    assert {path: file.size for path, file in stream.files().items()} == {
        "flushed": 7,
        "put": 3,
        "copied": 6,
        "renamed": 7,
        "caf\u00e9 a+b%2B": 11,  # as the store has it: a message may say anything
    }
    assert report.ignored == {"a file that is begun": 1, "BlobDeleted": 1}
    assert (report.outside, report.poison, report.deleted) == (1, 0, 9)
    assert report.approximate_size_after == 0


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("in/moved", {"moved/a", "moved/b/c"}),
        ("in", {"moved/a", "moved/b/c", "x", "moved-not/y"}),
        ("other", set()),
        ("in/nothing", set()),
    ],
)
def test_a_renamed_folder_brings_what_is_in_it(stream, notify, folder, expected):  # B99
    for name in ("moved/a", "moved/b/c", "moved/_hidden", "moved-not/y", "x"):
        stream.source.put(name, b"x")
    notify(folder, None, kind="DirectoryRenamed", api="RenameDirectory")
    report = stream.run()
    assert set(stream.files()) == expected
    assert (report.new, report.deleted) == (len(expected), 1)


def test_names_without_a_file_are_told_apart(stream, notify):  # B96
    notify("in/gone", 5)
    notify("in/gone too", None, kind="BlobRenamed", api="RenameFile")
    notify("in/empty and gone, or the mark of a folder", 0)
    notify("in/log_\ufffd\ufffd.json", 5)  # Event Grid cannot write every name
    stream.source.put("there", b"12345")
    notify("in/there", 5)
    report = stream.run()
    assert set(stream.files()) == {"there"}, "an event of what never existed stops no stream"
    assert report.ignored == {"no such file": 4}
    assert report.not_there[0].endswith("in/gone")
    assert report.approximate_size_after == 0


def test_with_overwrites_a_notification_and_a_listing_see_one_version(azurite):  # B104
    source = open_store(azurite.container(), azurite.access)
    stream = Stream(source, azurite.access, queue_name=azurite.queue(), allow_overwrites=True)
    source.put("x", b"12345")
    container = source.uri.partition("://")[2].partition("@")[0]
    event = azure_event(container, "x", 3, account=azurite.account)
    azurite.queue_client(stream.options.queue_name).send_message(json.dumps(event))
    assert stream.run().new == 1
    assert stream.recorder.record(list(source.list()), "listing") == 0


# ── Google Cloud ────────────────────────────────────────────────────────────────────────────────


def test_objects_are_found_by_the_events_of_cloud_storage(gcs_events, pubsub):  # B99
    topic = pubsub.topic()
    subscription = pubsub.subscription(topic)
    gcs = gcs_events(topic)
    source = open_store(f"{gcs.bucket()}/in", gcs.access)
    keys = ["a b+c%2B", "caf\u00e9/\U0001f48e=", "date=2026-01-01/x", "x"]
    for key in keys:
        source.put(key, key.encode())
    open_store(source.uri.removesuffix("/in"), gcs.access).put("elsewhere", b"x")  # B95
    stream = Stream(source, gcs.access, pubsub.access, subscription=subscription)
    stream.queue.wait_seconds = 2.0
    report = stream.run()
    listed = {entry.path: entry for entry in source.list()}
    assert stream.files() == listed
    assert set(listed) == set(keys)
    assert (report.outside, report.poison, report.deleted) == (1, 0, 5)
    source.put("x", b"again")  # finalize, and delete of the generation before
    report = stream.run()
    assert (report.new, report.duplicates, report.poison) == (0, 1, 0)
    assert report.ignored == {"OBJECT_DELETE": 1}
