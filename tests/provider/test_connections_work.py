"""Connections as an author writes them reach emulators of Azure and Google Cloud."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


@pytest.mark.parametrize("way", ["key", "connection string"])
def test_azure(azurite: Azurite, connect: Callable[..., CloudFilesHook], way: str) -> None:
    if way == "key":
        hook = connect(
            conn_type="wasb",
            login=azurite.account,
            password=azurite.key,
            host=azurite.blob_endpoint,
            extra={"queue_endpoint": azurite.queue_endpoint},
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
