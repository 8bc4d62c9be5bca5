"""Describe what finding files came to."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from airflow_cloudfiles.engine.discovery.queues.notifications import NotificationReport
from airflow_cloudfiles.engine.files import Offset, printable_path
from airflow_cloudfiles.engine.messages import counted, sentence

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.listing.run import ListingReport
    from airflow_cloudfiles.engine.discovery.settling import WaitingReport
    from airflow_cloudfiles.engine.intake.recorder import LedgerRecorder

MOST_PREVIEWED: Final = 1000
"""Files of a kind that a preview names."""
_log = logging.getLogger(__name__)


class PartOfReport(Protocol):
    """What one way of finding files has done."""

    def to_json(self) -> dict[str, Any]:
        """Encode it for reports and XCom."""


class ReadReport(PartOfReport, Protocol):
    """What reading an inventory report came to."""

    @property
    def listed(self) -> int:
        """How many files below the source it names, also unwanted ones."""

    @property
    def listing(self) -> ListingReport | None:
        """The incremental listing that completed it."""

    @property
    def is_complete(self) -> bool:
        """Whether all files that were there are recorded."""

    @property
    def needs_listing(self) -> bool:
        """Whether the source is to be listed as it would be without a report."""

    @property
    def settled_us(self) -> int:
        """Files that came before this time, in microseconds since 1970, are in the report."""


@dataclass(frozen=True, slots=True)
class DiscoveryResult:
    """What one discovery recorded.

    Attributes:
        listed: How many files were listed.
        files: How many files were new, and are to be ingested.
        bytes: The size of the new ones.
        first_entry: First entry of the file log that holds new files; `None` for none.
        last_entry: Last of these entries (inclusive).
        sample: The first new paths, at most five.
        existing: How many files were there before the first start and are never ingested
            (`cloudFiles.includeExistingFiles=false`).
        duplicates: How many have the content of another file and are never ingested
            (`cloudFiles.fileIdentity=content`).
        replaced: How many of the new files replace the rows of a former version
            (`cloudFiles.onOverwrite=replace`).
        deleted: How many files are gone, so that their rows are removed
            (`cloudFiles.onDelete=delete`).
        archived: How many are archived and were recorded as skipped (`cloudFiles.onArchivedFile`).
        by: How many of the new files each way found: `listing`, `notification`, `backfill`.
        listing: What the listing did; `None` when there was none.
        notifications: What the queue gave; `None` without notifications.
        file_events: What the event log gave; `None` without one.
        inventory: What reading an inventory report came to; `None` when none was read.
        waiting: The files that were found and are not whole yet; `None` where none has to wait.
        changed: The files that have changed since they were ingested and that this discovery
            reports, the first hundred: `path`, `change`, and the command to `replay` it.
        changed_files: How many these are.
    """

    listed: int
    files: int
    bytes: int
    first_entry: int | None
    last_entry: int | None
    sample: tuple[str, ...]
    existing: int = 0
    duplicates: int = 0
    replaced: int = 0
    deleted: int = 0
    archived: int = 0
    by: dict[str, int] = field(default_factory=dict)
    listing: ListingReport | None = None
    notifications: NotificationReport | None = None
    file_events: PartOfReport | None = None
    inventory: ReadReport | None = None
    waiting: WaitingReport | None = None
    changed: tuple[dict[str, Any], ...] = ()
    changed_files: int = 0

    @classmethod
    def of(
        cls,
        recorder: LedgerRecorder,
        listing: ListingReport | None,
        announced: PartOfReport | None,
        inventory: ReadReport | None = None,
    ) -> DiscoveryResult:
        """Put the parts of a result together."""
        recorded, changes = recorder.recorded, recorder.changes
        return cls(
            listed=(listing.listed if listing else 0) + (inventory.listed if inventory else 0),
            files=recorded.files,
            bytes=recorded.bytes,
            first_entry=recorded.first_entry,
            last_entry=recorded.last_entry,
            sample=tuple(recorded.sample),
            existing=recorded.existing,
            duplicates=recorded.duplicates,
            replaced=recorded.replaced,
            deleted=recorded.deleted,
            archived=recorded.archived,
            by=dict(recorded.by),
            listing=listing,
            notifications=announced if isinstance(announced, NotificationReport) else None,
            file_events=None if isinstance(announced, NotificationReport) else announced,
            inventory=inventory,
            waiting=recorder.waiting,
            changed=tuple(changes.to_json()) if changes else (),
            changed_files=len(changes.reported) if changes else 0,
        )

    def to_json(self) -> dict[str, Any]:
        """Encode it for reports."""
        return {
            "listed": self.listed,
            "new_files": self.files,
            "new_bytes": self.bytes,
            "existing_files": self.existing,
            "duplicate_files": self.duplicates,
            **({"replaced_files": self.replaced} if self.replaced else {}),
            **({"deleted_files": self.deleted} if self.deleted else {}),
            "archived_files": self.archived,
            "found_by": self.by,
            "sample": list(self.sample),
            "listing": self.listing.to_json() if self.listing else None,
            "notifications": self.notifications.to_json() if self.notifications else None,
            **({"file_events": self.file_events.to_json()} if self.file_events else {}),
            **({"inventory": self.inventory.to_json()} if self.inventory else {}),
            "waiting_files": self.waiting.files if self.waiting else 0,
            "waiting": self.waiting.to_json() if self.waiting else None,
            "changed_files": self.changed_files,
            "changed": list(self.changed),
        }

    def log(self, source: str) -> None:
        """Log what was found.

        Args:
            source: URI of the source.
        """
        _log.info(
            "%s: %s listed, %d new, %s",
            printable_path(source),
            counted(self.listed, "file"),
            self.files,
            counted(self.bytes, "byte"),
        )
        if self.replaced or self.deleted:
            _log.info(
                "%s replaced, %s deleted since",
                counted(self.replaced, "known file"),
                counted(self.deleted, "file"),
            )
        if self.archived:
            text = sentence(self.archived, "{file} {is} archived, and recorded as skipped")
            _log.warning("%s (cloudFiles.onArchivedFile=skip)", text)
        if self.waiting is not None and self.waiting.files:
            _log.info("%s", self.waiting)


@dataclass(slots=True)
class DiscoveryPreview:
    """What a discovery would record.

    Attributes:
        counts: How many files are `new`, how many are `replaced` and how many `deleted`.
        paths: The first of each, `MOST_PREVIEWED` at most.
    """

    counts: Counter[str] = field(default_factory=Counter)
    paths: dict[str, list[str]] = field(default_factory=dict)

    def add(self, what: str, path: str) -> None:
        """Count a file."""
        self.counts[what] += 1
        if self.counts[what] <= MOST_PREVIEWED:
            self.paths.setdefault(what, []).append(printable_path(path))

    def to_json(self) -> dict[str, Any]:
        """Encode it for the command line."""
        return {
            what: {"files": self.counts[what], "paths": self.paths.get(what, [])}
            for what in ("new", "replaced", "deleted")
        }


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is recorded and not yet committed.

    Attributes:
        files: How many files.
        bytes: Their size.
        first_entry: Entry of the file log with the first of them; `None` for none.
        last_entry: Entry with the last of them (inclusive).
        sample: The first paths, at most five.
    """

    files: int
    bytes: int
    first_entry: int | None
    last_entry: int | None
    sample: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnnouncedFiles:
    """What is announced and not recorded.

    Attributes:
        unrecorded: Whether a file is known to be new.
        messages: About how many messages wait in the queue.
        newest_us: As for `Arrivals`.
    """

    unrecorded: bool = False
    messages: int = 0
    newest_us: int = 0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What there is to ingest, as far as a trigger event needs it; false when there is nothing.

    Attributes:
        head: Position behind everything that is recorded.
        recorded: Whether something is recorded and not committed.
        unrecorded: Whether a listing, or the event log, has a file that is not recorded.
        messages: About how many messages wait in the queue.
        newest_us: Where nobody counts them: when the newest one that was inspected was sent, in
            microseconds since 1970.
        waiting: The files that were found and are not whole yet, as far as was looked; `None`
            where none has to wait.
    """

    head: Offset
    recorded: bool = False
    unrecorded: bool = False
    messages: int = 0
    newest_us: int = 0
    waiting: WaitingReport | None = None

    def __bool__(self) -> bool:
        return self.recorded or self.unrecorded or self.messages > 0
