"""A look at a queue delivers nothing, in all three clouds; messages that come in order all come."""

from __future__ import annotations

import json
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest

from airflow_cloudfiles.engine.discovery.queues.base import open_queue, waiting
from airflow_cloudfiles.engine.errors import QueueAccessError, QueueError
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from tests.support.discovery.notified import logged_call, s3_event
from tests.support.discovery.places import AzurePlace, PubSubPlace, SqsPlace
from tests.support.serving import serving

LOOKS = 6


DENIED = {
    "service": "sqs",
    "operation": "GetQueueAttributes",
    "error": {"code": "AccessDenied", "status": 403},
}


# ── a look delivers nothing ─────────────────────────────────────────────────────────────────────


def test_a_look_at_an_sqs_queue_delivers_nothing_and_names_the_right_that_is_missing(
    aws, microburst
):
    place = SqsPlace(aws)
    place.put("x")
    assert waiting(place.queue) == (1, 0)
    proxy = microburst(aws.endpoint)
    access = aws.access_through(proxy.endpoint)
    queue = open_queue("s3://bucket/in", DiscoveryOptions(queue_url=place.url), access)
    proxy.rules([DENIED])
    for _ in range(LOOKS):
        with pytest.raises(QueueAccessError, match="sqs:GetQueueAttributes"):
            waiting(queue)
    [message] = place.queue.receive(1)
    assert message.receive_count == 1


def test_a_look_at_a_storage_queue_peeks_where_it_may_not_count(azurite, monkeypatch):
    place = AzurePlace(azurite)
    place.put("x", "y")
    assert waiting(place.queue).messages == 2

    monkeypatch.setattr(place.queue, "approximate_size", lambda: None)
    for _ in range(LOOKS):
        found = waiting(place.queue)
        assert found.messages == 2
        assert found.newest_us > 0
    assert {message.receive_count for message in place.queue.receive(1)} == {1}


@pytest.fixture
def monitoring():
    """Cloud Monitoring as far as it counts messages; gives the address, and what it answers."""
    answer = {"status": 200, "body": {}, "asked": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer["asked"].append(self.path)
            self.send_response(answer["status"])
            self.end_headers()
            self.wfile.write(json.dumps(answer["body"]).encode())

        def log_message(self, *_):
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}", answer


@pytest.fixture
def counted_place(pubsub, monitoring):
    """A subscription with a dead-letter policy, and Monitoring beside it."""
    from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
    from airflow_cloudfiles.engine.clouds.gcp.queue import MessageCounter

    place = PubSubPlace(pubsub)
    name = f"projects/p/subscriptions/s{uuid.uuid4().hex}"
    place.queue._client.create_subscription(
        request={
            "name": name,
            "topic": place.topic,
            "dead_letter_policy": {"dead_letter_topic": place.topic, "max_delivery_attempts": 5},
        }
    )
    place.queue = open_queue("gs://bucket/in", DiscoveryOptions(subscription=name), pubsub.access)
    place.queue._counter = MessageCounter(GcpAccess(anonymous=True), endpoint=monitoring[0])
    return place


def test_a_subscription_whose_deliveries_count_is_counted_by_monitoring(counted_place, monitoring):
    answer = monitoring[1]
    counted_place.put("x")
    newest = {"interval": {}, "value": {"int64Value": "7"}}
    older = {"interval": {}, "value": {"int64Value": "3"}}
    answer["body"] = {"timeSeries": [{"points": [newest, older]}]}
    for _ in range(LOOKS):
        assert waiting(counted_place.queue) == (7, 0)
    assert "num_undelivered_messages" in answer["asked"][0]
    answer["body"] = {}
    assert waiting(counted_place.queue) == (0, 0)
    answer["status"] = 403
    with pytest.raises(QueueAccessError, match=r"monitoring\.timeSeries\.list"):
        waiting(counted_place.queue)
    answer["status"] = 503
    with pytest.raises(QueueError, match="Cloud Monitoring"):
        waiting(counted_place.queue)
    counted_place.queue.wait_seconds = 5
    [message] = counted_place.queue.receive(10)
    assert message.receive_count <= 1


def test_a_subscription_without_a_dead_letter_policy_is_looked_into(pubsub):
    place = PubSubPlace(pubsub)
    assert waiting(place.queue) == (0, 0)
    place.put("x")
    place.queue.wait_seconds = 5
    found = waiting(place.queue)
    assert found.messages == 1
    assert found.newest_us > 0


def test_a_pull_that_runs_out_of_time_has_found_nothing(pubsub_here):
    place = PubSubPlace(pubsub_here)
    place.put("x")
    pubsub_here.service.fail("Pull", grpc.StatusCode.DEADLINE_EXCEEDED)
    assert place.queue.receive(10) == []
    [message] = place.queue.receive(10)
    assert b"in/x" in message.body


# ── what may announce a file stays ──────────────────────────────────────────────────────────────


def test_a_message_of_an_unknown_kind_stays_in_the_queue_is_counted_and_named(aws):
    place = SqsPlace(aws)
    place.source.put("known", b"x")
    body = s3_event("bucket", "in/known", 1)
    body["Records"] += s3_event("bucket", "in/new", 1, name="ObjectConjured:Put")["Records"]
    place.send(json.dumps(body).encode())
    report = place.run(hidden=1)
    assert (report.new, report.poison, report.deleted, report.ignored) == (1, 1, 0, {})
    assert "ObjectConjured:Put" in report.poison_samples[0].reason
    assert place.recorded() == ["known"]
    assert len(place.wait_for(1)) == 1


def test_a_logged_call_brings_the_file_with_the_size_and_version_of_the_store(aws):
    bucket = aws.bucket()
    place = SqsPlace(aws)
    from airflow_cloudfiles.engine.storage import open_store

    place.source = open_store(f"{bucket}/in", aws.access)
    place.source.put("a b+c.json", b"1234567")
    place.source.put("folder/", b"")
    for key in ("in/a b+c.json", "in/never there", "in/folder/"):
        event = logged_call("PutObject", key)
        event["detail"]["requestParameters"]["bucketName"] = bucket.removeprefix("s3://")
        place.send(json.dumps(event).encode())
    report = place.run()
    assert (report.new, report.deleted, report.ignored) == (1, 3, {"no such file": 1})
    assert report.rejected == 1  # the mark of a folder
    [entry] = place.recorder.files.read(0).files
    assert entry == place.source.head("a b+c.json")


# ── messages that come in order ─────────────────────────────────────────────────────────────────


@pytest.fixture
def fifo(aws):
    """A FIFO queue; `send(bodies, group)`."""
    name = f"queue-{uuid.uuid4().hex}.fifo"
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "false"}
    url = aws.client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    place = SqsPlace(aws, url)

    def send(*bodies, group="one"):
        for body in bodies:
            place.client.send_message(
                QueueUrl=url,
                MessageBody=body.decode(),
                MessageGroupId=group,
                MessageDeduplicationId=uuid.uuid4().hex,
            )

    place.send = send
    return place


@pytest.mark.parametrize("threads", [1, 3])
def test_one_discovery_takes_all_messages_of_one_group(fifo, threads):
    keys = [f"{number:02}" for number in range(95)]
    fifo.put(*keys)
    report = fifo.run(fetch_parallelism=threads)
    assert fifo.recorded() == keys
    assert (report.new, report.deleted, report.redelivered) == (95, 95, 0)
    assert report.approximate_size_after == 0


def test_poison_holds_up_no_group(fifo):
    fifo.send(b"nonsense")
    keys = [f"{number:02}" for number in range(25)]
    fifo.put(*keys)
    fifo.source.put("other", b"x")
    fifo.send(fifo.event("in/other"), group="two")
    report = fifo.run()
    assert fifo.recorded() == [*keys, "other"]
    assert (report.poison, report.deleted) == (1, 26)
    assert report.approximate_size_after == 1


@pytest.mark.parametrize(
    ("code", "text", "named"),
    [
        ("KMS.AccessDeniedException", "The ciphertext refers to a key", "kms:Decrypt"),
        ("KmsAccessDenied", "no", "kms:Decrypt"),
        ("KmsDisabled", "key is disabled", "enabled"),
        (
            "AccessDenied",
            "User: arn:aws:sts::1:r is not authorized to perform: kms:GenerateDataKey on resource",
            "kms:GenerateDataKey",
        ),
        ("AccessDenied", "Access to the resource is denied.", "sqs:ReceiveMessage"),
    ],
)
def test_what_is_denied_names_the_right_that_is_missing(code, text, named):
    from botocore.exceptions import ClientError

    from airflow_cloudfiles.engine.clouds.aws.errors import readable
    from airflow_cloudfiles.engine.clouds.aws.queue import _refused

    answer = {
        "Error": {"Code": code, "Message": text},
        "ResponseMetadata": {"HTTPStatusCode": 403 if code == "AccessDenied" else 400},
    }
    failure = ClientError(answer, "ReceiveMessage")
    of_queue = _refused(failure, "receive from", "https://sqs.eu-west-1.amazonaws.com/1/q")
    of_store = readable(failure, "s3://b/k could not be read", "s3:GetObject")
    for raised in (of_queue, of_store):
        assert isinstance(raised, PermissionError)
    assert named in str(of_queue)
    if named.startswith("kms"):
        assert f"permission {named}" in str(of_store)
        assert "s3:GetObject" not in str(of_store)
