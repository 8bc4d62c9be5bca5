"""Which options the sink refuses."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError
from airflow_cloudfiles.engine.spark.tables.sink import DeltaLakeDataSource

SCHEMA = StructType([StructField("a", IntegerType())])


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("mergeSchem", "mergeSchema"),
        ("typeWideningMaxByte", "typeWideningMaxBytes"),
        ("txnAppID1", "txnAppId"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_name(given: str, meant: str) -> None:
    source = DeltaLakeDataSource({"path": "/table", given: "true"})
    with pytest.raises(UnknownOptionError, match=f"Did you mean {meant}"):
        source.streamWriter(SCHEMA, overwrite=False)


def test_options_of_other_sinks_do_nothing() -> None:
    given = {
        "path": "/table",
        "maxRecordsPerFile": "5",
        "queryName": "q",
    }
    assert DeltaLakeDataSource(given).streamWriter(SCHEMA, overwrite=False)


def test_to_replace_the_columns_is_for_overwriting_only() -> None:  # B132
    given = {"path": "/table", "overwriteSchema": "true"}
    with pytest.raises(OptionError, match="it applies only with overwrite"):
        DeltaLakeDataSource(given).streamWriter(SCHEMA, overwrite=False)


def test_only_appending_and_a_target_will_do() -> None:
    with pytest.raises(OptionError, match="outputMode append"):
        DeltaLakeDataSource({"path": "/table"}).streamWriter(SCHEMA, overwrite=True)
    with pytest.raises(OptionError, match="No target"):
        DeltaLakeDataSource({}).streamWriter(SCHEMA, overwrite=False)
