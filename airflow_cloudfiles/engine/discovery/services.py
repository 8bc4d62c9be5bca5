"""Set up notifications without breaking what others set up.

What a source needs is a short row of *parts* in each cloud: a queue comes first, what makes the
bucket send events comes last. Setting up goes through them three times:

1. Inspect every part that is there under our names. Nothing is written.
2. Refuse what could not be finished, or would take something from somebody else.
3. Make what is missing, in order. Each part is one call that is made whole or not at all.

Killed in between, it has left parts that only receive; the next call finds them and goes on. What
is there already stays as it is. Tearing down goes the other way round and removes only parts that
carry our tags for this source; it reports what it left, and why.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol, cast

from airflow_cloudfiles.engine.discovery.globs import split_pattern
from airflow_cloudfiles.engine.errors import NotificationServicesError, OptionError
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.storage import normalize_uri
from airflow_cloudfiles.engine.storage.uri import bucket_and_path
from airflow_cloudfiles.engine.storage.vendors import BY_NAME, BY_SCHEME

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

_log = logging.getLogger(__name__)

Via = Literal["sqs", "sns", "eventbridge"]
VIAS: tuple[Via, ...] = ("sqs", "sns", "eventbridge")

VENDOR = "airflow-cloudfiles"
"""Value of the tag `vendor` on everything this package makes."""

RESERVED_TAGS = frozenset(
    {"vendor", "path", "name", "via", "topic", "checkpointlocation", "streamid"}
)
"""Keys of tags that are ours, and those that Auto Loader reserves; in lower case."""

PREFIX = "cloudfiles-"
"""What the names of everything this package makes begin with."""

RETENTION_DAYS = 7
"""How long a message waits for a run; 14 on AWS, where more is possible."""

HIDDEN_SECONDS = 60
"""How long a received message stays hidden. The reader renews that while it works, so this is only
how soon another run gets the messages of one that was killed."""

MAX_RECEIVES = 50
"""After so many vain deliveries a message goes to the dead-letter queue.

A good message is delivered in vain by each run that fails after receiving it, retries included; so
many that an outage of a night loses no message."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?!-)){0,38}[a-z0-9]")

_GO_ON = " What was done before stays. Run this again to continue."

Done = Literal["found", "created", "changed", "removed", "missing", "left"]
"""What became of a part. In a plan (`dry_run`) it is what would become of it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that notifications need.

    Attributes:
        kind: What it is, such as `queue` or `bucket notification`.
        name: What it is called in the cloud.
        done: What became of it.
        note: Why it was left or changed, or what else is worth knowing.
    """

    kind: str
    name: str
    done: Done
    note: str = ""


@dataclass(frozen=True, slots=True)
class NotificationServices:
    """What a source needs for notifications, as it was made, found or removed.

    Attributes:
        source: Canonical URI of the source.
        name: The name they were set up under.
        parts: What they consist of, in the order they are made.
        options: To give to the stream, under Auto Loader's names; empty where nothing is left.
        is_plan: Whether this only reports what would be done (`dry_run`).
    """

    source: str
    name: str
    parts: tuple[Part, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    is_plan: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether every part is there, so that new files are announced."""
        return all(part.done in {"found", "created", "changed"} for part in self.parts)

    def to_json(self) -> dict[str, object]:
        """Give it as values that JSON has."""
        return {
            "source": self.source,
            "name": self.name,
            "is_plan": self.is_plan,
            "is_complete": self.is_complete,
            "parts": [asdict(part) for part in self.parts],
            "options": dict(self.options),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudScope:
    """Which part of a cloud: what the URI of a source does not name.

    Attributes:
        subscription_id: Azure: the subscription of the storage account.
        resource_group: Azure: its resource group.
        project_id: Google Cloud: the project of topic and subscription.
    """

    subscription_id: str | None = None
    resource_group: str | None = None
    project_id: str | None = None


DEFAULT_SCOPE = CloudScope()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRequest:
    """What is to be set up: the arguments of `set_up_notifications`, checked."""

    source: str
    name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    via: Via | None = None
    same_account: bool = False
    dead_letter_topic: str | None = None
    deletes: bool = False

    @property
    def full_name(self) -> str:
        """What the parts are called."""
        return PREFIX + self.name

    @property
    def bucket(self) -> str:
        """Bucket of the source; on Azure `container@account…`."""
        return bucket_and_path(self.source)[0]

    @property
    def key_prefix(self) -> str:
        """What the keys of the source begin with, up to the first pattern in its path."""
        path = bucket_and_path(split_pattern(self.source)[0])[1].rstrip("/")
        return f"{path}/" if path else ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """How a part was found: `ours` may still be incomplete; `foreign` is somebody else's."""

    state: Literal["missing", "incomplete", "ours", "foreign"]
    note: str = ""


MISSING, OURS = Inspection("missing"), Inspection("ours")


def queue_with(messages: int) -> Inspection:
    """Describe a queue of ours that has about that many messages."""
    if not messages:
        return OURS
    verb = plural(messages, "is", "are")
    return Inspection("ours", f"about {counted(messages, 'message')} {verb} waiting")


class CloudResource(Protocol):
    """One part, as a cloud knows it.

    Attributes:
        kind: What it is.
        name: What it is called in the cloud.
    """

    kind: str
    name: str

    def inspect(self) -> Inspection:
        """Find out whether it is there, and whose it is."""

    def refusal(self) -> str | None:
        """Explain why it could not be made now; `None` when nothing prevents it."""
        return None

    def make(self) -> str | None:
        """Make or complete it; may give a note."""

    def remove(self) -> str | None:
        """Remove it, which it may be already. Gives why it was left, when it was."""


class Cloud(Protocol):
    """One cloud's way of announcing files."""

    def resources(self, wanted: NotificationRequest, *, to_remove: bool) -> Sequence[CloudResource]:
        """Give the parts, in the order they are made; with `to_remove`, all that there may be."""

    def options(self, wanted: NotificationRequest) -> dict[str, str]:
        """Give the options for the stream."""

    def existing(self, source: str | None) -> Iterator[NotificationRequest]:
        """Find what was set up, for a source and what is below it, or for all."""

    def explain(self, failure: Exception) -> str | None:
        """Explain a failure of the client; `None` when it is another's."""


def set_up_notifications(  # noqa: PLR0913 - what the clouds want to know
    source: str,
    name: str,
    *,
    access: Access | None = None,
    tags: Mapping[str, str] | None = None,
    via: Via | None = None,
    same_account: bool = False,
    scope: CloudScope = DEFAULT_SCOPE,
    dead_letter_topic: str | None = None,
    deletes: bool = False,
    dry_run: bool = False,
) -> NotificationServices:
    """Make what a source needs for `cloudFiles.useNotifications`.

    Running it again changes nothing, or completes what was begun.

    Args:
        source: URI of the source, as the stream has it.
        name: A name for this stream: two to forty lower-case letters, digits and single hyphens.
        access: The identity that may set things up; without one, the environment's own chain.
        tags: Put on what is made, besides `vendor`, `path` and `name`.
        via: AWS: how events come into the queue. `sqs` (the default) straight from the bucket;
            `sns` through a topic, which several queues can share; `eventbridge` through a rule.
        same_account: AWS: refuse a bucket of another account.
        scope: Azure: subscription and resource group. Google Cloud: the project.
        dead_letter_topic: Google Cloud: topic for messages that nobody could handle.
        deletes: Whether files that are deleted are announced, too, for `cloudFiles.onDelete`.
        dry_run: Only report what would be done.

    Raises:
        OptionError: An argument is not valid.
        NotificationServicesError: It cannot be set up, or something of that name is another's.
    """
    wanted = NotificationRequest(
        source=normalize_uri(source),
        name=_checked_name(name),
        tags=_checked_tags(tags or {}),
        via=via,
        same_account=same_account,
        dead_letter_topic=dead_letter_topic,
        deletes=deletes,
    )
    cloud = _cloud_of(wanted.source, access, scope)
    with _explained(cloud, f"set up notifications for {wanted.source}"):
        resources = cloud.resources(wanted, to_remove=False)
        inspections = [resource.inspect() for resource in resources]  # 1
        for resource, inspection in zip(resources, inspections, strict=True):  # 2
            _check(resource, inspection)
    parts = []
    for resource, inspection in zip(resources, inspections, strict=True):  # 3
        with _explained(cloud, f"make the {resource.kind} {resource.name}", _GO_ON):
            parts.append(_make(resource, inspection, dry_run=dry_run))
    options = {} if dry_run else cloud.options(wanted)
    return NotificationServices(
        wanted.source, wanted.name, tuple(parts), MappingProxyType(options), dry_run
    )


def list_notifications(
    source: str | None = None, *, access: Access | None = None, scope: CloudScope = DEFAULT_SCOPE
) -> list[NotificationServices]:
    """Find what was set up, and report whether it is complete.

    Args:
        source: Only for this source and what is below it; without one, for the whole of the cloud
            that `access` is for, as far as the identity sees it (one region, one project).
        access: As for `set_up_notifications`.
        scope: As for `set_up_notifications`.

    Raises:
        OptionError: Neither argument names the cloud.
        NotificationServicesError: They cannot be listed.
    """
    uri = None if source is None else normalize_uri(source)
    cloud = _cloud_of(uri, access, scope)
    found = []
    with _explained(cloud, f"list the notifications of {uri or 'all sources'}"):
        for wanted in cloud.existing(uri):
            parts = tuple(
                _as_found(resource) for resource in cloud.resources(wanted, to_remove=False)
            )
            services = NotificationServices(wanted.source, wanted.name, parts)
            options = cloud.options(wanted) if services.is_complete else {}
            found.append(replace(services, options=MappingProxyType(options)))
    return found


def tear_down_notifications(
    source: str,
    name: str,
    *,
    access: Access | None = None,
    scope: CloudScope = DEFAULT_SCOPE,
    dry_run: bool = False,
) -> NotificationServices:
    """Remove what `set_up_notifications` made for a source under a name.

    Messages that wait in the queue go with it; a listing finds their files. Running it again does
    no harm.

    Args:
        source: URI of the source, as it was set up.
        name: The name it was set up under.
        access: As for `set_up_notifications`.
        scope: As for `set_up_notifications`.
        dry_run: Only report what would be removed.

    Raises:
        NotificationServicesError: Something could not be removed.
    """
    uri = normalize_uri(source)
    wanted = NotificationRequest(source=uri, name=_checked_name(name))
    cloud = _cloud_of(uri, access, scope)
    with _explained(cloud, f"inspect the notifications of {uri}"):
        resources = cloud.resources(wanted, to_remove=True)
        inspections = [resource.inspect() for resource in resources]
    parts = []
    for resource, inspection in reversed(list(zip(resources, inspections, strict=True))):
        with _explained(cloud, f"remove the {resource.kind} {resource.name}", _GO_ON):
            parts.append(_remove(resource, inspection, dry_run=dry_run))
    return NotificationServices(uri, wanted.name, tuple(reversed(parts)), is_plan=dry_run)


def _check(resource: CloudResource, inspection: Inspection) -> None:
    """Refuse what is somebody else's, or cannot be made."""
    if inspection.state == "foreign":
        raise NotificationServicesError(
            f"The {resource.kind} {resource.name} exists and is not of this set-up: "
            f"{inspection.note}. Nothing was changed. Choose another name."
        )
    if inspection.state != "ours" and (why := resource.refusal()):
        raise NotificationServicesError(f"{why} Nothing was changed.")


def _make(resource: CloudResource, inspection: Inspection, *, dry_run: bool) -> Part:
    """Make or complete a part, unless it is there."""
    if inspection.state == "ours":
        return Part(resource.kind, resource.name, "found", inspection.note)
    done: Done = "changed" if inspection.state == "incomplete" else "created"
    if dry_run:
        _log.info("Would have %s the %s %s", done, resource.kind, resource.name)
        return Part(resource.kind, resource.name, done, inspection.note)
    note = resource.make()
    _log.info("%s the %s %s", done.capitalize(), resource.kind, resource.name)
    return Part(resource.kind, resource.name, done, note or inspection.note)


def _remove(resource: CloudResource, inspection: Inspection, *, dry_run: bool) -> Part:
    """Remove a part that is ours."""
    if inspection.state == "missing":
        return Part(resource.kind, resource.name, "missing", inspection.note)
    if inspection.state == "foreign":
        _log.info("Left the %s %s: %s", resource.kind, resource.name, inspection.note)
        return Part(resource.kind, resource.name, "left", inspection.note)
    if dry_run:
        _log.info("Would have removed the %s %s", resource.kind, resource.name)
        return Part(resource.kind, resource.name, "removed", inspection.note)
    why_left = resource.remove()
    if why_left:
        _log.info("Left the %s %s: %s", resource.kind, resource.name, why_left)
        return Part(resource.kind, resource.name, "left", why_left)
    _log.info("Removed the %s %s", resource.kind, resource.name)
    return Part(resource.kind, resource.name, "removed", inspection.note)


def _as_found(resource: CloudResource) -> Part:
    """Report how a part is, changing nothing."""
    inspection = resource.inspect()
    done: Done = "found" if inspection.state == "ours" else "missing"
    return Part(resource.kind, resource.name, done, inspection.note)


def _cloud_of(source: str | None, access: Access | None, scope: CloudScope) -> Cloud:
    """Open the cloud that a source is in; without one, that of the access."""
    if source:
        vendor = BY_SCHEME.get(source.partition(":")[0])
    else:
        vendor = None if access is None else BY_NAME[access.vendor]
    if vendor is None or not vendor.services:
        raise OptionError(
            f"{source} is not in a cloud, so it sends no notifications. Find its files by listing."
            if source
            else "The cloud is not known. Give a source, or an access of the cloud."
        )
    leaf = vendor.load("set_up", needed_for=source or vendor.scheme)
    return cast("Cloud", getattr(leaf, vendor.services)(access, scope))


@contextmanager
def _explained(cloud: Cloud, doing: str, then: str = "") -> Iterator[None]:
    """Turn a client's failure into a sentence; `then` adds what to do."""
    try:
        yield
    except Exception as failure:
        text = cloud.explain(failure)
        if text is None:
            raise
        raise NotificationServicesError(f"Could not {doing}: {text}{then}") from failure


def _checked_name(name: str) -> str:
    """Refuse a name that one of the clouds would not take."""
    if _NAME.fullmatch(name):
        return name
    raise OptionError(
        f"{name!r} cannot name notification resources. Use two to forty lower-case letters, digits "
        "and single hyphens, such as orders-prod, which the queues of all clouds allow."
    )


def _checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Refuse tags whose keys are ours."""
    if reserved := sorted(key for key in tags if key.lower() in RESERVED_TAGS):
        raise OptionError(
            f"The tag {reserved[0]!r} is reserved: by it the set-up recognizes what it has made. "
            "Choose another key."
        )
    return dict(tags)
