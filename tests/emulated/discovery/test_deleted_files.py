"""Files that are gone are noticed in every store: by listings, by notifications, by event logs."""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.engine.discovery.services import (
    list_notifications,
    set_up_notifications,
)
from airflow_cloudfiles.engine.errors import MassDeletionError
from airflow_cloudfiles.engine.extensions.event_log.description import set_up_event_log
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from tests.support.discovery.notified import azure_event

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

NAMES = ("a b+c%2B", "café/💎=", "d/e/f", "d/g", "x")


class Stream:
    """A source and the state of a stream whose table follows it."""

    def __init__(self, source: str, access: Access, state: Path, **options: Any) -> None:
        self.source: ObjectStore = open_store(source, access)
        self.access = access
        self.state = state
        self.options = DiscoveryOptions(
            on_delete="delete", path_column=("file_path",), max_deleted_share=1.0, **options
        )

    def put(self, *names: str) -> None:
        for name in names:
            self.source.put(name, name.encode())

    def delete(self, *names: str) -> None:
        for name in names:
            self.source.delete(name)

    def discover(self) -> list[tuple[str, str]]:
        """Discover; how each file was recorded since."""
        log = FileLog(open_store(str(self.state)))
        before = log.latest() + 1
        opened = Intake.open(
            source=self.source.uri,
            format="json",
            checkpoint_location=str(self.state),
            discovery=self.options,
            access=self.access,
        )
        with contextlib.closing(opened) as intake:
            intake.discover()
        log = FileLog(open_store(str(self.state)))
        entries = [log.read(number) for number in range(before, log.latest() + 1)]
        return sorted((file.path, each.found_by) for each in entries for file in each.files)


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["aws", "azurite", "gcs"])
def listed(request: pytest.FixtureRequest, tmp_path: Path) -> Stream:
    """A stream that lists a source in one of the clouds."""
    cloud = request.getfixturevalue(request.param)
    place = cloud.container() if request.param == "azurite" else cloud.bucket()
    return Stream(f"{place}/in", cloud.access, tmp_path / "state")


def test_a_full_listing_shows_what_is_gone_in_every_store(listed: Stream) -> None:
    listed.put(*NAMES)
    assert [how for _, how in listed.discover()] == ["listing"] * len(NAMES)
    assert listed.discover() == []
    listed.delete("d/e/f", "café/💎=")
    assert listed.discover() == [("café/💎=", "delete"), ("d/e/f", "delete")]
    assert listed.discover() == []
    listed.put("d/e/f")
    assert listed.discover() == [("d/e/f", "listing")]


def test_a_bucket_that_was_emptied_stops_the_stream_before_each_file_is_looked_for(
    aws: Any, tmp_path: Path
) -> None:
    stream = Stream(f"{aws.bucket()}/in", aws.access, tmp_path / "state")
    stream.put(*NAMES)
    stream.discover()
    stream.options = DiscoveryOptions(on_delete="delete", path_column=("file_path",))
    stream.delete(*NAMES)
    with pytest.raises(MassDeletionError, match="5 of the 5 known files"):
        stream.discover()


@pytest.mark.parametrize("via", ["sqs", "eventbridge"])
def test_notifications_of_s3_tell_what_is_gone(
    aws: Any, name: str, via: Any, tmp_path: Path
) -> None:
    source = f"{aws.bucket()}/in"
    made = set_up_notifications(source, name, access=aws.access, via=via, deletes=True)
    (shown,) = list_notifications(source, access=aws.access)
    assert shown.is_complete
    stream = Stream(
        source,
        aws.access,
        tmp_path / "state",
        use_notifications=True,
        queue_url=made.options["cloudFiles.queueUrl"],
    )
    stream.put(*NAMES)
    assert len(stream.discover()) == len(NAMES)
    stream.put("x")  # deleted and written anew: a message of that is no deletion
    stream.delete("d/g", "a b+c%2B", "x")
    stream.put("x")
    assert stream.discover() == [("a b+c%2B", "delete"), ("d/g", "delete")]
    assert stream.discover() == []
    again = set_up_notifications(source, name, access=aws.access, via=via)
    assert {part.done for part in again.parts} == {"found"}, "more events do no harm"


def test_events_of_azure_tell_what_is_gone_or_was_renamed(azurite: Any, tmp_path: Path) -> None:
    container = azurite.container()
    queue = azurite.queue()
    stream = Stream(
        f"{container}/in",
        azurite.access,
        tmp_path / "state",
        use_notifications=True,
        queue_name=queue,
    )
    stream.put(*NAMES)
    stream.discover()  # the first one lists
    of = container.partition("://")[2].partition("@")[0]

    def send(path: str, **event: Any) -> None:
        told = azure_event(of, path, None, account=azurite.account, **event)
        azurite.queue_client(queue).send_message(json.dumps(told))

    stream.delete("x", "d/e/f", "d/g")
    stream.put("renamed")
    stream.delete("café/💎=")
    send("in/x", kind="BlobDeleted", api="DeleteBlob")
    send("in/a b+c%2B", kind="BlobDeleted", api="DeleteBlob")  # it is there
    send("in/d", kind="DirectoryDeleted", api="DeleteDirectory")
    told = azure_event(of, "in/renamed", None, account=azurite.account, kind="BlobRenamed")
    host = f"https://{azurite.account}.dfs.core.windows.net"
    told["data"]["sourceUrl"] = f"{host}/{of}/in/caf%C3%A9/%F0%9F%92%8E="
    azurite.queue_client(queue).send_message(json.dumps(told))
    assert stream.discover() == [
        ("café/💎=", "delete"),
        ("d/e/f", "delete"),
        ("d/g", "delete"),
        ("renamed", "notification"),
        ("x", "delete"),
    ]


def test_events_of_cloud_storage_tell_what_is_gone(
    gcs_events: Any, pubsub: Any, tmp_path: Path
) -> None:
    topic = pubsub.topic()
    gcs = gcs_events(topic)
    stream = Stream(
        f"{gcs.bucket()}/in",
        replace(gcs.access, pubsub_endpoint=pubsub.endpoint),
        tmp_path / "state",
        use_notifications=True,
        subscription=pubsub.subscription(topic),
    )
    stream.put(*NAMES)
    stream.discover()
    stream.put("x")  # an overwrite deletes the generation before
    stream.delete("d/g")
    assert stream.discover() == [("d/g", "delete")]


def test_each_stream_of_an_event_log_learns_what_is_gone(
    aws: Any, name: str, tmp_path: Path
) -> None:
    bucket = aws.bucket()
    log = f"{bucket}/_events"
    set_up_event_log(log, bucket, name, access=aws.access, deletes=True)
    given = {"use_managed_file_events": True, "file_events_location": log}
    streams = [
        Stream(f"{bucket}/{folder}", aws.access, tmp_path / str(number), **given)
        for number, folder in enumerate(("in", "in", "out"))
    ]
    for stream in streams[1:]:
        stream.put("x", "y")
    for stream in streams:
        assert len(stream.discover()) == 2
    streams[0].delete("x")
    assert streams[0].discover() == [("x", "delete")]
    assert streams[1].discover() == [("x", "delete")]
    assert streams[2].discover() == []
