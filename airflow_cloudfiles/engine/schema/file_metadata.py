"""Of which types are the columns that say what file a row came from?

They are Spark's (`_metadata`), but may be NULL, as all columns of a stream. They stand behind all
others and are in no version of the schema log: no file holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError, OptionError
from airflow_cloudfiles.engine.options.metadata_columns import NAME, SHEET_NAME, STRUCT
from airflow_cloudfiles.engine.types import short_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.metadata_columns import MetadataColumn

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


def metadata_fields(columns: Sequence[MetadataColumn]) -> list[StructField]:
    """The columns as fields of a schema."""
    return [
        StructField(each.name, _fields_of(each))
        if each.field == STRUCT
        else StructField(each.name, SHEET_FIELDS[each.field].dataType)
        for each in columns
    ]


def _fields_of(column: MetadataColumn) -> StructType:
    return SHEET_FIELDS if column.has_sheet else FIELDS


def with_metadata(schema: StructType, columns: Sequence[MetadataColumn]) -> StructType:
    """A stream's columns, and behind them those that say what file a row came from."""
    return StructType([*schema.fields, *metadata_fields(columns)])


def check_names(
    data_schema: StructType, partition_schema: StructType, options: CloudFilesOptions
) -> None:
    """Refuse a column of the files that has the name of one of these.

    A field that is met later is none: it is rescued, as everything under a reserved name.

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
    """The metadata columns of a given schema, where they may stand anywhere.

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
