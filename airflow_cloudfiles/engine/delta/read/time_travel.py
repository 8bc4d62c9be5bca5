"""Which version of a table did a reader ask for?

By number, or by a moment: then it is the newest version that was committed at or before it. A
commit's time is the one it carries, where the table has in-commit timestamps, and otherwise the
modification time of its file, made to increase from version to version as Delta does.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#in-commit-timestamps
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

from airflow_cloudfiles.engine.delta.read.log import LogListing
from airflow_cloudfiles.engine.delta.read.snapshot import Snapshot, TableLog
from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError

VERSION, TIMESTAMP = "versionAsOf", "timestampAsOf"
_CHANGE_FEED: Final = ("readChangeFeed", "readChangeData")
_ENABLED: Final = "delta.enableInCommitTimestamps"
_SINCE: Final = "delta.inCommitTimestampEnablementVersion"
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


def requested_snapshot(log: TableLog, options: Mapping[str, str]) -> Snapshot:
    """Read the version that the options of a batch read ask for; the newest, if they do not.

    Args:
        log: Of the table.
        options: As the user gave them; the case of their names does not matter.

    Raises:
        UnsupportedOptionError: The change data feed is asked for.
        OptionError: An option is not valid, or there is no such version.
    """
    given = {key.lower(): value for key, value in options.items()}
    for name in _CHANGE_FEED:
        if given.get(name.lower(), "false").lower() == "true":
            raise UnsupportedOptionError(
                f"The option {name} is not supported: the change data feed of a Delta table is "
                "not read. Read it with Delta's own jars, or with deltalake's "
                "DeltaTable.load_cdf."
            )
    version, moment = given.get(VERSION.lower()), given.get(TIMESTAMP.lower())
    if version is not None and moment is not None:
        raise OptionError(f"Set {VERSION} or {TIMESTAMP}, not both.")
    if version is not None:
        return log.snapshot(_number(version))
    if moment is not None:
        return log.snapshot(version_at(log, milliseconds(TIMESTAMP, moment), moment))
    return log.snapshot()


def version_at(log: TableLog, moment_ms: int, text: str) -> int:
    """The newest version that was committed at or before a moment.

    Args:
        log: Of the table.
        moment_ms: Milliseconds since 1970.
        text: The moment as the user wrote it, for errors.

    Raises:
        OptionError: The table has none, or its last commit is older: what the table will be at that
            moment is not known yet.
    """
    listing = log.listing(whole=True)
    times = CommitTimes(log, listing)
    low, high = times.first, listing.latest
    if moment_ms < times.of(low):
        raise OptionError(
            f"The Delta table {log.target} has no version as old as {TIMESTAMP}={text}: the oldest "
            f"that can be read is {low}, of {_shown(times.of(low))}."
        )
    if moment_ms > times.of(high):
        raise OptionError(
            f"{TIMESTAMP}={text} is after the last commit of the Delta table {log.target}: version "
            f"{high}, of {_shown(times.of(high))}. Leave the option out to read that."
        )
    while low < high:
        middle = (low + high + 1) // 2
        if times.of(middle) <= moment_ms:
            low = middle
        else:
            high = middle - 1
    return low


class CommitTimes:
    """When the versions of a table were committed.

    Args:
        log: Of the table.
        listing: The whole of it.

    Attributes:
        first: The oldest version that can be read.
    """

    def __init__(self, log: TableLog, listing: LogListing) -> None:
        self._log, self._listing = log, listing
        self.first = _first_readable(listing)
        metadata = log.snapshot_of(listing.segment(log.target)).metadata
        self._noted_since: int | None = None
        if metadata.property(_ENABLED).lower() == "true":
            self._noted_since = int(metadata.property(_SINCE, "0"))
        self._by_file: dict[int, int] = {}
        last = 0
        for version, file in sorted(listing.commits.items()):
            last = max(last + 1, file.modification_time_us // 1000)
            self._by_file[version] = last

    def of(self, version: int) -> int:
        """Milliseconds since 1970."""
        if self._noted_since is not None and version >= self._noted_since:
            for action in self._log.actions(self._listing.commits[version]):
                if action.commit_info and action.commit_info.in_commit_timestamp is not None:
                    return action.commit_info.in_commit_timestamp
        return self._by_file[version]


def _first_readable(listing: LogListing) -> int:
    """The oldest version whose commit is there, and from which on none is missing."""
    checkpoints = [each.version for each in listing.checkpoints if each.version in listing.commits]
    first = min(listing.commits, default=0)
    return first if first == 0 or not checkpoints else min(checkpoints)


def _number(text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text.strip()):
        raise OptionError(f"{VERSION}={text} is not valid: give the number of a version.")
    return int(text)


def milliseconds(option: str, text: str) -> int:
    """A moment that an option gives, in milliseconds since 1970.

    Args:
        option: Its name, for errors.
        text: Its value.

    Raises:
        OptionError: It is no time, or names no time zone.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise OptionError(
            f"{option}={text} is not valid: give a time such as 2026-01-31T12:00:00Z."
        ) from error
    if found.tzinfo is None:
        what = f"{date.isoformat(found)}T00:00:00Z" if _DATE.fullmatch(text.strip()) else f"{text}Z"
        raise OptionError(
            f"{option}={text} names no time zone, and the session's is not known to a Python "
            f"data source. Give an offset: {what} for UTC."
        )
    return int(found.timestamp() * 1000)


def _shown(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
