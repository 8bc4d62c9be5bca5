"""Hold rows against the rules on their way to the data files of a task.

1. A task reads which file each row is from, if a rule needs that, in columns that nobody sees.
2. Each rule is evaluated over a whole batch. What violates it is counted.
3. Rows are dropped, or put aside: those go to data files of the quarantine table, which nobody sees
   yet. All others are passed on.

Of several rules that a row violates, one that fails the batch comes first, then one that puts the
row aside, then one that drops it. The quarantine table has the names of all rules that it violates.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.extensions.row_rules.expressions import RowPredicate
from airflow_cloudfiles.engine.extensions.row_rules.table import QuarantineFiles
from airflow_cloudfiles.engine.options.metadata_columns import MetadataColumn
from airflow_cloudfiles.engine.options.row_rules import VIOLATIONS
from airflow_cloudfiles.engine.reading.file_columns import file_path
from airflow_cloudfiles.engine.tables.delta.commit import remove_files

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.row_rules import RowRule
    from airflow_cloudfiles.engine.reading.splits import Split
    from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
    from airflow_cloudfiles.engine.tables.delta.write.layout import FileLayout
    from airflow_cloudfiles.engine.tables.table_writer import TaskWritten

_FILE: Final = MetadataColumn("_cloudfiles_row_file", "file_path")
"""The column that says which file a row is from; it is taken off before rows are written."""
_MOST_FILES: Final = 20
"""Files with violating rows that a task names, for each rule."""
_BUFFER_BYTES: Final = 32 * 2**20
"""Rows that are put aside are written when they take so much memory."""
Write = Callable[[pa.Schema, Iterator[pa.RecordBatch]], "TaskWritten"]
"""Writes rows of a schema to data files, and counts them."""
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(slots=True)
class CheckedRows:
    """What a task has found of its rows.

    Attributes:
        violations: How many rows violate each rule.
        dropped: How many were left out.
        quarantined: How many were put aside.
        failing: How many rows violate rules that fail the batch, by rule and file; of the first
            `_MOST_FILES` files.
        examples: The place of the first of these in its file, from 1, where that is known.
        files: Data files of the quarantine table.
        schema: Of the rows in these; `None` where there are none.
        layout: How these became columns of the files.
    """

    violations: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    quarantined: int = 0
    failing: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], int] = field(default_factory=dict)
    files: list[DataFile] = field(default_factory=list)
    schema: pa.Schema | None = None
    layout: FileLayout | None = None

    def counts(self) -> dict[str, int]:
        """Give the counts of a batch."""
        found = {f"{VIOLATIONS}{name}": count for name, count in self.violations.items() if count}
        more = {"dropped_rows": self.dropped, "quarantined_rows": self.quarantined}
        return found | {name: count for name, count in more.items() if count}


class RowChecker:
    """Checks the rows of one task.

    Args:
        rules: The rules.
        quarantine: What writes rows that are put aside; `None` where no rule does that.
    """

    def __init__(self, rules: Sequence[RowRule], quarantine: QuarantineFiles | None) -> None:
        self._rules = rules
        self._quarantine = quarantine
        self._needs_files = any(each.needs_files for each in rules)
        self._read: Counter[str] = Counter()
        self._begin_at: frozenset[str] = frozenset()
        self._aside: list[pa.RecordBatch] = []
        self._aside_bytes = 0
        self._task = uuid.uuid4().hex
        self._now = datetime.now(tz=UTC)
        self.checked = CheckedRows()

    def split(self, split: Split) -> Split:
        """Have a split read with the columns that rules need."""
        if not self._needs_files:
            return split
        context = split.context
        columns = (*context.options.metadata_columns, _FILE)
        options = replace(context.options, metadata_columns=columns)
        order = (*context.column_order, _FILE.name) if context.column_order else ()
        starts: dict[str, int] = {}
        for part in split.ranges:
            uri = file_path(context.source_uri, part.file.path)
            starts[uri] = min(part.start, starts.get(uri, part.start))
        self._begin_at = frozenset(uri for uri, start in starts.items() if start == 0)
        return replace(split, context=replace(context, options=options, column_order=order))

    def written_by(self, write: Write) -> Write:
        """Make of what writes rows what writes those that are not left out, and counts them."""

        def checked(schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
            place = schema.get_field_index(_FILE.name)
            own = schema if place < 0 else schema.remove(place)
            try:
                written = write(own, self.passed(own, rows))
            except BaseException:
                self.discard()
                raise
            written.checked = self.checked
            written.counts = {**written.counts, **self.checked.counts()}
            return written

        return checked

    def passed(self, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass on the rows that are not left out.

        Args:
            schema: Of the rows, as they are passed on.
            rows: The rows, perhaps with the column of files.

        Raises:
            OptionError: A rule names a column that is not there.
        """
        predicates = [RowPredicate(each.option, each.predicate, schema) for each in self._rules]
        try:
            for batch in rows:
                files = batch.column(_FILE.name) if _FILE.name in batch.schema.names else None
                own = batch.select(schema.names) if files is not None else batch
                kept = self._kept(own, files, [each.holds(own) for each in predicates])
                if len(kept):
                    yield kept
            self._write()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove what was put aside; a task that fails has put nothing aside."""
        if self._quarantine is not None:
            remove_files(self._quarantine.table, self.checked.files)
        self.checked.files = []

    def _kept(
        self, rows: pa.RecordBatch, files: pa.Array | None, holds: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        checked = self.checked
        violating = [np.invert(each.to_numpy(zero_copy_only=False)) for each in holds]
        out: Mask = np.zeros(len(rows), np.bool_)
        aside: Mask = np.zeros(len(rows), np.bool_)
        for rule, mask in zip(self._rules, violating, strict=True):
            checked.violations[rule.name] += int(mask.sum())
            if rule.action == "drop":
                out |= mask
            elif rule.action == "quarantine":
                aside |= mask
            elif rule.action == "fail" and mask.any():
                self._note(rule.name, mask, files)
        if files is not None:
            for each in pc.value_counts(files).to_pylist():
                self._read[each["values"]] += each["counts"]
        out &= ~aside
        checked.dropped += int(out.sum())
        checked.quarantined += int(aside.sum())
        if aside.any():
            self._put_aside(rows, files, aside, violating)
        stays = ~(out | aside)
        return rows if stays.all() else rows.filter(pa.array(stays))

    def _note(self, rule: str, mask: Mask, files: pa.Array | None) -> None:
        """Note in which files rows violate a rule that fails the batch, and where the first is."""
        if files is None:
            self.checked.failing[rule, ""] += int(mask.sum())
            return
        for each in pc.value_counts(files.filter(pa.array(mask))).to_pylist():
            key = (rule, each["values"])
            known = sum(name == rule for name, _ in self.checked.failing)
            if key not in self.checked.failing and known >= _MOST_FILES:
                continue
            if key not in self.checked.failing and each["values"] in self._begin_at:
                is_of_file = pc.equal(files, each["values"]).to_numpy(zero_copy_only=False)
                first = int(np.flatnonzero(is_of_file & mask)[0])
                before = self._read[each["values"]] + int(is_of_file[:first].sum())
                self.checked.examples[key] = before + 1
            self.checked.failing[key] += each["counts"]

    def _put_aside(
        self,
        rows: pa.RecordBatch,
        files: pa.Array | None,
        aside: Mask,
        violating: Sequence[Mask],
    ) -> None:
        places = np.flatnonzero(aside)
        names = [each.name for each in self._rules]
        broken = [
            [name for name, mask in zip(names, violating, strict=True) if mask[place]]
            for place in places
        ]
        first = self.checked.quarantined - len(places)
        ids = [f"{self._task}-{first + number}" for number in range(len(places))]
        assert self._quarantine is not None  # noqa: S101 - a rule puts rows aside
        chosen = rows.take(pa.array(places))
        of_files = None if files is None else files.take(pa.array(places))
        made = self._quarantine.rows(chosen, ids, broken, of_files, self._now)
        self._aside.append(made)
        self._aside_bytes += made.nbytes
        if self._aside_bytes > _BUFFER_BYTES:
            self._write()

    def _write(self) -> None:
        if not self._aside:
            return
        assert self._quarantine is not None  # noqa: S101 - a rule puts rows aside
        files, layout = self._quarantine.write(self._aside)
        self.checked.files += files
        self.checked.layout = layout
        self.checked.schema = self._aside[0].schema
        self._aside, self._aside_bytes = [], 0
