"""Which queue is opened, what is said when it cannot be, and how messages are held."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.discovery.events import Candidates, FileEvent
from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.queues.base import Message, as_queue_error, open_queue
from airflow_cloudfiles.engine.discovery.queues.draining import Heartbeat
from airflow_cloudfiles.engine.errors import (
    OptionError,
    QueueAccessError,
    QueueError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.places import SqsPlace
from tests.support.emulators.azure import KEY

AWS = AwsAccess(access_key_id="k", secret_access_key="the-secret", region="us-west-1")
AZURE_SOURCE = "abfss://c@devstoreaccount1.dfs.core.windows.net/in"


# ── opening ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "option"),
    [
        ("s3://b/in", "cloudFiles.queueUrl"),
        (AZURE_SOURCE, "cloudFiles.queueName"),
        ("gs://b/in", "cloudFiles.subscription"),
    ],
)
def test_the_option_that_is_missing_is_named_with_the_command_that_helps(source, option):
    with pytest.raises(OptionError, match=option) as raised:
        open_queue(source, DiscoveryOptions(use_notifications=True))
    assert "cloudfiles notifications set-up" in raised.value.message
    assert source in raised.value.message


def test_a_folder_sends_no_notifications():
    with pytest.raises(UnsupportedOptionError, match="by listing"):
        open_queue("file:///data/in", DiscoveryOptions(queue_url="https://sqs/1/q"))


def test_a_mounted_bucket_has_the_queue_of_its_bucket():  # B98
    pytest.importorskip("boto3")
    options = DiscoveryOptions(
        queue_url="https://sqs.eu-central-1.amazonaws.com/1/q",
        path_rewrites=(("bucket/in", "/mnt/in"),),
    )
    assert open_queue("file:///mnt/in", options, AWS).name == options.queue_url


@pytest.mark.parametrize("url", ["q", "arn:aws:sqs:us-east-1:1:q", "https://sqs", "https:///q"])
def test_what_is_no_url_of_a_queue_is_refused(url):
    pytest.importorskip("boto3")
    with pytest.raises(OptionError, match="is not the URL of a queue"):
        open_queue("s3://b", DiscoveryOptions(queue_url=url), AWS)


@pytest.mark.parametrize(
    ("url", "option", "region"),
    [
        ("https://sqs.eu-central-1.amazonaws.com/1/q", None, "eu-central-1"),
        ("https://sqs-fips.us-gov-west-1.amazonaws.com/1/q", None, "us-gov-west-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/1/q", None, "cn-north-1"),
        ("https://eu-west-1.queue.amazonaws.com/1/q", None, "eu-west-1"),
        ("https://queue.amazonaws.com/1/q", None, "us-east-1"),
        ("https://cn-north-1.queue.amazonaws.com.cn/1/q", None, "cn-north-1"),
        ("https://sqs.eu-west-1.api.aws/1/q", None, "eu-west-1"),
        ("https://sqs-fips.us-gov-east-1.api.aws/1/q", None, "us-gov-east-1"),
        ("https://sqs.cn-northwest-1.api.amazonwebservices.com.cn/1/q", None, "cn-northwest-1"),
        ("https://sqs.us-iso-east-1.c2s.ic.gov/1/q", None, "us-iso-east-1"),
        ("https://sqs.eusc-de-east-1.amazonaws.eu/1/q", None, "eusc-de-east-1"),
        ("https://vpce-0a-1b.sqs.eu-west-2.vpce.amazonaws.com/1/q", None, "eu-west-2"),
        (
            "https://vpce-0a-1b-us-gov-west-1a.sqs.us-gov-west-1.vpce.amazonaws.com/1/q",
            None,
            "us-gov-west-1",
        ),
        ("https://sqs.eu-central-1.amazonaws.com/1/q", "eu-west-3", "eu-west-3"),
        ("https://vpce-0.sqs.example/1/q", None, "us-west-1"),
    ],
)
def test_the_region_is_that_of_the_queue(url, option, region):
    pytest.importorskip("boto3")
    queue = open_queue("s3://b", DiscoveryOptions(queue_url=url, region=option), AWS)
    assert queue._client.meta.region_name == region
    assert "the-secret" not in repr(queue.__dict__)


def test_a_subscription_needs_a_project():
    pytest.importorskip("google.cloud.pubsub_v1")
    access = GcpAccess(anonymous=True, pubsub_endpoint="127.0.0.1:1")
    with pytest.raises(OptionError, match=r"cloudFiles\.projectId"):
        open_queue("gs://b", DiscoveryOptions(subscription="s"), access)
    options = DiscoveryOptions(subscription="s", project_id="p")
    assert open_queue("gs://b", options, access).name == "projects/p/subscriptions/s"
    options = DiscoveryOptions(subscription="projects/q/subscriptions/s", project_id="p")
    assert open_queue("gs://b", options, access).name == "projects/q/subscriptions/s"


def test_an_azure_queue_is_in_the_account_of_the_source():
    pytest.importorskip("azure.storage.queue")
    options = DiscoveryOptions(queue_name="new-files")
    queue = open_queue(AZURE_SOURCE, options, AzureAccess(account_key=KEY))
    assert queue.name == "devstoreaccount1/new-files"
    assert queue._client.url.startswith("https://devstoreaccount1.queue.core.windows.net/")
    there = AZURE_SOURCE.replace("windows.net", "chinacloudapi.cn")
    queue = open_queue(there, options, AzureAccess(account_key=KEY))
    assert queue._client.url.startswith("https://devstoreaccount1.queue.core.chinacloudapi.cn/")


@pytest.mark.parametrize("kind", ["azure", "aws", "gcp"])
def test_a_service_that_cannot_be_reached_is_an_error_that_a_retry_may_cure(kind):
    source, options, access = {
        "azure": (
            AZURE_SOURCE,
            DiscoveryOptions(queue_name="q-1"),
            AzureAccess(account_key=KEY, queue_endpoint="http://127.0.0.1:1/devstoreaccount1"),
        ),
        "aws": (
            "s3://b",
            DiscoveryOptions(queue_url="http://127.0.0.1:1/1/q"),
            AwsAccess(
                access_key_id="k",
                secret_access_key="s",
                region="us-east-1",
                endpoint_urls={"": "http://127.0.0.1:1"},
            ),
        ),
        "gcp": (
            "gs://b",
            DiscoveryOptions(subscription="projects/p/subscriptions/s"),
            GcpAccess(anonymous=True, pubsub_endpoint="127.0.0.1:1"),
        ),
    }[kind]
    queue = open_queue(source, options, access)
    if kind == "azure":  # its retries take half a minute
        queue._client._config.retry_policy.total_retries = 0
    if kind == "gcp":
        queue.connect_seconds = 0.5
    with pytest.raises(OSError, match=r"127\.0\.0\.1|q-1|subscriptions/s") as raised:
        queue.receive(1)
    assert isinstance(as_queue_error(raised.value), QueueError)
    assert KEY not in str(raised.value)


def test_what_people_have_to_correct_is_not_worth_a_retry():
    assert isinstance(as_queue_error(PermissionError("x")), QueueAccessError)
    assert isinstance(as_queue_error(FileNotFoundError("x")), QueueAccessError)
    assert isinstance(as_queue_error(TimeoutError("x")), QueueError)


# ── holding ─────────────────────────────────────────────────────────────────────────────────────


class Recording:
    """A queue that notes what is hidden again."""

    name = "queue"
    batch_size = 2

    def __init__(self) -> None:
        self.hidden = []
        self.changed = threading.Condition()
        self.fail = False

    def hide(self, messages, seconds):
        with self.changed:
            self.hidden.append([message.id for message in messages])
            self.changed.notify_all()
        if self.fail:
            raise ConnectionError("no answer")
        return []

    def wait(self, times) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: len(self.hidden) >= times, 300)


def test_what_is_held_is_hidden_again_and_what_is_released_is_not():
    queue = Recording()
    messages = [Message(each, each, b"") for each in "abc"]
    with Heartbeat(queue, 60, 0.1) as heartbeat:
        assert heartbeat.hold(messages) == messages
        assert queue.wait(4)
        heartbeat.release(messages[:2])
        del queue.hidden[:]
        assert queue.wait(2)
        assert {each for some in queue.hidden for each in some} == {"c"}
        queue.fail = True  # a renewal that fails is tried again
        del queue.hidden[:]
        assert queue.wait(2)


def test_a_message_that_is_held_already_brings_its_newer_receipt():
    with Heartbeat(Recording(), 60, 20) as heartbeat:
        message = Message("a", "1", b"")
        heartbeat.hold([message])
        assert heartbeat.hold([Message("a", "2", b""), Message("b", "3", b"")])[0].id == "b"
        assert message.receipt == "2"
        assert {each.id for each in heartbeat.release_all()} == {"a", "b"}


def test_a_release_waits_for_the_renewal_that_is_under_way():
    class Slow(Recording):
        def hide(self, messages, seconds):
            super().hide(messages, seconds)
            time.sleep(0.3)
            messages[0].receipt = "renewed"
            return []

    queue = Slow()
    message = Message("a", "1", b"")
    with Heartbeat(queue, 60, 0.05) as heartbeat:
        heartbeat.hold([message])
        assert queue.wait(1)
        heartbeat.release([message])
        assert message.receipt == "renewed"


def test_a_renewal_that_fails_unexpectedly_is_no_reason_to_wait_for_ever():
    class Odd(Recording):
        def hide(self, messages, seconds):
            super().hide(messages, seconds)
            raise ValueError("Cannot invoke RPC on closed channel!")

    queue = Odd()
    message = Message("a", "1", b"")
    with Heartbeat(queue, 60, 0.05) as heartbeat:
        heartbeat.hold([message])
        assert queue.wait(2)  # the thread goes on
        released = threading.Thread(target=heartbeat.release, args=([message],), daemon=True)
        released.start()
        released.join(10)
        assert not released.is_alive()


# ── placing ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rewrites", "location", "key"),
    [  # B98
        ({"bucket/in": "memory://r/in"}, "bucket/in/x", "x"),
        ({"s3://bucket/in": "memory://r/in"}, "bucket/in/x", "x"),
        ({"s3a://bucket/in/": "memory://r/in/"}, "bucket/in/x", "x"),
        ({"bucket/in": "memory://r/in"}, "bucket/in2/x", None),  # a prefix ends with a name
        ({"bucket/in": "memory://r/in"}, "other/bucket/in/x", None),  # only a prefix
        ({"bucket": "memory://r", "bucket/in": "memory://r/in/deep"}, "bucket/in/x", "deep/x"),
        ({"bucket": "memory://r"}, "bucket/in/bucket/x", "bucket/x"),
        ({}, "bucket/in/x", None),
        ({"bucket": "memory://r"}, "bucket/in/../../x", None),  # a mount is not climbed out of
        ({"bucket": "memory://r"}, "bucket/in//x", None),
    ],
)
def test_only_the_beginning_of_a_path_is_rewritten(rewrites, location, key):
    source = MemoryStore("memory://r/in")
    options = DiscoveryOptions(path_rewrites=tuple(rewrites.items()))
    candidates = Candidates(source, FileFilter(source.uri, None, options), options)
    event = FileEvent(
        location=f"s3://{location}",
        spellings=(location, f"s3a://{location}"),
        size=1,
        time_us=1,
    )
    assert candidates._key(candidates._rewritten(event)) == key


class _InCloud(MemoryStore):
    """A source that events name without a rewrite."""

    def __init__(self, uri):
        super().__init__(uri)
        self.uri = "s3://bucket/in"


def _entry_of(source, event):
    options = DiscoveryOptions()
    candidates = Candidates(source, FileFilter(source.uri, None, options), options)
    with ThreadPoolExecutor(1) as pool:
        return [each.file for each in candidates.found([event], pool)]


def test_a_file_is_recorded_with_a_version_that_can_be_read():
    source = _InCloud(f"memory://{uuid.uuid4().hex}/in")
    source.put("x", b"abc")
    event = FileEvent(location="s3://bucket/in/x", spellings=(), size=3, time_us=1)
    assert _entry_of(source, event) == [source.head("x")]  # some servers send no etag
    event = replace(event, etag="e", size=4)
    assert _entry_of(source, event) == [source.head("x")]
    assert _entry_of(source, replace(event, location="s3://bucket/in/never")) == []


def test_a_message_of_a_file_that_a_mount_does_not_show_yet_stays_in_the_queue(aws):
    place = SqsPlace(aws)
    place.source.put("there", b"x")
    place.send(place.event("in/there"), place.event("in/late"))
    report = place.run(hidden=1)
    assert (report.new, report.deleted, report.ignored) == (1, 1, {"no such file": 1})
    assert report.not_there == (f"{place.source.uri}/late",)
    place.source.put("late", b"x")
    end = time.monotonic() + 60
    while place.recorded() != ["late", "there"] and time.monotonic() < end:
        place.run()
    assert place.recorded() == ["late", "there"]
    assert place.left() == []
