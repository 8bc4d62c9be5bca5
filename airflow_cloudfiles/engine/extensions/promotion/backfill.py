"""Give the files of a table what was promoted, each row once.

1. A file whose rescued data has none of the fields is done: files never change.
2. One that has is read again, changed batch by batch, and written to new files.
3. A commit puts a group of new files in the place of the old ones. Another writer that came before
   makes it fail; the new files are given up, and the table is read again.
4. When all files are done, those that came meanwhile are rewritten too, until there are none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deltalake.exceptions import CommitFailedError

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.extensions.promotion.batches import (
    Promoter,
    PromotionCounts,
    path_text,
)
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.tables.delta.durability import make_durable
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import open_existing
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFile, TableFiles, names_of

PROMOTION_NOTE = "cloudfilesPromotion"
"""Key of what was promoted in a commit's own metadata."""
GROUP_BYTES = 2 * 2**30
"""Files are replaced in commits of about so many bytes, so that a killed promotion has done
something, and one that another writer came before has little to do again."""
MOST_PASSES = 20
"""How often files that came meanwhile are listed."""
COMMIT_TRIES = 20
"""How often a commit is tried against other writers before giving up."""
LOG_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Promoted:
    """What a promotion amounted to.

    Attributes:
        columns: The columns, with their types.
        schema_version: The version of the schema log that has them; `None` where there is no log.
        target_version: The newest version of the table.
        rows: Rows that changed.
        values: By field: how many values went into the column (`promoted`), how many of these left
            something behind (`partly`), how many do not fit (`unfit`), and how many are in rows
            whose column has a value (`occupied`). The last two stay rescued.
        files_rewritten: Data files that were replaced.
        files_read: Data files whose rescued data was read.
        bytes_rewritten: Size of the replaced files.
        warnings: For people.
    """

    columns: dict[str, str]
    schema_version: int | None
    target_version: int = -1
    rows: int = 0
    values: dict[str, dict[str, int]] = field(default_factory=dict)
    files_rewritten: int = 0
    files_read: int = 0
    bytes_rewritten: int = 0
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a report has them."""
        return asdict(self)


@dataclass(slots=True)
class _Replacement:
    """A file and what takes its place."""

    file: TableFile
    added: list[DataFile]
    found: PromotionCounts


class Backfill:
    """Fills the columns of one table.

    Args:
        target: The table, which has the columns.
        promoter: What is promoted.
        promoted: Gets what was done.
    """

    def __init__(self, target: str, promoter: Promoter, promoted: Promoted) -> None:
        self._target = target
        self._promoter = promoter
        self._promoted = promoted
        self._done: set[str] = set()
        self._total = PromotionCounts()
        self._conflicts = 0
        self._last_logged = time.monotonic()

    def run(self) -> None:
        """Go over the table until nothing is left to do."""
        for _ in range(MOST_PASSES):
            location = DeltaLocation.of(self._target)
            snapshot = TableFiles(open_existing(self._target), location, "promoted")
            left = [file for name, file in snapshot.files.items() if name not in self._done]
            self._promoted.target_version = snapshot.table.version()
            if not left:
                with snapshot.location.translate_errors("may lose a commit"):
                    make_durable(snapshot.location)  # also what a killed promotion has committed
                break
            self._pass(snapshot, left)
        else:
            self._promoted.warnings.append(
                f"Files of {self._target} still had the fields rescued after {MOST_PASSES} passes: "
                "a run that began before the columns were there is still writing. Promote again "
                "when it has ended."
            )
        total = self._total
        self._promoted.rows = total.rows
        self._promoted.values = {
            each.name: {
                "promoted": total.promoted[each.name],
                "partly": total.partly[each.name],
                "unfit": total.unfit[each.name],
                "occupied": total.occupied[each.name],
            }
            for each in self._promoter.fields
        }

    def _pass(self, snapshot: TableFiles, files: Sequence[TableFile]) -> None:
        group: list[_Replacement] = []
        size = 0
        for number, file in enumerate(files):
            self._log_progress(number, len(files))
            replacement = self._rewritten(snapshot, file)
            if replacement is None:
                continue
            group.append(replacement)
            size += file.size
            if size >= GROUP_BYTES:
                self._commit(snapshot, group)
                group, size = [], 0
        if group:
            self._commit(snapshot, group)

    def _rewritten(self, snapshot: TableFiles, file: TableFile) -> _Replacement | None:
        """Rewrite a file with what can be promoted; return `None` when nothing can."""
        if snapshot.has_only_nulls(file, self._promoter.rescued_column):
            self._done.add(file.name)
            return None
        found = PromotionCounts()
        for batch in snapshot.batches(file, self._promoter.columns):
            found.add(self._promoter.apply(batch)[1])
        self._promoted.files_read += 1
        if not found.rows:
            self._done.add(file.name)
            self._total.add(found)
            return None
        rows = (self._promoter.apply(batch)[0] for batch in snapshot.batches(file))
        added = DataFileWriter(self._target, snapshot.schema).write(rows)
        return _Replacement(file, added, found)

    def _commit(self, snapshot: TableFiles, group: Sequence[_Replacement]) -> None:
        """Put a group in the place of its files, or leave it for the next pass."""
        fields = {each.name: path_text(each.column) for each in self._promoter.fields}
        crash_point("before-promotion-commit")
        try:
            snapshot.replace(
                [each.file for each in group],
                [file for each in group for file in each.added],
                {
                    PROMOTION_NOTE: {
                        "fields": fields,
                        "rows": sum(each.found.rows for each in group),
                    }
                },
                operation="WRITE",
            )
        except CommitFailedError as error:
            there = names_of(open_existing(self._target))
            if any(file.name not in there for each in group for file in each.added):
                self._lost(group, error)
                return  # else the answer was lost
        crash_point("after-promotion-commit")
        for each in group:
            self._done.update(file.name for file in each.added)
            self._done.add(each.file.name)
            self._total.add(each.found)
            self._promoted.files_rewritten += 1
            self._promoted.bytes_rewritten += each.file.size

    def _lost(self, group: Sequence[_Replacement], error: Exception) -> None:
        """Give up replacements that another writer came before."""
        self._conflicts += 1
        _log.info("Another writer committed first (%s); trying again", error)
        names = [file.name for each in group for file in each.added]
        data_files.remove(DeltaLocation.of(self._target), names)
        if self._conflicts >= COMMIT_TRIES:
            raise SinkError(
                f"Rescued data of {self._target} could not be promoted: other writers committed "
                f"first, {COMMIT_TRIES} times. What was promoted stays promoted. Run again when "
                "there are fewer writers."
            )

    def _log_progress(self, number: int, files: int) -> None:
        if time.monotonic() - self._last_logged > LOG_SECONDS:
            self._last_logged = time.monotonic()
            _log.info("Promoting: %s of %s", number, counted(files, "file"))
