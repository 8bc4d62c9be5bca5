"""Turn a piece of Spark DDL into types, and apply hints, which are such pieces, to a schema.

Makes Spark's types of what `ddl_grammar` reads, without a JVM.

A hint names a column, or something inside one, and its type. Hints are applied in the order they
are written, over what was inferred; what they do not name stays as it is (B26 to B31, B35).

- `a INT` sets the type of column `a`, whatever it was, and its spelling (B15).
- `a.b INT` sets the field `b` of the struct `a`; `.element` is the inside of an array, `.key` and
  `.value` are those of a map.
- What is not there yet is added at the end: of the columns, or of the struct it is in.

Hinted columns are always nullable, whatever the hint says, as in every file source of Spark: a
record may lack them. Schemas and hints that are nested too deeply for a table are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    DataType,
    NullType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError, SchemaHintError
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher, dotted, quoted
from airflow_cloudfiles.engine.schema.ddl_grammar import (
    Column,
    Json,
    fail,
    metadata_of,
    read_columns,
    refuse_repeated,
)
from airflow_cloudfiles.engine.types import (
    ROOM,
    as_nullable,
    inside_of,
    short_type,
    too_deep,
    with_inside,
    with_type,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


ColumnDefinition: TypeAlias = Column[DataType]
"""A column with Spark's type."""


def parse_columns(text: str, matcher: NameMatcher = CASE_INSENSITIVE) -> list[ColumnDefinition]:
    """Read a list of columns as `read_columns` does, with Spark's types."""
    return [
        Column(each.path, _field(each).dataType, each.nullable, each.comment, each.position)
        for each in read_columns(text, matcher)
    ]


def parse_schema(text: str) -> StructType:
    """Read a list of columns as a schema, as Spark's `StructType.fromDDL` does.

    Raises:
        SchemaHintError: The text is not such a list, or a name is dotted.
    """
    columns = read_columns(text)
    for column in columns:
        if len(column.path) > 1:
            fail(text, column.position, f"{'.'.join(column.path)} is a path, not a column name")
    return StructType(list(map(_field, columns)))


def _field(column: Column[Json]) -> StructField:
    """Build the field of a column that was read."""
    return StructField.fromJson(
        {
            "name": column.path[-1],
            "type": column.data_type,
            "nullable": column.nullable,
            "metadata": metadata_of(column.comment),
        }
    )


_INSIDES = ("element", "key", "value")


def apply_hints(
    schema: StructType,
    hints: Sequence[ColumnDefinition],
    matcher: NameMatcher = CASE_INSENSITIVE,
) -> StructType:
    """Put what the hints say over an inferred schema.

    Args:
        schema: What was inferred; `NullType` marks what no record had a value for.
        hints: As `ddl.parse_columns` reads them.
        matcher: How names are compared.

    Raises:
        SchemaHintError: A path leads through something that has no such inside, the same path
            is hinted twice, or a hinted type cannot hold anything.
    """
    refuse_repeated(hints, matcher)
    for hint in hints:
        schema = _in_struct(schema, hint, 0, matcher)
    return schema


def _in_struct(
    struct: StructType, hint: ColumnDefinition, depth: int, matcher: NameMatcher
) -> StructType:
    """Apply a hint to a field of a struct, or to what is inside the field."""
    name = hint.path[depth]
    is_last = depth == len(hint.path) - 1
    fields = list(struct.fields)
    place = matcher.positions(struct).get(matcher.key(name), len(fields))
    known = fields[place] if place < len(fields) else None
    kind = _inside(NullType() if known is None else known.dataType, hint, depth + 1, matcher)
    if known is None or is_last:
        metadata = {**(known.metadata if known else {}), **metadata_of(hint.comment)}
        found = StructField(name, kind, True, metadata if is_last else None)
    else:
        found = with_type(known, kind)
    fields[place : place + 1] = [found]
    return StructType(fields)


def _inside(kind: DataType, hint: ColumnDefinition, depth: int, matcher: NameMatcher) -> DataType:
    """Apply a hint to a type, or to what is inside it where the hint's path continues."""
    if depth == len(hint.path):
        _refuse_empty(hint.data_type, dotted(hint.path))
        return as_nullable(hint.data_type)
    part, where = matcher.key(hint.path[depth]), dotted(hint.path[:depth])
    named = f"cloudFiles.schemaHints names {dotted(hint.path)} (at character {hint.position})"
    if isinstance(kind, NullType) and part in _INSIDES:
        raise SchemaHintError(
            f"{named}, but no record of the sample has a value for {where}. Hint {where} as a "
            f"whole, for instance {where} ARRAY<STRING>."
        )
    if isinstance(kind, StructType | NullType):
        struct = kind if isinstance(kind, StructType) else StructType([])
        return _in_struct(struct, hint, depth, matcher)
    inside = [name for name, _ in inside_of(kind)]
    if part in inside:
        return with_inside(
            kind,
            lambda name, each: _inside(each, hint, depth + 1, matcher) if name == part else each,
        )
    if inside:
        what = "an array" if isinstance(kind, ArrayType) else "a map"
        advice = f"{where} is {what}: write {' or '.join(f'{where}.{name}' for name in inside)}"
    else:
        advice = f"{where} is of type {short_type(kind)}: hint it as a whole"
    raise SchemaHintError(f"{named}, but {advice}.")


def _refuse_empty(kind: DataType, where: str) -> None:
    """Refuse a struct without fields, at any depth."""
    if isinstance(kind, StructType) and not kind.fields:
        raise SchemaHintError(
            f"cloudFiles.schemaHints gives {where} the type STRUCT<>, which holds nothing. Name "
            "its fields, or leave the hint out."
        )
    for name, inside in inside_of(kind):
        _refuse_empty(inside, f"{where}.{quoted(name)}")


def refuse_too_deep(schema: StructType, version: int | None) -> None:
    """Refuse a schema before any file is read with it.

    Args:
        schema: The columns of the records.
        version: Of the schema log; `None` where the user gave the schema.

    Raises:
        IncompatibleSchemaError: It is nested too deep.
    """
    column = too_deep(schema)
    if column is None:
        return
    where = "given schema" if version is None else f"schema (version {version})"
    remedy = (
        "Declare what lies deep in it as STRING."
        if version is None
        else "Go back to the version before with `cloudfiles schema rollback`, and run once with "
        "cloudFiles.schemaEvolutionMode=rescue; later runs rescue what lies too deep. Where there "
        "is no version before, start with another cloudFiles.schemaLocation and checkpointLocation."
    )
    raise IncompatibleSchemaError(
        f"Column {column} of the {where} is nested deeper than rows can be carried to a table and "
        f"the table be read: some {ROOM.json // 3} structs, {ROOM.parquet // 2} arrays or "
        f"{ROOM.arrow // 2} maps, one in the other. {remedy}"
    )


def refuse_too_deep_hints(hints: Sequence[ColumnDefinition]) -> None:
    """Refuse hints that are nested too deep.

    Raises:
        SchemaHintError: One is.
    """
    for hint in hints:
        if too_deep(StructType([StructField(hint.path[-1], hint.data_type)])):
            raise SchemaHintError(
                f"cloudFiles.schemaHints gives {'.'.join(hint.path)!r} a type that is nested "
                "deeper than a table can be. Hint STRING for what lies deep in it."
            )
