"""May a stream go on over a renamed, dropped or retyped column?

Only when somebody has said so: for this series of changes (the version up to which they were looked
at), for this stream (`always`, under the key of its checkpoint), or for all streams. The settings
are Delta's: SQL configurations, and options of the reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.delta.stream.changes import ChangeKind, ColumnChange, describe
from airflow_cloudfiles.engine.errors import BlockedSchemaChangeError
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions

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
    """The kinds of changes in Delta's words."""
    columns = [kind.value.removesuffix(" COLUMN") for kind in ChangeKind
               if kind in kinds - {ChangeKind.TYPE}]  # fmt: skip
    found = [f"{' AND '.join(columns)} COLUMN"] if columns else []
    return " AND ".join([*found, *([ChangeKind.TYPE.value] if ChangeKind.TYPE in kinds else [])])


def _java_hash(text: str) -> int:
    """Java's hash of a string, by which Delta makes the key of a stream."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for place in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[place : place + 2], "big")) & 0xFFFFFFFF
    return found - 2**32 if found >= 2**31 else found
