"""Explain why values were rescued: what their column expects, and what helps.

Of the newest rescued data of a table, or of one row, each field is held against the version of the
schema that its file was read with.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.engine.extensions.overview.rescued import (
    RESCUED_DATA,
    RescuedField,
    RescuedFields,
    fields_in,
    newest_rescued,
    shortened,
)
from airflow_cloudfiles.engine.extensions.overview.runs import newest_files
from airflow_cloudfiles.engine.extensions.overview.summary import html_table
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.intake.file_states import FileQuery
from airflow_cloudfiles.engine.messages import counted, printable
from airflow_cloudfiles.engine.names import dotted, parts_of
from airflow_cloudfiles.engine.schema.diff import paths_of
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.schema.history import SchemaEntry
    from airflow_cloudfiles.engine.storage.access import Access

MOST_FILES: Final = 50
"""Of so many files it is looked up with which version of the schema they were read."""
_CORRUPT: Final = "_corrupt_record"
_REPLAY: Final = "Correct the file, and have it ingested again: cloudfiles file replay."
_HEADS: Final = ("field", "value", "file", "rows", "expected", "schema", "why", "what to do")


@dataclass(frozen=True, slots=True, kw_only=True)
class RescuedReason:
    """Why a field was rescued.

    Attributes:
        field: Its dotted path.
        value: A value, as the record has it, shortened.
        file: URI of its file; `None` where the row does not say.
        rows: How many of the rows that were read have it for this reason.
        expected: The type of its column; `None` where it has none.
        schema_version: Of the schema that the file was read with; `None` where there is none.
        why: A sentence.
        what_to_do: A sentence.
    """

    field: str
    value: str
    file: str | None
    rows: int = 1
    expected: str | None = None
    schema_version: int | None = None
    why: str = ""
    what_to_do: str = ""


class RescuedReasons(tuple[RescuedReason, ...]):
    """Reasons; a notebook shows them as a table, `print` as sentences."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(_sentence, self)) or "Nothing is rescued."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Write the table that a notebook shows; what comes from files is escaped."""
        rows = [_HEADS, *map(_cells, self)]
        return html_table(rows, has_heads=True) if self else "<p>Nothing is rescued.</p>"


def _cells(reason: RescuedReason) -> tuple[str, ...]:
    version = "-" if reason.schema_version is None else str(reason.schema_version)
    expected = reason.expected or "-"
    row = (reason.field, reason.value, reason.file or "-", f"{reason.rows:,}", expected, version)
    return (*row, reason.why, reason.what_to_do)


def _sentence(reason: RescuedReason) -> str:
    where = f" in {reason.file}" if reason.file else ""
    rows = counted(reason.rows, "row")
    said = f"{reason.field} = {reason.value}{where} ({rows}): {reason.why} {reason.what_to_do}"
    return printable(said)


def why_rescued(  # noqa: PLR0913 - what can be asked for
    checkpoint_location: str,
    *,
    rescued: str | None = None,
    field: str | None = None,
    file: str | None = None,
    target: str | None = None,
    schema_location: str | None = None,
    column: str = RESCUED_DATA,
    access: Access | None = None,
) -> RescuedReasons:
    """Explain why values of a stream were rescued; nothing is changed.

    Args:
        checkpoint_location: Path or URI of the state.
        rescued: The rescued data of one row; `None` for the newest rows of the table.
        field: Only this field, or what is inside it: a dotted path.
        file: Only rows of this file: its name, its URI, or a pattern for one of them.
        target: The table; `None` for the one that the stream wrote to last.
        schema_location: Where the schema log is, if elsewhere.
        column: The rescued data column.
        access: How the clouds are reached; `None` for the environment's own chain.

    Returns:
        A reason for each field, type and version; the most frequent first.

    Raises:
        OptionError: No table is known, and none was given.
        StateError: There is no schema log.
        CloudFilesError: Schema log or table cannot be read.
    """
    history = SchemaHistory(schema_location or checkpoint_location, access=access)
    history.show()  # says what to do where there is none
    texts: Iterable[bytes]
    if rescued is None:
        table = target or _target(checkpoint_location, access)
        texts = newest_rescued(table, RescuedFields([]), access, column=column)
    else:
        texts = [rescued.encode("utf-8", "surrogatepass")]
    metadata = read_metadata(open_store(checkpoint_location, access))
    versions = _SchemaVersions(
        history.versions(),
        _Versions(checkpoint_location, access),
        "json" if metadata is None else metadata.format,
    )
    found: dict[tuple[Any, ...], RescuedReason] = {}
    for text in texts:
        of_file, values = fields_in(text)
        if file is not None and not _is_of(of_file, file):
            continue
        for path, value in values:
            if field is None or path == field or path.startswith(f"{field}."):
                reason = versions.reason(path, value, of_file)
                key = (path, reason.expected, reason.schema_version, reason.why)
                before = found.get(key)
                found[key] = reason if before is None else replace(before, rows=before.rows + 1)
    return RescuedReasons(sorted(found.values(), key=lambda each: (-each.rows, each.field)))


def _target(checkpoint_location: str, access: Access | None) -> str:
    record = SinkLog(open_store(checkpoint_location, access)).newest()
    if record is None or not record.target:
        raise OptionError(
            f"The state in {printable_path(checkpoint_location)} names no table. Give it as "
            "target, or the rescued data of a row as rescued."
        )
    return record.target


def _is_of(uri: str | None, file: str) -> bool:
    name = (uri or "").rpartition("/")[2]
    return any(each == file or fnmatch.fnmatchcase(each, file) for each in (name, uri or ""))


class _Versions:
    """With which version of the schema files were read, as the state has it."""

    def __init__(self, checkpoint_location: str, access: Access | None) -> None:
        self._location, self._access = checkpoint_location, access
        self._known: dict[str, tuple[int | None, datetime | None]] = {}

    def of(self, file: str | None, entries: Sequence[SchemaEntry]) -> SchemaEntry:
        version, committed = self._read(file)
        by_number = {each.version: each for each in entries}
        if version in by_number:
            return by_number[version]
        before = [
            each
            for each in entries
            if committed is None or datetime.fromisoformat(each.created) <= committed
        ]
        return (before or entries)[-1]

    def _read(self, file: str | None) -> tuple[int | None, datetime | None]:
        """Read version and time of the commit of a file's batch; nothing where it is not known."""
        if file is None or (file not in self._known and len(self._known) >= MOST_FILES):
            return None, None
        if file not in self._known:
            try:
                found, _ = newest_files(self._location, FileQuery(path=file), self._access, most=1)
            except CloudFilesError:  # of another source, or a state without files
                found = []
            row: Mapping[str, Any] = found[0] if found else {}
            self._known[file] = row.get("schema_version"), row.get("commit_time")
        return self._known[file]


class _SchemaVersions:
    """Holds fields against versions of a schema."""

    def __init__(
        self, entries: Sequence[SchemaEntry], versions: _Versions, format_name: str
    ) -> None:
        self._entries, self._versions, self._format = entries, versions, format_name
        self._types = {each.version: _types(each) for each in entries}

    def reason(self, path: str, value: bytes, file: str | None) -> RescuedReason:
        entry = self._versions.of(file, self._entries)
        expected, why, what_to_do = self._why(path, value, entry)
        return RescuedReason(
            field=path,
            value=shortened(value),
            file=file,
            expected=expected,
            schema_version=entry.version,
            why=why,
            what_to_do=what_to_do,
        )

    def _why(self, path: str, value: bytes, entry: SchemaEntry) -> tuple[str | None, str, str]:
        if path == _CORRUPT:
            return None, "The record is not valid: none of its values was read.", _REPLAY
        types = self._types[entry.version]
        column = next((each for each in _prefixes(path) if each in types), None)
        if column is not None and (column == path or not types[column].startswith("struct<")):
            what = "an object" if column != path else _kind_of(value)
            why = (
                f"{column} is {_upper(types[column])}, and the record has {what} that does not fit."
            )
            wider = _wider(column, value, entry, self._format) if column == path else None
            return types[column], why, _misfit(column, wider)
        spelled = next((each for each in types if each.lower() == path.lower()), None)
        if spelled is not None:
            why = f"It is spelled otherwise than the column {spelled}."
            return types[spelled], why, f"Set readerCaseSensitive=false. {_promote(path)}"
        return None, self._no_column(path, entry), _promote(path)

    def _no_column(self, path: str, entry: SchemaEntry) -> str:
        newest = self._entries[-1]
        if path in self._types[newest.version]:
            return f"It was no column yet; it is one since version {newest.version} or before."
        if entry.pin is not None:
            return f"It is no column, and the schema is pinned at version {entry.version}."
        if path in (entry.stay_rescued or ()):
            return "It is no column: somebody has decided to leave it in the rescued data."
        return "It is no column, and the stream adds none for it (cloudFiles.schemaEvolutionMode)."


def _types(entry: SchemaEntry) -> Mapping[str, str]:
    return {**paths_of(entry.partition_schema), **paths_of(entry.data_schema)}


def _prefixes(path: str) -> Iterator[str]:
    """Yield a path and the paths that it is inside of, the longest first."""
    names = parts_of(path)
    return (dotted(names[:end]) for end in range(len(names), 0, -1))


def _upper(kind: str) -> str:
    return kind if "<" in kind else kind.upper()


def _kind_of(value: bytes) -> str:
    """Say what a value is in JSON."""
    kinds = {b'"': "a string", b"{": "an object", b"[": "an array", b"t": "true", b"f": "false"}
    return kinds.get(value[:1], "a number")


def _promote(path: str) -> str:
    return (
        "To have it in a column, also in the rows that are there: cloudfiles promote --field "
        f"{shlex.quote(path)}"
    )


def _misfit(column: str, wider: str | None) -> str:
    """Say what helps where a value does not fit its column: a wider type, if one holds it."""
    if wider is None:
        return (
            f"{_REPLAY} Or start over (cloudfiles state start-over) with "
            f"cloudFiles.schemaHints='{column} STRING'."
        )
    return (
        "To widen the column, also in the rows that are there: cloudfiles promote --field "
        f"{shlex.quote(f'{column}={wider}')}; with "
        "cloudFiles.schemaEvolutionMode=addNewColumnsWithTypeWidening it is done by itself."
    )


def _wider(column: str, value: bytes, entry: SchemaEntry, format_name: str) -> str | None:
    """Find the type, in DDL, that a column may become and that holds a value."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - a page needs none

    field = RescuedField(column)
    field.meet(value, None)
    field.compare(StructType.fromJson(dict(entry.data_schema)), format_name)
    return field.wider and field.wider.upper()
