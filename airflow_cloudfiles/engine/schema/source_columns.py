"""Give the types of columns that come from the path and the metadata of a file.

A folder named `key=value` below the source is a Hive partition. Unless
`cloudFiles.partitionColumns` names them, the keys are columns when all sampled paths have the same
ones in the same order, and otherwise none is (B36 to B39). Named keys are searched for in every
path, wherever they stand (B40, B42). A partition that appears later is not a column (B41).

Decided here: in an inferred schema a record's own field wins over a key of the same name (Spark
lets the path win): the path repeats what the record says, and no value of a record is lost. In a
given schema the path wins, file by file (`stream.file_columns`).

They are Spark's (`_metadata`), but may be NULL, as all columns of a stream. They stand behind all
others and are in no version of the schema log: no file holds them.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from pyspark.sql.types import (
    DataType,
    DateType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError, OptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher
from airflow_cloudfiles.engine.options.metadata_columns import (
    ARCHIVE_MEMBER,
    NAME,
    SHEET_NAME,
    STRUCT,
)
from airflow_cloudfiles.engine.types import (
    canonical_struct,
    is_column_name,
    merge_types,
    short_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.metadata_columns import MetadataColumn


NULL_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def path_partitions(path: str) -> list[tuple[str, str | None]]:
    """Take the partitions out of a path relative to the source, in order.

    Returns:
        Pairs of key and value, percent-decoded; Hive's name for null is `None`.
    """
    found = []
    for part in path.split("/")[:-1]:
        key, equals, value = part.partition("=")
        if key and equals:
            found.append((_decode(key), None if value == NULL_VALUE else _decode(value)))
    return found


def partition_schema(
    paths: Iterable[str],
    *,
    columns: Sequence[str] | None,
    typed: bool,
    matcher: NameMatcher = CASE_INSENSITIVE,
) -> StructType:
    """Resolve the partition columns of a source.

    Args:
        paths: Sampled paths relative to the source.
        columns: `cloudFiles.partitionColumns`: `None` infers them, empty drops them (B43).
        typed: Infer `int`, `bigint` and `date` (B37); otherwise they are strings (B36).
        matcher: How names are compared.

    Returns:
        The columns, all nullable; no columns when the paths contradict each other (B38).
    """
    if columns is not None and not columns:
        return StructType([])
    key = matcher.key
    kinds: dict[str, DataType] = {key(name): NullType() for name in columns or ()}
    names = None if columns is None else list({key(name): name for name in columns}.values())
    for path in paths:
        pairs = [pair for pair in path_partitions(path) if is_column_name(pair[0])]
        if names is None:
            names = [name for name, _ in pairs]
            kinds = {key(name): NullType() for name in names}
        if columns is None and [key(name) for name, _ in pairs] != [key(name) for name in names]:
            return StructType([])
        if typed:
            _learn(kinds, pairs, matcher)
    if len(kinds) != len(names or ()):
        return StructType([])
    found = StructType([StructField(name, kinds[key(name)]) for name in names or ()])
    return canonical_struct(found)


def partition_values(
    path: str, columns: Iterable[str], matcher: NameMatcher = CASE_INSENSITIVE
) -> dict[str, str | None]:
    """Look up the named partitions in one path: text, `None` where absent or null (B40).

    Of several equal keys the last, deepest one counts.
    """
    key = matcher.key
    found = {key(name): value for name, value in path_partitions(path)}
    return {name: found.get(key(name)) for name in columns}


def beside(
    data_schema: StructType, partitions: StructType, matcher: NameMatcher = CASE_INSENSITIVE
) -> StructType:
    """Select the partition columns that the records do not have themselves."""
    own = matcher.keys(data_schema.names)
    return StructType([each for each in partitions.fields if matcher.key(each.name) not in own])


def _decode(text: str) -> str:
    """Undo percent-encoding where the result is UTF-8; other text stays as it is."""
    printable = printable_path(text)
    if "%" not in printable:
        return printable
    try:
        return unquote_to_bytes(printable).decode()
    except UnicodeDecodeError:
        return printable


def _learn(
    kinds: dict[str, DataType], pairs: Sequence[tuple[str, str | None]], matcher: NameMatcher
) -> None:
    """Widen the types by the values of one path."""
    for name, value in dict(pairs).items():
        key = matcher.key(name)
        known = kinds.get(key)
        if known is not None and value is not None:
            kinds[key] = merge_types(known, _kind_of(value))


def _kind_of(value: str) -> DataType:
    """Infer whole numbers and dates as Spark does; all other text keeps its form as a string."""
    if _INTEGER.fullmatch(value):
        number = int(value)
        if -(2**31) <= number < 2**31:
            return IntegerType()
        return LongType() if -(2**63) <= number < 2**63 else StringType()
    if _DATE.fullmatch(value):
        with suppress(ValueError):
            date.fromisoformat(value)
            return DateType()
    return StringType()


FIELDS: Final = StructType(
    [
        StructField("file_path", StringType()),
        StructField("file_name", StringType()),
        StructField("file_size", LongType()),
        StructField("file_block_start", LongType()),
        StructField("file_block_length", LongType()),
        StructField("file_modification_time", TimestampType()),
    ]
)
SHEET_FIELDS: Final = StructType([*FIELDS.fields, StructField(SHEET_NAME, StringType())])
"""Where files have sheets."""
SINGLE_FIELDS: Final = StructType([*SHEET_FIELDS.fields, StructField(ARCHIVE_MEMBER, StringType())])
"""Those that can be columns of their own."""


def metadata_fields(columns: Sequence[MetadataColumn]) -> list[StructField]:
    """Convert the metadata columns to fields of a schema."""
    return [
        StructField(each.name, SHEET_FIELDS if each.has_sheet else FIELDS)
        if each.field == STRUCT
        else StructField(each.name, SINGLE_FIELDS[each.field].dataType)
        for each in columns
    ]


def with_metadata(schema: StructType, columns: Sequence[MetadataColumn]) -> StructType:
    """Append to a stream's columns those that say what file a row came from."""
    return StructType([*schema.fields, *metadata_fields(columns)])


def check_names(
    data_schema: StructType, partition_schema: StructType, options: CloudFilesOptions
) -> None:
    """Refuse a column of the files that has the name of a metadata column.

    A field that is met later is not refused: it is rescued, as is all under a reserved name.

    Args:
        data_schema: Columns found in the records.
        partition_schema: Columns found in the paths.
        options: Those of the source.

    Raises:
        IncompatibleSchemaError: There is one.
    """
    matcher = options.matcher
    made = {matcher.key(each.name): each for each in options.metadata_columns}
    for column in (*data_schema.fields, *partition_schema.fields):
        if (found := made.get(matcher.key(column.name))) is not None:
            raise IncompatibleSchemaError(
                f"{NAME} makes a column {found.name}, but the schema of the stream has the column "
                f"{column.name} of the files. Give it another name: "
                f"{found.field} AS another_name."
            )


def given_metadata(schema: StructType, options: CloudFilesOptions) -> frozenset[str]:
    """Find the metadata columns of a given schema, where they may stand anywhere.

    Raises:
        OptionError: It lacks one, which `register` adds.
        IncompatibleSchemaError: It has a column of that name that is another.
    """
    key = options.matcher.key
    for made in metadata_fields(options.metadata_columns):
        alike = [each for each in schema.fields if key(each.name) == key(made.name)]
        kind = short_type(made.dataType)
        if not alike:
            raise OptionError(
                f"The given schema lacks the column {made.name} of cloudFiles.metadataColumns. Add "
                f"`{made.name} {kind}` to it, or call register(spark), which does."
            )
        if [(each.name, each.dataType) for each in alike] != [(made.name, made.dataType)]:
            raise IncompatibleSchemaError(
                f"The given schema has {alike[0].name} {short_type(alike[0].dataType)}, but "
                f"cloudFiles.metadataColumns makes a column {made.name} {kind}. Leave it out of "
                "the schema, or give the metadata column another name with AS."
            )
    return frozenset(each.name for each in options.metadata_columns)
