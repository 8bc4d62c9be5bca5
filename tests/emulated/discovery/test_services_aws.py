"""Notifications of S3, set up and torn down against ministack."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.clouds.aws.set_up import ACTIONS, filter_prefix
from airflow_cloudfiles.engine.clouds.aws.set_up_parts import tag_value, text_of_tag
from airflow_cloudfiles.engine.discovery.services import (
    list_notifications,
    set_up_notifications,
    tear_down_notifications,
)
from airflow_cloudfiles.engine.errors import NotificationServicesError, OptionError
from airflow_cloudfiles.engine.storage.access import to_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.emulators.aws import Aws

LOGGER = "airflow_cloudfiles.engine.discovery.services"
VIAS = ("sqs", "sns", "eventbridge")


class StopError(Exception):
    """Ends a set-up after a step, as a lost machine would."""


@pytest.fixture
def stop_after() -> Iterator[object]:
    """Give a function that makes the k-th step from now the last one."""
    logger = logging.getLogger(LOGGER)
    level = logger.level
    logger.setLevel(logging.INFO)
    filters = []

    def stop_after(steps: int) -> None:
        left = [steps]

        def count(record: logging.LogRecord) -> bool:
            left[0] -= 1
            if left[0] == 0:
                raise StopError(record.getMessage())
            return True

        for each in filters:
            logger.removeFilter(each)
        filters[:] = [count]
        logger.addFilter(count)

    yield stop_after
    for each in filters:
        logger.removeFilter(each)
    logger.setLevel(level)


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def bucket_of(uri: str) -> str:
    return uri.split("/")[2]


def configuration(aws: Aws, uri: str) -> dict:
    found = aws.client("s3").get_bucket_notification_configuration(Bucket=bucket_of(uri))
    return {key: value for key, value in found.items() if key != "ResponseMetadata"}


def keys_in(aws: Aws, url: str) -> list[str]:
    """The keys that the messages of a queue tell of, in any of the three envelopes."""
    found = []
    got = aws.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2)
    for message in got.get("Messages", []):
        body = json.loads(message["Body"])
        found += [record["s3"]["object"]["key"] for record in body.get("Records", [])]
        found += [body["detail"]["object"]["key"]] if "detail" in body else []
    return found


def queue_names(aws: Aws, name: str) -> list[str]:
    found = aws.client("sqs").list_queues(QueueNamePrefix=f"cloudfiles-{name}")
    return sorted(url.rpartition("/")[2] for url in found.get("QueueUrls", []))


def done(services) -> list[str]:
    return [part.done for part in services.parts]


def other_queue(aws: Aws) -> str:
    """ARN of a queue of somebody else's that takes anything."""
    url = aws.queue()
    sqs = aws.client("sqs")
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]


@pytest.mark.parametrize("via", VIAS)
def test_what_was_set_up_announces_files_and_goes_without_a_trace(aws: Aws, name, via):
    bucket = aws.bucket()
    source = f"{bucket}/in"
    made = set_up_notifications(source, name, access=aws.access, via=via, tags={"team": "a b"})
    assert set(done(made)) == {"created"}
    assert made.is_complete
    url = made.options["cloudFiles.queueUrl"]
    assert made.options["cloudFiles.useNotifications"] == "true"
    assert made.options["cloudFiles.region"] == "us-east-1"
    for key in ("in/a.json", "elsewhere/b.json", "inside.json"):
        aws.client("s3").put_object(Bucket=bucket_of(bucket), Key=key, Body=b"{}")
    assert keys_in(aws, url) == ["in/a.json"]

    again = set_up_notifications(source, name, access=aws.access, via=via)
    assert set(done(again)) == {"found"}
    assert again.options == made.options
    (listed,) = list_notifications(bucket, access=aws.access)
    assert (listed.source, listed.name, listed.is_complete) == (source, name, True)
    assert listed.options == made.options

    gone = tear_down_notifications(source, name, access=aws.access)
    left = [part.kind for part in gone.parts if part.done == "left"]
    assert left == (["EventBridge setting of the bucket"] if via == "eventbridge" else [])
    assert set(done(gone)) <= {"removed", "left"}
    assert queue_names(aws, name) == []
    assert list_notifications(bucket, access=aws.access) == []
    twice = tear_down_notifications(source, name, access=aws.access)
    assert set(done(twice)) <= {"missing", "left"}


def test_a_queue_waits_long_has_a_dead_letter_queue_and_lets_only_this_bucket_in(aws: Aws, name):
    bucket = aws.bucket()
    made = set_up_notifications(bucket, name, access=aws.access, tags={"team": "x"})
    sqs = aws.client("sqs")
    url = made.options["cloudFiles.queueUrl"]
    has = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert has["VisibilityTimeout"] == "60"
    assert has["MessageRetentionPeriod"] == str(14 * 86400)
    redrive = json.loads(has["RedrivePolicy"])
    assert int(redrive["maxReceiveCount"]) == 50
    assert redrive["deadLetterTargetArn"].endswith(f":cloudfiles-{name}-dead")
    (statement,) = json.loads(has["Policy"])["Statement"]
    assert statement["Principal"] == {"Service": "s3.amazonaws.com"}
    assert statement["Condition"] == {
        "ArnEquals": {"aws:SourceArn": f"arn:aws:s3:::{bucket_of(bucket)}"},
        "StringEquals": {"aws:SourceAccount": has["QueueArn"].split(":")[4]},
    }
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {
        "vendor": "airflow-cloudfiles",
        "path": bucket,
        "name": name,
        "via": "sqs",
        "team": "x",
    }


def entries_of_others(aws: Aws) -> dict:
    rules = [{"Name": "prefix", "Value": "theirs/"}, {"Name": "suffix", "Value": ".csv"}]
    topic = aws.client("sns").create_topic(Name=f"other-{uuid.uuid4().hex}")["TopicArn"]
    return {
        "QueueConfigurations": [
            {
                "Id": "theirs",
                "QueueArn": other_queue(aws),
                "Events": ["s3:ObjectCreated:Put", "s3:ObjectRemoved:*"],
                "Filter": {"Key": {"FilterRules": rules}},
            }
        ],
        "TopicConfigurations": [
            {"Id": "their-topic", "TopicArn": topic, "Events": ["s3:ObjectRemoved:Delete"]}
        ],
        "LambdaFunctionConfigurations": [
            {
                "Id": "their-function",
                "LambdaFunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:f",
                "Events": ["s3:ObjectTagging:Put"],
            }
        ],
        "EventBridgeConfiguration": {},
    }


def test_what_others_set_up_on_the_bucket_stays_as_it_was(aws: Aws, name):
    bucket = aws.bucket()
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=bucket_of(bucket),
        NotificationConfiguration=entries_of_others(aws),
        SkipDestinationValidation=True,
    )
    before = configuration(aws, bucket)
    assert set(before) == set(entries_of_others(aws))
    set_up_notifications(f"{bucket}/ours", name, access=aws.access)
    between = configuration(aws, bucket)
    queues = between["QueueConfigurations"]
    assert [entry for entry in queues if entry["Id"] != f"cloudfiles-{name}"] == before[
        "QueueConfigurations"
    ]
    assert {**between, "QueueConfigurations": []} == {**before, "QueueConfigurations": []}
    tear_down_notifications(f"{bucket}/ours", name, access=aws.access)
    assert configuration(aws, bucket) == before


def test_a_destination_of_others_for_the_same_files_is_refused_before_anything_is_made(
    aws: Aws, name
):
    bucket = aws.bucket()
    entry = {"Id": "theirs", "QueueArn": other_queue(aws), "Events": ["s3:ObjectCreated:Put"]}
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=bucket_of(bucket), NotificationConfiguration={"QueueConfigurations": [entry]}
    )
    before = configuration(aws, bucket)
    with pytest.raises(NotificationServicesError, match=r"'theirs'.*eventbridge.*sns"):
        set_up_notifications(f"{bucket}/in", name, access=aws.access)
    assert queue_names(aws, name) == []
    beside = set_up_notifications(f"{bucket}/in", name, access=aws.access, via="eventbridge")
    assert beside.is_complete
    assert configuration(aws, bucket) == {**before, "EventBridgeConfiguration": {}}


def test_a_topic_of_others_gets_one_more_queue_and_keeps_all_it_has(aws: Aws, name):
    bucket = aws.bucket()
    sns = aws.client("sns")
    topic = sns.create_topic(Name=f"theirs-{name}")["TopicArn"]
    entry = {"Id": "theirs", "TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=bucket_of(bucket), NotificationConfiguration={"TopicConfigurations": [entry]}
    )
    before = configuration(aws, bucket)
    made = set_up_notifications(f"{bucket}/in", name, access=aws.access, via="sns")
    assert [part.kind for part in made.parts] == ["dead-letter queue", "queue", "subscription"]
    aws.client("s3").put_object(Bucket=bucket_of(bucket), Key="in/a.json", Body=b"{}")
    assert keys_in(aws, made.options["cloudFiles.queueUrl"]) == ["in/a.json"]
    again = set_up_notifications(f"{bucket}/in", name, access=aws.access)
    assert set(done(again)) == {"found"}
    tear_down_notifications(f"{bucket}/in", name, access=aws.access)
    assert configuration(aws, bucket) == before
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []


def test_a_topic_that_another_stream_uses_outlives_the_stream_that_made_it(aws: Aws, name):
    bucket = aws.bucket()
    set_up_notifications(bucket, name, access=aws.access, via="sns")
    two = f"{name}-2"
    second = set_up_notifications(f"{bucket}/in", two, access=aws.access, via="sns")
    plan = tear_down_notifications(bucket, name, access=aws.access, dry_run=True)
    gone = tear_down_notifications(bucket, name, access=aws.access)
    left = [(part.kind, part.note) for part in gone.parts if part.done == "left"]
    assert [kind for kind, _ in left] == ["topic", "bucket notification"]
    assert all(two in note for _, note in left)
    assert done(plan) == done(gone)
    aws.client("s3").put_object(Bucket=bucket_of(bucket), Key="in/a.json", Body=b"{}")
    assert keys_in(aws, second.options["cloudFiles.queueUrl"]) == ["in/a.json"]
    tear_down_notifications(f"{bucket}/in", two, access=aws.access)
    rest = tear_down_notifications(bucket, name, access=aws.access)
    removed = [part.kind for part in rest.parts if part.done == "removed"]
    assert removed == ["topic", "bucket notification"]
    assert configuration(aws, bucket) == {}


def test_a_queue_of_somebody_else_is_neither_used_nor_removed(aws: Aws, name):
    bucket = aws.bucket()
    aws.client("sqs").create_queue(QueueName=f"cloudfiles-{name}")
    with pytest.raises(NotificationServicesError, match=r"not of this set-up.*tags"):
        set_up_notifications(bucket, name, access=aws.access)
    assert queue_names(aws, name) == [f"cloudfiles-{name}"]
    gone = tear_down_notifications(bucket, name, access=aws.access)
    (left,) = [part for part in gone.parts if part.done == "left"]
    assert (left.kind, "tags" in left.note) == ("queue", True)
    assert queue_names(aws, name) == [f"cloudfiles-{name}"]


def test_a_name_serves_one_source(aws: Aws, name):
    bucket = aws.bucket()
    set_up_notifications(f"{bucket}/a", name, access=aws.access)
    with pytest.raises(NotificationServicesError, match=f"it serves {bucket}/a"):
        set_up_notifications(f"{bucket}/b", name, access=aws.access)
    left = tear_down_notifications(f"{bucket}/b", name, access=aws.access)
    assert set(done(left)) <= {"left", "missing", "removed"}
    assert list_notifications(f"{bucket}/a", access=aws.access)[0].is_complete


def test_another_way_needs_a_tear_down_first(aws: Aws, name):
    bucket = aws.bucket()
    set_up_notifications(bucket, name, access=aws.access)
    with pytest.raises(NotificationServicesError, match="via='sqs'"):
        set_up_notifications(bucket, name, access=aws.access, via="sns")


def test_a_bucket_that_is_not_there_is_refused_before_anything_is_made(aws: Aws, name):
    with pytest.raises(NotificationServicesError, match="There is no bucket"):
        set_up_notifications(f"s3://{name}-none", name, access=aws.access)
    assert queue_names(aws, name) == []


@pytest.mark.parametrize("via", VIAS)
def test_interrupted_after_any_step_it_is_completed_and_removed_by_the_next_call(
    aws: Aws, name, via, stop_after
):
    source = f"{aws.bucket()}/in"
    steps = len(set_up_notifications(source, name, access=aws.access, via=via, dry_run=True).parts)
    for step in range(1, steps):
        stop_after(step)
        with pytest.raises(StopError):
            set_up_notifications(source, name, access=aws.access, via=via)
        stop_after(0)
        made = set_up_notifications(source, name, access=aws.access, via=via)
        assert made.is_complete
        assert done(made).count("found") == step
        stop_after(step)
        with pytest.raises(StopError):
            tear_down_notifications(source, name, access=aws.access)
        stop_after(0)
        gone = tear_down_notifications(source, name, access=aws.access)
        assert set(done(gone)) <= {"removed", "missing", "left"}
        assert queue_names(aws, name) == []
        aws.client("s3").put_bucket_notification_configuration(
            Bucket=bucket_of(source), NotificationConfiguration={}
        )


def test_killed_between_two_steps_it_is_completed_by_the_next_call(aws: Aws, name):
    source = f"{aws.bucket()}/in"
    program = (
        "import logging, os, signal, sys\n"
        "from airflow_cloudfiles.engine.discovery.services import set_up_notifications\n"
        f"logger = logging.getLogger({LOGGER!r})\n"
        "logger.setLevel(logging.INFO)\n"
        "kill = lambda r: 'Created the queue' not in r.getMessage() or os.kill(os.getpid(), 9)\n"
        "logger.addFilter(kill)\n"
        "set_up_notifications(sys.argv[1], sys.argv[2])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, source, name],
        env={**os.environ, **to_environment(aws.access)},
        check=False,
        timeout=600,
    )
    assert ended.returncode == -signal.SIGKILL
    (half,) = list_notifications(source, access=aws.access)
    assert done(half) == ["found", "found", "missing"]
    made = set_up_notifications(source, name, access=aws.access)
    assert done(made) == ["found", "found", "created"]


def test_an_entry_that_somebody_else_wrote_over_is_written_again(aws: Aws, name):
    bucket = aws.bucket()
    access = replace(aws.access, role_session_name=name)  # a client of its own, to listen to
    from airflow_cloudfiles.engine.clouds.aws.session import aws_client

    theirs = {"Id": "theirs", "QueueArn": other_queue(aws), "Events": ["s3:ObjectRemoved:*"]}
    writes = []

    def write_over(**_: object) -> None:
        writes.append(1)
        if len(writes) == 1:
            aws.client("s3").put_bucket_notification_configuration(
                Bucket=bucket_of(bucket),
                NotificationConfiguration={"QueueConfigurations": [theirs]},
            )

    client = aws_client("s3", replace(access, region="us-east-1"))
    client.meta.events.register("after-call.s3.PutBucketNotificationConfiguration", write_over)
    assert set_up_notifications(bucket, name, access=access).is_complete
    assert len(writes) == 2
    entries = configuration(aws, bucket)["QueueConfigurations"]
    assert {entry["Id"] for entry in entries} == {"theirs", f"cloudfiles-{name}"}


def test_a_plan_makes_and_removes_nothing(aws: Aws, name):
    source = f"{aws.bucket()}/in"
    plan = set_up_notifications(source, name, access=aws.access, dry_run=True)
    assert plan.is_plan
    assert plan.options == {}
    assert set(done(plan)) == {"created"}
    assert queue_names(aws, name) == []
    set_up_notifications(source, name, access=aws.access)
    assert (
        done(tear_down_notifications(source, name, access=aws.access, dry_run=True))
        == ["removed"] * 3
    )
    assert list_notifications(source, access=aws.access)[0].is_complete


def test_a_part_that_somebody_removed_is_told_and_made_again(aws: Aws, name):
    source = f"{aws.bucket()}/in"
    made = set_up_notifications(source, name, access=aws.access)
    aws.client("s3").put_bucket_notification_configuration(
        Bucket=bucket_of(source), NotificationConfiguration={}
    )
    aws.client("sqs").set_queue_attributes(
        QueueUrl=made.options["cloudFiles.queueUrl"], Attributes={"Policy": ""}
    )
    (listed,) = list_notifications(source, access=aws.access)
    assert not listed.is_complete
    assert done(listed) == ["found", "missing", "missing"]
    assert listed.options == {}
    again = set_up_notifications(source, name, access=aws.access)
    assert done(again) == ["found", "changed", "created"]


def test_without_its_queue_the_rest_is_still_removed(aws: Aws, name):
    source = f"{aws.bucket()}/in"
    made = set_up_notifications(source, name, access=aws.access, via="sns")
    aws.client("sqs").delete_queue(QueueUrl=made.options["cloudFiles.queueUrl"])
    gone = tear_down_notifications(source, name, access=aws.access)
    removed = [part.kind for part in gone.parts if part.done == "removed"]
    assert removed == ["dead-letter queue", "topic", "subscription", "bucket notification"]
    assert configuration(aws, source) == {}


def test_what_is_not_allowed_is_said_with_the_missing_permission(aws: Aws, name, microburst):
    source = f"{aws.bucket()}/in"
    proxy = microburst(aws.endpoint)
    denied = {"code": "AccessDenied", "status": 403}
    operation = "PutBucketNotification"  # the older name of the same request
    proxy.rules([{"service": "s3", "operation": operation, "error": denied}])
    with pytest.raises(NotificationServicesError, match="s3:PutBucketNotification") as raised:
        set_up_notifications(source, name, access=aws.access_through(proxy.endpoint))
    assert "Traceback" not in str(raised.value)
    assert set_up_notifications(source, name, access=aws.access).is_complete


@pytest.mark.parametrize("name", ["", "a", "Upper", "a--b", "-a", "a_b", "a" * 41, "a/b"])
def test_a_name_that_a_cloud_would_refuse_is_refused(name):
    with pytest.raises(OptionError, match="lower-case letters"):
        set_up_notifications("s3://bucket", name)


@pytest.mark.parametrize("key", ["vendor", "Path", "name", "streamId", "checkpointLocation"])
def test_reserved_tags_are_refused(key):
    with pytest.raises(OptionError, match="is reserved"):
        set_up_notifications("s3://bucket", "orders", tags={key: "x"})


def test_a_local_source_has_no_notifications(tmp_path):
    with pytest.raises(OptionError, match="sends no notifications"):
        set_up_notifications(str(tmp_path), "orders")


@pytest.mark.parametrize("text", ["s3://b/a/b", "s3://b/é=%20 x", "s3://b/\u2603", "s3://b/=41"])
def test_a_source_is_read_back_from_its_tag(text):
    assert text_of_tag(tag_value(text)) == text


def test_long_sources_have_tags_of_their_own():
    one, two = (tag_value("s3://b/" + "x" * 300 + end) for end in "ab")
    assert len(one) == len(two) == 256
    assert one != two


def test_a_filter_ends_before_what_would_have_to_be_encoded():
    assert filter_prefix("in/day=1/") == "in/day"
    assert filter_prefix("in/a b/") == "in/a"
    assert filter_prefix("in/plain-1_2.x/") == "in/plain-1_2.x/"


@pytest.fixture
def requests_of(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> object:
    """Give a function that makes an access whose requests are noted."""
    from airflow_cloudfiles.engine.clouds.aws import session

    # Kept clients are let go when there are many, and other tests have made some.
    monkeypatch.setattr(session, "_clients", {})
    aws_client = session.aws_client

    def requests_of(access) -> set[tuple[str, str]]:
        seen: set[tuple[str, str]] = set()

        def note(model, **_: object) -> None:
            seen.add((model.service_model.service_name, model.name))

        for service in ("s3", "sqs", "sns", "events"):
            for each in (access, replace(access, region="us-east-1")):
                aws_client(service, each).meta.events.register("before-call", note)
        return seen

    return requests_of


def test_the_documented_policy_allows_every_request_that_is_made(
    aws: Aws, name, requests_of, repository
):
    access = replace(aws.access, role_session_name=name)
    seen = requests_of(access)
    for via in VIAS:
        source = f"{aws.bucket()}/in"
        set_up_notifications(source, name, access=access, via=via, tags={"team": "x"})
        sqs = aws.client("sqs")  # what is missing is mended
        url = sqs.get_queue_url(QueueName=f"cloudfiles-{name}")["QueueUrl"]
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
        set_up_notifications(source, name, access=access)
        list_notifications(source, access=access)
        tear_down_notifications(source, name, access=access)
    page = (repository / "docs/how-to/set-up-notifications.md").read_text()
    policy = json.loads(page.split("```json\n")[1].split("```")[0])
    allowed = {action for each in policy["Statement"] for action in each["Action"]}
    needed = {ACTIONS[operation] for _, operation in seen} - {ACTIONS["ListTagsForResource"]}
    assert len(seen) > 20
    assert needed <= allowed
    assert {"sns:ListTagsForResource", "events:ListTagsForResource"} <= allowed
