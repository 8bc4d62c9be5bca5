"""Make what stands between a bucket and its queue on AWS.

The queue with its dead-letter queue, and what else the way of the events needs: a topic with a
subscription, or a rule with a target. Each is tagged, and looked at before it is touched: one that
lacks our tags is somebody else's, whatever it is called.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from airflow_cloudfiles.engine.discovery.services import (
    HIDDEN_SECONDS,
    MAX_RECEIVES,
    MISSING,
    OURS,
    VENDOR,
    CloudResource,
    Inspection,
    NotificationRequest,
    queue_with,
)
from airflow_cloudfiles.engine.errors import NotificationServicesError

RETENTION_SECONDS = 14 * 86400
"""The longest that SQS keeps a message."""

STATEMENT = "AirflowCloudFiles"
"""Id of our statement in a policy."""

_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9 _.:/+@-]")
_MAX_TAG = 256

Tags = Mapping[str, str]
Json = dict[str, Any]


def tag_value(text: str) -> str:
    """Write a text with the characters that tags may have.

    Others become `=` and two hexadecimal digits for each of their bytes. Of a text that is too
    long, which paths can be, the end becomes a hash.
    """
    encoded = _NOT_IN_TAGS.sub(
        lambda found: "".join(f"={byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass")),
        text,
    )
    if len(encoded) <= _MAX_TAG:
        return encoded
    digest = hashlib.sha256(encoded.encode()).hexdigest()
    return f"{encoded[: _MAX_TAG - 2 - len(digest)]}=-{digest}"


def text_of_tag(value: str) -> str:
    """Read what `tag_value` wrote."""
    plain = re.sub(
        rb"=([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), value.encode()
    )
    return plain.decode("utf-8", "surrogatepass")


def whose(tags: Tags, ours: Tags) -> Inspection:
    """Find out by its tags whether something was made by this set-up."""
    if tags.get("vendor") != VENDOR:
        return Inspection("foreign", "it does not have the tags of this package")
    if (tags.get("path"), tags.get("name")) != (ours["path"], ours["name"]):
        return Inspection("foreign", f"it serves {text_of_tag(tags.get('path', '?'))}")
    return OURS


def allow(action: str, service: str, resource: str, source_arn: str, account: str | None) -> Json:
    """Build the statement that lets one source of one service, and nothing else, send."""
    condition: Json = {"ArnEquals": {"aws:SourceArn": source_arn}}
    if account:
        condition["StringEquals"] = {"aws:SourceAccount": account}
    return {
        "Sid": STATEMENT,
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": action,
        "Resource": resource,
        "Condition": condition,
    }


def with_statement(policy: str | None, statement: Json) -> str | None:
    """Put our statement into a policy, keeping those of others; `None` when it has it already."""
    found: Json = json.loads(policy) if policy else {"Version": "2012-10-17", "Statement": []}
    statements = found.get("Statement", [])
    listed = statements if isinstance(statements, list) else [statements]
    if statement in listed:
        return None
    others = [each for each in listed if each.get("Sid") != STATEMENT]
    return json.dumps({**found, "Statement": [*others, statement]})


class AwsQueue(CloudResource):
    """A queue, or (without a statement) the dead-letter queue behind it.

    Args:
        sqs: Client of SQS.
        arn: Of the queue.
        tags: To make it with; they record whose it is.
        statement: Of its policy: who may send.
    """

    def __init__(self, sqs: Any, arn: str, tags: Tags, statement: Json | None = None) -> None:
        self.kind = "queue" if statement else "dead-letter queue"
        self.name = arn.rpartition(":")[2]
        self._sqs = sqs
        self._arn = arn
        self._tags = tags
        self._statement = statement

    @property
    def url(self) -> str | None:
        """Its address; `None` when there is no such queue."""
        try:
            return str(self._sqs.get_queue_url(QueueName=self.name)["QueueUrl"])
        except self._sqs.exceptions.QueueDoesNotExist:
            return None

    def tags(self) -> Tags | None:
        """Read its tags; `None` when there is no such queue."""
        url = self.url
        return None if url is None else self._sqs.list_queue_tags(QueueUrl=url).get("Tags", {})

    def inspect(self) -> Inspection:
        """Inspect its tags, its policy and where its dead letters go."""
        url = self.url
        if url is None:
            return MISSING
        found = whose(self._sqs.list_queue_tags(QueueUrl=url).get("Tags", {}), self._tags)
        if found is not OURS:
            return found
        has = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        if self._statement and "RedrivePolicy" not in has:
            return Inspection("incomplete", "it had no dead-letter queue")
        if self._statement and with_statement(has.get("Policy"), self._statement):
            return Inspection("incomplete", "its policy did not let the events in")
        return queue_with(int(has.get("ApproximateNumberOfMessages", "0")))

    def make(self) -> None:
        """Make it, or give it what it lacks; settings that somebody changed stay as they are."""
        url = self.url
        if url is None:
            self._create()
            return
        has = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        wanted = self._ways(has.get("Policy"))
        lacking = {key: value for key, value in wanted.items() if key == "Policy" or key not in has}
        self._sqs.set_queue_attributes(QueueUrl=url, Attributes=lacking)

    def remove(self) -> None:
        """Delete it, with the messages that are in it."""
        url = self.url
        if url is not None:
            self._sqs.delete_queue(QueueUrl=url)

    def _create(self) -> None:
        attributes = {
            "MessageRetentionPeriod": str(RETENTION_SECONDS),
            "VisibilityTimeout": str(HIDDEN_SECONDS),
            **self._ways(None),
        }
        try:
            self._sqs.create_queue(
                QueueName=self.name, Attributes=attributes, tags=dict(self._tags)
            )
        except self._sqs.exceptions.QueueDeletedRecently as failure:
            raise NotificationServicesError(
                f"The queue {self.name} was deleted less than a minute ago, and SQS does not "
                "create it again so soon. Wait a minute, and run this again."
            ) from failure

    def _ways(self, policy: str | None) -> dict[str, str]:
        """Describe who may send, and where dead letters go."""
        if self._statement is None:
            return {}
        redrive = {"deadLetterTargetArn": f"{self._arn}-dead", "maxReceiveCount": MAX_RECEIVES}
        changed = with_statement(policy, self._statement)
        return {"RedrivePolicy": json.dumps(redrive), **({"Policy": changed} if changed else {})}


class SnsTopic(CloudResource):
    """A topic of ours, which the bucket publishes to.

    Args:
        sns: Client of SNS.
        arn: Of the topic.
        tags: To make it with; they record whose it is.
        statement: Of its policy: who may publish.
        queue_arn: Our queue, when it is to be removed: then it is left to other subscribers.
    """

    kind = "topic"

    def __init__(
        self, sns: Any, arn: str, tags: Tags, statement: Json, queue_arn: str | None = None
    ) -> None:
        self._queue_arn = queue_arn
        self.name = arn.rpartition(":")[2]
        self._sns = sns
        self._arn = arn
        self._tags = tags
        self._statement = statement

    def inspect(self) -> Inspection:
        """Inspect its tags and its policy."""
        policy = self._policy()
        if policy is None:
            return MISSING
        listed = self._sns.list_tags_for_resource(ResourceArn=self._arn).get("Tags", [])
        found = whose({tag["Key"]: tag["Value"] for tag in listed}, self._tags)
        if found is OURS and (user := self.other_subscriber()):
            return Inspection("foreign", f"{user} is subscribed to it too")
        if found is OURS and with_statement(policy, self._statement):
            return Inspection("incomplete", "its policy did not let the bucket publish")
        return found

    def other_subscriber(self) -> str | None:
        """Find who is subscribed besides our queue, before the topic is removed."""
        if self._queue_arn is None or self._policy() is None:
            return None
        for endpoint in endpoints(self._sns, self._arn):
            if endpoint != self._queue_arn:
                return endpoint.rpartition(":")[2]
        return None

    def make(self) -> None:
        """Make it, or let the bucket publish to it."""
        policy = self._policy()
        changed = with_statement(policy, self._statement)
        if policy is None:
            tags = [{"Key": key, "Value": value} for key, value in self._tags.items()]
            self._sns.create_topic(Name=self.name, Attributes={"Policy": changed}, Tags=tags)
            # AWS has them by now; not every compatible server takes them above.
            self._sns.tag_resource(ResourceArn=self._arn, Tags=tags)
        elif changed:
            self._sns.set_topic_attributes(
                TopicArn=self._arn, AttributeName="Policy", AttributeValue=changed
            )

    def remove(self) -> None:
        """Delete it; `inspect` has seen that nothing else is subscribed."""
        self._sns.delete_topic(TopicArn=self._arn)

    def _policy(self) -> str | None:
        """Read its policy, which may be empty; `None` when there is no such topic."""
        try:
            found = self._sns.get_topic_attributes(TopicArn=self._arn)["Attributes"]
        except self._sns.exceptions.NotFoundException:
            return None
        return str(found.get("Policy", ""))


def endpoints(sns: Any, topic_arn: str) -> dict[str, str]:
    """Give the subscriptions of a topic by where they send to."""
    pages = sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic_arn)
    return {
        each["Endpoint"]: each["SubscriptionArn"]
        for page in pages
        for each in page["Subscriptions"]
    }


class SnsSubscription(CloudResource):
    """That a topic passes its messages on to our queue."""

    kind = "subscription"

    def __init__(self, sns: Any, topic_arn: str, queue_arn: str) -> None:
        self.name = f"{topic_arn.rpartition(':')[2]} to {queue_arn.rpartition(':')[2]}"
        self._sns = sns
        self._topic_arn = topic_arn
        self._queue_arn = queue_arn

    def inspect(self) -> Inspection:
        """Inspection for it at the topic."""
        return OURS if self._found() else MISSING

    def make(self) -> None:
        """Subscribe; messages come as S3 wrote them, without the topic's envelope."""
        self._sns.subscribe(
            TopicArn=self._topic_arn,
            Protocol="sqs",
            Endpoint=self._queue_arn,
            Attributes={"RawMessageDelivery": "true"},
        )

    def remove(self) -> None:
        """Unsubscribe the queue."""
        if found := self._found():
            self._sns.unsubscribe(SubscriptionArn=found)

    def _found(self) -> str | None:
        try:
            return endpoints(self._sns, self._topic_arn).get(self._queue_arn)
        except self._sns.exceptions.NotFoundException:
            return None


class EventBridgeRule(CloudResource):
    """A rule of EventBridge that matches created files below a prefix."""

    kind = "rule"

    def __init__(
        self, events: Any, arn: str, tags: Tags, wanted: NotificationRequest, prefix: str
    ) -> None:
        self.name = arn.rpartition("/")[2]
        self._events = events
        self._arn = arn
        self._tags = tags
        detail: Json = {"bucket": {"name": [wanted.bucket]}}
        if prefix:
            detail["object"] = {"key": [{"prefix": prefix}]}
        kinds = ["Object Created", *(["Object Deleted"] if wanted.deletes else [])]
        self._pattern = {"source": ["aws.s3"], "detail-type": kinds, "detail": detail}

    def inspect(self) -> Inspection:
        """Inspect its tags and what it matches."""
        try:
            has = self._events.describe_rule(Name=self.name)
        except self._events.exceptions.ResourceNotFoundException:
            return MISSING
        listed = self._events.list_tags_for_resource(ResourceARN=self._arn).get("Tags", [])
        found = whose({tag["Key"]: tag["Value"] for tag in listed}, self._tags)
        pattern = json.loads(has.get("EventPattern", "{}"))
        has_all = set(pattern.get("detail-type", ())) >= set(self._pattern["detail-type"])
        others = {"detail-type": self._pattern["detail-type"]}
        same = has_all and {**pattern, **others} == self._pattern
        if found is OURS and not (same and has["State"] == "ENABLED"):
            return Inspection("incomplete", "it matched other files, or was disabled")
        return found

    def make(self) -> None:
        """Make it, or give it its pattern back."""
        tags = [{"Key": key, "Value": value} for key, value in self._tags.items()]
        self._events.put_rule(
            Name=self.name, EventPattern=json.dumps(self._pattern), State="ENABLED", Tags=tags
        )

    def remove(self) -> str:
        """Delete it, unless it has targets of others."""
        targets = self._events.list_targets_by_rule(Rule=self.name)["Targets"]
        if targets:
            return f"it has the target {targets[0]['Arn']} too"
        self._events.delete_rule(Name=self.name)
        return ""


class EventBridgeTarget(CloudResource):
    """That a rule sends what it matches to our queue."""

    kind = "target of the rule"

    def __init__(self, events: Any, rule: str, queue_arn: str) -> None:
        self.name = queue_arn.rpartition(":")[2]
        self._events = events
        self._rule = rule
        self._target = {"Id": self.name, "Arn": queue_arn}

    def inspect(self) -> Inspection:
        """Inspection for it at the rule."""
        try:
            listed = self._events.list_targets_by_rule(Rule=self._rule)["Targets"]
        except self._events.exceptions.ResourceNotFoundException:
            return MISSING
        return OURS if any(each["Arn"] == self._target["Arn"] for each in listed) else MISSING

    def make(self) -> None:
        """Add it to the rule."""
        done = self._events.put_targets(Rule=self._rule, Targets=[self._target])
        if done.get("FailedEntryCount"):
            raise NotificationServicesError(
                f"EventBridge refused the queue {self.name} as a target of the rule "
                f"{self._rule}: {done['FailedEntries'][0].get('ErrorMessage')}. Run this again."
            )

    def remove(self) -> None:
        """Take it from the rule."""
        self._events.remove_targets(Rule=self._rule, Ids=[self._target["Id"]])
