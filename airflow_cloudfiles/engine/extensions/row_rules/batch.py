"""Settle what becomes of the rows of a micro-batch that violate rules, before it is committed.

1. A rule that fails the batch ends it: nothing is committed, and all data files are removed.
2. The state notes the quarantine table, before rows get there.
3. The rows that are put aside are committed to the quarantine table, for their stream and batch.
4. The batch is committed to its target.

Killed between 3 and 4, the next try reads the batch again, perhaps by other rules: its rows take
the place of those of the earlier try, in one commit. So it looks also where no rule puts rows
aside any more, if the state says that one did. Where the target has the batch, nothing is changed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CorruptedStateError, ExpectationError
from airflow_cloudfiles.engine.extensions.row_rules.checker import RowChecker
from airflow_cloudfiles.engine.extensions.row_rules.expressions import RowPredicate
from airflow_cloudfiles.engine.extensions.row_rules.table import (
    FILE,
    QuarantineFiles,
    check_table,
    files_of,
    opened_or_made,
    place_of,
    placed,
    split_rows,
    table_of,
)
from airflow_cloudfiles.engine.extensions.row_rules.table import RULES as TABLE_RULES
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, few
from airflow_cloudfiles.engine.options.row_rules import VIOLATIONS
from airflow_cloudfiles.engine.state.metadata import allow_quarantine, has_quarantine
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, normalize_uri
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.tables.delta.commit import (
    WrittenFiles,
    commit_batch,
    has_batch,
    note_of,
    remove_files,
)
from airflow_cloudfiles.engine.tables.delta.lineage import COMMIT_NOTE
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import load_table, open_to_write
from airflow_cloudfiles.engine.tables.delta.read.log import decoded
from airflow_cloudfiles.engine.tables.delta.write.log_commit import retried
from airflow_cloudfiles.engine.target import target_of
from airflow_cloudfiles.engine.versions import FIELD, fields_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.extensions.row_rules.checker import CheckedRows
    from airflow_cloudfiles.engine.options.row_rules import RowRule
    from airflow_cloudfiles.engine.options.sink import TaskSinkOptions
    from airflow_cloudfiles.engine.state.sink_log import BatchId
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.tables.table_writer import TaskWritten

TABLES: Final = "_source/quarantine.json"
"""Which quarantine tables may have rows of the stream."""
TABLES_VERSION: Final = 1
_SHOWN_FILES: Final = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowRules:
    """The rules of a stream for its rows.

    Attributes:
        rules: The rules.
        quarantine: What writes rows that are put aside; `None` where no rule does that.
    """

    rules: tuple[RowRule, ...]
    quarantine: QuarantineFiles | None

    @classmethod
    def of(cls, options: TaskSinkOptions, target: str) -> RowRules:
        """Take the rules of a sink.

        Raises:
            OptionError: A rule puts rows aside, and the target is no Delta table.
        """
        if not options.quarantines_rows:
            return cls(options.row_rules, None)
        instead = "Use warn, drop or fail."
        target_of(target).require_delta("onViolation=quarantine of a rule is", instead)
        return cls(
            options.row_rules, QuarantineFiles.of(options.quarantine_table or table_of(target))
        )

    def check(self, columns: pa.Schema) -> None:
        """Refuse rules that do not go with the columns of a run, before it reads anything.

        Raises:
            OptionError: A rule names a column that is not there, or compares what is not
                comparable.
            SchemaMismatchError: The quarantine table does not take the rows.
        """
        for each in self.rules:
            RowPredicate(each.option, each.predicate, columns)
        if self.quarantine is not None:
            check_table(self.quarantine.table, columns)

    def checker(self) -> RowChecker:
        """Make what checks the rows of a task."""
        return RowChecker(self.rules, self.quarantine)

    def failure(
        self, batch: int, target: str, written: Sequence[TaskWritten]
    ) -> ExpectationError | None:
        """Build the error for a batch with rows that a rule does not allow; `None` for none."""
        failing: Counter[tuple[str, str]] = Counter()
        examples: dict[tuple[str, str], int] = {}
        violations: Counter[str] = Counter()
        for each in _checked(written):
            failing.update(each.failing)
            violations.update(each.violations)
            examples = {**each.examples, **examples}
        found = [r for r in self.rules if r.action == "fail" and violations[r.name]]
        if not found:
            return None
        parts = []
        for rule in found:
            files = Counter({uri: n for (name, uri), n in failing.items() if name == rule.name})
            named = [
                _in_file(uri, count, examples.get((rule.name, uri)))
                for uri, count in files.most_common(_SHOWN_FILES)
                if uri
            ]
            where = f", in {few(named, most=_SHOWN_FILES, characters=500)}" if named else ""
            parts.append(
                f"{counted(violations[rule.name], 'row')} for which {rule.option}="
                f"{rule.predicate!r} is not true{where}"
            )
        return ExpectationError(
            f"Batch {batch} has rows that are not allowed, and nothing of it was committed to "
            f"{target}: {'; '.join(parts)}. Correct the files, or put them aside (cloudfiles file "
            "quarantine), and run again. To put only these rows aside, set onViolation=quarantine "
            "for the rule."
        )

    def log(self, batch: int, counts: Mapping[str, int]) -> None:
        """Log which rules rows of a batch violate."""
        for each in self.rules:
            if count := counts.get(f"{VIOLATIONS}{each.name}"):
                what = counted(count, "row")
                _log.info("Batch %s: %s not as %s says (%s)", batch, what, each.option, each.action)

    def remove(self, written: Sequence[TaskWritten]) -> None:
        """Remove the data files of rows that were put aside, of a batch that is given up."""
        files = [file for each in _checked(written) for file in each.files]
        if self.quarantine is not None:
            remove_files(self.quarantine.table, files)


def _in_file(uri: str, count: int, example: int | None) -> str:
    first = "" if example is None else f", the first is row {example}"
    return f"{printable_path(uri)} ({count}{first})"


def _checked(written: Sequence[TaskWritten]) -> list[CheckedRows]:
    return [each.checked for each in written if each.checked is not None]


def settle(  # noqa: PLR0913 - what there is to know of a batch
    rules: RowRules | None,
    batch: BatchId,
    written: Sequence[TaskWritten],
    state: ObjectStore | None,
    *,
    replayed: Sequence[str],
    target_has: Callable[[], bool],
) -> None:
    """Commit the rows of a batch that are put aside, once however often it is called.

    Args:
        rules: Of the stream, as it is now; `None` where it has none.
        batch: The batch.
        written: What its tasks have written.
        state: Its state, if there is one.
        replayed: URIs of files whose former rows the batch replaces.
        target_has: Tells whether the target has the batch.

    Raises:
        SinkError: A quarantine table cannot be written.
    """
    if rules is not None:
        rules.log(batch.number, batch.counts)
    quarantine = None if rules is None else rules.quarantine
    own = None if quarantine is None else quarantine.table
    # Without the version in the metadata, no row of the stream is in any of them.
    known = [] if state is None or not has_quarantine(state) else quarantine_tables(state)
    uri = "" if own is None else normalize_uri(own)
    checked = _checked(written)
    if state is not None and uri not in known and any(each.files for each in checked):
        note_tables(state, [*known, uri])
        allow_quarantine(state)
        crash_point("after-quarantine-note")
    for table in known:
        if table != uri:
            _BatchInTable(table, batch, [], replayed).commit(target_has)
    if own is not None:
        _BatchInTable(own, batch, checked, replayed).commit(target_has)


def quarantine_tables(state: ObjectStore) -> list[str]:
    """List the quarantine tables of a state whose metadata say that there are some.

    Raises:
        CorruptedStateError: What says so is gone, or cannot be read.
    """
    name = printable_path(state.child_uri(TABLES))
    try:
        with reaching_state(state):
            content = state.get(TABLES)
    except ObjectNotFoundError as failure:
        raise CorruptedStateError(
            f"{name} is gone, and rows of this stream may be in a quarantine table. Restore the "
            "checkpoint location as a whole from a backup."
        ) from failure
    try:
        found = fields_of(unseal(content), name=name, understood=TABLES_VERSION)
    except ValueError as failure:
        raise CorruptedStateError(
            f"{name} cannot be read: {failure}. Restore the checkpoint location as a whole from a "
            "backup."
        ) from failure
    return [str(each) for each in found["tables"]]


def note_tables(state: ObjectStore, tables: Sequence[str]) -> None:
    """Note the tables, for whoever commits a batch of which rows are there."""
    with reaching_state(state):
        state.put(TABLES, seal({FIELD: TABLES_VERSION, "tables": list(tables)}))


class _BatchInTable:
    """The rows of one batch that are put aside.

    Args:
        table: Path or URI of the quarantine table.
        batch: The batch.
        checked: What its tasks have put aside; nothing where no rule does that any more.
        replayed: URIs of files whose former rows it replaces, in this table, too.
    """

    def __init__(
        self,
        table: str,
        batch: BatchId,
        checked: Sequence[CheckedRows],
        replayed: Sequence[str],
    ) -> None:
        self._replayed = replayed
        self._table = table
        rows = sum(each.quarantined for each in checked)
        self._batch = replace(batch, counts={"rows": rows}, origin="")
        files = [file for each in checked for file in each.files]
        self._files = placed(files, batch.app_id, str(batch.number), None)
        lead = next((each for each in checked if each.files), None)
        self._schema = None if lead is None else lead.schema
        self._layout = None if lead is None else lead.layout

    def commit(self, target_has: Callable[[], bool]) -> None:
        table = open_to_write(self._table)
        is_there = table is not None and has_batch(table, self._table, self._batch)
        if not self._files and not is_there and not self._replayed:
            return
        if target_has():  # whose rows are where that commit has put them
            remove_files(self._table, self._files)
            return
        crash_point("before-quarantine-commit")
        if table is not None and self._replayed:
            self._remove_former()
        if is_there:
            self._replace()
        elif self._files:
            assert self._schema is not None  # noqa: S101 - it has files
            opened_or_made(self._table, self._schema)
            commit_batch(
                self._table,
                batch=self._batch,
                files=self._files,
                schema=self._schema,
                rules=TABLE_RULES,
                layout=self._layout,
            )
        crash_point("after-quarantine-commit")

    def _remove_former(self) -> None:
        """Remove rows that files had when they were ingested before."""
        uris = pa.array(self._replayed, pa.string())
        own = str(self._batch.number)

        def attempt() -> None:
            files = files_of(load_table(DeltaLocation.of(self._table)), self._table)
            old, new = [], []
            for file in files.files.values():
                stream, number, release = place_of(file)
                if stream != self._batch.app_id or number == own or release is not None:
                    continue
                gone, others, count, _ = split_rows(
                    files, file, lambda rows: pc.is_in(rows.column(FILE), uris)
                )
                remove_files(self._table, gone if count else others)
                if count:
                    old.append(file)
                    new += placed(others, stream, number, None)
            if old:
                files.replace(old, new, {COMMIT_NOTE: note_of(self._batch)}, operation="DELETE")

        retried(f"Former rows of replayed files in {self._table}", attempt)

    def _replace(self) -> None:
        """Put the rows in the place of those of an earlier try, which the target has not got."""
        location = DeltaLocation.of(self._table)

        def attempt() -> None:
            table = load_table(location)
            if self._schema is not None:
                given = WrittenFiles(self._table, self._files, self._schema, self._layout)
                table = given.prepare(table, TABLE_RULES)
            files = files_of(table, self._table)
            wanted = (self._batch.app_id, str(self._batch.number), None)
            own = {each.name for each in self._files}
            there = [each for each in files.files.values() if place_of(each) == wanted]
            old = [each for each in there if decoded(each.name) not in own]
            # Where the answer to a commit was lost, they are there.
            new = self._files if len(old) == len(there) else []
            if old or new:
                note = {COMMIT_NOTE: note_of(self._batch)}
                files.replace(old, new, note, operation="WRITE")

        retried(f"The rows of batch {self._batch.number} in {self._table}", attempt)
