"""What does a listing remember of those before it?

One small JSON file in the state, `_source/listing.json`. It is a hint, written without conditions:
lost, stale or written by two processes at once, it may cost a full listing that was not needed, and
nothing else. So it holds no edges and no paths that a file's fate depends on, but for the marks of
a full listing that was interrupted: those are written after what lies before them was recorded, and
believed only while a file that was known at that time (`witness`) still is.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from airflow_cloudfiles.engine.discovery.listing.edges import KeyRange
from airflow_cloudfiles.engine.discovery.listing.growth import TrackRecord
from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.clock import SKEW_SECONDS
from airflow_cloudfiles.engine.storage.fetched_ahead import FetchedAhead
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.sealed import seal, unseal

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import KnownKeys
    from airflow_cloudfiles.engine.storage import ObjectStore

_log = logging.getLogger(__name__)

KEY = "_source/listing.json"
_IN_DOUBT = "in doubt "
_VERSION = 2

Order = Literal["", "seen", "none"]
"""Whether the store lists keys in order, as far as that had to be seen."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A full listing that has not come to its end.

    Attributes:
        saved: When this was written, in seconds since 1970.
        found_by: What its files are recorded as.
        filter: Which files were input (`FileFilter.fingerprint`).
        witness: A path that was known then.
        ranges: What is still to be listed.
    """

    saved: float
    found_by: str
    filter: str
    witness: str
    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class ListingState:
    """What is remembered; times are seconds since 1970, 0 for never.

    Attributes:
        full_started: When the last full listing that came to its end began.
        full_listed: How many keys it listed.
        incremental: How many incremental listings came after it.
        evidence: What full listings have shown about each hypothesis of where the source grows
            (`growth.HYPOTHESES`).
        order: Whether the store was seen to list keys in order.
        notified: When files were last found by notifications.
        queue: Which queue these arrived in. Another one received nothing of what came before it.
        filter: Which files were input (`FileFilter.fingerprint`).
        witness: A path that was known then.
        unfinished: A full listing that was interrupted.
    """

    full_started: float = 0.0
    full_listed: int = 0
    incremental: int = 0
    evidence: Mapping[str, TrackRecord] = field(default_factory=dict)
    order: Order = ""
    notified: float = 0.0
    queue: str = ""
    filter: str = ""
    witness: str = ""
    unfinished: Unfinished | None = None

    @property
    def lexical(self) -> bool | None:
        """Whether an incremental listing may be made; `None`: nothing has been seen yet."""
        if not self.evidence:
            return None
        return any(each.is_enough for each in self.evidence.values())

    @property
    def has_notifications(self) -> bool:
        """Whether files were found by notifications since the last full listing began."""
        return self.notified > 0 and self.notified >= self.full_started

    @property
    def is_in_doubt(self) -> bool:
        """Whether a listing has begun that may leave gaps, and has not come to its end."""
        return self.filter.startswith(_IN_DOUBT)

    def is_older(self, seconds: float, now: float) -> bool:
        """Whether the last full listing began so long ago.

        Also if it seems not to have begun yet: then the clock was ahead, and nobody knows when that
        was. A little ahead is the clock of another machine.

        Args:
            seconds: How long.
            now: Seconds since 1970.
        """
        return not -SKEW_SECONDS <= now - self.full_started < seconds

    def in_doubt(self) -> ListingState:
        """The same, but no listing is incremental until one has come to its end.

        Edges rest on files being recorded in their order. Several readers record what comes last
        before what comes first, and a listing of a part leaves out the rest. Killed then, they
        leave files unseen before those that are known, where no edge is.
        """
        return replace(self, filter=_IN_DOUBT + uuid.uuid4().hex)

    def is_of(self, known: KnownKeys, fingerprint: str) -> bool:
        """Whether the last full listing was of this file log, and of these files."""
        return self.filter == fingerprint and is_known(known, self.witness)


def is_known(known: KnownKeys, path: str) -> bool:
    """Whether a path is in the file log; no path at all is in any."""
    return not path or known.last(path, before=path + "\0") == path


def load_state(state: ObjectStore) -> ListingState:
    """Read what is remembered; nothing, when there is no file or it cannot be understood."""
    try:
        with reaching_state(state):
            content = state.get(KEY)
    except ObjectNotFoundError:
        return ListingState()
    try:
        return _decode(unseal(content))
    except (ValueError, TypeError, KeyError, AttributeError) as failure:
        name = printable_path(state.child_uri(KEY))
        _log.warning("%s cannot be read (%s). The source is listed in full.", name, failure)
        return ListingState()


def save_state(
    state: ObjectStore, remembered: ListingState, *, over: ListingState | None = None
) -> None:
    """Write what is to be remembered. Failing to is no reason to fail: it is a hint.

    Args:
        state: The checkpoint location.
        remembered: What is to be remembered.
        over: What was; where another full listing was remembered since, that stays.
    """
    try:
        if isinstance(state, FetchedAhead) and state.put_if_unchanged(KEY, _encode(remembered)):
            return  # nobody has written it since this listing began
        stored = load_state(state)
        if over and (stored.filter, stored.full_started) != (over.filter, over.full_started):
            return
        notified = max(remembered.notified, stored.notified)
        state.put(KEY, _encode(replace(remembered, notified=notified)))
    except (OSError, StateError) as failure:
        name = printable_path(state.child_uri(KEY))
        _log.warning(
            "%s could not be written, so the next listing may take longer: %s", name, failure
        )


def after_empty_listing(
    remembered: ListingState, *, is_full: bool, now: float, fingerprint: str, witness: str
) -> ListingState:
    """What to remember after a listing that found nothing new.

    Args:
        remembered: What was remembered before it.
        is_full: Whether it listed everything.
        now: When it began, in seconds since 1970.
        fingerprint: Of the filter.
        witness: A path that is known.
    """
    if not is_full:
        return replace(remembered, incremental=remembered.incremental + 1)
    return replace(
        remembered,
        full_started=now,
        incremental=0,
        filter=fingerprint,
        witness=witness,
        unfinished=None,
    )


def expect_notifications(state: ObjectStore) -> dict[str, str]:
    """Note that files are about to be found by notifications; for `remember_notifications`.

    Should it not come to that, because the process is killed, the next listing is a full one, and
    the source is listed before notifications are read again.

    Returns:
        What stands for which filter until then.
    """
    remembered = load_state(state)
    if remembered.has_notifications or not remembered.full_started:
        return {}
    doubt = remembered.in_doubt()
    save_state(state, doubt)
    return {doubt.filter: remembered.filter}


def remember_notifications(
    state: ObjectStore, now: float, queue: str = "", expected: Mapping[str, str] | None = None
) -> None:
    """Note that files are found by notifications: the next listing is a full one (B100).

    One write until that listing; costs one read otherwise.

    Args:
        state: The checkpoint location.
        now: Seconds since 1970.
        queue: What the options call the queue.
        expected: From `expect_notifications`.
    """
    remembered = load_state(state)
    resolved = (expected or {}).get(remembered.filter)
    if resolved is not None:
        remembered = replace(remembered, filter=resolved)
    if resolved is not None or not remembered.has_notifications or remembered.queue != queue:
        save_state(state, replace(remembered, notified=now, queue=queue))


def _encode(remembered: ListingState) -> bytes:
    """Write what `_decode` reads."""
    return seal({"version": _VERSION, **asdict(remembered)})


def _decode(value: Any) -> ListingState:
    """Read what `_encode` wrote."""
    fields = dict(value)
    if fields.pop("version") != _VERSION:
        msg = "it is of another version"
        raise ValueError(msg)
    unfinished = fields.pop("unfinished")
    if unfinished is not None:
        ranges = tuple(
            KeyRange(str(each["after"]), str(each["end"])) for each in unfinished["ranges"]
        )
        unfinished = Unfinished(
            saved=float(unfinished["saved"]),
            found_by=str(unfinished["found_by"]),
            filter=str(unfinished["filter"]),
            witness=str(unfinished["witness"]),
            ranges=ranges,
        )
    evidence = {
        str(name): TrackRecord(int(each["covered"]), bool(each["missed"]))
        for name, each in fields.pop("evidence").items()
    }
    for name, default in asdict(ListingState()).items():
        if name not in {"unfinished", "evidence"}:
            fields[name] = type(default)(fields[name])
    return ListingState(**fields, evidence=evidence, unfinished=unfinished)
