"""Twelve ways for files to land and be found: six places by listing, three by notification, three
by the event log of a bucket.

One interface for all, so that one suite says what must hold wherever files land. S3 and its queue
are real to the last event; for Azure and Google the test sends what Event Grid and Cloud Storage
send, since no emulator does.
"""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from tests.support import laws
from tests.support.sftp_servers import Landed
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest

    from airflow_cloudfiles.engine.storage.access import Access
    from tests.support.sftp_servers import Served

WAYS = (
    "local",
    "s3",
    "azure",
    "gcs",
    "sftp",
    "openssh",
    "s3 notified",
    "azure notified",
    "gcs notified",
    "s3 logged",
    "azure logged",
    "gcs logged",
)
NOTIFIED = tuple(way for way in WAYS if way.endswith("notified"))
LOGGED = tuple(way for way in WAYS if way.endswith("logged"))
_ALIKE = (("local",), ("s3", "azure", "gcs"), ("sftp", "openssh"), NOTIFIED, LOGGED)


def some_ways(test: str, ways: Collection[str] = WAYS) -> list[str]:
    """Choose the ways that a test tries in this run: one of those that differ in the cloud only.

    Each test chooses for itself, so a run tries all ways, each with other tests.
    """
    chosen = [way for alike in _ALIKE for way in laws.some(alike, 1, name=f"{test} {alike[0]}")]
    return [way for way in ways if way in chosen]


def try_some_ways(metafunc: pytest.Metafunc) -> None:
    """Give `place` and `notified` to the tests of a module that ask for them.

    It is what the module calls `pytest_generate_tests`. Tests of what the clouds do name their
    ways themselves, for all of them are tried.
    """
    given = {each.args[0] for each in metafunc.definition.iter_markers("parametrize")}
    for fixture, ways in (("place", WAYS), ("notified", NOTIFIED)):
        if fixture in metafunc.fixturenames and fixture not in given:
            chosen = some_ways(metafunc.function.__name__, ways)
            metafunc.parametrize(fixture, chosen, indirect=True)


class Landing:
    """A place where files land.

    Attributes:
        source: URI of the folder.
        access: How it is reached; `None` for local folders.
        options: How its files are found.
    """

    def __init__(self, source: str, access: Access | None, options: DiscoveryOptions) -> None:
        self.source = source
        self.access = access
        self.options = options

    @property
    def store(self) -> ObjectStore:
        """The folder."""
        return open_store(self.source, self.access)

    def put(self, key: str, content: bytes = b"{}\n") -> None:
        """Let a file land, and whoever is told be told."""
        self.store.put(key, content)
        self.tell(key, content)

    def lose(self, key: str, content: bytes = b"{}\n") -> None:
        """Let a file land whose notification gets lost."""
        self.store.put(key, content)

    def tell(self, key: str, content: bytes = b"{}\n") -> None:
        """Send the notification of a file that is there, again where it was sent already."""

    def let_time_pass(self) -> None:
        """Wait until what lands next is younger than all that has landed, by the store's clock."""
        store = self.store
        newest = max(store.arrived_us(entry) for entry in store.list())
        while store.clock_us() <= newest:
            time.sleep(0.01)

    def open(self, state: object, **options: Any) -> Intake:
        """Open the stream whose state is somewhere, with options of one's own."""
        exclude = options.pop("exclude", ())
        source = options.pop("source", self.source)
        return Intake.open(
            source=source,
            format="json",
            checkpoint_location=str(state),
            exclude=exclude,
            discovery=replace(self.options, **options),
            access=self.access,
        )


class OnServer(Landing):
    """A folder on an SFTP server: what lands there comes by the disk behind it."""

    def __init__(self, served: Served) -> None:
        self._landed = Landed(served, uuid.uuid4().hex)
        self._folder = Path(self._landed.disk.local_path("in"))
        self._folder.mkdir(parents=True)
        super().__init__(f"{self._landed.uri}/in", served.access, DiscoveryOptions())

    def put(self, key: str, content: bytes = b"{}\n") -> None:
        """Write the file, as somebody else would."""
        self._landed.put(f"in/{key}", content)

    def lose(self, key: str, content: bytes = b"{}\n") -> None:
        """There is nothing to lose."""
        self.put(key, content)

    def let_time_pass(self) -> None:
        """Make all that has landed an hour older: the server does not tell its time."""
        for path in self._folder.rglob("*"):
            then = path.stat().st_mtime - 3600
            os.utime(path, (then, then))


class S3Notified(Landing):
    """A bucket that tells a queue by itself."""

    def __init__(self, bucket: str, aws: Any) -> None:
        self._aws = aws
        self._bucket = bucket.removeprefix("s3://")
        self._queue = aws.queue(VisibilityTimeout="30")
        attributes = aws.client("sqs").get_queue_attributes(
            QueueUrl=self._queue, AttributeNames=["QueueArn"]
        )
        self._arn = attributes["Attributes"]["QueueArn"]
        options = DiscoveryOptions(use_notifications=True, queue_url=self._queue)
        super().__init__(f"{bucket}/in", aws.access, options)
        self._connect(is_connected=True)

    def put(self, key: str, content: bytes = b"{}\n") -> None:
        """The bucket tells by itself, soon after the request has ended."""
        before = self._told()
        self.store.put(key, content)
        until(lambda: self._told() > before, 30)

    def lose(self, key: str, content: bytes = b"{}\n") -> None:
        """Take the notification away while the file lands."""
        self._connect(is_connected=False)
        self.store.put(key, content)
        self._connect(is_connected=True)

    def tell(self, key: str, content: bytes = b"{}\n") -> None:
        """Copy the object onto itself: S3 sends another event."""
        self.put(key, content)

    def _told(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._aws.client("sqs").get_queue_attributes(
            QueueUrl=self._queue, AttributeNames=names
        )["Attributes"]
        return sum(int(found[each]) for each in names)

    def _connect(self, *, is_connected: bool) -> None:
        queues = [{"QueueArn": self._arn, "Events": ["s3:ObjectCreated:*"]}] if is_connected else []
        self._aws.client("s3").put_bucket_notification_configuration(
            Bucket=self._bucket, NotificationConfiguration={"QueueConfigurations": queues}
        )


class AzureNotified(Landing):
    """A container whose Event Grid this class is."""

    def __init__(self, container: str, azurite: Any) -> None:
        name = azurite.queue()
        self._queue = azurite.queue_client(name)
        self._container = container.removeprefix("abfss://").partition("@")[0]
        options = DiscoveryOptions(use_notifications=True, queue_name=name)
        super().__init__(f"{container}/in", azurite.access, options)

    def tell(self, key: str, content: bytes = b"{}\n") -> None:
        """One event in base64, as a storage queue gets it."""
        found = self.store.head(key)
        subject = f"/blobServices/default/containers/{self._container}/blobs/in/{key}"
        event = {
            "topic": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/"
            "storageAccounts/devstoreaccount1",
            "subject": subject,
            "eventType": "Microsoft.Storage.BlobCreated",
            "id": str(uuid.uuid4()),
            "eventTime": datetime.now(UTC).isoformat(),
            "data": {
                "api": "PutBlob",
                "eTag": f'"{found.etag}"' if found else '"0x0"',
                "contentType": "application/octet-stream",
                "contentLength": len(content),
                "blobType": "BlockBlob",
                "url": "https://devstoreaccount1.blob.core.windows.net/",
                "sequencer": "000000000000000000000000000000000000000000000000",
            },
            "dataVersion": "",
            "metadataVersion": "1",
        }
        self._queue.send_message(base64.b64encode(json.dumps(event).encode()).decode())


class GcsNotified(Landing):
    """A bucket whose notifications this class publishes."""

    def __init__(self, bucket: str, gcs: Any, pubsub: Any) -> None:
        self._topic = pubsub.topic()
        self._publisher = pubsub.publisher()
        self._bucket = bucket.removeprefix("gs://")
        access = replace(gcs.access, pubsub_endpoint=pubsub.endpoint)
        options = DiscoveryOptions(
            use_notifications=True, subscription=pubsub.subscription(self._topic)
        )
        super().__init__(f"{bucket}/in", access, options)

    def tell(self, key: str, content: bytes = b"{}\n") -> None:
        """The attributes and the resource that Cloud Storage sends."""
        found = self.store.head(key)
        generation = found.etag if found else "1"
        now = datetime.now(UTC).isoformat()
        resource = {
            "kind": "storage#object",
            "name": f"in/{key}",
            "bucket": self._bucket,
            "generation": generation,
            "size": str(len(content)),
            "timeCreated": now,
            "updated": now,
        }
        self._publisher.publish(
            self._topic,
            json.dumps(resource).encode(),
            eventType="OBJECT_FINALIZE",
            bucketId=self._bucket,
            objectId=f"in/{key}",
            objectGeneration=generation,
            payloadFormat="JSON_API_V1",
            eventTime=now,
        ).result(timeout=300)


_QUEUES = {
    "queue_url": "cloudFiles.queueUrl",
    "queue_name": "cloudFiles.queueName",
    "subscription": "cloudFiles.subscription",
}


def logged(place: Landing, folder: Path | str, *, of: str | None = None) -> Landing:
    """Have the queue of a place serve an event log, which streams read instead.

    Args:
        place: Where files land; its options name a queue.
        folder: Path or URI of where the log is made, in `log`.
        of: Which part of the bucket the log is of; by default what the source is in.
    """
    queue = {
        option: value
        for name, option in _QUEUES.items()
        if (value := getattr(place.options, name)) is not None
    }
    location = f"{folder}/log"
    create_log(open_store(location, place.access), of or place.source.rpartition("/")[0], queue)
    place.options = DiscoveryOptions(use_managed_file_events=True, file_events_location=location)
    return place


def landing(way: str, folder: Path, ask: Any) -> Landing:
    """Make a new place of a kind; `ask` gives fixtures by name (`request.getfixturevalue`)."""
    if way == "local":
        (folder / "in").mkdir()
        return Landing(str(folder / "in"), None, DiscoveryOptions())
    if way in {"sftp", "openssh"}:
        return OnServer(ask("asyncssh_server" if way == "sftp" else "openssh_server"))
    emulator = ask({"s3": "aws", "azure": "azurite", "gcs": "gcs"}[way.partition(" ")[0]])
    if way in LOGGED:
        return logged(landing(f"{way.partition(' ')[0]} notified", folder, ask), folder)
    root = emulator.container() if way.startswith("azure") else emulator.bucket()
    return _in_cloud(way, root, emulator, ask)


def _in_cloud(way: str, root: str, emulator: Any, ask: Any) -> Landing:
    if way == "s3 notified":
        return S3Notified(root, emulator)
    if way == "azure notified":
        return AzureNotified(root, emulator)
    if way == "gcs notified":
        return GcsNotified(root, emulator, ask("pubsub"))
    return Landing(f"{root}/in", emulator.access, DiscoveryOptions())


def recorded(intake: Intake) -> list[str]:
    """The paths of all files that are to be ingested, in the order of the file log."""
    return [file.path for file in intake.files.slice(START, intake.head())]
