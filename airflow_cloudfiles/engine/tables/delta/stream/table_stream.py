"""Plan the files of the next micro-batch of a stream from a Delta table.

The stream begins with the rows of the table (the *initial snapshot*), sorted by modification time
and path and pinned to one version, and goes on with what each later version adds. Or it begins at a
version that the user names. A micro-batch is planned within its limits, and ends:

- at the end of the initial snapshot;
- before a change of the schema, where schemas are tracked (`evolution`);
- behind the newest version, also where that has added nothing.

The same two offsets always mean the same files. No Spark here. `spark.tables.stream_reader` calls
this.

A stream emits the files that a commit adds.

Those with new rows. A commit that also takes rows away is refused, unless the options say what is
to become of it: Delta's own rules, which decide by commit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from airflow_cloudfiles.engine.errors import (
    OptionError,
    TableRowsChangedError,
    TargetCorruptedError,
    VersionsGoneError,
)
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile
from airflow_cloudfiles.engine.tables.delta.read.log import decoded
from airflow_cloudfiles.engine.tables.delta.read.snapshot import Snapshot, TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableColumns, TableState
from airflow_cloudfiles.engine.tables.delta.stream.commits import (
    BEGIN,
    CHANGE,
    NOWHERE,
    Commit,
    TableCommits,
    TableOffset,
    check_order,
)
from airflow_cloudfiles.engine.tables.delta.stream.evolution import (
    QueryPlace,
    TrackedEvolution,
    UntrackedEvolution,
)
from airflow_cloudfiles.engine.tables.delta.stream.tracking import (
    LATEST,
    StreamDefinition,
    starting_version,
)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the stream.

    Attributes:
        end: Where the stream is behind it.
        file: The file that it emits; `None` where it emits none.
        place: Version and index of the file.
    """

    end: TableOffset
    file: AddFile | None = None
    place: tuple[int, int] = (-1, BEGIN)


_log = logging.getLogger(__name__)


class TableStream:
    """The micro-batches of one stream from one table.

    Args:
        target: Path or URI of the table.
        options: Of the stream.
        definition: Of the stream.
        locate: Says where the query keeps its state; asked only where schemas are tracked.
    """

    def __init__(
        self,
        target: str,
        options: TableStreamOptions,
        definition: StreamDefinition,
        locate: Callable[[], QueryPlace],
    ) -> None:
        self._options = options
        self._definition = definition
        self._log = TableLog(DeltaLocation.to_read(target))
        self._rules = FileRules(options, target)
        self._commits = TableCommits(
            self._log, definition.table_id, fail_on_data_loss=options.fail_on_data_loss
        )
        self._evolution = (
            UntrackedEvolution(definition, self._state_at)
            if options.schema_tracking_location is None
            else TrackedEvolution(definition, options, locate, self._state_at)
        )
        self._is_open = False
        self._has_begun = False
        self._first: TableOffset | None = None
        self._target: int | None = None
        self._newest = -1
        self._snapshot: tuple[int, list[AddFile]] | None = None
        self._planned: tuple[TableOffset, TableOffset, list[AddFile]] | None = None

    @property
    def columns(self) -> TableColumns:
        """How the files of its micro-batches are read."""
        return TableColumns.of(self._evolution.state)

    def read_offset(self, value: dict[str, object]) -> TableOffset:
        """Read an offset from Spark's log; see `TableOffset.from_json`."""
        return TableOffset.from_json(value, self._definition.table_id, self._log.target)

    def initial(self) -> TableOffset:
        """Return the offset where a stream with a new checkpoint begins.

        Spark asks again where a process was killed before its first micro-batch was committed. What
        was planned then counts, and not what is the newest version by now.

        Raises:
            OptionError: There is no such version.
        """
        self._open()
        table = self._definition.table_id
        start = starting_version(self._log, self._options)
        if start == LATEST:
            return TableOffset(table, NOWHERE)
        if isinstance(start, int):
            self._first = TableOffset(table, start)
            return self._first
        tracked = self._definition.tracked
        pinned = self._definition.head if tracked is None else tracked.state.version
        return TableOffset(table, pinned, is_initial=True)

    def prepare_available_now(self) -> None:
        """Note the newest version: what comes later waits for the next run."""
        self._open()
        self._target = self._log.listing().latest

    def latest(self, start: TableOffset, *, unlimited: bool = False) -> TableOffset:
        """Plan the next micro-batch.

        Args:
            start: Where the one before ended, which is committed.
            unlimited: Whether it has no limits.

        Returns:
            Where it ends; `start` itself when there is nothing new.

        Raises:
            TableEvolvedError: The table has another schema; the next start continues with it.
            BlockedSchemaChangeError: It has one that the stream cannot continue with by itself.
            TableRowsChangedError: Rows were deleted or updated, and no option says to continue.
            VersionsGoneError: Versions are gone from its log.
            StateConflictError: It is another table than before.
        """
        self._open()
        if start.version == NOWHERE:
            newest = self._log.listing().latest if self._target is None else self._target
            self._begin(TableOffset(start.table_id, newest, 0))
            # A micro-batch without files, which notes in Spark's log where the stream begins.
            return TableOffset(start.table_id, newest + 1)
        self._newest = self._commits.poll(start.version)
        self._begin(start)
        upto = self._newest if self._target is None else min(self._newest, self._target)
        if start.is_at_change:
            self._evolution.pass_change(self._commits, start.version, self._newest)
        end, files = self._plan(start, upto, unlimited=unlimited)
        self._planned = (start, end, files)
        return end

    def files(self, start: TableOffset, end: TableOffset) -> list[AddFile]:
        """List the files of a micro-batch that was planned, in this process or in an earlier one.

        Raises:
            CloudFilesError: As of `latest`.
        """
        if self._planned is not None and self._planned[:2] == (start, end):
            return self._planned[2]
        self._open()
        if start.version == NOWHERE:
            return []
        check_order(start, end, self._log.target)
        if start.is_initial and start.index == BEGIN:
            # Spark may have asked again where the stream begins, and got a newer version.
            pinned = end.version if end.is_initial else end.version - 1
            start = TableOffset(start.table_id, pinned, is_initial=True)
        self._newest = self._commits.poll(start.version)
        last = end.version if end.index >= 0 or end.is_initial else end.version - 1
        if not self._has_begun:
            first = start.version
            self._evolution.begin_batch(self._commits, first, max(first, last))
            self._has_begun = True
        steps = self._changes(start, last)
        if start.is_initial:
            then = TableOffset(start.table_id, start.version + 1)
            steps = chain(self._initial(start), self._changes(then, last))
        return [step.file for step in steps if step.file and step.place <= end.place]

    def newest(self) -> TableOffset | None:
        """Return the offset behind the newest version that was seen; `None` before one was."""
        if self._newest < 0:
            return None
        return TableOffset(self._definition.table_id, self._newest + 1)

    def _open(self) -> None:
        if not self._is_open:
            self._evolution.open()
            self._is_open = True

    def _begin(self, start: TableOffset) -> None:
        """Check once in a process with which schema it begins: that of what it has read last."""
        if not self._has_begun:
            is_new = start.is_initial or start == self._first
            is_behind = start.index == BEGIN and start.version > 0 and not is_new
            version = start.version - 1 if is_behind else start.version
            self._evolution.begin(version)
            self._has_begun = True

    def _state_at(self, version: int) -> TableState | None:
        """Read the state at a version; `None` where the log only has its commits left."""
        if version == self._definition.state.version:
            return self._definition.state
        try:
            return TableState.at(self._log.snapshot(version))
        except (OptionError, TargetCorruptedError) as failure:
            _log.warning("The schema at version %s is not known any more: %s", version, failure)
            return None

    def _plan(
        self, start: TableOffset, upto: int, *, unlimited: bool
    ) -> tuple[TableOffset, list[AddFile]]:
        """Take files while the limits allow it; the one that exceeds the bytes is the last one."""
        end, files, size = start, list[AddFile](), 0
        limits = (self._options.most_files, self._options.max_bytes_per_trigger)
        most, most_bytes = (None, None) if unlimited else limits
        for step in self._initial(start) if start.is_initial else self._changes(start, upto):
            if step.file is not None:
                is_full = most is not None and len(files) >= most
                if is_full or (most_bytes is not None and size >= most_bytes):
                    break
                files.append(step.file)
                size += step.file.size
            end = step.end
        return end, files

    def _initial(self, start: TableOffset) -> Iterator[_Step]:
        """Yield the files of the initial snapshot behind an offset, and the snapshot's end."""
        if self._snapshot is None or self._snapshot[0] != start.version:
            try:
                self._snapshot = start.version, _in_order(self._log.snapshot(start.version))
            except (OptionError, TargetCorruptedError) as error:
                raise VersionsGoneError(
                    f"The stream has not read all rows that the Delta table {self._log.target} had "
                    f"when it began, at version {start.version}, and that version cannot be read "
                    f"any more: {error} Start with a new checkpoint location."
                ) from error
        yield from self._steps(start, self._snapshot[1], start.index)
        self._snapshot = None

    def _changes(self, start: TableOffset, upto: int) -> Iterator[_Step]:
        """Yield what versions have added behind an offset, and the ends of versions."""
        for commit in self._commits.between(start.version, upto):
            at = TableOffset(start.table_id, commit.version)
            done = start.index if commit.version == start.version else BEGIN
            if self._evolution.is_barrier(commit) and done < CHANGE:
                yield _Step(replace(at, index=CHANGE))
                return
            yield from self._steps(at, self._rules.of_commit(commit), done)
        if upto >= start.version:
            yield _Step(TableOffset(start.table_id, upto + 1))

    def _steps(self, at: TableOffset, files: Sequence[AddFile], done: int) -> Iterator[_Step]:
        """Yield the files of a version behind an index; the next version begins after the last.

        Args:
            at: The version.
            files: All of it.
            done: The index.
        """
        behind = TableOffset(at.table_id, at.version + 1)
        for index, file in enumerate(files):
            if index > done:
                end = behind if index == len(files) - 1 else replace(at, index=index)
                taken = None if self._rules.is_excluded(file) else file
                yield _Step(end, taken, (at.version, index))
        if max(done, -1) >= len(files) - 1:
            yield _Step(behind)


_UPDATED: Final = (
    "This is currently not supported. If this is going to happen regularly and you are okay to "
    "skip changes, set the option 'skipChangeCommits' to 'true'. If you would like the data "
    "update to be reflected, please restart this query with a fresh checkpoint directory."
)


@dataclass(frozen=True, slots=True)
class FileRules:
    """What the options say about files.

    Attributes:
        options: Of the stream.
        target: The table, for errors.
    """

    options: TableStreamOptions
    target: str

    def of_commit(self, commit: Commit) -> Sequence[AddFile]:
        """List the files of a commit that have an index; none where the commit is skipped.

        Raises:
            TableRowsChangedError: The commit removes rows, and no option says to continue.
        """
        if not commit.removes:
            return commit.adds
        options = self.options
        if options.skip_change_commits:
            return ()
        file = decoded(commit.removes[0].path)
        if commit.adds and not options.ignore_changes:
            raise TableRowsChangedError(
                "[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update (for example "
                f"{file}) in the source table at version {commit.version}. {_UPDATED} The source "
                f"table can be found at path {self.target}."
            )
        if not commit.adds and not (options.ignore_deletes or options.ignore_changes):
            raise TableRowsChangedError(
                f"[DELTA_SOURCE_IGNORE_DELETE] Detected deleted data (for example {file}) from "
                f"streaming source at version {commit.version}. This is currently not supported. "
                "If you'd like to ignore deletes, set the option 'ignoreDeletes' to 'true'. The "
                f"source table can be found at path {self.target}."
            )
        return commit.adds

    def is_excluded(self, file: AddFile) -> bool:
        """Tell whether a file is left out; it keeps its index."""
        pattern = self.options.exclude_regex
        return pattern is not None and re.search(pattern, decoded(file.path)) is not None


def _in_order(snapshot: Snapshot) -> list[AddFile]:
    """Sort the files of a version in the order of an initial snapshot, which never changes."""
    return sorted(snapshot.files, key=lambda each: (each.modification_time, each.path, each.key))
