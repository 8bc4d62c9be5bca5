"""Apply what the user knows better than inference, and refuse schemas that are nested too deeply.

A hint names a column, or something inside one, and its type. Hints are applied in the order they
are written, over what was inferred; what they do not name stays as it is (B26 to B31, B35).

- `a INT` sets the type of column `a`, whatever it was, and its spelling (B15).
- `a.b INT` sets the field `b` of the struct `a`; `.element` is the inside of an array, `.key` and
  `.value` are those of a map.
- What is not there yet is added at the end: of the columns, or of the struct it is in.

Hinted columns are always nullable, whatever the hint says, as in every file source of Spark: a
record may lack them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError, SchemaHintError
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher, dotted, quoted
from airflow_cloudfiles.engine.schema.ddl_grammar import refuse_repeated
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

    from airflow_cloudfiles.engine.schema.ddl import ColumnDefinition


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
    """The struct with the hint applied to the field that the path names at this depth."""
    name = hint.path[depth]
    is_last = depth == len(hint.path) - 1
    fields = list(struct.fields)
    position = matcher.positions(struct).get(matcher.key(name))
    if position is None:
        kind = _hinted(hint) if is_last else _new_struct(hint, depth + 1, matcher)
        fields.append(StructField(name, kind, True, _metadata(hint) if is_last else None))
    elif is_last:
        metadata = _metadata(hint, fields[position])
        fields[position] = StructField(name, _hinted(hint), True, metadata)
    else:
        known = fields[position]
        kind = _inside(known.dataType, hint, depth + 1, matcher)
        fields[position] = with_type(known, kind)
    return StructType(fields)


def _inside(kind: DataType, hint: ColumnDefinition, depth: int, matcher: NameMatcher) -> DataType:
    """The type with the hint applied to the part of it that the path names at this depth."""
    if isinstance(kind, NullType):
        return _new_struct(hint, depth, matcher)
    if isinstance(kind, StructType):
        return _in_struct(kind, hint, depth, matcher)
    part = matcher.key(hint.path[depth])
    if part in dict(inside_of(kind)):
        return with_inside(
            kind, lambda name, each: _part(each, hint, depth, matcher) if name == part else each
        )
    where = dotted(hint.path[:depth])
    if isinstance(kind, ArrayType):
        advice = f"{where} is an array: write {where}.element"
    elif isinstance(kind, MapType):
        advice = f"{where} is a map: write {where}.key or {where}.value"
    else:
        advice = f"{where} is of type {short_type(kind)}: hint it as a whole"
    raise SchemaHintError(
        f"cloudFiles.schemaHints names {dotted(hint.path)} (at character {hint.position}), but "
        f"{advice}."
    )


def _part(kind: DataType, hint: ColumnDefinition, depth: int, matcher: NameMatcher) -> DataType:
    """The inside of an array or a map: the hinted type, or what the path leads to further in."""
    is_last = depth == len(hint.path) - 1
    return _hinted(hint) if is_last else _inside(kind, hint, depth + 1, matcher)


def _new_struct(hint: ColumnDefinition, depth: int, matcher: NameMatcher) -> StructType:
    """A struct for the rest of a path that leads to where nothing is yet."""
    if matcher.key(hint.path[depth]) in _INSIDES:
        where = dotted(hint.path[:depth])
        raise SchemaHintError(
            f"cloudFiles.schemaHints names {dotted(hint.path)} (at character {hint.position}), "
            f"but no record of the sample has a value for {where}. Hint {where} as a whole, for "
            f"instance {where} ARRAY<STRING>."
        )
    return _in_struct(StructType([]), hint, depth, matcher)


def _hinted(hint: ColumnDefinition) -> DataType:
    """The type a hint gives, nullable all through."""
    _refuse_empty(hint.data_type, dotted(hint.path))
    return as_nullable(hint.data_type)


def _refuse_empty(kind: DataType, where: str) -> None:
    """Refuse a struct without fields, at any depth."""
    if isinstance(kind, StructType) and not kind.fields:
        raise SchemaHintError(
            f"cloudFiles.schemaHints gives {where} the type STRUCT<>, which holds nothing. Name "
            "its fields, or leave the hint out."
        )
    for name, inside in inside_of(kind):
        _refuse_empty(inside, f"{where}.{quoted(name)}")


def _metadata(hint: ColumnDefinition, known: StructField | None = None) -> dict[str, object] | None:
    """The metadata of a hinted field: its comment, as Spark keeps it."""
    metadata = dict(known.metadata or {}) if known else {}
    if hint.comment is not None:
        metadata["comment"] = hint.comment
    return metadata or None


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
