"""What does a piece of Spark DDL mean?

Makes Spark's types of what `ddl_grammar` reads, without a JVM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.casing import CASE_INSENSITIVE, NameMatcher
from airflow_cloudfiles.engine.schema.ddl_grammar import TypeText, fail, read_columns

if TYPE_CHECKING:
    from collections.abc import Callable

_ATOMIC: Final[dict[str, Callable[[], DataType]]] = {
    "boolean": BooleanType,
    "tinyint": ByteType,
    "smallint": ShortType,
    "int": IntegerType,
    "bigint": LongType,
    "float": FloatType,
    "double": DoubleType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ntz": TimestampNTZType,
    "string": StringType,
    "binary": BinaryType,
}


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column of a DDL text.

    Attributes:
        path: Its name; more than one part when it is dotted.
        data_type: Its type.
        nullable: False when the text says `NOT NULL`.
        comment: What the text says after `COMMENT`.
        position: Where in the text it begins, counted from 1.
    """

    path: tuple[str, ...]
    data_type: DataType
    nullable: bool
    comment: str | None
    position: int


def parse_columns(text: str, matcher: NameMatcher = CASE_INSENSITIVE) -> list[ColumnDefinition]:
    """Read a list of columns whose names may be dotted paths; empty text gives none.

    Args:
        text: The list.
        matcher: How the names of a struct's fields are compared, none of which may come twice.

    Raises:
        SchemaHintError: The text is not such a list; the message has the position, and what was
            probably meant.
    """
    return [
        ColumnDefinition(each.path, _kind(each.type), each.nullable, each.comment, each.position)
        for each in read_columns(text, matcher)
    ]


def parse_schema(text: str) -> StructType:
    """Read a list of columns as a schema, as Spark's `StructType.fromDDL` does.

    Raises:
        SchemaHintError: The text is not such a list, or a name is dotted.
    """
    columns = parse_columns(text)
    for column in columns:
        if len(column.path) > 1:
            fail(text, column.position, f"{'.'.join(column.path)} is a path, not a column name")
    return StructType(
        [_field(each.path[0], each.data_type, each.nullable, each.comment) for each in columns]
    )


def _kind(read: TypeText) -> DataType:
    """The type that was read."""
    if read.name == "decimal":
        return DecimalType(*read.numbers)
    if read.name == "array":
        return ArrayType(_kind(read.parts[0]))
    if read.name == "map":
        return MapType(_kind(read.parts[0]), _kind(read.parts[1]))
    if read.name == "struct":
        return StructType(
            [_field(one.name, _kind(one.type), one.nullable, one.comment) for one in read.fields]
        )
    return _ATOMIC[read.name]()


def _field(name: str, kind: DataType, nullable: bool, comment: str | None) -> StructField:  # noqa: FBT001 - as StructField has them
    return StructField(name, kind, nullable, None if comment is None else {"comment": comment})
