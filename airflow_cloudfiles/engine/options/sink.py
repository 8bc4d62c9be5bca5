"""Declare the options of the sinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import OptionGroup, option, options_of
from airflow_cloudfiles.engine.options.row_rules import (
    RULES,
    RowRule,
    is_rule_option,
    read_rules,
    require_predicates,
)
from airflow_cloudfiles.engine.options.values import (
    GIB,
    at_least_zero,
    boolean,
    choice,
    names,
    place,
    positive,
    share,
    size,
    text,
)

PARTITION_BY: Final = "partitionBy"
"""Name of the option for the partition columns of a new table."""
_OF_ICEBERG: Final = ("merge_schema", "type_widening", "type_widening_max_bytes", "partition_by")

EXPECT: Final = "expect."
"""How the names of expectations begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(OptionGroup):
    """The options that a stream and a batch write have in common."""

    merge_schema: bool | None = option(
        "mergeSchema",
        boolean,
        default=None,
        shown="`false`; `true` for the Airflow operators, which take it in `options`",
    )
    """Add columns that the table lacks; otherwise they are refused."""
    type_widening: bool | None = option(
        "typeWidening",
        boolean,
        default=None,
        shown="`false`; for the Airflow operators `true` with "
        "`cloudFiles.schemaEvolutionMode=addNewColumnsWithTypeWidening`",
    )
    """With `mergeSchema`: rewrite the table, in one commit, when a column has become wider;
    otherwise that is refused."""
    type_widening_max_bytes: int = option("typeWideningMaxBytes", size, default=10 * GIB)
    """The largest table that is rewritten, in bytes of its data files."""
    partition_by: tuple[str, ...] = option(PARTITION_BY, names, default=())
    """The columns that a new table is partitioned by; those of a table that is there must be the
    same. `writeStream.partitionBy(...)` sets it. An Iceberg table takes `year(c)`, `month(c)`,
    `day(c)`, `hour(c)`, `bucket(16, c)` and `truncate(4, c)`, too."""
    overwrite_schema: bool = option("overwriteSchema", boolean, default=False)
    """Of a batch write in mode `overwrite`: the columns of the DataFrame become those of the
    table. A stream only appends: it refuses `true`."""
    column_mapping: str | None = option(
        "delta.columnMapping.mode", choice(("none", "name", "id")), default=None, shown="`none`"
    )
    """The column mapping of a new table. With `name` or `id`, columns can be renamed and dropped
    without rewriting a file."""
    enable_type_widening: bool | None = option(
        "delta.enableTypeWidening", boolean, default=None, shown="`false`"
    )
    """Whether types of a new table become wider in its metadata only. Delta 4, DuckDB and this
    package can read its rows; Delta 3.3 cannot where a type became BIGINT, `deltalake` (1.6)
    never."""
    append_only: bool | None = option("delta.appendOnly", boolean, default=None, shown="`false`")
    """Whether rows of a new table can only be added."""

    target_file_size: int | None = option(
        "targetFileSize",
        size,
        default=None,
        shown="`delta.targetFileSize` of the table, or else `256m` on a disk and `64m` in a cloud",
    )
    """A task closes a data file when it has grown to about this size. In a cloud, so much is in the
    memory of a task."""
    auto_compact: bool | None = option(
        "autoCompact",
        boolean,
        default=None,
        shown="`delta.autoOptimize.autoCompact` of the table, or else `false`",
    )
    """Write the small data files of the table together after a batch, when it has many
    (`autoCompactMinFiles`). The batch is committed before; where compacting fails, it is logged."""
    auto_compact_min_files: int = option("autoCompactMinFiles", positive, default=50)
    """How many small data files are many."""
    merge_keys: tuple[str, ...] = option(
        "mergeKeys", names, default=(), shown="none: rows are appended"
    )
    """Merge each batch into the table: a row updates the row that has the same values in these
    columns, or else is inserted."""
    merge_order_by: str | None = option("mergeOrderBy", text, default=None, shown="none")
    """With `mergeKeys`: the column whose greatest value is the newest state of a row. Of several
    rows of one key in a batch the newest is merged, and a row older than the table's changes
    nothing. Without it, a batch with two rows of one key is refused."""
    merge_delete_when: str | None = option("mergeDeleteWhen", text, default=None, shown="none")
    """With `mergeKeys`: a predicate such as `op = 'D'`; rows for which it is true delete the row
    with their keys, and are not inserted."""
    merge_when_matched: Literal["update", "delete", "ignore"] = option(
        "mergeWhenMatched", choice(("update", "delete", "ignore")), default="update"
    )
    """With `mergeKeys`: what a row does to the row of the table with the same keys."""
    merge_when_not_matched: Literal["insert", "ignore"] = option(
        "mergeWhenNotMatched", choice(("insert", "ignore")), default="insert"
    )
    """With `mergeKeys`: what a row does when the table has no row with its keys."""
    merge_null_keys: Literal["fail", "insert"] = option(
        "mergeNullKeys", choice(("fail", "insert")), default="fail"
    )
    """With `mergeKeys`: whether a row with a null among its keys fails the batch, or is inserted:
    it matches no row."""

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a new table."""
        given = {
            "delta.columnMapping.mode": self.column_mapping,
            "delta.enableTypeWidening": self.enable_type_widening,
            "delta.appendOnly": self.append_only,
        }
        return {key: str(value).lower() for key, value in given.items() if value is not None}

    def require_iceberg(self) -> None:
        """Refuse what only Delta tables have.

        Raises:
            OptionError: Such an option is set.
        """
        for name, declared in options_of(TableOptions).items():
            if name not in _OF_ICEBERG and getattr(self, name) != declared.default:
                raise OptionError(
                    f"{declared.name} is for Delta tables, and the target is an Iceberg table. "
                    "Leave it out."
                )

    def _check(self) -> None:
        self._check_appends()
        self._check_merge()

    def _check_appends(self) -> None:
        if self.overwrite_schema:
            raise OptionError(
                "overwriteSchema=true replaces the columns of a table, and a stream only appends: "
                "it applies only with overwrite, so to batch writes in mode overwrite without "
                "replaceWhere. Set mergeSchema=true to add columns."
            )

    def _check_merge(self) -> None:
        if self.merge_keys:
            return
        for name, declared in options_of(TableOptions).items():
            is_of_merge = name.startswith("merge_") and name != "merge_schema"
            if is_of_merge and getattr(self, name) != declared.default:
                raise OptionError(
                    f"{declared.name} needs mergeKeys: the columns that identify a row."
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSinkOptions(TableOptions):
    """The options of the sink that a task takes among those of its stream."""

    max_rescued_share: float | None = option(
        "expect.maxRescuedShare", share, default=None, shown="none"
    )
    """The largest share of the rows of a micro-batch that may have rescued data, from 0 to 1.
    `expect.*` is for runs that ingest files (`CloudFilesIngestOperator`, `cloudfiles ingest`); a
    batch that is not as expected is not committed, unless `expect.onViolation=warn`."""
    max_corrupt_share: float | None = option(
        "expect.maxCorruptShare", share, default=None, shown="none"
    )
    """The largest share of the records of a micro-batch that may be corrupt, whether they are kept,
    dropped (`DROPMALFORMED`) or put apart (`badRecordsPath`)."""
    required_columns: tuple[str, ...] = option(
        "expect.requiredColumns", names, default=(), shown="none"
    )
    """Columns that have a value in at least one row of each micro-batch that has rows."""
    min_rows: int | None = option("expect.minRows", positive, default=None, shown="none")
    """The fewest rows of a micro-batch. One of which no file is read is not checked."""
    max_rows: int | None = option("expect.maxRows", positive, default=None, shown="none")
    """The most rows of a micro-batch."""
    on_violation: Literal["fail", "quarantine", "warn"] = option(
        "expect.onViolation", choice(("fail", "quarantine", "warn")), default="fail"
    )
    """What becomes of a micro-batch that is not as expected. `fail`: nothing of it is committed,
    and the run fails with `ExpectationError`. `quarantine`: as `fail`, and the files that have a
    larger share than is allowed are quarantined; the run fails with `FilesQuarantinedError`, and
    the next try commits the rest of the batch. It needs `expect.maxRescuedShare` or
    `expect.maxCorruptShare`; for what else is expected no file is to blame, and the run fails.
    `warn`: it is committed, and the report says so."""

    row_rules: tuple[RowRule, ...] = option(
        "expect.row.<name>", RULES, default=(), shown="none", read_all=read_rules
    )
    """A rule for rows: a predicate in SQL, such as `amount > 0`, which a row violates for which it
    is false or NULL. `expect.row.<name>.onViolation` says what becomes of such a row. `warn`, the
    default: it is counted and kept. `drop`: it is counted and left out. `fail`: nothing of its
    batch is committed, and the run fails with `ExpectationError`. `quarantine`: it goes into the
    quarantine table, and `cloudfiles quarantine` puts it back ([how](../how-to/check-rows.md))."""
    quarantine_table: str | None = option(
        "expect.quarantineTable", place, default=None, shown="the target, with `_quarantine`"
    )
    """The Delta table of the rows that a rule with `onViolation=quarantine` puts aside."""

    @property
    def has_expectations(self) -> bool:
        """Whether anything is expected of a micro-batch."""
        given = (self.max_rescued_share, self.max_corrupt_share, self.min_rows, self.max_rows)
        return bool(self.required_columns) or any(each is not None for each in given)

    @property
    def quarantines_rows(self) -> bool:
        """Whether rows may go into a quarantine table."""
        return any(each.action == "quarantine" for each in self.row_rules)

    def _check(self) -> None:
        require_predicates(self.row_rules)
        self._check_quarantine()
        self._check_appends()
        self._check_merge()
        least, most = self.min_rows, self.max_rows
        if least is not None and most is not None and least > most:
            raise OptionError(
                f"expect.minRows={least} is more than expect.maxRows={most}: no micro-batch could "
                "be committed. Change one of them."
            )
        if self.on_violation != "fail" and not self.has_expectations:
            raise OptionError(
                f"expect.onViolation={self.on_violation} needs an expectation, such as "
                "expect.maxRescuedShare."
            )
        if self.on_violation == "quarantine" and self._blames_no_file:
            raise OptionError(
                "expect.onViolation=quarantine needs expect.maxRescuedShare or "
                "expect.maxCorruptShare: for other expectations no file is to blame. Set one of "
                "them, or use fail or warn."
            )

    def _check_quarantine(self) -> None:
        if self.quarantine_table is not None and not self.quarantines_rows:
            raise OptionError(
                "expect.quarantineTable needs a rule whose rows go there: set "
                "expect.row.<name>.onViolation=quarantine."
            )
        if self.quarantines_rows and self.merge_keys:
            raise OptionError(
                "onViolation=quarantine of a rule does not go with mergeKeys: a row that is put "
                "back later would change rows that are newer. Use drop or fail."
            )

    @property
    def _blames_no_file(self) -> bool:
        return self.max_rescued_share is None and self.max_corrupt_share is None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(TaskSinkOptions):
    """The options of `writeStream`."""

    checkpoint_location: str | None = option(
        "checkpointLocation", place, default=None, shown="required"
    )
    """The state of the stream."""
    path: str | None = option("path", place, default=None, shown="the argument of `start`")
    """The folder of the table."""
    txn_app_id: str | None = option("txnAppId", text, default=None, shown="the id of the stream")
    """The name under which the table remembers the batches it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriteOptions(TableOptions):
    """The options of `DataFrame.write`."""

    path: str | None = option("path", place, default=None, shown="the argument of `save`")
    """The folder of the table."""
    replace_where: str | None = option("replaceWhere", text, default=None, shown="none: all rows")
    """With `mode("overwrite")`: a predicate such as `day >= '2026-11-01'`; only the rows of the
    table for which it is true are replaced. A row of the DataFrame for which it is not true fails
    the write; a row of the table for which it is null stays. A time without a zone is in UTC."""
    partition_overwrite_mode: Literal["static", "dynamic"] = option(
        "partitionOverwriteMode", choice(("static", "dynamic")), default="static"
    )
    """`dynamic` is refused; use `replaceWhere`."""
    txn_app_id: str | None = option("txnAppId", text, default=None, shown="none")
    """With `txnVersion`: who writes. The table remembers the newest version of each, and skips a
    write of that version or of an older one."""
    txn_version: int | None = option("txnVersion", at_least_zero, default=None, shown="none")
    """Which write it is; it grows."""

    def _check(self) -> None:
        self._check_merge()
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise OptionError("txnAppId and txnVersion go together: give both, or neither.")
        if self.partition_overwrite_mode == "dynamic":
            raise OptionError(
                "partitionOverwriteMode=dynamic is not supported. Name the rows to be replaced "
                "with replaceWhere."
            )
        if self.overwrite_schema and self.replace_where:
            raise OptionError(
                "overwriteSchema replaces the whole table, and replaceWhere a part of it. Give one."
            )
        if self.merge_keys and (self.overwrite_schema or self.replace_where):
            raise OptionError(
                "mergeKeys merges rows into the table; overwriteSchema and replaceWhere replace "
                "them. Give one."
            )


def partition_option(columns: Iterable[str]) -> str:
    """Partition columns as the value of the option.

    Raises:
        OptionError: A name has a comma, which separates names there.
    """
    names_of_columns = list(columns)
    odd = next((name for name in names_of_columns if "," in name), None)
    if odd is not None:
        raise OptionError(
            f"partitionBy cannot name the column {odd!r}: a comma separates names. Rename it."
        )
    return ",".join(names_of_columns)


OF_SINK: Final = tuple(
    each.name for each in options_of(TaskSinkOptions).values() if each.read_all is None
)
"""Names of the options of the sink that a task takes among those of its stream, but for those of
rules for rows, which are known by what they begin with (`is_of_sink`)."""
_KEYS: Final = frozenset(name.lower() for name in OF_SINK)


def is_of_sink(name: str) -> bool:
    """Tell whether an option, in any case, is one of the sink that a task takes."""
    return name.lower() in _KEYS or is_rule_option(name)


def rule_options(given: Mapping[str, str]) -> dict[str, str]:
    """Choose the options of rules for rows."""
    return {name: text for name, text in given.items() if is_rule_option(name)}
