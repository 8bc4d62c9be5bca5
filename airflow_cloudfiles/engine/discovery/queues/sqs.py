"""How is an SQS queue read?

Long polling, if only for a second, asks all servers that hold the queue; short polling asks a few
and comes back empty although there are messages. A batch request can succeed in part: what failed
is in its answer and is given back, never taken for done.

The identity needs `sqs:ReceiveMessage`, `sqs:DeleteMessage` (which covers batches) and
`sqs:ChangeMessageVisibility`; and `sqs:GetQueueAttributes`, for a look that delivers nothing and
for the size in the report.
"""

from __future__ import annotations

import dataclasses
import random
import re
import time
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from airflow_cloudfiles.engine.discovery.events import aws as events_aws
from airflow_cloudfiles.engine.discovery.queues.base import Message, Waiting
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.access import AwsAccess, of_kind
from airflow_cloudfiles.engine.storage.aws.errors import (
    error_code,
    error_status,
    is_about_key,
    missing_permission,
    readable,
)
from airflow_cloudfiles.engine.storage.aws.session import aws_client

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_cloudfiles.engine.discovery.events.base import Parsed
    from airflow_cloudfiles.engine.storage.access import Access

_JITTER = random.Random()  # noqa: S311 - spreads tries; the global one is the caller's
_MOST = 10
_TRIES = 6
_FIRST_PAUSE_SECONDS = 0.2
_FORBIDDEN = re.compile(
    "AccessDenied|Unauthorized|InvalidClientTokenId|ExpiredToken|SignatureDoesNotMatch|"
    "UnrecognizedClient|InvalidSecurity|OptInRequired|MissingAuthenticationToken|InvalidAddress"
)
_PERMISSIONS = {
    "receive from": "sqs:ReceiveMessage",
    "delete from": "sqs:DeleteMessage",
    "change messages of": "sqs:ChangeMessageVisibility",
    "inspect": "sqs:GetQueueAttributes",
}
"""By what is done: the permission that it takes."""
_MISSING = re.compile("NonExistentQueue|QueueDoesNotExist|QueueDeletedRecently")
_BUSY = re.compile("Throttl|SlowDown|ServiceUnavailable|InternalError|InternalFailure|OverLimit")
_FAILING = frozenset({429, *range(500, 600)})
_URL = re.compile(r"https?://[^/\s]+(/\S+)?/[A-Za-z0-9_-]+(\.fifo)?")
_REGION = re.compile(r"(?://|\.)(?:sqs|sqs-fips)\.([a-z]+(?:-[a-z]+)+-[0-9]+)\.", re.IGNORECASE)
_OLD_REGION = re.compile(r"//(?:([a-z0-9-]+)\.)?queue\.amazonaws\.", re.IGNORECASE)
_OLD_DEFAULT = "us-east-1"
"""The region of `queue.amazonaws.com`."""


class SqsQueue:
    """A queue of Amazon SQS.

    Args:
        url: Of the queue.
        open_client: Gives the client of `boto3`, which is another one when its keys have changed.

    Attributes:
        wait_seconds: How long a receive waits for messages: at least a second, for all servers.
    """

    batch_size = _MOST
    wait_seconds = 1

    def __init__(self, url: str, open_client: Callable[[], Any]) -> None:
        self._url = url
        self._open_client = open_client

    @property
    def name(self) -> str:
        """The URL of the queue."""
        return self._url

    @property
    def _client(self) -> Any:
        return self._open_client()

    def receive(self, seconds: int) -> list[Message]:
        """Take up to ten messages."""
        answer = self._call(
            "receive from",
            self._client.receive_message,
            MaxNumberOfMessages=_MOST,
            WaitTimeSeconds=self.wait_seconds,
            VisibilityTimeout=seconds,
            MessageSystemAttributeNames=[
                "ApproximateReceiveCount",
                "MessageGroupId",
                "SentTimestamp",
            ],
        )
        is_fifo = self._url.endswith(".fifo")
        return [_message(each, is_fifo=is_fifo) for each in answer.get("Messages", ())]

    def hide(self, messages: Sequence[Message], seconds: int) -> list[Message]:
        """Change the visibility time-out of up to ten messages."""
        entries = _entries(messages)
        for entry in entries:
            entry["VisibilityTimeout"] = seconds
        return self._batch(
            "change messages of", self._client.change_message_visibility_batch, messages, entries
        )

    def delete(self, messages: Sequence[Message]) -> list[Message]:
        """Delete up to ten messages."""
        return self._batch(
            "delete from", self._client.delete_message_batch, messages, _entries(messages)
        )

    def approximate_size(self) -> int | None:
        """Visible, hidden and delayed ones together."""
        try:
            return self.look().messages
        except PermissionError:
            return None

    def look(self) -> Waiting:
        """Ask for the attributes of the queue; SQS has no other look that is no delivery."""
        kinds = ("", "NotVisible", "Delayed")
        names = [f"ApproximateNumberOfMessages{kind}" for kind in kinds]
        answer = self._call("inspect", self._client.get_queue_attributes, AttributeNames=names)
        return Waiting(sum(int(answer.get("Attributes", {}).get(name, 0)) for name in names))

    def parse(self, message: Message) -> Parsed:
        """Read an event of S3."""
        return events_aws.parse(message)

    def _batch(
        self,
        what: str,
        call: Callable[..., Any],
        messages: Sequence[Message],
        entries: list[dict[str, Any]],
    ) -> list[Message]:
        """Do something to messages; give back those that failed by the answer."""
        answer = self._call(what, call, Entries=entries)
        done = {each["Id"] for each in answer.get("Successful", ())}
        return [message for i, message in enumerate(messages) if str(i) not in done]

    def _call(self, what: str, call: Callable[..., Any], **arguments: Any) -> Any:
        """Call the service; a busy one is asked again, which the client does for some errors only.

        Throttling of SQS comes with status 403, which the client takes for final.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                return call(QueueUrl=self._url, **arguments)
            except ClientError as failure:
                code = error_code(failure)
                is_busy = bool(_BUSY.search(code)) or error_status(failure) in _FAILING
                if is_busy and attempt == _TRIES:
                    raise ConnectionError(
                        f"SQS was too busy to {what} {self._url} ({code}). Try again later."
                    ) from failure
                if not is_busy:
                    raise _refused(failure, what, self._url) from failure
            except BotoCoreError as failure:
                raise readable(failure, f"Could not {what} {self._url}", what) from failure
            pause = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1)
            time.sleep(pause * _JITTER.uniform(0.5, 1.0))
        raise AssertionError


def open_sqs(url: str, region: str | None, access: Access | None) -> SqsQueue:
    """Open a queue; nothing is contacted yet.

    Args:
        url: Of the queue; it names its region.
        region: Where the URL does not.
        access: Credentials and addresses.

    Raises:
        OptionError: Not the URL of a queue.
    """
    if not _URL.fullmatch(url):
        raise OptionError(
            f"cloudFiles.queueUrl: {url!r} is not the URL of a queue, as in "
            f"https://sqs.eu-central-1.amazonaws.com/123456789012/new-files."
        )
    given: AwsAccess = of_kind(AwsAccess, access) or AwsAccess()
    region = region or _region_of(url) or given.region
    there = dataclasses.replace(given, region=region)
    aws_client("sqs", there)  # what is wrong with the access shows here
    return SqsQueue(url, lambda: aws_client("sqs", there))


def _region_of(url: str) -> str | None:
    """Give the region that the URL of a queue names, whichever address of SQS it has.

    These are its own (`sqs.R.amazonaws.com`, `sqs-fips.`, `.api.aws`, those of other partitions),
    that of an endpoint in one's network (`vpce-….sqs.R.vpce.amazonaws.com`), and the oldest
    (`R.queue.amazonaws.com`, and without a region).
    """
    if found := _REGION.search(url):
        return found[1].lower()
    if found := _OLD_REGION.search(url):
        return found[1] or _OLD_DEFAULT
    return None


def _entries(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [{"Id": str(i), "ReceiptHandle": message.receipt} for i, message in enumerate(messages)]


def _message(received: dict[str, Any], *, is_fifo: bool) -> Message:
    system = received.get("Attributes", {})
    sent = system.get("SentTimestamp")
    return Message(
        id=received["MessageId"],
        receipt=received["ReceiptHandle"],
        body=received.get("Body", "").encode("utf-8", "surrogatepass"),
        receive_count=int(system.get("ApproximateReceiveCount", 0)),
        sent_us=int(sent) * 1000 if sent else None,
        group=system.get("MessageGroupId", "") if is_fifo else "",
    )


def _refused(failure: ClientError, what: str, url: str) -> OSError:
    """Explain an answer that is an error."""
    code = error_code(failure)
    if is_about_key(failure):
        return PermissionError(
            f"The key of KMS that {url} is encrypted with cannot be used ({code}). Grant the "
            f"identity the permission {missing_permission(failure, 'kms:Decrypt')} on the key; it "
            f"has to be there and enabled."
        )
    if _MISSING.search(code):
        return FileNotFoundError(f"There is no queue {url} in this account and region ({code}).")
    if _FORBIDDEN.search(code):
        return PermissionError(
            f"Not allowed to {what} {url} ({code}). Grant the identity the permission "
            f"{missing_permission(failure, _PERMISSIONS[what])} there. A stream needs "
            f"{', '.join(_PERMISSIONS.values())}."
        )
    return OSError(f"SQS refused to {what} {url} ({code}).")
