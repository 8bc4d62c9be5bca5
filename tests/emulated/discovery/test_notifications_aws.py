"""Notifications of S3 from the bucket to the file log, and what SQS may do to them on the way."""

from __future__ import annotations

import json
import time

import pytest

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.queues import notifications
from airflow_cloudfiles.engine.discovery.queues.base import open_queue
from airflow_cloudfiles.engine.discovery.queues.notifications import NotificationDiscovery
from airflow_cloudfiles.engine.errors import QueueAccessError, QueueError
from airflow_cloudfiles.engine.intake.recorder import LedgerRecorder
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.places import SqsPlace
from tests.support.memory_ledger import MemoryLedger

KEYS = ["a b", "a&b=c", "caf\u00e9/\u65e5\u672c", "date=2026-01-01/hour=03/x", "q?#"]
ENCODED_KEYS = ["a+b", "a%2Bb", "100%"]
"""This emulator writes keys as they are; S3 encodes them, and only EventBridge does not. So what
changes when it is decoded is tried through EventBridge, and in `test_events.py` as S3 writes it."""


@pytest.fixture
def place(aws):
    return SqsPlace(aws)


# ── from the bucket ─────────────────────────────────────────────────────────────────────────────


def queue_arn(aws, url) -> str:
    found = aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return found["Attributes"]["QueueArn"]


def straight(aws, bucket, url) -> None:
    wanted = {"QueueArn": queue_arn(aws, url), "Events": ["s3:ObjectCreated:*"]}
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [wanted]}
    )


def through_sns(aws, bucket, url, *, raw="false") -> None:
    sns = aws.client("sns")
    topic = sns.create_topic(Name=bucket)["TopicArn"]
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=queue_arn(aws, url),
        Attributes={"RawMessageDelivery": raw},
    )
    wanted = {"TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"TopicConfigurations": [wanted]}
    )


def through_sns_raw(aws, bucket, url) -> None:
    through_sns(aws, bucket, url, raw="true")


def through_eventbridge(aws, bucket, url) -> None:
    events = aws.client("events")
    pattern = {"source": ["aws.s3"], "detail": {"bucket": {"name": [bucket]}}}
    events.put_rule(Name=bucket, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=bucket, Targets=[{"Id": "queue", "Arn": queue_arn(aws, url)}])
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"EventBridgeConfiguration": {}}
    )


@pytest.mark.parametrize(
    ("connect", "overwrites"),
    [
        (straight, False),
        (through_sns, False),
        (through_sns_raw, False),
        (through_eventbridge, False),
        (through_eventbridge, True),
    ],
)
def test_objects_are_found_by_their_notifications(aws, connect, overwrites):  # B94, B99
    bucket = aws.bucket()
    url = aws.queue()
    connect(aws, bucket.removeprefix("s3://"), url)
    source = open_store(f"{bucket}/in", aws.access)
    keys = KEYS + (ENCODED_KEYS if connect is through_eventbridge else [])
    for key in keys:
        source.put(key, b"x" * len(key))
    open_store(bucket, aws.access).put("elsewhere", b"x")  # B95
    source.put("gone", b"x")
    source.delete("gone")
    options = DiscoveryOptions(
        use_notifications=True, queue_url=url, allow_overwrites=overwrites, fetch_parallelism=2
    )
    queue = open_queue(source.uri, options, aws.access)
    log = FileLog(MemoryStore(f"memory://{bucket[5:]}/state"))
    recorder = LedgerRecorder(MemoryLedger(), log, versions=overwrites)
    end = time.monotonic() + 300
    while (queue.approximate_size() or 0) < len(keys) + 2 and time.monotonic() < end:
        time.sleep(0.05)
    queue.wait_seconds = 0
    discovery = NotificationDiscovery(queue, source, FileFilter(source.uri, None, options), options)
    report = discovery.run(recorder)
    files = {file.path: file for n in range(log.latest() + 1) for file in log.read(n).files}
    assert set(files) == set(keys)
    assert report.ignored.pop("no such file") == 1
    assert report.not_there == (f"{source.uri}/gone",)  # B96: counted and named, as if never seen
    listed = {entry.path: entry for entry in source.list()}
    for key in keys:
        assert (files[key].size, files[key].etag) == (listed[key].size, listed[key].etag)
        if overwrites:  # a listing sees the same version, so it finds nothing new
            assert files[key] == listed[key]
    assert (report.outside, report.poison, report.approximate_size_after) == (1, 0, 0)
    if connect is straight:
        assert report.ignored == {"test event": 1}
    if overwrites:
        assert recorder.record(list(listed.values()), "listing") == 0


def test_an_overwritten_file_is_a_new_version_only_when_that_is_wanted(aws):  # B103, B104
    bucket = aws.bucket()
    url = aws.queue()
    straight(aws, bucket.removeprefix("s3://"), url)
    source = open_store(bucket, aws.access)
    new = {}
    for overwrites in (False, True):
        options = DiscoveryOptions(queue_url=url, allow_overwrites=overwrites)
        log = FileLog(MemoryStore(f"memory://{bucket[5:]}/{overwrites}"))
        recorder = LedgerRecorder(MemoryLedger(), log, versions=overwrites)
        new[overwrites] = []
        for content in (b"1", b"22"):
            source.put("x", content)
            queue = open_queue(source.uri, options, aws.access)
            queue.wait_seconds = 0
            discovery = NotificationDiscovery(
                queue, source, FileFilter(source.uri, None, options), options
            )
            new[overwrites].append(discovery.run(recorder).new)
    assert new == {False: [1, 0], True: [1, 1]}


# ── what SQS may do ─────────────────────────────────────────────────────────────────────────────


def test_a_receipt_that_is_worth_nothing_fails_alone(place):
    place.put(*"abcdefghij")
    messages = place.queue.receive(30)
    assert len(messages) == 10
    messages[3].receipt = "nonsense"
    assert place.queue.hide(messages, 20) == [messages[3]]
    assert place.queue.delete(messages) == [messages[3]]
    assert place.queue.approximate_size() == 1


class Forgetful:
    """A queue that spoils some receipts of one message."""

    def __init__(self, queue, key, times):
        self._queue = queue
        self._key = key
        self._times = times

    def __getattr__(self, name):
        return getattr(self._queue, name)

    def receive(self, seconds):
        messages = self._queue.receive(seconds)
        for message in messages:
            if self._key in message.body and self._times:
                message.receipt = "nonsense"
                self._times -= 1
        return messages


def test_a_message_that_could_not_be_deleted_is_counted_and_left(place):
    place.put("a", "b", "c")
    report = place.run(queue=Forgetful(place.queue, b"in/b", 1))
    assert (report.new, report.deleted, report.failed_deletes) == (3, 2, 1)
    assert report.approximate_size_after == 1


def test_a_message_that_comes_back_is_deleted_with_its_new_receipt(place, monkeypatch):
    monkeypatch.setattr(notifications, "GATHERED_SECONDS", 0)
    place.put("a", "b", "c")
    place.queue.wait_seconds = 2  # so long that it comes back while the queue is drained
    report = place.run(queue=Forgetful(place.queue, b"in/b", 1), hidden=1)
    assert (report.new, report.deleted, report.failed_deletes) == (3, 3, 0)
    assert report.redelivered == 1
    assert report.approximate_size_after == 0


def test_poison_reaches_the_dead_letter_queue(aws):
    dead = aws.queue()
    policy = {"deadLetterTargetArn": queue_arn(aws, dead), "maxReceiveCount": "2"}
    place = SqsPlace(aws, aws.queue(RedrivePolicy=json.dumps(policy)))
    place.send(b"nonsense")
    place.put("x")
    end = time.monotonic() + 300
    found = []
    polls = 0
    while not found and time.monotonic() < end:
        report = place.run(hidden=1)
        polls += report.poison
        answer = aws.client("sqs").receive_message(QueueUrl=dead, WaitTimeSeconds=1)
        found = [each["Body"] for each in answer.get("Messages", ())]
    assert found == ["nonsense"]
    assert polls == 2
    assert place.recorded() == ["x"]
    assert place.queue.approximate_size() == 0


@pytest.fixture
def proxied(aws, place, microburst):
    proxy = microburst(aws.endpoint)
    place.queue = open_queue(
        "s3://bucket/in",
        DiscoveryOptions(queue_url=place.url),
        aws.access_through(proxy.endpoint),
    )
    place.queue.wait_seconds = 0
    return proxy


def sqs_rule(operation, **what):
    return {"service": "sqs", "operation": operation, **what}


def test_a_lost_answer_to_a_receive_loses_no_file(place, proxied):
    place.put("x", "y")
    proxied.rules([sqs_rule("ReceiveMessage", response={"abort_frac": 0.1}, times=1)])
    place.run(hidden=1)
    assert len(proxied.fired()) == 1
    end = time.monotonic() + 300
    while place.recorded() != ["x", "y"] and time.monotonic() < end:
        place.run(hidden=1)
    assert place.recorded() == ["x", "y"]


def test_throttling_is_waited_out(place, proxied):
    place.put("x", "y")
    throttled = {"error": {"code": "RequestThrottled", "status": 403}, "times": 2}
    proxied.rules(
        [sqs_rule(operation, **throttled) for operation in ("ReceiveMessage", "DeleteMessageBatch")]
    )
    report = place.run()
    assert len(proxied.fired()) == 4
    assert (report.new, report.deleted, report.failed_deletes) == (2, 2, 0)


def test_deletes_that_fail_are_tried_again(place, proxied):
    place.put("x", "y")
    proxied.rules([sqs_rule("DeleteMessageBatch", reset=True, times=6)])
    report = place.run()
    assert (report.deleted, report.failed_deletes) == (2, 0)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("ServiceUnavailable", 503, QueueError),
        ("RequestThrottled", 403, QueueError),
        ("InvalidParameterValue", 400, QueueAccessError),
    ],
)
def test_an_outage_is_an_error_that_a_retry_may_cure(
    place, proxied, monkeypatch, code, status, kind
):
    monkeypatch.setattr("airflow_cloudfiles.engine.clouds.aws.queue._FIRST_PAUSE_SECONDS", 0.001)
    place.put("x", "y")
    proxied.rules([sqs_rule("ReceiveMessage", error={"code": code, "status": status})])
    with pytest.raises(kind) as raised:
        place.run()
    assert raised.value.is_retryable is (kind is QueueError)


@pytest.mark.parametrize("operation", ["ReceiveMessage", "DeleteMessageBatch"])
def test_a_missing_permission_is_said(place, proxied, operation):
    place.put("x")
    proxied.rules([sqs_rule(operation, error={"code": "AccessDenied", "status": 403})])
    with pytest.raises(QueueAccessError, match="sqs:ReceiveMessage") as raised:
        place.run(hidden=2)
    assert place.url in raised.value.message
    proxied.rules([])
    assert len(place.wait_for(1)) == 1


def test_the_size_is_not_told_to_everybody(place, proxied):
    place.put("x")
    proxied.rules([sqs_rule("GetQueueAttributes", error={"code": "AccessDenied", "status": 403})])
    report = place.run()
    assert (report.new, report.approximate_size_before) == (1, None)


def test_events_in_any_order_and_number_make_each_file_new_once(place):  # B93
    keys = [f"{number:02}" for number in range(30)]
    events = [place.event(f"in/{key}") for key in [*reversed(keys), *keys, *keys[::3]]]
    for key in keys:
        place.source.put(key, b"x")
    place.send(*events)
    report = place.run(fetch_parallelism=3)
    assert place.recorded() == keys
    assert (report.new, report.duplicates, report.deleted) == (30, 40, 70)
