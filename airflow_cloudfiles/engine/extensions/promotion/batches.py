"""Promote fields of rescued data in batches of rows, to the columns that they become.

A row gets a value where its column is null, its rescued data has the field, and the value fits the
column's type, or a part of it does. What fits leaves the rescued data in the same moment; what
does not, and every other row, stays as it was. So doing it again changes nothing more.

A promotion is recorded twice: by the table, which gets the column; and by the schema log, so that
the stream's next run reads the field into it. The table comes first: a column that nothing fills
does no harm, while a schema with a column that the table lacks would fail a stream without
`mergeSchema`. Killed between the two, the next promotion finds the table's column and goes on from
there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    DataType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    OptionError,
    SchemaHintError,
    StateConflictError,
)
from airflow_cloudfiles.engine.extensions.promotion.values import Converter, find, replace
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_columns
from airflow_cloudfiles.engine.schema.log import SchemaLog, SchemaVersion
from airflow_cloudfiles.engine.schema.log_entry import author
from airflow_cloudfiles.engine.schema.widening import wider_type
from airflow_cloudfiles.engine.types import short_type

LOG_TRIES = 20
"""How often a version is tried for that other writers take."""


@dataclass(frozen=True, slots=True)
class RequestedField:
    """A field that is to be promoted.

    Attributes:
        path: Its names, from the outside in, as rescued data has them.
        kind: The type that was asked for; `None` to infer it from the values.
    """

    path: tuple[str, ...]
    kind: DataType | None

    @property
    def name(self) -> str:
        """The path as people write it."""
        return path_text(self.path)


def path_text(path: Sequence[str]) -> str:
    """Write a path as people do; no two paths are written alike."""
    return ".".join(
        f"`{each.replace('`', '``')}`" if {".", "`"} & set(each) else each for each in path
    )


def parse_fields(fields: Mapping[str, str | None] | Sequence[str]) -> list[RequestedField]:
    """Read which fields are asked for, and as what.

    Args:
        fields: Dotted paths (names with other characters than letters, digits and `_` in
            backquotes), each with a type in DDL, or `None`; or a list of paths.

    Raises:
        OptionError: None is given, one cannot be read, or one repeats another or is inside it.
    """
    given = fields if isinstance(fields, Mapping) else dict.fromkeys(fields)
    found: list[RequestedField] = []
    for path, kind in given.items():
        asked = _parse(str(path), kind)
        for other in found:
            if all(map(CASE_INSENSITIVE.same, asked.path, other.path)):
                raise OptionError(
                    f"The fields to promote, {other.name} and {asked.name}, are the same, or one "
                    "is inside the other. Promote one of them."
                )
        found.append(asked)
    if not found:
        raise OptionError("There is no field to promote. Name at least one, such as user.zip.")
    return found


def _parse(path: str, kind: str | None) -> RequestedField:
    try:
        columns = parse_columns(f"{path} {kind or 'STRING'}")
    except SchemaHintError as failure:
        reason = failure.message.partition(": ")[2].partition(" The text there: ")[0]
        raise OptionError(
            f"The field to promote, {path!r} as {kind or 'whatever it holds'}, cannot be read: "
            f"{reason} Write a dotted path and a type in DDL, such as user.zip and STRING; names "
            "with other characters than letters, digits and _ go in backquotes."
        ) from failure
    if len(columns) != 1:
        raise OptionError(f"{path!r} names several fields. Give each one by itself.")
    return RequestedField(columns[0].path, columns[0].data_type if kind else None)


def kind_at(schema: StructType, path: Sequence[str]) -> tuple[tuple[str, ...], DataType | None]:
    """Find a column, or a field inside one, without regard to case.

    Returns:
        The path as the schema spells it, and the type; `None` when there is no such column.

    Raises:
        OptionError: The path leads into a column that is not a struct.
    """
    spelled: list[str] = []
    kind: DataType | None = schema
    for name in path:
        if kind is not None and not isinstance(kind, StructType):
            raise OptionError(
                f"{'.'.join(path)} cannot be promoted: {'.'.join(spelled)} is of type "
                f"{short_type(kind)}, and only what is inside structs is promoted. Promote "
                f"{'.'.join(spelled)} as a whole, or handle it in a query."
            )
        field = None if kind is None else CASE_INSENSITIVE.find(kind, name)
        spelled.append(name if field is None else field.name)
        kind = None if field is None else field.dataType
    return tuple(spelled), kind


def resolved_kind(
    asked: RequestedField, *, in_table: DataType | None, in_log: DataType | None
) -> DataType | None:
    """Decide the type of a promoted field; `None` to infer it from the values.

    Args:
        asked: The field.
        in_table: Its column's type in the table, if there is one.
        in_log: The same in the schema log.

    Raises:
        IncompatibleSchemaError: There is a column, and it neither has nor can be widened to the
            type that was asked for; or table and log do not agree.
    """
    known = in_log
    if in_table is not None and (in_log is None or _grows(in_log, in_table) == in_table):
        known = in_table  # wider than in the log: a promotion was killed before it wrote there
    if in_table is not None and _grows(in_table, known) != known:
        raise IncompatibleSchemaError(
            f"{asked.name} is {_type_name(in_table)} in the table but "
            f"{_type_name(in_log)} in the schema log. Run the stream once, so that the two agree."
        )
    if asked.kind is None or known is None or asked.kind == known:
        return asked.kind or known
    if _grows(known, asked.kind) == asked.kind:
        return asked.kind
    raise IncompatibleSchemaError(
        f"{asked.name} is a column of type {_type_name(known)} already and cannot become "
        f"{_type_name(asked.kind)}: its values would change. Leave the type out to fill it with "
        f"the rescued values that fit {_type_name(known)}; the others stay rescued."
    )


def _grows(have: DataType | None, want: DataType | None) -> DataType | None:
    """Return the type by the matrix that holds both."""
    if have is None or want is None or have == want:
        return want
    return wider_type(have, want, is_parquet=True)


def _type_name(kind: DataType | None) -> str:
    return "nothing" if kind is None else kind.simpleString()


def with_column(schema: StructType, path: Sequence[str], kind: DataType) -> StructType:
    """Add a column, or a field inside one, at the end of a schema, or give it this type."""
    head, *rest = path
    fields = list(schema.fields)
    for place, known in enumerate(fields):
        if not CASE_INSENSITIVE.same(known.name, head):
            continue
        inner = kind
        if rest and isinstance(known.dataType, StructType):
            inner = with_column(known.dataType, rest, kind)
        fields[place] = StructField(known.name, inner, known.nullable, known.metadata)
        return StructType(fields)
    new = with_column(StructType([]), rest, kind) if rest else kind
    return StructType([*fields, StructField(head, new)])


def write_version(
    log: SchemaLog, columns: Sequence[tuple[tuple[str, ...], DataType]]
) -> SchemaVersion | None:
    """Append a version with the columns, unless the newest has them.

    Returns:
        The version that has them; `None` when the log has no version, which is to say that the
        schema of the stream was given.

    Raises:
        StateConflictError: The schema is pinned; or other writers took every number.
    """
    for _ in range(LOG_TRIES):
        latest = log.latest()
        if latest is None:
            return None
        evolved = latest.data_schema
        for path, kind in columns:
            evolved = with_column(evolved, path, kind)
        if evolved == latest.data_schema:
            return latest
        log.append(
            latest.version + 1,
            data_schema=evolved,
            partition_schema=latest.partition_schema,
            reason={
                "change": "promoted",
                "fields": sorted({path_text(path) for path, _ in columns}),
                "by": author(),
            },
        )
    raise StateConflictError(
        f"Other writers added versions to the schema log {LOG_TRIES} times, each time before this "
        "one. Stop the stream and run again."
    )


OUTCOMES: Final = ("promoted", "partly", "unfit", "occupied")
"""What becomes of a value: it goes into the column, and perhaps leaves something behind; or it does
not fit the column's type, or its row has one in the column."""
Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Positions of rows in a batch."""


@dataclass(frozen=True, slots=True)
class PromotedField:
    """A field that becomes a column.

    Attributes:
        path: The field as rescued data has it, from the outside in.
        column: The column, or the field inside one, as the table spells it.
        kind: Its type.
    """

    path: tuple[str, ...]
    column: tuple[str, ...]
    kind: DataType

    @property
    def name(self) -> str:
        """The path as people write it."""
        return path_text(self.path)


@dataclass(slots=True)
class PromotionCounts:
    """What was found in rows.

    Attributes:
        values: How many values there were, by the name of the field and one of `OUTCOMES`.
        rows: Rows that changed.
    """

    values: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows: int = 0

    def add(self, other: PromotionCounts) -> None:
        """Count what was found elsewhere, too."""
        self.values += other.values
        self.rows += other.rows


class Promoter:
    """Promotes fields in batches of one table.

    Args:
        fields: What is promoted; none is inside another.
        rescued_column: Where rescued data is.
        reading: As `reading_options` gives them.
        stream: The options of the stream.

    Attributes:
        fields: What is promoted.
        rescued_column: Where rescued data is.
        columns: The columns of the table that are read or changed.
    """

    def __init__(
        self,
        fields: Sequence[PromotedField],
        rescued_column: str,
        reading: CloudFilesOptions,
        stream: CloudFilesOptions,
    ) -> None:
        self.fields = tuple(fields)
        self.rescued_column = rescued_column
        self._converters = [Converter(each.kind, reading, stream) for each in fields]
        self._case_sensitive = reading.reader_case_sensitive
        self.columns = (*{each.column[0]: None for each in fields}, rescued_column)

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, PromotionCounts]:
        """Promote what can be promoted.

        Args:
            batch: Rows with at least `columns`.

        Returns:
            The rows, in their order, and what was found in them.
        """
        rescued = batch.column(self.rescued_column)
        paths = [each.path for each in self.fields]
        rows = hits(rescued, paths, case_sensitive=self._case_sensitive)
        work = _PromotedBatch(
            batch, rows, [each.encode() for each in rescued.take(rows).to_pylist()]
        )
        for each, converter in zip(self.fields, self._converters, strict=True):
            self._promote(work, each, converter)
        work.found.rows = len(work.changed)
        if not work.changed:
            return batch, work.found
        places = sorted(work.changed)
        strings = (work.strings[place] for place in places)
        after = pa.array([text and text.decode() for text in strings], rescued.type)
        work.fill((self.rescued_column,), places, after)
        return work.batch, work.found

    def _promote(self, work: _PromotedBatch, promoted: PromotedField, converter: Converter) -> None:
        """Promote one field."""
        values: dict[int, bytes] = {}
        for place, text in enumerate(work.strings):
            value = text and find(text, promoted.path, case_sensitive=self._case_sensitive)
            if value:
                values[place] = value
        is_null = _is_null(work.batch.column(promoted.column[0]), promoted.column[1:])
        free = [place for place in values if is_null[work.rows[place]]]
        array, left = converter.read([values[place] for place in free])
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        taken = [k for k in range(len(free)) if valid[k] or left[k] is None]
        for k in taken:
            work.strings[free[k]] = replace(
                work.strings[free[k]] or b"{}",
                promoted.path,
                left[k],
                case_sensitive=self._case_sensitive,
            )
        if taken:
            work.changed.update(free[k] for k in taken)
            work.fill(promoted.column, [free[k] for k in taken], array.take(pa.array(taken)))
        partly = sum(left[k] is not None for k in taken)
        counts = len(taken), partly, len(free) - len(taken), len(values) - len(free)
        for outcome, count in zip(OUTCOMES, counts, strict=True):
            work.found.values[promoted.name, outcome] += count


@dataclass(slots=True)
class _PromotedBatch:
    """A batch that is being promoted.

    Attributes:
        batch: As it is by now, but for the rescued data.
        rows: Rows whose rescued data may have one of the fields.
        strings: Their rescued data, as it is by now.
        changed: Places in `strings` that have changed.
        found: What was found.
    """

    batch: pa.RecordBatch
    rows: Rows
    strings: list[bytes | None]
    changed: set[int] = field(default_factory=set)
    found: PromotionCounts = field(default_factory=PromotionCounts)

    def fill(self, column: tuple[str, ...], places: Sequence[int], values: pa.Array) -> None:
        """Put values into a column, or inside one; `places` are those of `strings`."""
        index = self.batch.schema.get_field_index(column[0])
        arrays = list(self.batch.columns)
        arrays[index] = _filled(arrays[index], column[1:], self.rows[list(places)], values)
        self.batch = pa.RecordBatch.from_arrays(arrays, schema=self.batch.schema)


def values_of(rescued: pa.Array, path: tuple[str, ...], *, case_sensitive: bool) -> list[bytes]:
    """Read the values of one field in rescued data."""
    strings = rescued.take(hits(rescued, [path], case_sensitive=case_sensitive)).to_pylist()
    found = (find(text.encode(), path, case_sensitive=case_sensitive) for text in strings)
    return [value for value in found if value is not None]


def hits(rescued: pa.Array, paths: Sequence[tuple[str, ...]], *, case_sensitive: bool) -> Rows:
    """Find the rows whose rescued data may have one of some fields: all that do, and few others."""
    mask = np.zeros(len(rescued), np.bool_)
    for path in paths:
        name = path[-1]
        if name.isascii() and name.isprintable() and not set(name) & set('"\\/'):
            plain = pc.match_substring(rescued, json.dumps(name), ignore_case=not case_sensitive)
            has = pc.or_(plain, pc.match_substring(rescued, r"\u"))  # no letter must be plain
        else:  # there are several ways to write such a name in JSON
            has = rescued.is_valid()
        mask |= has.fill_null(False).to_numpy(zero_copy_only=False)
    return np.flatnonzero(mask)


def _is_null(column: pa.Array, inside: tuple[str, ...]) -> np.ndarray[tuple[int], np.dtype[Any]]:
    """Find where a column, or a field inside it, has no value."""
    for name in inside:
        column = column.flatten()[column.type.get_field_index(name)]
    found: np.ndarray[tuple[int], np.dtype[Any]] = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _filled(column: pa.Array, inside: tuple[str, ...], rows: Rows, values: pa.Array) -> pa.Array:
    """Replace the values of some rows in a column, at a place inside it."""
    if not inside:
        order = np.arange(len(column))
        order[rows] = len(column) + np.arange(len(rows))
        return pa.concat_arrays([column, values.cast(column.type)]).take(pa.array(order))
    children = column.flatten()
    place = column.type.get_field_index(inside[0])
    children[place] = _filled(children[place], inside[1:], rows, values)
    is_null = column.is_null().to_numpy(zero_copy_only=False).copy()
    is_null[rows] = False  # what was no struct is one now
    fields = [column.type.field(index) for index in range(column.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(is_null))
