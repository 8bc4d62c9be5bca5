"""Is the Pub/Sub of this process like Google's own emulator, as far as the package can tell?"""

from __future__ import annotations

import time

import grpc
import pytest
from google.api_core.exceptions import (
    AlreadyExists,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)


def pull(subscriber, subscription, most=100):
    try:
        found = subscriber.pull(subscription=subscription, max_messages=most, timeout=3)
    except DeadlineExceeded:
        return []
    return list(found.received_messages)


def test_a_message_comes_until_it_is_acknowledged(pubsubs):
    topic = pubsubs.topic()
    subscription = pubsubs.subscription(topic)
    with pubsubs.publisher() as publisher, pubsubs.subscriber() as subscriber:
        publisher.publish(topic, b"body", objectId="a b").result(10)
        (first,) = pull(subscriber, subscription)
        assert (first.message.data, first.message.attributes["objectId"]) == (b"body", "a b")
        assert first.message.publish_time.timestamp() == pytest.approx(time.time(), abs=3600)
        subscriber.modify_ack_deadline(
            subscription=subscription, ack_ids=[first.ack_id], ack_deadline_seconds=0
        )
        (second,) = pull(subscriber, subscription)
        assert second.message.message_id == first.message.message_id
        subscriber.acknowledge(subscription=subscription, ack_ids=[second.ack_id])
        assert pull(subscriber, subscription) == []


def test_each_subscription_has_its_own_messages(pubsubs):
    topic = pubsubs.topic()
    subscriptions = [pubsubs.subscription(topic) for _ in range(2)]
    with pubsubs.publisher() as publisher, pubsubs.subscriber() as subscriber:
        publisher.publish(topic, b"x").result(10)
        assert [len(pull(subscriber, each)) for each in subscriptions] == [1, 1]


def test_what_is_not_there_or_invented_is_refused(pubsubs):
    topic = pubsubs.topic()
    subscription = pubsubs.subscription(topic)
    with pubsubs.publisher() as publisher, pubsubs.subscriber() as subscriber:
        with pytest.raises(NotFound):
            subscriber.pull(subscription=f"{subscription}-none", max_messages=1, timeout=3)
        with pytest.raises(InvalidArgument):
            subscriber.acknowledge(subscription=subscription, ack_ids=["invented"])
        with pytest.raises(AlreadyExists):
            publisher.create_topic(name=topic)
        publisher.delete_topic(topic=topic)
        with pytest.raises(NotFound):
            publisher.get_topic(topic=topic)


def test_the_server_of_this_process_fails_when_told(pubsub_here):
    subscription = pubsub_here.subscription()
    pubsub_here.service.fail("Pull", grpc.StatusCode.PERMISSION_DENIED)
    before = pubsub_here.service.calls["Pull"]
    with pubsub_here.subscriber() as subscriber:
        with pytest.raises(PermissionDenied):
            subscriber.pull(subscription=subscription, max_messages=1, timeout=3)
        assert pull(subscriber, subscription) == []
    assert pubsub_here.service.calls["Pull"] == before + 2


def test_events_of_cloud_storage_arrive(pubsub, gcs_events):
    topic = pubsub.topic()
    subscription = pubsub.subscription(topic)
    gcs = gcs_events(topic, object_prefix="in/")
    bucket = gcs.bucket().removeprefix("gs://")
    client = gcs.client()
    for name in ("elsewhere", "in/a b+%é"):
        client.bucket(bucket).blob(name).upload_from_string(b"x")
    client.close()
    with pubsub.subscriber() as subscriber:
        (event,) = pull(subscriber, subscription)
    assert event.message.attributes["eventType"] == "OBJECT_FINALIZE"
    assert event.message.attributes["objectId"] == "in/a b+%é"
