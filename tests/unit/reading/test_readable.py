"""What a format cannot be read into, or by, is said before a file is read."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError, OptionError
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.stream.definition import check_readable, given_schema
from airflow_cloudfiles.engine.types import VariantType


@pytest.mark.parametrize(
    ("format_name", "schema", "options", "says"),
    [
        ("json", "a DATE", {"dateFormat": "yyyy-MM-dd{"}, "dateFormat"),
        ("csv", "a TIMESTAMP", {"timestampFormat": "YYYY"}, "timestampFormat"),
        ("xml", "a DATE", {"dateFormat": "bb", "rowTag": "r"}, "dateFormat"),
        ("json", "a MAP<INT, STRING>", {}, "keys"),
        ("csv", "a STRUCT<b: INT>", {}, "a"),
    ],
)
def test_it_is_reported_when_the_stream_is_defined(
    format_name: str, schema: str, options: dict[str, str], says: str
) -> None:
    given = {"cloudFiles.format": format_name, **options}
    parsed = CloudFilesOptions.parse(given, has_schema=True, path="/nowhere")
    with pytest.raises((OptionError, IncompatibleSchemaError), match=says):
        check_readable(given_schema(parse_schema(schema), parsed), parsed)


@pytest.mark.parametrize("format_name", ["json", "csv", "xml", "parquet", "orc", "avro"])
def test_a_variant_takes_whole_records_or_a_variant_of_parquet_only(format_name: str) -> None:
    given = {"cloudFiles.format": format_name, **({"rowTag": "r"} if format_name == "xml" else {})}
    parsed = CloudFilesOptions.parse(given, has_schema=True, path="/nowhere")
    for kind in (
        VariantType(),
        ArrayType(VariantType()),
        MapType(StringType(), StructType([StructField("b", VariantType())])),
    ):
        schema = StructType([StructField("a", kind)])
        if format_name == "parquet":
            check_readable(given_schema(schema, parsed), parsed)
            continue
        with pytest.raises(IncompatibleSchemaError, match=r"Column a .*variant.*leave the schema"):
            check_readable(given_schema(schema, parsed), parsed)
