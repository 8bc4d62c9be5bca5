"""Turn a piece of Spark DDL into types.

Makes Spark's types of what `ddl_grammar` reads, without a JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

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

from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher
from airflow_cloudfiles.engine.schema.ddl_grammar import Column, TypeText, fail, read_columns

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


ColumnDefinition: TypeAlias = Column[DataType]
"""A column with Spark's type."""


def parse_columns(text: str, matcher: NameMatcher = CASE_INSENSITIVE) -> list[ColumnDefinition]:
    """Read a list of columns as `read_columns` does, with Spark's types."""
    return [
        Column(each.path, _kind(each.data_type), each.nullable, each.comment, each.position)
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
    """Build the type that was read."""
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
