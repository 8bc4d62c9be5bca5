"""List the rows of a quarantine table, put them back into the target, or discard them.

A release puts rows back in three steps, each of which may be repeated:

1. Its rows go into files of their own, in a partition with the id of the release: from then on no
   other release or discard takes them.
2. They are appended to the target, with the id of the release as application id. The target takes
   a release once.
3. Their files are removed from the quarantine table.

Killed in between, whoever next works on the table finishes the release first. Rows of a batch that
the target does not have yet are left alone: the next run may put others in their place.

A row goes through the columns that the target has now. A column that it has not is null. A type
that has become wider takes the value. What has no column, or does not fit it, goes into the rescued
data.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import OptionError, TargetNotDeltaError
from airflow_cloudfiles.engine.extensions.row_rules.expressions import RowPredicate
from airflow_cloudfiles.engine.extensions.row_rules.table import (
    APPENDED,
    BROKEN,
    FILE,
    ID,
    PresentSchema,
    files_of,
    place_of,
    placed,
    split_rows,
    table_of,
)
from airflow_cloudfiles.engine.formats.columnar.strings import json_of
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.row_rules import read_rules, require_predicates
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta.commit import commit_batch, has_batch, remove_files
from airflow_cloudfiles.engine.tables.delta.lineage import newest_known
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import load_table, make_durable, open_to_write
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState
from airflow_cloudfiles.engine.tables.delta.write.log_commit import retried
from airflow_cloudfiles.engine.tables.delta.write.rows import TableWrite, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.options.row_rules import RowRule
    from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
    from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFile, TableFiles

NOTE: Final = "cloudFiles.quarantine"
"""Key of what commits to a quarantine table note."""
_SHOWN: Final = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """Which rows of a quarantine table are meant: those that all of this applies to.

    Attributes:
        batches: Of one of these micro-batches.
        files: Of one of these files: its URI, or the end of it behind a slash.
        rules: That violate one of these rules.
        ids: Of one of these ids (`_quarantine_id`).
        where: For which this predicate is true.
    """

    batches: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    where: str = ""

    @property
    def is_all(self) -> bool:
        """Whether all rows are meant."""
        return not (self.batches or self.files or self.rules or self.ids or self.where)


@dataclass(slots=True)
class QuarantineChange:
    """What a release or a discard has done.

    Attributes:
        rows: How many rows it took out of the quarantine table.
        pending_rows: Rows that were meant, of batches that the target does not have yet.
        violating_rows: Rows that were meant, and still violate a rule that was to be checked.
        finished_releases: Earlier releases that were killed, and are finished now.
        finished_rows: Their rows.
        target_version: The newest version of the target; of a discard `None`.
        quarantine_version: The newest version of the quarantine table.
    """

    rows: int = 0
    pending_rows: int = 0
    violating_rows: int = 0
    finished_releases: int = 0
    finished_rows: int = 0
    target_version: int | None = None
    quarantine_version: int | None = None


class Quarantine:
    """The quarantine table of a target.

    Args:
        target: Path or URI of the target.
        table: Path or URI of the quarantine table; `None` for that beside the target.
        rescued_column: The column of the target that takes what has no column.

    Raises:
        TargetNotDeltaError: There is no quarantine table.
    """

    def __init__(
        self, target: str, table: str | None = None, *, rescued_column: str = "_rescued_data"
    ) -> None:
        self._target = target
        self._table = table or table_of(target)
        self._rescued_column = rescued_column
        if open_to_write(self._table) is None:
            raise TargetNotDeltaError(
                f"There is no quarantine table {self._table}: no rule with onViolation=quarantine "
                f"has put a row of {target} aside. Name the target of the stream, and the table "
                "that expect.quarantineTable names, if it does."
            )

    # What there is ------------------------------------------------------------------------

    def listed(self, selection: RowSelection, *, sample: int = 10) -> dict[str, Any]:
        """Count the rows, and show some of them.

        Args:
            selection: Which rows.
            sample: How many rows are shown.

        Returns:
            `rows`; `by_rule`, `by_batch` and `by_file`, how many rows by name; `pending_rows`, of
            batches that the target does not have yet; `releasing_rows`, of a release that was
            killed; and `sample`.
        """
        found = self._opened()
        rules: Counter[str] = Counter()
        files: Counter[str] = Counter()
        batches: Counter[str] = Counter()
        pending = releasing = total = 0
        shown: list[dict[str, Any]] = []
        target = self._open_target()
        for file, rows in self._chosen(found, selection, with_released=True):
            stream, batch, release = place_of(file)
            total += len(rows)
            batches[str(batch)] += len(rows)
            releasing += len(rows) if release is not None else 0
            pending += 0 if self._has(target, stream, batch) else len(rows)
            for names in rows.column(BROKEN).to_pylist():
                rules.update(names)
            files.update(each or "" for each in rows.column(FILE).to_pylist())
            if len(shown) < sample:
                some = rows.slice(0, sample - len(shown))
                shown += [{**each, "_quarantine_batch": int(batch or -1)} for each in _shown(some)]
        return {
            "quarantine_table": self._table,
            "rows": total,
            "pending_rows": pending,
            "releasing_rows": releasing,
            "by_rule": dict(rules.most_common()),
            "by_batch": dict(sorted(batches.items(), key=lambda each: int(each[0]))),
            "by_file": dict(files.most_common(_SHOWN)),
            "sample": shown,
        }

    # What is done -------------------------------------------------------------------------

    def release(
        self, selection: RowSelection, *, check: Mapping[str, str] | None = None
    ) -> QuarantineChange:
        """Put rows back into the target, once however often it is called.

        Args:
            selection: Which rows.
            check: Options of rules (`expect.row.<name>`): rows that violate one stay, unless it
                only warns.

        Raises:
            OptionError: The predicate, or a rule, does not go with the rows.
            SchemaMismatchError: A value has no column, and there is no rescued data column.
            SinkError: A table cannot be written.
        """
        done = QuarantineChange()
        self._finish_all(done)
        release = uuid.uuid4().hex
        rules = _rules(check or {})

        def attempt() -> int:
            return self._moved(selection, rules, release, done)

        done.rows = retried(f"The rows in {self._table} could not be released", attempt)
        found = self._opened()
        if any(place_of(each)[2] == release for each in found.files.values()):
            crash_point("after-release-mark")
            done.rows = self._finish(release) or done.rows
        return self._versions(done)

    def discard(self, selection: RowSelection) -> QuarantineChange:
        """Remove rows from the quarantine table: they are in no table any more.

        Rows of batches that the target does not have yet stay: they may be read again.
        """
        done = QuarantineChange()
        self._finish_all(done)

        def attempt() -> int:
            return self._moved(selection, (), None, done)

        done.rows = retried(f"The rows in {self._table} could not be discarded", attempt)
        crash_point("after-discard")
        return self._versions(done)

    def _versions(self, done: QuarantineChange) -> QuarantineChange:
        target = self._open_target()
        done.target_version = None if target is None else target.version()
        done.quarantine_version = self._opened().table.version()
        return done

    def _moved(
        self,
        selection: RowSelection,
        rules: Sequence[RowRule],
        release: str | None,
        done: QuarantineChange,
    ) -> int:
        """Take rows out of their files: into those of a release, or for good.

        Returns:
            How many rows.
        """
        found = self._opened()
        chooser = _RowChooser(selection, found.schema, rules)
        target = self._open_target()
        old: list[TableFile] = []
        new: list[DataFile] = []
        total = 0
        done.pending_rows = done.violating_rows = 0
        for file in self._files(found, selection):
            stream, batch, _ = place_of(file)
            if not self._has(target, stream, batch):
                done.pending_rows += sum(
                    int(pc.sum(chooser.meant(each)).as_py() or 0) for each in found.batches(file)
                )
                continue
            chosen, others, count, _ = split_rows(found, file, chooser.chosen)
            if not count:
                remove_files(self._table, [*chosen, *others])
                continue
            total += count
            old.append(file)
            new += placed(others, stream, batch, None)
            if release is None:
                remove_files(self._table, chosen)
            else:
                new += placed(chosen, stream, batch, release)
        done.violating_rows = chooser.violating
        if old:
            note = {NOTE: {"rows": total, "release": release, **_plain(selection)}}
            found.replace(old, new, note, operation="WRITE")
        return total

    def _finish_all(self, done: QuarantineChange) -> None:
        """Finish releases that were killed."""
        found = self._opened()
        for release in sorted({r for each in found.files.values() if (r := place_of(each)[2])}):
            _log.info("Release %s was killed before its end; it is finished now", release)
            done.finished_rows += self._finish(release)
            done.finished_releases += 1

    def _finish(self, release: str) -> int:
        """Put the rows of a release into the target, and remove them here; give their number."""
        found = self._opened()
        files = [each for each in found.files.values() if place_of(each)[2] == release]
        batch = BatchId(f"quarantine-{release}", 0, counts={})
        target = self._open_target()
        rows = 0
        if files and not has_batch(target, self._target, batch):
            rows = self._append(found, files, batch)
        with DeltaLocation.of(self._target).translate_errors("may lose a commit"):
            make_durable(DeltaLocation.of(self._target))
        crash_point("after-release-commit")

        def attempt() -> None:
            now = self._opened()
            left = [each for each in now.files.values() if place_of(each)[2] == release]
            if left:
                now.replace(left, [], {NOTE: {"released": release}}, operation="DELETE")

        retried(f"The released rows in {self._table} could not be removed", attempt)
        return rows

    def _append(self, found: TableFiles, files: Sequence[TableFile], batch: BatchId) -> int:
        """Append rows to the target, through the columns that it has now."""
        state = TableState.of(load_table(DeltaLocation.of(self._target)), self._target)
        present = PresentSchema(state, found.schema, self._rescued_column)
        schema = present.schema
        how = TableWrite(state, APPENDED)
        layout = how.layout(schema)
        rows = (present.rows(each) for file in files for each in found.batches(file))
        written = write_rows(self._target, schema, rows, layout, how.settings)
        crash_point("before-release-commit")
        commit_batch(
            self._target,
            batch=batch,
            files=written,
            schema=schema,
            rules=APPENDED,
            layout=layout,
        )
        return sum(each.rows for each in written)

    # Reading ------------------------------------------------------------------------------

    def _opened(self) -> TableFiles:
        return files_of(load_table(DeltaLocation.of(self._table)), self._table)

    def _open_target(self) -> DeltaTable | None:
        """Open the target, which is not there before its first batch is committed."""
        return open_to_write(self._target)

    def _has(self, target: DeltaTable | None, stream: str | None, batch: str | None) -> bool:
        """Tell whether the target has a batch."""
        seen = None if target is None else newest_known(target, self._target, str(stream))
        return seen is not None and seen >= int(batch or 0)

    def _files(
        self, found: TableFiles, selection: RowSelection, *, with_released: bool = False
    ) -> Iterator[TableFile]:
        for file in found.files.values():
            _, batch, release = place_of(file)
            if release is not None and not with_released:
                continue
            if selection.batches and int(batch or -1) not in selection.batches:
                continue
            yield file

    def _chosen(
        self, found: TableFiles, selection: RowSelection, *, with_released: bool
    ) -> Iterator[tuple[TableFile, pa.RecordBatch]]:
        chooser = _RowChooser(selection, found.schema, ())
        for file in self._files(found, selection, with_released=with_released):
            for batch in found.batches(file):
                rows = batch.filter(chooser.meant(batch))
                if len(rows):
                    yield file, rows


class _RowChooser:
    """Tells which rows of a quarantine table are meant.

    Args:
        selection: Which rows.
        schema: Of the rows.
        rules: Rows that violate one of these are not taken.

    Attributes:
        violating: How many rows were meant, and not taken.
    """

    def __init__(
        self, selection: RowSelection, schema: pa.Schema, rules: Sequence[RowRule]
    ) -> None:
        self._selection = selection
        self._where = RowPredicate("--where", selection.where, schema) if selection.where else None
        self._rules = [RowPredicate(each.option, each.predicate, schema) for each in rules]
        self._seen: set[str] = set()

    @property
    def violating(self) -> int:
        return len(self._seen)

    def chosen(self, rows: pa.RecordBatch) -> pa.Array:
        """Tell which rows are taken."""
        meant = self.meant(rows)
        keeps = meant
        for each in self._rules:
            keeps = pc.and_(keeps, each.holds(rows))
        left = pc.and_(meant, pc.invert(keeps))
        self._seen.update(rows.column(ID).filter(left).to_pylist())
        return keeps

    def meant(self, rows: pa.RecordBatch) -> pa.Array:
        """Tell which rows are meant."""
        given = self._selection
        found: pa.Array = pa.repeat(pa.scalar(True), len(rows))
        if given.rules:
            found = pc.and_(found, _has_any(rows.column(BROKEN), given.rules))
        if given.files:
            found = pc.and_(found, _is_of(rows.column(FILE), given.files))
        if given.ids:
            found = pc.and_(found, pc.is_in(rows.column(ID), pa.array(given.ids, pa.string())))
        if self._where is not None:
            found = pc.and_(found, self._where.holds(rows))
        return found


def _has_any(lists: pa.Array, names: Sequence[str]) -> pa.Array:
    """Tell which lists have one of some names."""
    flat, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
    wanted = pa.array([each.lower() for each in names], pa.string())
    hits = pc.is_in(flat, wanted).to_numpy(zero_copy_only=False)
    found = np.zeros(len(lists), np.bool_)
    found[parents.to_numpy()[hits]] = True
    return pa.array(found)


def _is_of(uris: pa.Array, files: Sequence[str]) -> pa.Array:
    """Tell which URIs are one of some files, or end in one."""
    found: pa.Array = pc.is_in(uris, pa.array(files, pa.string()))
    for each in files:
        ends = pc.ends_with(uris, pattern=f"/{each.lstrip('/')}")
        found = pc.or_(found, pc.fill_null(ends, False))
    return found


def _rules(options: Mapping[str, str]) -> list[RowRule]:
    """Read the rules that rows are held against."""
    rules = read_rules({name.lower(): text for name, text in options.items()})
    require_predicates(rules)
    return [each for each in rules if each.action != "warn"]


def _shown(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Give rows as values that JSON has."""
    texts = zip(*map(json_of, rows.columns), strict=True)
    return [
        {
            name: json.loads(text or "null")
            for name, text in zip(rows.schema.names, row, strict=True)
        }
        for row in texts
    ]


def _plain(selection: RowSelection) -> dict[str, Any]:
    return {
        name: list(v) if isinstance(v, tuple) else v for name, v in asdict(selection).items() if v
    }


def quarantine_action(given: Mapping[str, Any]) -> dict[str, Any]:
    """Do what `cloudfiles quarantine` asks for.

    Args:
        given: `action` (`list`, `release` or `discard`), `target`, `table`, `rescued_column`,
            `selection` (fields of `RowSelection`), `all_rows`, `sample` and `check`.

    Raises:
        OptionError: No row is named.
    """
    chosen = given.get("selection") or {}
    fields: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in chosen.items()
    }
    selection = RowSelection(**fields)
    action = given["action"]
    if action != "list" and selection.is_all and not given.get("all_rows"):
        raise OptionError(
            f"Name the rows to {action}, by --batch, --file, --rule, --id or --where; or give "
            "--all for all rows."
        )
    found = Quarantine(
        given["target"],
        given.get("table"),
        rescued_column=given.get("rescued_column") or "_rescued_data",
    )
    if action == "list":
        return found.listed(selection, sample=int(given.get("sample", 10)))
    if action == "discard":
        return asdict(found.discard(selection))
    done = asdict(found.release(selection, check=given.get("check")))
    if done["pending_rows"]:
        _log.warning(
            "%s of batches that the target does not have yet stay: run the stream first",
            counted(done["pending_rows"], "row"),
        )
    return done
