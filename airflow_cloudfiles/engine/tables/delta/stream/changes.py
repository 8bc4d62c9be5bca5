"""Find what has changed between two schemas of a table.

Columns are the same when they have the same physical name, which column mapping keeps for ever;
without it, when they have the same name. A new column is an additive change: whoever reads on with
the new schema misses nothing. A renamed, dropped or retyped column is not: what is downstream has
to know.

A stream goes on over a renamed, dropped or retyped column only where that was allowed.

Only when somebody has said so: for this series of changes (the version up to which they were looked
at), for this stream (`always`, under the key of its checkpoint), or for all streams. The settings
are Delta's: SQL configurations, and options of the reader.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from airflow_cloudfiles.engine.errors import BlockedSchemaChangeError
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions
from airflow_cloudfiles.engine.tables.delta.read.columns import PHYSICAL_NAME
from airflow_cloudfiles.engine.types import short_type


class ChangeKind(enum.Enum):
    """The kinds of changes of a column; the value is what Delta calls it."""

    ADD = "ADD COLUMN"
    RENAME = "RENAME COLUMN"
    DROP = "DROP COLUMN"
    TYPE = "TYPE CHANGE"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A change of one column.

    Attributes:
        kind: What has happened to it.
        column: Its name, with those that it is inside of; the name before, if there is one.
        detail: What it is now: its name or type, for errors.
    """

    kind: ChangeKind
    column: str
    detail: str = ""

    @property
    def is_additive(self) -> bool:
        """Whether reading on with the new schema misses nothing."""
        return self.kind is ChangeKind.ADD

    def __str__(self) -> str:
        """Describe the change, for a list of changes."""
        return f"{self.kind.value} {self.column}{self.detail}"


def changes_between(before: StructType, after: StructType) -> list[ColumnChange]:
    """List the changes from one schema to another; neither order nor nullability is a change.

    Args:
        before: With Delta's notes on columns.
        after: The same table, later.
    """
    return list(_of_struct(before, after, ""))


def describe(changes: Sequence[ColumnChange]) -> str:
    """Describe the changes in one line."""
    return "; ".join(map(str, changes))


def _of_struct(before: StructType, after: StructType, within: str) -> Iterator[ColumnChange]:
    left = list(after.fields)
    for field in before.fields:
        path = f"{within}{field.name}"
        wanted = _identity(field)
        found = next((each for each in left if _identity(each) == wanted), None)
        if found is None:
            yield ColumnChange(ChangeKind.DROP, path)
            continue
        left.remove(found)
        if found.name != field.name:
            yield ColumnChange(ChangeKind.RENAME, path, f" to {within}{found.name}")
        yield from _of_type(field.dataType, found.dataType, path)
    for field in left:
        yield ColumnChange(ChangeKind.ADD, f"{within}{field.name}")


def _of_type(before: DataType, after: DataType, path: str) -> Iterator[ColumnChange]:
    if isinstance(before, StructType) and isinstance(after, StructType):
        yield from _of_struct(before, after, f"{path}.")
    elif isinstance(before, ArrayType) and isinstance(after, ArrayType):
        yield from _of_type(before.elementType, after.elementType, f"{path}.element")
    elif isinstance(before, MapType) and isinstance(after, MapType):
        yield from _of_type(before.keyType, after.keyType, f"{path}.key")
        yield from _of_type(before.valueType, after.valueType, f"{path}.value")
    elif before != after:
        was, now = short_type(before), short_type(after)
        yield ColumnChange(ChangeKind.TYPE, path, f" from {was} to {now}")


def _identity(field: StructField) -> str:
    # A table that is upgraded to column mapping keeps the names of its columns in its files.
    return str((field.metadata or {}).get(PHYSICAL_NAME, field.name))


PREFIX: Final = "spark.databricks.delta.streaming.allowSourceColumn"
"""How the SQL configurations begin that allow changes."""
_ALWAYS: Final = "always"
_BOTH: Final = "RenameAndDrop"
_NAMES: Final = {
    ChangeKind.RENAME: "Rename",
    ChangeKind.DROP: "Drop",
    ChangeKind.TYPE: "TypeChange",
}


@dataclass(frozen=True, slots=True)
class Unblocking:
    """What is allowed to one stream.

    Attributes:
        options: Of its reader.
        settings: The SQL configurations that begin with `PREFIX`, by their names.
        source_path: The stream: its place in Spark's checkpoint.
    """

    options: TableStreamOptions
    settings: Mapping[str, str]
    source_path: str

    @property
    def key(self) -> str:
        """What the configurations of this stream end with."""
        return f"ckpt_{_java_hash(self.source_path)}"

    def require(self, changes: Sequence[ColumnChange], before: int, after: int) -> None:
        """Refuse changes that are not additive and not allowed.

        Args:
            changes: Between the two versions.
            before: The version whose schema the stream had.
            after: The version whose schema it is to go on with.

        Raises:
            BlockedSchemaChangeError: It names the changes, and what to set to what.
        """
        wanted = {each.kind for each in changes if not each.is_additive}
        if any(not self._allows(kind, after) for kind in wanted):
            raise BlockedSchemaChangeError(self._message(changes, wanted, before, after))

    def _allows(self, kind: ChangeKind, version: int) -> bool:
        options = {
            ChangeKind.RENAME: self.options.allow_source_column_rename,
            ChangeKind.DROP: self.options.allow_source_column_drop,
            ChangeKind.TYPE: self.options.allow_source_column_type_change,
        }
        names = [_NAMES[kind]] if kind is ChangeKind.TYPE else [_NAMES[kind], _BOTH]
        keys = {f"{PREFIX}{name}{end}".lower() for name in names for end in ("", f".{self.key}")}
        given = [value for key, value in self.settings.items() if key.lower() in keys]
        values = {str(value).strip().lower() for value in (options[kind], *given) if value}
        return _ALWAYS in values or str(version) in values

    def _message(
        self, changes: Sequence[ColumnChange], kinds: set[ChangeKind], before: int, after: int
    ) -> str:
        names = [_BOTH] if kinds - {ChangeKind.TYPE} else []
        names += [_NAMES[ChangeKind.TYPE]] if ChangeKind.TYPE in kinds else []

        def setting(end: str, value: object) -> str:
            return " and ".join(f"`{PREFIX}{name}{end} = {value}`" for name in names)

        own = f".{self.key}"
        narrower = [_NAMES[kind] for kind in ChangeKind if kind in kinds - {ChangeKind.TYPE}]
        instead = " or ".join(f"`allowSourceColumn{name}`" for name in narrower)
        alternative = (
            f"Alternatively if applicable, you may replace the `allowSourceColumn{_BOTH}` with "
            f"{instead} in the SQL conf to unblock stream for just this schema change type.\n"
            if len(narrower) == 1
            else ""
        )
        options = " and ".join(
            f"`allowSourceColumn{_NAMES[kind]}`" for kind in ChangeKind if kind in kinds
        )
        return (
            "[DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION] We've detected one "
            f"or more non-additive schema change(s) ({_operation(kinds)}) between Delta version "
            f"{before} and {after} in the Delta streaming source.\n"
            f"Changes: {describe([each for each in changes if not each.is_additive])}.\n"
            "Please check if you want to manually propagate the schema change(s) to the sink table "
            "before we proceed with stream processing using the finalized schema at "
            f"{after}.\n"
            "Once you have fixed the schema of the sink table or have decided there is no need to "
            "fix, you can set (one of) the following SQL configurations to unblock the "
            "non-additive schema change(s) and continue stream processing.\n"
            "To unblock for this particular stream just for this series of schema change(s): set "
            f"{setting(own, after)}.\n"
            f"To unblock for this particular stream: set {setting(own, _ALWAYS)}\n"
            f"To unblock for all streams: set {setting('', _ALWAYS)}.\n"
            f"{alternative}"
            f"Or set the reader option {options} to {after}, or to {_ALWAYS}."
        )


def _operation(kinds: set[ChangeKind]) -> str:
    """Name the kinds of changes in Delta's words."""
    columns = [kind.value.removesuffix(" COLUMN") for kind in ChangeKind
               if kind in kinds - {ChangeKind.TYPE}]  # fmt: skip
    found = [f"{' AND '.join(columns)} COLUMN"] if columns else []
    return " AND ".join([*found, *([ChangeKind.TYPE.value] if ChangeKind.TYPE in kinds else [])])


def _java_hash(text: str) -> int:
    """Compute Java's hash of a string, from which Delta makes the key of a stream."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for place in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[place : place + 2], "big")) & 0xFFFFFFFF
    return found - 2**32 if found >= 2**31 else found
