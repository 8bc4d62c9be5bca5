"""Where do files land, and what lies there afterwards?

A folder of this machine, or one of the emulators of the clouds. All is done with the clouds' own
clients, never with the stores of the package: what lies in a place is found without its help.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import urllib.request
import uuid
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from tests.support.discovery.notified import azure_event, s3_event
from tests.support.emulators.aws import REGION, Aws, ministack_server
from tests.support.emulators.azure import ACCOUNT, Azurite, azurite_running
from tests.support.emulators.gcp import PROJECT, Gcs, gcs_running, pubsub_running
from tests.support.emulators.gcs_xml import gcs_xml_running
from tests.support.emulators.processes import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Access = AwsAccess | AzureAccess | GcpAccess


class Place(ABC):
    """One stream's root, in which its source, its state and its table are.

    Attributes:
        root: URI of the root.
        queue: Options that name the queue of its notifications.
    """

    root: str
    queue: Mapping[str, str]

    @abstractmethod
    def put(self, key: str, content: bytes) -> str:
        """Let an object land, whole from the first moment; returns its etag or generation."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Take an object away."""

    @abstractmethod
    def keys(self, prefix: str) -> list[str]:
        """What lies below a prefix."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The content of an object."""

    def fetch(self, prefix: str, folder: Path) -> Path:
        """Copy all below a prefix into a folder of this machine."""
        for key in self.keys(prefix):
            path = folder / key.removeprefix(prefix).lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.get(key))
        return folder

    def clear(self) -> None:
        """Remove everything, so that an emulator does not grow."""
        for key in self.keys(""):
            self.delete(key)


class CloudPlace(Place):
    """A root in an emulator of a cloud, which may have a queue."""

    @abstractmethod
    def notify(self, key: str, size: int, version: str) -> None:
        """Send the notification of an object."""


class LocalPlace(Place):
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.root = str(folder)
        self.queue = {}
        for name in ("in", "table/_landing"):
            (folder / name).mkdir(parents=True)

    def put(self, key: str, content: bytes) -> str:
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.draft")
        draft.write_bytes(content)
        draft.rename(path)
        return str(path.stat().st_mtime_ns)

    def delete(self, key: str) -> None:
        (self._folder / key).unlink()

    def keys(self, prefix: str) -> list[str]:
        start = self._folder / prefix
        return [str(p.relative_to(self._folder)) for p in start.rglob("*") if p.is_file()]

    def get(self, key: str) -> bytes:
        return (self._folder / key).read_bytes()

    def clear(self) -> None:
        """The folder of the schedule is removed as a whole."""


class S3Place(CloudPlace):
    """A bucket of ministack, and an SQS queue."""

    def __init__(self, s3: Any, sqs: Any, *, is_notified: bool) -> None:
        self._s3, self._sqs = s3, sqs
        self.root = aws_bucket(s3)
        self._bucket = self.root.removeprefix("s3://")
        self.queue = {}
        if is_notified:
            made = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex}")
            self.queue = {"cloudFiles.queueUrl": made["QueueUrl"], "cloudFiles.region": REGION}

    def put(self, key: str, content: bytes) -> str:
        put = self._s3.put_object(Bucket=self._bucket, Key=key, Body=content)
        return str(put["ETag"]).strip('"')

    def delete(self, key: str) -> None:
        self._s3.delete_object(Bucket=self._bucket, Key=key)

    def notify(self, key: str, size: int, version: str) -> None:
        fields = {"eTag": version, "versionId": "null"}
        event = s3_event(self._bucket, quote_plus(key, safe="/"), size, when=_now(), **fields)
        del event["Records"][0]["s3"]["object"]["versionId"]
        url = self.queue["cloudFiles.queueUrl"]
        self._sqs.send_message(QueueUrl=url, MessageBody=json.dumps(event))

    def keys(self, prefix: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix
        )
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def get(self, key: str) -> bytes:
        return bytes(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read())


class AzurePlace(CloudPlace):
    """A container of azurite, and a storage queue."""

    def __init__(self, blobs: Any, queues: Any, *, is_notified: bool) -> None:
        name = f"c-{uuid.uuid4().hex}"
        self._container = blobs.create_container(name)
        self._name = name
        self.root = f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"
        self.queue = {}
        if is_notified:
            queue = f"q-{uuid.uuid4().hex}"
            self._queue = queues.create_queue(queue)
            self.queue = {"cloudFiles.queueName": queue}

    def put(self, key: str, content: bytes) -> str:
        put = self._container.upload_blob(key, content, overwrite=True)
        return str(put.get_blob_properties().etag).strip('"')

    def delete(self, key: str) -> None:
        self._container.delete_blob(key)

    def notify(self, key: str, size: int, version: str) -> None:
        event = azure_event(self._name, key, size, account=ACCOUNT)
        event["data"]["eTag"] = version
        event["id"], event["eventTime"] = str(uuid.uuid4()), _now()
        self._queue.send_message(base64.b64encode(json.dumps(event).encode()).decode())

    def keys(self, prefix: str) -> list[str]:
        return list(self._container.list_blob_names(name_starts_with=prefix))

    def get(self, key: str) -> bytes:
        return bytes(self._container.download_blob(key).readall())


class GcsPlace(CloudPlace):
    """A bucket of fake-gcs-server, and a subscription of Google's Pub/Sub emulator."""

    def __init__(self, client: Any, pubsub: str, *, is_notified: bool) -> None:
        name = f"b-{uuid.uuid4().hex}"
        self._bucket = client.create_bucket(name)
        self._name = name
        self.root = f"gs://{name}"
        self.queue = {}
        self._pubsub = pubsub
        if is_notified:
            self._topic = f"projects/{PROJECT}/topics/t-{name}"
            subscription = f"projects/{PROJECT}/subscriptions/s-{name}"
            self._call("PUT", self._topic, {})
            self._call("PUT", subscription, {"topic": self._topic, "ackDeadlineSeconds": 10})
            self.queue = {"cloudFiles.subscription": subscription}

    def put(self, key: str, content: bytes) -> str:
        blob = self._bucket.blob(key)
        blob.upload_from_string(content, content_type="application/octet-stream")
        blob.reload()
        return str(blob.generation)

    def delete(self, key: str) -> None:
        self._bucket.blob(key).delete()

    def notify(self, key: str, size: int, version: str) -> None:
        resource = {
            "kind": "storage#object",
            "name": key,
            "bucket": self._name,
            "generation": version,
            "size": str(size),
            "timeCreated": _now(),
            "updated": _now(),
        }
        attributes = {
            "eventType": "OBJECT_FINALIZE",
            "bucketId": self._name,
            "objectId": key,
            "objectGeneration": version,
            "payloadFormat": "JSON_API_V1",
            "eventTime": _now(),
        }
        body = base64.b64encode(json.dumps(resource).encode()).decode()
        message = {"data": body, "attributes": attributes}
        self._call("POST", f"{self._topic}:publish", {"messages": [message]})

    def keys(self, prefix: str) -> list[str]:
        return [blob.name for blob in self._bucket.list_blobs(prefix=prefix)]

    def get(self, key: str) -> bytes:
        return bytes(self._bucket.blob(key).download_as_bytes())

    def _call(self, method: str, path: str, value: object) -> None:
        # By REST: a process that has used gRPC cannot fork others that use it.
        request = urllib.request.Request(
            f"http://{self._pubsub}/v1/{path}",
            data=json.dumps(value).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()


class Store:
    """A kind of place, of which each schedule gets one of its own."""

    access: Access | None = None

    def place(self, folder: Path, *, is_notified: bool) -> Place:
        """Make a new place; a local one is in the folder."""
        return LocalPlace(folder / "place")


class _S3(Store):
    def __init__(self, aws: Aws) -> None:
        self.access = aws.access
        self._s3, self._sqs = aws.client("s3"), aws.client("sqs")

    def place(self, folder: Path, *, is_notified: bool) -> Place:
        return S3Place(self._s3, self._sqs, is_notified=is_notified)


class _Azure(Store):
    def __init__(self, azurite: Azurite) -> None:
        self.access = azurite.access
        self._clients = azurite.blobs(), azurite.queues()

    def place(self, folder: Path, *, is_notified: bool) -> Place:
        return AzurePlace(*self._clients, is_notified=is_notified)


class _Gcs(Store):
    def __init__(self, gcs: Gcs, pubsub: str) -> None:
        self.access = GcpAccess(
            project=PROJECT,
            anonymous=True,
            storage_endpoint=gcs.endpoint,
            pubsub_endpoint=pubsub,
        )
        self._client, self._pubsub = gcs.client(), pubsub

    def place(self, folder: Path, *, is_notified: bool) -> Place:
        return GcsPlace(self._client, self._pubsub, is_notified=is_notified)


@contextlib.contextmanager
def running_store(name: str, folder: Path) -> Iterator[Store]:
    """Run the emulators of a store; its clients have made no request yet, so one may fork."""
    with contextlib.ExitStack() as stack:
        if name == "s3":
            endpoint, server = ministack_server(folder / "ministack.log")
            stack.enter_context(running(server))
            yield _S3(Aws(endpoint))
        elif name == "azure":
            yield _Azure(stack.enter_context(azurite_running(folder / "azurite.log")))
        elif name == "gcs":
            gcs = stack.enter_context(gcs_running(folder))
            front = stack.enter_context(gcs_xml_running(gcs, folder / "gcs_xml.log"))
            pubsub = stack.enter_context(pubsub_running(folder / "pubsub.log"))
            yield _Gcs(front, pubsub.endpoint)
        else:
            yield Store()


def aws_bucket(s3: Any) -> str:
    """Make a bucket."""
    name = f"bucket-{uuid.uuid4().hex}"
    s3.create_bucket(Bucket=name)
    return f"s3://{name}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
