"""Make a bucket announce files, beside the settings of others in the same document.

A bucket has one notification configuration. `PutBucketNotificationConfiguration` replaces it whole
and takes no condition, so a change is: read, change our own entry, write, read again. If our entry
is not there then, somebody else wrote at the same time, and it is done again. What S3 offers cannot
protect a change that another program makes between our reading and our writing, one request apart;
that program has the same difficulty with ours.

S3 refuses two entries that could both match one event. That is checked before anything is made.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from airflow_cloudfiles.engine.discovery.services import MISSING, OURS, CloudResource, Inspection
from airflow_cloudfiles.engine.errors import NotificationServicesError

_log = logging.getLogger(__name__)

CREATED = "s3:ObjectCreated:*"
MAX_ENTRIES = 100
"""Of a bucket, as S3 allows."""

_LISTS = {
    "QueueConfigurations": "QueueArn",
    "TopicConfigurations": "TopicArn",
    "LambdaFunctionConfigurations": "LambdaFunctionArn",
}
_TRIES = 5
_PROPAGATION_SECONDS = 60.0
_SPECIAL = re.compile(r"[^A-Za-z0-9/!_.'()-]")

Configuration = dict[str, Any]


class BucketNotifications:
    """The notification configuration of a bucket.

    Args:
        s3: Client of S3.
        bucket: Its name.
        owner: Account that it must belong to; `None` for any.
    """

    def __init__(self, s3: Any, bucket: str, owner: str | None) -> None:
        self._s3 = s3
        self._bucket = {"Bucket": bucket, **({"ExpectedBucketOwner": owner} if owner else {})}

    def read(self) -> Configuration:
        """Read it whole; empty for a bucket that is gone."""
        try:
            found = self._s3.get_bucket_notification_configuration(**self._bucket)
        except self._s3.exceptions.ClientError as failure:
            if failure.response["Error"]["Code"] == "NoSuchBucket":
                return {}
            raise
        return {key: value for key, value in found.items() if key != "ResponseMetadata"}

    def change(self, edit: Callable[[Configuration], None]) -> None:
        """Change it, keeping all that `edit` leaves alone, until the change is seen in it."""
        for attempt in range(_TRIES):
            wanted = self.read()
            before = deepcopy(wanted)
            edit(wanted)
            if wanted == before:
                return
            self._write(wanted)
            seen = self.read()
            again = deepcopy(seen)
            edit(again)
            if again == seen:
                return
            _log.warning(
                "Another program changed the notifications of the bucket %s at the same time "
                "(attempt %d of %d)",
                self._bucket["Bucket"],
                attempt + 1,
                _TRIES,
            )
        raise NotificationServicesError(
            f"Another program keeps changing the notifications of the bucket "
            f"{self._bucket['Bucket']}. Find out which one, and run this again."
        )

    def _write(self, configuration: Configuration) -> None:
        """Write it; a policy that was just made may take a minute to be seen by S3."""
        deadline = time.monotonic() + _PROPAGATION_SECONDS
        pause = 1.0
        while True:
            try:
                self._s3.put_bucket_notification_configuration(
                    **self._bucket, NotificationConfiguration=configuration
                )
            except self._s3.exceptions.ClientError as failure:
                is_late = "validate the following destination" in str(failure)
                if not is_late or time.monotonic() + pause > deadline:
                    raise
            else:
                return
            time.sleep(pause)
            pause *= 2


class BucketEntry(CloudResource):
    """Our entry in the configuration: created files below a prefix go to a queue or topic.

    Args:
        notifications: Of the bucket.
        entry_id: Its Id, by which it is recognized.
        arn: Where the events go.
        prefix: What the keys begin with.
        other_user: Asked before it is removed: who else gets the events.
    """

    kind = "bucket notification"

    def __init__(
        self,
        notifications: BucketNotifications,
        entry_id: str,
        arn: str,
        prefix: str,
        other_user: Callable[[], str | None] | None = None,
    ) -> None:
        self._other_user = other_user
        self.name = entry_id
        self._notifications = notifications
        self._list = "QueueConfigurations" if ":sqs:" in arn else "TopicConfigurations"
        self._entry: Configuration = {"Id": entry_id, _LISTS[self._list]: arn, "Events": [CREATED]}
        if filtered := filter_prefix(prefix):
            rules = [{"Name": "prefix", "Value": filtered}]
            self._entry["Filter"] = {"Key": {"FilterRules": rules}}
        self._prefix = filtered

    def inspect(self) -> Inspection:
        """Inspection for our entry."""
        for key, entry in entries(self._notifications.read()):
            if entry.get("Id") == self.name:
                if not entry[_LISTS[key]].endswith(f":{self.name}"):
                    return Inspection("foreign", f"it announces files to {entry[_LISTS[key]]}")
                if (found := filters(entry)) != (self._prefix, ""):
                    return Inspection("foreign", f"it announces files below {found[0]!r}")
                if self._other_user and (user := self._other_user()):
                    return Inspection("foreign", f"{user} gets its events too")
                same = key == self._list and _normal(entry) == _normal(self._entry)
                if same:
                    return OURS
                return Inspection("incomplete", "it announced files to another destination")
        return MISSING

    def refusal(self) -> str | None:
        """Explain which entry of others excludes ours."""
        others = [
            (key, entry)
            for key, entry in entries(self._notifications.read())
            if entry.get("Id") != self.name
        ]
        if len(others) >= MAX_ENTRIES:
            return f"The bucket has {MAX_ENTRIES} notifications already, the most that S3 allows."
        for key, entry in others:
            prefix, suffix = filters(entry)
            if _creates(entry) and (
                prefix.startswith(self._prefix) or self._prefix.startswith(prefix)
            ):
                ends = f" and end with {suffix!r}" if suffix else ""
                return (
                    f"The bucket announces created files that begin with {prefix!r}{ends} to "
                    f"{entry[_LISTS[key]]} already (entry {entry.get('Id')!r}), and S3 allows one "
                    "destination for an event. That entry is not of this set-up and stays. Use "
                    "via='eventbridge', which works beside it, or have it announce to an SNS topic "
                    "and use via='sns', which adds a queue to that topic."
                )
        return None

    def make(self) -> None:
        """Add our entry, beside those of others."""
        self._notifications.change(lambda found: self._put(found, self._entry))

    def remove(self) -> None:
        """Take our entry out, and nothing else."""
        self._notifications.change(lambda found: self._put(found, None))

    def _put(self, found: Configuration, ours: Configuration | None) -> None:
        for key in _LISTS:
            kept = [entry for entry in found.get(key, []) if entry.get("Id") != self.name]
            old = [entry for entry in found.get(key, []) if entry.get("Id") == self.name]
            if ours is not None and key == self._list:
                same = old[:1] if old and _normal(old[0]) == _normal(ours) else [ours]
                if len(old) == 1 and same == old:
                    continue
                kept += same
            if kept:
                found[key] = kept
            else:
                found.pop(key, None)


class EventBridgeSwitch(CloudResource):
    """That a bucket sends its events to EventBridge. It is one setting for all rules.

    Args:
        notifications: Of the bucket.
        bucket: Its name.
        to_remove: Whether this is to tear down: then it belongs to nobody.
    """

    kind = "EventBridge setting of the bucket"

    def __init__(self, notifications: BucketNotifications, bucket: str, *, to_remove: bool) -> None:
        self.name = bucket
        self._notifications = notifications
        self._to_remove = to_remove

    def inspect(self) -> Inspection:
        """Find out whether it is on."""
        if "EventBridgeConfiguration" not in self._notifications.read():
            return MISSING
        return Inspection("foreign", "other rules may use it too") if self._to_remove else OURS

    def make(self) -> None:
        """Switch it on."""
        self._notifications.change(lambda found: found.update(EventBridgeConfiguration={}))

    def remove(self) -> str:
        """Leave it on."""
        return "other rules may use it too"


def shared_topic(configuration: Configuration, prefix: str) -> str | None:
    """Find a topic of somebody else's that gets all created files below a prefix."""
    for entry in configuration.get("TopicConfigurations", []):
        begins, ends = filters(entry)
        if CREATED in entry["Events"] and not ends and prefix.startswith(begins):
            return str(entry["TopicArn"])
    return None


def entries(configuration: Configuration) -> Iterator[tuple[str, Configuration]]:
    """Give the entries with the name of the list that each is in."""
    for key in _LISTS:
        for entry in configuration.get(key, []):
            yield key, entry


def filters(entry: Configuration) -> tuple[str, str]:
    """Give prefix and suffix of an entry; empty where it has none."""
    rules = entry.get("Filter", {}).get("Key", {}).get("FilterRules", [])
    by_name = {rule["Name"].lower(): rule.get("Value", "") for rule in rules}
    return by_name.get("prefix", ""), by_name.get("suffix", "")


def filter_prefix(prefix: str) -> str:
    """Give as much of a prefix as can stand in a filter unambiguously.

    S3 wants special characters of a filter encoded, and not every compatible server
    does. A shorter prefix lets more events through, which the reader leaves out.
    """
    special = _SPECIAL.search(prefix)
    return prefix[: special.start()] if special else prefix


def _creates(entry: Configuration) -> bool:
    return any(event.startswith("s3:ObjectCreated:") for event in entry["Events"])


def _normal(entry: Configuration) -> tuple[object, ...]:
    """Normalize an entry; S3 writes the names of filter rules with a capital letter."""
    arn = next(entry[key] for key in _LISTS.values() if key in entry)
    return arn, sorted(entry["Events"]), *filters(entry)
