"""Declare which files a source wants, how they are found, and what becomes of them and the state.

The part of the options that discovery obeys, as one frozen value; it holds no credentials.

The part of the options that cleaning obeys, as one frozen value; it holds no credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import FileIdentity
from airflow_cloudfiles.engine.options.declared import OptionGroup, option, options_of
from airflow_cloudfiles.engine.options.values import (
    ValueKind,
    at_least_zero,
    boolean,
    choice,
    interval,
    names,
    parse_interval,
    place,
    positive,
    rewrites,
    share,
    text,
    time,
)

IncrementalListing = Literal["auto", "true", "false"]
NoticeChanges = Literal["auto", "true", "false"]
OnOverwrite = Literal["ignore", "append", "replace"]
OnDelete = Literal["ignore", "delete"]
OnArchivedFile = Literal["fail", "wait", "skip"]
IN_PROGRESS_NAMES: Final = (
    "*.part",
    "*.partial",
    "*.filepart",
    "*.tmp",
    "*.temp",
    "*.crdownload",
    "*.inprogress",
    "*.swp",
    "~*",
    "*~",
)
"""Names under which programs write a file before they rename it: browsers, WinSCP, Flink, editors,
Office. Names that begin with a dot (rsync) are hidden anyway."""

MARKED_NAME: Final = "{name}"
"""What stands for the name of the file in `cloudFiles.completionMarker`."""
_SECONDS_A_DAY: Final = 86400
_MIN_DAYS: Final = 14
_RECOMMENDED_DAYS: Final = 90
_OF_QUEUES: Final = (
    "queue_url",
    "queue_name",
    "subscription",
    "path_rewrites",
    "notifications_since_us",
)
"""Options without a meaning where no queue is read."""
_NOT_WITH_FILE_EVENTS: Final = (
    "use_notifications",
    "use_incremental_listing",
    "fetch_parallelism",
    "backfill_interval_seconds",
    "path_rewrites",
    "queue_url",
    "region",
    "queue_name",
    "subscription",
    "project_id",
)
"""Options that a stream which reads an event log cannot have."""
_OF_INVENTORIES: Final = ("inventory_max_age_seconds", "notifications_since_us")
"""Options without a meaning where no inventory report is read."""


def _marker(name: str, text: str) -> str:
    """Refuse what cannot be the name of a marker."""
    fixed = text.replace(MARKED_NAME, "", 1)
    if not fixed or "/" in fixed or "{" in fixed or "}" in fixed:
        raise OptionError(
            f"{name} must be a file name such as {MARKED_NAME}.done, for a marker beside each "
            f"file, or _SUCCESS, for one in a folder; got {text!r}."
        )
    return text


def _file_age(name: str, text: str) -> float:
    """Refuse an age below the minimum (B108)."""
    seconds = interval.read(name, text)
    if seconds < _MIN_DAYS * _SECONDS_A_DAY:
        raise OptionError(
            f"{name} must be at least {_MIN_DAYS} days, {_RECOMMENDED_DAYS} days are recommended: "
            "files that arrive with an older modification time are never ingested."
        )
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryOptions(OptionGroup):
    """What discovery is asked to do; the defaults are those of the options."""

    use_incremental_listing: IncrementalListing = option(
        "cloudFiles.useIncrementalListing", choice(get_args(IncrementalListing)), default="auto"
    )
    """`auto` lists only where full listings have shown that new files come, with a full listing
    after seven such ones; `true` always lists from the end of each folder that grows, and is
    refused where a store does not list in order; `false` never."""
    backfill_interval_seconds: float | None = option(
        "cloudFiles.backfillInterval", interval, default=None
    )
    """A full listing when the last one is longer ago than this (`1 day`, `6 hours`). Finds what
    incremental listings and lost notifications have missed."""
    include_existing_files: bool = option("cloudFiles.includeExistingFiles", boolean, default=True)
    """Whether files that are there before the very first start are ingested. Has an effect on that
    start only (B88)."""
    allow_overwrites: bool = option("cloudFiles.allowOverwrites", boolean, default=False)
    """Whether a file is ingested again when it was overwritten (its modification time, size or etag
    is another one). The whole file is (B104). The same as `cloudFiles.fileIdentity` with the value
    `pathAndModificationTime`."""
    file_identity: FileIdentity | None = option(
        "cloudFiles.fileIdentity",
        choice(get_args(FileIdentity)),
        default=None,
        shown="`path`; `pathAndModificationTime` with `allowOverwrites`",
    )
    """By what a file is known, and so which files are new. `path`: an overwritten file is not.
    `pathAndModificationTime`: it is, when its time, size or etag is another one.
    `pathAndVersion`: it is, when its size or etag is another one (on a local disk, which has no
    etags, size or time). `content`: a file is new when no file with the same bytes was recorded,
    whatever its name; each new file is read once more, when it is discovered. Only `content` is
    bound to the state at its first start. Ours, not Auto Loader's."""
    on_overwrite: OnOverwrite | None = option(
        "cloudFiles.onOverwrite",
        choice(get_args(OnOverwrite)),
        default=None,
        shown="`ignore`; `append` with `allowOverwrites`",
    )
    """What becomes of a file that was overwritten after it was ingested. `ignore`: nothing.
    `append`: it is ingested again, beside its former rows; the same as `allowOverwrites`.
    `replace`: it is ingested again, and the commit that brings its rows removes the former ones.
    [Follow the files](../how-to/follow-the-files.md) has the rules. Ours, not Auto Loader's."""
    on_delete: OnDelete = option(
        "cloudFiles.onDelete", choice(get_args(OnDelete)), default="ignore"
    )
    """What becomes of the rows of a file that was deleted. `ignore`: they stay. `delete`: they are
    removed when a full listing, or a notification, shows that the file is gone. Listings are full
    then. Ours, not Auto Loader's."""
    max_deleted_share: float = option("cloudFiles.maxDeletedShare", share, default=0.5)
    """With `cloudFiles.onDelete=delete`: if more than this share of the known files is gone at
    once, as where a disk is not mounted, the run stops with `MassDeletionError` and removes
    nothing. 1 allows all. Ours, not Auto Loader's."""
    path_column: tuple[str, ...] = ()
    """The column of the table that has the URI of each row's file, as a path of names; empty where
    `cloudFiles.metadataColumns` asks for none."""
    max_file_age_seconds: float | None = option(
        "cloudFiles.maxFileAge", ValueKind(interval.label, _file_age), default=None
    )
    """Files modified longer ago than this are left out, and counted; a day later the index forgets
    them. At least 14 days (B108); 90 are recommended. A file that is written again after that,
    under its old name, counts as new."""
    min_file_age_seconds: float | None = option("cloudFiles.minFileAge", interval, default=None)
    """A file is taken when it has not changed for so long (`30 seconds`), by the clock of its
    store. A younger one waits, however it was found, and is counted in `waiting_files`; batch reads
    and inferences leave it out and name it. Default is not to wait. Ours, not Auto Loader's."""
    completion_marker: str | None = option(
        "cloudFiles.completionMarker",
        ValueKind("file name", _marker, ignores_empty=True),
        default=None,
    )
    """A file is taken when its marker is there. `{name}.done`: the marker of `a.json` is
    `a.json.done`, beside it. A name without `{name}`, such as `_SUCCESS`: the marker is in the
    folder of the file, or in one above it, up to the source. Markers are never ingested. Listings
    are full then. Batch reads and inferences leave a file without its marker out and name it. Ours,
    not Auto Loader's."""
    on_archived_file: OnArchivedFile = option(
        "cloudFiles.onArchivedFile", choice(get_args(OnArchivedFile)), default="fail"
    )
    """What becomes of an object in a storage class from which it has to be restored before it can
    be read: GLACIER and DEEP_ARCHIVE of S3, Azure's tier Archive. `fail`: it is ingested, which
    fails with its name. `wait`: it is taken when it was restored, and counted in `waiting_files`
    until then. `skip`: it is recorded as skipped, and counted in `archived_files`; `cloudfiles file
    release` takes it after all. Batch reads and inferences leave it out with `wait` and `skip`.
    Ours, not Auto Loader's."""
    in_progress_names: tuple[str, ...] | None = option(
        "cloudFiles.inProgressNames",
        names,
        default=None,
        shown="`" + ",".join(IN_PROGRESS_NAMES) + "`",
    )
    """Patterns for names of files that are still being written, in any case; such a file is left
    out until it is renamed, also in object stores, where servers for SFTP write them. Separated by
    commas; an empty text for none. Ours, not Auto Loader's."""
    notice_changes: NoticeChanges = option(
        "cloudFiles.noticeChanges", choice(get_args(NoticeChanges)), default="auto"
    )
    """Whether a file whose size, modification time or etag has changed since it was ingested is
    reported, once, when it is listed or announced again. `auto`: where that costs nothing, which
    is everywhere but in full listings of files that notifications have announced. `true`: there,
    too, which reads the file log of these files. No effect with another `cloudFiles.fileIdentity`
    than `path`: there, such a file is a new one. Ours, not Auto Loader's."""
    modified_after_us: int | None = option("modifiedAfter", time, default=None)
    """Only files modified after this time, exclusive (B92). ISO 8601, UTC where no zone is
    given."""
    modified_before_us: int | None = option("modifiedBefore", time, default=None)
    """Only files modified before this time, exclusive (B92)."""
    path_glob_filter: str | None = option(
        "pathGlobFilter", text, default=None, also=("fileNamePattern",)
    )
    """A pattern for the name of the file, without its folders (B89)."""
    archive_path_filter: str | None = option("archivePathFilter", text, default=None)
    """A pattern for the files inside archives (`.zip`, `.tar`, `.tar.gz` and others), by their
    whole path there, such as `2026/*.json`; `*` crosses folders. Others of the archive are not
    read. As in Spark 4.3."""
    use_strict_globber: bool = option("cloudFiles.useStrictGlobber", boolean, default=False)
    """Whether `*` in the source path stays within one folder name, as in Spark (B90)."""
    use_notifications: bool = option("cloudFiles.useNotifications", boolean, default=False)
    """Whether new files are learnt from a queue of notifications instead of by listing."""
    list_on_start: bool = option("cloudFiles.listOnStart", boolean, default=False)
    """A full listing at the start of this run, besides the queue or the event log."""
    fetch_parallelism: int = option("cloudFiles.fetchParallelism", positive, default=1)
    """How many threads read the queue."""
    path_rewrites: tuple[tuple[str, str], ...] = option(
        "cloudFiles.pathRewrites", rewrites, default=()
    )
    """A JSON object from prefixes of paths in notifications to what they are replaced with (B98);
    for buckets whose events name another location."""
    use_managed_file_events: bool = option(
        "cloudFiles.useManagedFileEvents", boolean, default=False
    )
    """Whether new files are learnt from the event log of the bucket, which one queue fills for all
    streams. In Auto Loader a service of Databricks keeps that log; here it is at
    `cloudFiles.fileEventsLocation`, and whichever stream comes first drains the queue for all."""
    file_events_location: str | None = option("cloudFiles.fileEventsLocation", place, default=None)
    """Path or URI of the event log that `cloudFiles.useManagedFileEvents` reads. Ours, not Auto
    Loader's."""
    queue_url: str | None = option("cloudFiles.queueUrl", place, default=None)
    """The SQS queue that notifications arrive in."""
    region: str | None = option("cloudFiles.region", place, default=None)
    """The AWS region of the queue."""
    queue_name: str | None = option("cloudFiles.queueName", place, default=None)
    """The Azure Storage queue that notifications arrive in."""
    subscription: str | None = option("cloudFiles.subscription", place, default=None)
    """The Pub/Sub subscription that notifications arrive in; its name, or
    `projects/<project>/subscriptions/<name>`."""
    project_id: str | None = option(
        "cloudFiles.projectId", place, default=None, also=("cloudFiles.project",)
    )
    """The Google Cloud project of the subscription."""
    inventory: str | None = option("cloudFiles.inventory", place, default=None)
    """Where inventory reports of the source lie (S3 Inventory, Azure Blob Inventory, Cloud Storage
    inventory reports): a folder, of which the newest report is taken, or one `manifest.json`. The
    first full listing and those of `backfillInterval` read it instead of listing. What it lacks is
    found by the queue (`notificationsSince`), an event log that is a day older, an incremental
    listing (`useIncrementalListing=true`), or else by one full listing, which the next run makes.
    Ours, not Auto Loader's."""
    inventory_max_age_seconds: float = option(
        "cloudFiles.inventoryMaxAge", interval, default=14.0 * _SECONDS_A_DAY, shown="`14 days`"
    )
    """A report that was begun longer ago is refused. Ours, not Auto Loader's."""
    notifications_since_us: int | None = option("cloudFiles.notificationsSince", time, default=None)
    """Since when the queue receives a notification of every new file of the source. A report that
    was begun a day or more after this time needs no listing to be complete, if the queue has kept
    its messages since. Where it is not given, one full listing follows the report. Ours, not Auto
    Loader's."""

    @property
    def is_announced(self) -> bool:
        """Whether something announces new files: a queue, or an event log."""
        return self.use_notifications or self.use_managed_file_events

    @property
    def identity(self) -> FileIdentity:
        """By what a file is known, whichever option says so."""
        if self.file_identity is not None:
            return self.file_identity
        overwritten = self.allow_overwrites or self.on_overwrite in {"append", "replace"}
        return "pathAndModificationTime" if overwritten else "path"

    @property
    def sees_overwrites(self) -> bool:
        """Whether a file with a known path can be new, so that known files are listed, too."""
        return self.identity != "path"

    @property
    def replaces(self) -> bool:
        """Whether a newer version of a file replaces its former rows."""
        return self.on_overwrite == "replace"

    @property
    def deletes(self) -> bool:
        """Whether the rows of a deleted file are removed."""
        return self.on_delete == "delete"

    @property
    def follows(self) -> bool:
        """Whether rows of the table are removed because of what became of their files."""
        return self.replaces or self.deletes

    @property
    def listing_backfill_seconds(self) -> float | None:
        """When a full listing is due again; never where an inventory report takes its place."""
        return None if self.inventory else self.backfill_interval_seconds

    @property
    def waits(self) -> bool:
        """Whether files wait: until they are whole, or restored."""
        is_whole_at_once = self.min_file_age_seconds is None and self.completion_marker is None
        return not is_whole_at_once or self.on_archived_file == "wait"

    @property
    def leaves_out(self) -> bool:
        """Whether who lists a source once, and records nothing, leaves files out."""
        return self.waits or self.on_archived_file == "skip"

    @property
    def lists_all(self) -> bool:
        """Whether listings must be full: a file may become new long after it was there."""
        return self.sees_overwrites or self.deletes or self.completion_marker is not None

    @classmethod
    def _complete(cls, values: dict[str, Any], given: Mapping[str, str]) -> None:  # noqa: ARG003
        """Refuse two identities, and options of queues where none is read."""
        _check_identity(values)
        _check_overwrites(values)
        _check_file_events(cls, values)
        for field in _OF_INVENTORIES:
            if field in values and "inventory" not in values:
                raise OptionError(
                    f"{options_of(cls)[field].name} is given, but cloudFiles.inventory is not, so "
                    "no report would be read. Give cloudFiles.inventory, or remove it."
                )
        if values.get("use_notifications"):
            return
        for field in _OF_QUEUES:
            if field in values:
                raise OptionError(
                    f"{options_of(cls)[field].name} is given, but cloudFiles.useNotifications is "
                    "not true, so no queue would be read. Set cloudFiles.useNotifications=true, or "
                    "remove it."
                )

    def _check(self) -> None:
        self._check_follows()
        if self.on_archived_file != "fail" and self.inventory:
            raise OptionError(
                f"cloudFiles.inventory and cloudFiles.onArchivedFile={self.on_archived_file} "
                "contradict each other: a report does not say whether an object was restored. "
                "Leave one of them out."
            )
        if self.sees_overwrites and self.inventory:
            raise OptionError(
                f"cloudFiles.inventory and cloudFiles.fileIdentity={self.identity} (or "
                "cloudFiles.allowOverwrites=true) contradict each other: a report gives times and "
                "etags of a past version, so a file could be ingested twice. Leave one of them out."
            )
        if self.completion_marker is not None and self.use_incremental_listing == "true":
            raise OptionError(
                "cloudFiles.completionMarker and cloudFiles.useIncrementalListing=true contradict "
                "each other: the marker of a file may come when an incremental listing has passed "
                "it. Leave useIncrementalListing out (auto lists everything then)."
            )
        if self.sees_overwrites and self.use_incremental_listing == "true":
            given = (
                "cloudFiles.allowOverwrites=true"
                if self.file_identity is None
                else f"cloudFiles.fileIdentity={self.file_identity}"
            )
            raise OptionError(
                f"{given} and cloudFiles.useIncrementalListing=true contradict each other: an "
                "incremental listing does not list files it knows. Leave useIncrementalListing "
                "out (auto lists everything then)."
            )

    def _check_follows(self) -> None:
        """Refuse what would leave rows of files in the table that are to be removed."""
        if not self.follows:
            return
        given = "onOverwrite=replace" if self.replaces else "onDelete=delete"
        others = {
            "cloudFiles.fileIdentity=content": (
                self.identity == "content",
                "a row is of one of several files with the same content",
            ),
            "cloudFiles.maxFileAge": (
                self.max_file_age_seconds is not None,
                "the stream forgets its old files",
            ),
            "cloudFiles.inventory": (
                self.inventory is not None,
                "a report says what was there in the past",
            ),
            "cloudFiles.useIncrementalListing=true": (
                self.use_incremental_listing == "true",
                "an incremental listing skips files that it knows",
            ),
        }
        for name, (is_given, why) in others.items():
            if is_given:
                raise OptionError(
                    f"cloudFiles.{given} and {name} contradict each other: {why}, so rows would "
                    "stay whose files are others by now. Leave one of them out."
                )


def _check_file_events(group: type[DiscoveryOptions], values: Mapping[str, Any]) -> None:
    """Refuse what has no meaning with an event log, as Auto Loader does (B102), and a log alone."""
    declared, location = options_of(group), values.get("file_events_location")
    managed = declared["use_managed_file_events"].name
    where = declared["file_events_location"].name
    if not values.get("use_managed_file_events"):
        if location is not None:
            raise OptionError(
                f"{where} is given, but {managed} is not true, so no event log would be read. Set "
                f"{managed}=true, or remove it."
            )
        return
    for field in _NOT_WITH_FILE_EVENTS:
        if values.get(field):
            raise OptionError(
                f"{declared[field].name} cannot be used with {managed}=true: one queue, which the "
                "event log names, serves all streams, and the source is listed when the log cannot "
                "announce what has arrived. Remove it."
            )
    if location is None:
        raise OptionError(
            f"{managed} needs {where}: the location of the bucket's event log. If there is none "
            "yet, `cloudfiles notifications set-up --events-location` makes one."
        )


def _check_identity(values: Mapping[str, Any]) -> None:
    """Refuse `allowOverwrites` and `fileIdentity` with two meanings."""
    identity, overwrites = values.get("file_identity"), values.get("allow_overwrites")
    if identity is None or overwrites is None:
        return
    meant = "pathAndModificationTime" if overwrites else "path"
    if identity != meant:
        raise OptionError(
            f"cloudFiles.allowOverwrites={str(overwrites).lower()} means "
            f"cloudFiles.fileIdentity={meant}, but that is {identity}. Remove "
            "cloudFiles.allowOverwrites."
        )


def _check_overwrites(values: Mapping[str, Any]) -> None:
    """Refuse `onOverwrite` beside an option that says something else of overwritten files."""
    asked = values.get("on_overwrite")
    if asked is None:
        return
    overwrites, identity = values.get("allow_overwrites"), values.get("file_identity")
    if overwrites is not None and overwrites == (asked == "ignore"):
        raise OptionError(
            f"cloudFiles.onOverwrite={asked} and cloudFiles.allowOverwrites="
            f"{str(overwrites).lower()} contradict each other. Remove cloudFiles.allowOverwrites."
        )
    if identity is not None and (identity == "path") != (asked == "ignore"):
        what = "is never new" if identity == "path" else "may be a new one"
        raise OptionError(
            f"cloudFiles.onOverwrite={asked} and cloudFiles.fileIdentity={identity} contradict "
            f"each other: by the latter an overwritten file {what}. Leave one of them out."
        )


CleanSource = Literal["OFF", "DELETE", "MOVE"]
CLEAN_SOURCE: tuple[CleanSource, ...] = get_args(CleanSource)

_DAYS_BEFORE_DELETION: Final = 7


def _retention(name: str, text: str) -> float:
    """Read an interval; none at all is one as well."""
    return 0.0 if parse_interval(text) == 0 else interval.read(name, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningOptions(OptionGroup):
    """What cleaning is asked to do; the defaults are those of the options."""

    mode: CleanSource = option("cloudFiles.cleanSource", choice(CLEAN_SOURCE), default="OFF")
    """What is done with a file of the source when it is committed and its retention is over: it
    stays, is deleted, or is moved. The current value decides, whatever it was when the file was
    ingested. [Clean the source](../how-to/clean-the-source.md) has the rules."""
    retention_seconds: float = option(
        "cloudFiles.cleanSource.retentionDuration",
        ValueKind(interval.label, _retention),
        default=30 * _SECONDS_A_DAY,
        shown="`30 days`",
    )
    """How long after its commit a file stays. More than 7 days with `DELETE`; with `MOVE` it may
    be anything."""
    move_destination: str | None = option(
        "cloudFiles.cleanSource.moveDestination", place, default=None
    )
    """The folder that files are moved to with `MOVE`, under their paths below the source. In the
    bucket or container of the source, neither in the source nor above it."""
    other_checkpoints: tuple[str, ...] = option(
        "cloudFiles.cleanSource.otherCheckpoints", names, default=()
    )
    """Ours: the checkpoint locations of the other streams that read this source, separated by
    commas. A file stays until each of them has committed it; while the state of one cannot be read,
    all files stay."""
    wait_for_completion: bool = option(
        "cloudFiles.cleanSource.waitForCompletion", boolean, default=False
    )
    """Whether a run goes on until everything that is due is cleaned. Otherwise it cleans for a
    minute at most, and the next run goes on."""

    @property
    def is_on(self) -> bool:
        """Whether anything is cleaned."""
        return self.mode != "OFF"

    def _check(self) -> None:
        if self.mode == "DELETE" and self.retention_seconds <= (
            _DAYS_BEFORE_DELETION * _SECONDS_A_DAY
        ):
            raise OptionError(  # B119
                "cloudFiles.cleanSource=DELETE needs a cloudFiles.cleanSource.retentionDuration of "
                f"more than {_DAYS_BEFORE_DELETION} days: what is deleted cannot be ingested "
                "again. Give a longer one, or use MOVE."
            )
        if self.mode == "MOVE" and self.move_destination is None:
            raise OptionError(
                "cloudFiles.cleanSource=MOVE needs cloudFiles.cleanSource.moveDestination: the "
                "folder that files are moved to."
            )


def _run_retention(name: str, text: str) -> float:
    seconds = interval.read(name, text)
    if seconds < _SECONDS_A_DAY:
        raise OptionError(
            f"{name} must be at least 1 day, got {text!r}: a run that was left on a server, and "
            "comes back, still needs what it was asked to do."
        )
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOptions(OptionGroup):
    """What jobs do besides, when their report is written."""

    state_compact_interval: int = option(
        "cloudFiles.stateCompactInterval", at_least_zero, default=100
    )
    """A job packs old entries of a log of its state when there are so many of them behind the
    newest 100; 0: never. Ours, not Auto Loader's."""
    run_retention_seconds: float = option(
        "cloudFiles.runRetention",
        ValueKind(interval.label, _run_retention),
        default=30.0 * _SECONDS_A_DAY,
        shown="`30 days`",
    )
    """How long specification and report of a run stay in the state; at least 1 day. Those of the
    newest 100 runs always do. Ours, not Auto Loader's."""
