"""Notifications of Cloud Storage: Pub/Sub as its emulators give it, the bucket's part as a stand-in
of ours does (`tests/support/emulators/bucket_notifications.py`)."""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.clouds.gcp.queue import open_queue
from airflow_cloudfiles.engine.clouds.gcp.set_up import path_labels, path_of_labels
from airflow_cloudfiles.engine.discovery.services import (
    list_notifications,
    set_up_notifications,
    tear_down_notifications,
)
from airflow_cloudfiles.engine.errors import NotificationServicesError, OptionError
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from tests.support.discovery.event_log_services import goes_without_a_trace
from tests.support.emulators import bucket_notifications

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess

LOGGER = "airflow_cloudfiles.engine.discovery.services"


@pytest.fixture(scope="module")
def front(gcs):
    yield from bucket_notifications.serve(gcs.endpoint)


@pytest.fixture
def access(front, pubsub) -> GcpAccess:
    return replace(pubsub.access, storage_endpoint=front.endpoint)


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def done(services) -> list[str]:
    return [part.done for part in services.parts]


def configs_of(front, uri: str) -> list[dict]:
    return list(front.configs[uri.split("/")[2]].values())


def test_what_was_set_up_is_found_and_goes_without_a_trace(gcs, front, pubsubs, name):
    access = replace(pubsubs.access, storage_endpoint=front.endpoint)
    bucket = gcs.bucket()
    source = f"{bucket}/in"
    made = set_up_notifications(source, name, access=access, tags={"team": "a"})
    assert made.is_complete
    assert made.options == {
        "cloudFiles.useNotifications": "true",
        "cloudFiles.subscription": f"cloudfiles-{name}",
        "cloudFiles.projectId": pubsubs.project,
    }
    (config,) = configs_of(front, bucket)
    topic = f"projects/{pubsubs.project}/topics/cloudfiles-{name}"
    assert config["topic"] == f"//pubsub.googleapis.com/{topic}"
    assert config["event_types"] == ["OBJECT_FINALIZE"]
    assert config["object_name_prefix"] == "in/"
    assert config["payload_format"] == "JSON_API_V1"
    path = f"projects/{pubsubs.project}/subscriptions/cloudfiles-{name}"
    with pubsubs.subscriber() as subscriber, pubsubs.publisher() as publisher:
        has = subscriber.get_subscription(subscription=path)
        assert (has.ack_deadline_seconds, has.message_retention_duration.days) == (60, 7)
        assert has.labels["team"] == "a"
        publisher.publish(topic, b"{}").result(timeout=300)
        pulled = subscriber.pull(subscription=path, max_messages=1, timeout=10)
        assert len(pulled.received_messages) == 1
        if pubsubs.kind == "in-process":
            (binding,) = publisher.get_iam_policy(request={"resource": topic}).bindings
            assert binding.role == "roles/pubsub.publisher"
            assert binding.members[0].endswith("gs-project-accounts.iam.gserviceaccount.com")

    again = set_up_notifications(source, name, access=access)
    assert set(done(again)) == {"found"}
    (listed,) = list_notifications(bucket, access=access)
    assert (listed.source, listed.name, listed.options) == (source, name, made.options)

    gone = tear_down_notifications(source, name, access=access)
    assert set(done(gone)) == {"removed"}
    assert configs_of(front, bucket) == []
    assert list_notifications(bucket, access=access) == []
    assert set(done(tear_down_notifications(source, name, access=access))) == {"missing"}


def test_the_queue_of_an_event_log_is_made_listed_and_goes(gcs, access, pubsub, name, tmp_path):
    bucket = gcs.bucket()
    of_file = {"eventType": "OBJECT_FINALIZE", "objectId": "in/a"}
    resource = {"name": "in/a", "size": "1", "generation": "1", "updated": "2026-01-01T00:00:00Z"}

    def tell(log):
        assert log.description.queue["cloudFiles.subscription"] == f"cloudfiles-{name}"
        topic = f"projects/{pubsub.project}/topics/cloudfiles-{name}"
        attributes = {**of_file, "bucketId": bucket.removeprefix("gs://")}
        with pubsub.publisher() as publisher:
            sent = publisher.publish(topic, json.dumps(resource).encode(), **attributes)
            sent.result(timeout=300)

    goes_without_a_trace(str(tmp_path / "log"), bucket, name, access, tell)


def test_notifications_of_others_stay(gcs, front, access, name):
    bucket = gcs.bucket()
    theirs = {
        "topic": "//pubsub.googleapis.com/projects/their-project/topics/theirs",
        "id": "theirs",
    }
    front.configs[bucket.split("/")[2]]["theirs"] = theirs
    set_up_notifications(bucket, name, access=access)
    assert len(configs_of(front, bucket)) == 2
    tear_down_notifications(bucket, name, access=access)
    assert configs_of(front, bucket) == [theirs]


def test_a_bucket_that_can_have_no_more_is_refused_before_anything_is_made(
    gcs, front, access, pubsub, name
):
    bucket = gcs.bucket()
    for number in range(10):
        front.configs[bucket.split("/")[2]][str(number)] = {
            "topic": "//pubsub.googleapis.com/projects/their-project/topics/theirs",
            "id": str(number),
            "event_types": ["OBJECT_FINALIZE"],
        }
    with pytest.raises(NotificationServicesError, match="10 of them for new objects"):
        set_up_notifications(bucket, name, access=access)
    with pubsub.publisher() as publisher:
        topics = publisher.list_topics(project=f"projects/{pubsub.project}")
        assert not [topic for topic in topics if name in topic.name]


def test_a_topic_of_somebody_else_is_neither_used_nor_removed(gcs, access, pubsub, name):
    bucket = gcs.bucket()
    topic = f"projects/{pubsub.project}/topics/cloudfiles-{name}"
    with pubsub.publisher() as publisher:
        publisher.create_topic(name=topic)
        with pytest.raises(NotificationServicesError, match="not of this set-up"):
            set_up_notifications(bucket, name, access=access)
        gone = tear_down_notifications(bucket, name, access=access)
        assert done(gone) == ["left", "missing"]
        assert publisher.get_topic(topic=topic).name == topic


def test_a_topic_that_somebody_else_listens_to_is_left_with_what_fills_it(
    gcs, front, access, pubsub, name
):
    bucket = gcs.bucket()
    set_up_notifications(bucket, name, access=access)
    topic = f"projects/{pubsub.project}/topics/cloudfiles-{name}"
    other = pubsub.subscription(topic)
    gone = tear_down_notifications(bucket, name, access=access)
    assert done(gone) == ["left", "removed"]
    assert other.rpartition("/")[2] in gone.parts[0].note
    assert len(configs_of(front, bucket)) == 1
    with pubsub.subscriber() as subscriber:
        subscriber.delete_subscription(subscription=other)
    assert done(tear_down_notifications(bucket, name, access=access)) == [
        "removed",
        "missing",
        "removed",
    ]
    assert configs_of(front, bucket) == []


def test_a_name_serves_one_source(gcs, front, access, name):
    bucket = gcs.bucket()
    set_up_notifications(f"{bucket}/a", name, access=access)
    with pytest.raises(NotificationServicesError, match=f"it serves {bucket}/a"):
        set_up_notifications(f"{bucket}/b", name, access=access)
    assert set(done(tear_down_notifications(f"{bucket}/b", name, access=access))) == {"left"}
    assert list_notifications(bucket, access=access)[0].is_complete


def test_interrupted_after_any_step_it_is_completed_by_the_next_call(gcs, front, access, name):
    source = f"{gcs.bucket()}/in"
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    steps = len(set_up_notifications(source, name, access=access, dry_run=True).parts)
    for call in (set_up_notifications, tear_down_notifications):
        for step in range(1, steps):
            left = [step if call is set_up_notifications else 1]

            def stop(_: logging.LogRecord, left=left) -> bool:
                left[0] -= 1
                if left[0] == 0:
                    raise InterruptedError
                return True

            logger.addFilter(stop)
            try:
                call(source, name, access=access)
            except InterruptedError:
                pass
            finally:
                logger.removeFilter(stop)
        done_now = call(source, name, access=access)
        wanted = {"found", "created"} if call is set_up_notifications else {"removed", "missing"}
        assert set(done(done_now)) <= wanted
    assert list_notifications(source, access=access) == []
    assert configs_of(front, source) == []


def test_a_subscription_of_a_deleted_topic_is_made_again(gcs, access, pubsub, name):
    bucket = gcs.bucket()
    set_up_notifications(bucket, name, access=access)
    with pubsub.publisher() as publisher:
        publisher.delete_topic(topic=f"projects/{pubsub.project}/topics/cloudfiles-{name}")
    assert not list_notifications(bucket, access=access)[0].is_complete
    again = set_up_notifications(bucket, name, access=access)
    (subscription,) = [part for part in again.parts if part.kind == "subscription"]
    assert (subscription.done, "listOnStart" in subscription.note) == ("changed", True)
    assert list_notifications(bucket, access=access)[0].is_complete


def test_a_doorbell_that_looks_again_and_again_makes_nothing_a_dead_letter(
    gcs, access, pubsub, name
):
    dead = pubsub.topic()
    made = set_up_notifications(gcs.bucket(), name, access=access, dead_letter_topic=dead)
    queue = open_queue(
        made.options["cloudFiles.subscription"],
        "",
        DiscoveryOptions(project_id=pubsub.project),
        access,
    )
    with pubsub.publisher() as publisher:
        topic = f"projects/{pubsub.project}/topics/cloudfiles-{name}"
        publisher.publish(topic, b"{}").result(timeout=300)
    for _ in range(20):
        (message,) = queue.receive(10)
        queue.hide([message], 0)


def test_a_bucket_that_is_not_there_is_refused(access, name):
    with pytest.raises(NotificationServicesError, match="There is no bucket"):
        set_up_notifications(f"gs://{name}-none", name, access=access)


@pytest.mark.parametrize("tags", [{"Team": "a"}, {"team": "A b"}, {"path-1": "x"}])
def test_tags_that_are_no_labels_are_refused(gcs, access, name, tags):
    with pytest.raises(OptionError, match="not a label"):
        set_up_notifications(gcs.bucket(), name, access=access, tags=tags)


@pytest.mark.parametrize("text", ["gs://b/a/b", "gs://b/É_é=%20 x", "gs://b/" + "x/" * 100])
def test_a_source_is_read_back_from_its_labels(text):
    labels = path_labels(text)
    assert path_of_labels(labels) == text
    assert all(len(value) <= 63 for value in labels.values())


def test_long_sources_have_labels_of_their_own():
    one, two = (path_labels("gs://b/" + "x" * 1000 + end) for end in "ab")
    assert one != two
    assert len(one) == len(two) == 16
