"""Which column does a field of rescued data become, and where is it recorded?

The table, which gets the column; and the schema log, so that the stream's next run reads the field
into it. The table comes first: a column that nothing fills does no harm, while a schema with
a column that the table lacks would fail a stream without `mergeSchema`. Killed between the two, the
next promotion finds the table's column and goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import DataType, StructField, StructType

from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    OptionError,
    SchemaHintError,
    StateConflictError,
)
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
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
    """A path as people write it; no two are written alike."""
    return ".".join(
        f"`{each.replace('`', '``')}`" if {".", "`"} & set(each) else each for each in path
    )


def parse_fields(fields: Mapping[str, str | None] | Sequence[str]) -> list[RequestedField]:
    """Read which fields are asked for, and as what.

    Args:
        fields: Dotted paths (names with other characters than letters, digits and `_` in
            backquotes), each with a type in DDL, or `None`; or a list of paths.

    Raises:
        OptionError: There is none, one cannot be read, or one is another one or inside it.
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
        OptionError: The path leads into a column that is no struct.
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
    """The type of a promoted field; `None` to infer it from the values.

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
    """The type by the matrix that holds both."""
    if have is None or want is None or have == want:
        return want
    return wider_type(have, want, is_parquet=True)


def _type_name(kind: DataType | None) -> str:
    return "nothing" if kind is None else kind.simpleString()


def with_column(schema: StructType, path: Sequence[str], kind: DataType) -> StructType:
    """The schema with a column, or a field inside one: added at the end, or with this type."""
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
