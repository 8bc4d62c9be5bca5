"""Connections as an author writes them reach emulators of the clouds, and can be tested there."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.clouds import (
    CloudFilesAwsHook,
    CloudFilesAzureHook,
    CloudFilesGcpHook,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.emulators.aws import Aws, Microburst
    from tests.support.emulators.azure import Azurite
    from tests.support.emulators.gcp import Gcs, PubSubEmulator

pytestmark = pytest.mark.airflow


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CloudFilesHook]:
    """Write down the connection `landing`, and give a hook that uses it."""
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))

    def written(**connection: Any) -> CloudFilesHook:
        monkeypatch.setenv("AIRFLOW_CONN_LANDING", json.dumps(connection))
        return CloudFilesHook("landing")

    return written


@pytest.mark.parametrize("way", ["key", "connection string", "own type"])
def test_azure(azurite: Azurite, connect: Callable[..., CloudFilesHook], way: str) -> None:
    if way == "key":
        hook = connect(
            conn_type="wasb",
            login=azurite.account,
            password=azurite.key,
            host=azurite.blob_endpoint,
            extra={"queue_endpoint": azurite.queue_endpoint},
        )
    elif way == "own type":
        hook = connect(
            conn_type="cloudfiles_azure",
            password=azurite.key,
            host=azurite.blob_endpoint,
            extra={
                "queue_endpoint": azurite.queue_endpoint,
                "test_location": "",
                "tenant_id": None,
            },
        )
    else:
        hook = connect(conn_type="adls", extra={"connection_string": azurite.connection_string})
    container = azurite.container()
    with azurite.container_client(container) as client:
        client.upload_blob("in/1.json", b'{"a": 1}\n')
    stream = StreamArguments(
        source=f"{container}/in", format="json", checkpoint_location=f"{container}/state"
    )
    batch = hook.discover(stream)
    assert batch is not None
    assert batch["sample"] == ["1.json"]
    assert hook.check(stream).recorded


def test_google(
    gcs_events: Callable[..., Gcs], pubsub: PubSubEmulator, connect: Callable[..., CloudFilesHook]
) -> None:
    topic = pubsub.topic()
    subscription = pubsub.subscription(topic)
    gcs = gcs_events(topic, "in/")  # the state sends none
    hook = connect(
        conn_type="google_cloud_platform",
        extra={
            "project": gcs.access.project,
            "is_anonymous": True,
            "storage_endpoint": gcs.endpoint,
            "pubsub_endpoint": pubsub.endpoint,
        },
    )
    bucket = gcs.bucket()
    stream = StreamArguments(
        source=f"{bucket}/in",
        format="json",
        checkpoint_location=f"{bucket}/state",
        options={
            "cloudFiles.useNotifications": True,
            "cloudFiles.subscription": subscription,
        },
    )
    hook.discover(stream)
    assert not hook.has_arrivals(stream)
    with closing(gcs.client()) as client:
        client.bucket(bucket.removeprefix("gs://")).blob("in/1.json").upload_from_string("{}\n")
    # Pub/Sub does not count: a message is looked at and shown again, as often as it is asked for
    assert [hook.check(stream).messages for _ in range(2)] == [1, 1]
    batch = hook.discover(stream)
    assert batch is not None
    assert batch["sample"] == ["1.json"]
    assert hook.check(stream).messages == 0


HUSH = "hush-91c3e0"


def _aws_connection(endpoint: str, location: object, **changes: Any) -> dict[str, Any]:
    """What the form of `cloudfiles_aws` makes."""
    extra = {
        "region_name": "us-east-1",
        "endpoint_url": endpoint,
        "config_kwargs": '{"s3": {"addressing_style": "path"}}',
        "test_location": location,
        "profile_name": None,
    }
    kind = "cloudfiles_aws"
    return {"conn_type": kind, "login": "test", "password": HUSH, "extra": extra, **changes}


def test_a_connection_to_s3_that_works_leaves_nothing(
    aws: Aws, connect: Callable[..., CloudFilesHook]
) -> None:
    bucket = aws.bucket()
    connect(**_aws_connection(aws.endpoint, f"{bucket}/_state"))
    works, told = CloudFilesAwsHook("landing").test_connection()
    assert (works, f"{bucket}/_state can be listed" in told) == (True, True), told
    assert list(open_store(bucket, aws.access).list()) == []


def test_a_connection_to_azure_that_works_leaves_nothing(
    azurite: Azurite, connect: Callable[..., CloudFilesHook]
) -> None:
    container = azurite.container()
    written = {
        "conn_type": "cloudfiles_azure",
        "password": azurite.key,
        "host": azurite.blob_endpoint,
    }
    connect(**written, extra={"test_location": f"{container}/_state"})
    works, told = CloudFilesAzureHook("landing").test_connection()
    assert works, told
    with azurite.container_client(container) as client:
        assert list(client.list_blobs()) == []
    connect(**written, extra={"test_location": container.replace("//", "//no-")})
    works, told = CloudFilesAzureHook("landing").test_connection()
    assert not works
    assert "no such container" in told


def test_a_connection_to_google_that_works_leaves_nothing(
    gcs: Gcs, connect: Callable[..., CloudFilesHook]
) -> None:
    bucket = gcs.bucket()
    reached = {"is_anonymous": True, "storage_endpoint": gcs.endpoint, "project": "p"}
    connect(conn_type="cloudfiles_gcp", extra={**reached, "test_location": bucket})
    works, told = CloudFilesGcpHook("landing").test_connection()
    assert works, told
    assert list(open_store(bucket, gcs.access).list()) == []
    connect(conn_type="cloudfiles_gcp", extra={**reached, "test_location": "gs://no-such-one"})
    works, told = CloudFilesGcpHook("landing").test_connection()
    assert not works
    assert "no such bucket" in told


@pytest.mark.parametrize(
    ("location", "told"),
    [
        (None, "test_location of connection 'landing' is empty"),
        ("gs://lake/_state", "does not reach. Give a location such as s3://"),
        ("/data", "does not reach"),
        ("s3://no-such-bucket-8d1/_state", "there is no such bucket"),
    ],
)
def test_a_location_that_cannot_be_tested_is_named(
    aws: Aws, connect: Callable[..., CloudFilesHook], location: str | None, told: str
) -> None:
    connect(**_aws_connection(aws.endpoint, location))
    works, message = CloudFilesAwsHook("landing").test_connection()
    assert not works
    assert told in message


@pytest.mark.parametrize(
    ("operation", "permission"),
    [("ListObjectsV2", "s3:ListBucket"), ("PutObject", "s3:PutObject")],
)
def test_what_is_denied_is_named(
    aws: Aws,
    microburst: Callable[..., Microburst],
    connect: Callable[..., CloudFilesHook],
    operation: str,
    permission: str,
) -> None:
    proxy = microburst(aws.endpoint)
    denied = {"error": {"code": "AccessDenied", "status": 403}}
    proxy.rules([{"service": "s3", "operation": operation, "times": 9, **denied}])
    bucket = aws.bucket()
    connect(**_aws_connection(proxy.endpoint, bucket))
    works, told = CloudFilesAwsHook("landing").test_connection()
    assert not works
    assert "access is denied" in told
    assert f"the permission {permission}" in told
    assert HUSH not in told
    assert list(open_store(bucket, aws.access).list()) == []


@pytest.fixture
def careless(aws: Aws) -> Iterator[str]:
    """The address of an S3 that takes conditions of a write and ignores them."""
    upstream = urlsplit(aws.endpoint)

    class Forward(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {n: v for n, v in self.headers.items() if n.lower() != "if-none-match"}
            there = http.client.HTTPConnection(str(upstream.hostname), upstream.port)
            with closing(there):
                there.request(self.command, self.path, body, headers)
                answer = there.getresponse()
                content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_DELETE = _forward  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_that_lets_a_second_writer_win_is_refused(
    aws: Aws, careless: str, connect: Callable[..., CloudFilesHook]
) -> None:
    bucket = aws.bucket()
    connect(**_aws_connection(careless, bucket))
    works, told = CloudFilesAwsHook("landing").test_connection()
    assert not works
    assert "ignores If-None-Match" in told
    assert list(open_store(bucket, aws.access).list()) == []


def test_what_a_connection_says_wrongly_is_named(connect: Callable[..., CloudFilesHook]) -> None:
    connect(**_aws_connection("http://127.0.0.1:1", "s3://b", login="AKIA", password=None))
    works, told = CloudFilesAwsHook("landing").test_connection()
    assert (works, "one half of a key pair" in told) == (False, True)
