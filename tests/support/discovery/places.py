"""Queues with sources whose notifications arrive in them: the same on three services."""

from __future__ import annotations

import base64
import json
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.queues.base import open_queue
from airflow_cloudfiles.engine.discovery.queues.draining import batched
from airflow_cloudfiles.engine.discovery.queues.notifications import (
    NotificationDiscovery,
    NotificationReport,
)
from airflow_cloudfiles.engine.intake.recorder import LedgerRecorder
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.notified import TIME, azure_event, s3_event
from tests.support.memory_ledger import MemoryLedger

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
    from airflow_cloudfiles.engine.discovery.queues.base import MessageQueue
    from tests.support.emulators.aws import Aws
    from tests.support.emulators.azure import Azurite
    from tests.support.emulators.gcp import PubSubEmulator


class Place:
    """A queue of one of the services, and a source whose notifications arrive in it.

    The source is in memory; `path_rewrites` map the bucket of the events to it, so that the three
    services can be tested without the three stores.

    Attributes:
        queue: As the package reads it.
        bucket: Of the events.
    """

    queue: MessageQueue
    bucket: str

    def __init__(self) -> None:
        name = uuid.uuid4().hex
        self.source = MemoryStore(f"memory://{name}/in")
        self.state = MemoryStore(f"memory://{name}/state")
        self.recorder = LedgerRecorder(MemoryLedger(), FileLog(self.state))

    def send(self, *bodies: bytes) -> None:
        """Send messages as somebody else would."""
        raise NotImplementedError

    def event(self, key: str, size: int = 1) -> bytes:
        """A notification of a new file in the bucket."""
        raise NotImplementedError

    def put(self, *keys: str) -> None:
        """Put files below the source, and send their notifications."""
        for key in keys:
            self.source.put(key, b"x")
        self.send(*(self.event(f"in/{key}") for key in keys))

    def discovery(
        self,
        *,
        queue: MessageQueue | None = None,
        hidden: int = 30,
        renewal: float | None = None,
        **options: Any,
    ) -> NotificationDiscovery:
        """Discovery as a run would make it."""
        rewrites = ((f"{self.bucket}/in", self.source.uri),)
        wanted = DiscoveryOptions(use_notifications=True, path_rewrites=rewrites, **options)
        return NotificationDiscovery(
            queue or self.queue,
            self.source,
            FileFilter(self.source.uri, None, wanted, ()),
            wanted,
            hidden_seconds=hidden,
            renewal_seconds=hidden / 4 if renewal is None else renewal,
        )

    def run(self, **arguments: Any) -> NotificationReport:
        """Drain the queue."""
        return self.discovery(**arguments).run(self.recorder)

    def recorded(self) -> list[str]:
        """What the file log has, sorted."""
        log = self.recorder.files
        numbers = range(log.latest() + 1)
        return sorted(file.path for number in numbers for file in log.read(number).files)

    def left(self) -> list[bytes]:
        """What somebody else would receive now; it is hidden for a second then."""
        found: list[bytes] = []
        while messages := self.queue.receive(1):
            found += [message.body for message in messages]
        return found

    def wait_for(self, count: int, seconds: float = 300) -> list[bytes]:
        """Receive until so many messages have come, or until time is up."""
        end = time.monotonic() + seconds
        found: dict[str, bytes] = {}
        while len(found) < count and time.monotonic() < end:
            found.update((each.id, each.body) for each in self.queue.receive(1))
        return sorted(found.values())


class SqsPlace(Place):
    """A queue of SQS."""

    bucket = "bucket"

    def __init__(self, aws: Aws, url: str | None = None, access: AwsAccess | None = None) -> None:
        super().__init__()
        self.url = url or aws.queue()
        self.client = aws.client("sqs")
        self.queue = open_queue(
            "s3://bucket/in", DiscoveryOptions(queue_url=self.url), access or aws.access
        )
        self.queue.wait_seconds = 0  # an emulator is one server: it is never empty by chance

    def send(self, *bodies: bytes) -> None:
        for some in batched(bodies, 10):
            entries = [{"Id": str(i), "MessageBody": body.decode()} for i, body in enumerate(some)]
            self.client.send_message_batch(QueueUrl=self.url, Entries=entries)

    def event(self, key: str, size: int = 1) -> bytes:
        return json.dumps(s3_event(self.bucket, quote_plus(key, safe="/"), size)).encode()


class AzurePlace(Place):
    """A queue of Azure Queue Storage."""

    bucket = "container@devstoreaccount1"

    def __init__(self, azurite: Azurite) -> None:
        super().__init__()
        name = azurite.queue()
        self.client = azurite.queue_client(name)
        self.queue = open_queue(
            "abfss://container@devstoreaccount1.dfs.core.windows.net/in",
            DiscoveryOptions(queue_name=name),
            azurite.access,
        )

    def send(self, *bodies: bytes) -> None:
        for body in bodies:
            self.client.send_message(body.decode())

    def event(self, key: str, size: int = 1) -> bytes:
        event = azure_event("container", key, size, account="devstoreaccount1")
        return base64.b64encode(json.dumps(event).encode())


class PubSubPlace(Place):
    """A subscription of Pub/Sub. A body has its attributes before a NUL."""

    bucket = "bucket"

    def __init__(self, pubsub: PubSubEmulator) -> None:
        from google.pubsub_v1 import PublisherClient

        super().__init__()
        self.topic = pubsub.topic()
        self.publisher = PublisherClient(transport=pubsub.publisher().transport)
        name = pubsub.subscription(self.topic)
        self.queue = open_queue(
            "gs://bucket/in", DiscoveryOptions(subscription=name), pubsub.access
        )
        # Google's emulator lets an empty pull wait that long; the one of this process answers.
        self.queue.wait_seconds = 2.0 if pubsub.service is None else 10.0

    def send(self, *bodies: bytes) -> None:
        messages = []
        for body in bodies:
            attributes, _, data = body.rpartition(b"\0")
            messages.append({"data": data, "attributes": json.loads(attributes or b"{}")})
        for some in batched(messages, 500):
            self.publisher.publish(topic=self.topic, messages=some)

    def event(self, key: str, size: int = 1) -> bytes:
        attributes = {"eventType": "OBJECT_FINALIZE", "bucketId": self.bucket, "objectId": key}
        resource = {"name": key, "size": str(size), "generation": "1", "updated": TIME}
        return json.dumps(attributes).encode() + b"\0" + json.dumps(resource).encode()
