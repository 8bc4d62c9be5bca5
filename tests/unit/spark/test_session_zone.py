"""Where the session's zone is not the one that timestamps are read in, it is said."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.spark.session_zone import zone_warning


def said(schema: str, zone: str | None, name: str = "json", **given: str) -> str | None:
    options = {"cloudFiles.format": name, **({"rowTag": "r"} if name == "xml" else {}), **given}
    return zone_warning(parse_schema(schema), CloudFilesOptions.parse(options, path="/in"), zone)


@pytest.mark.parametrize("name", ["json", "csv", "xml"])
@pytest.mark.parametrize(
    "schema", ["t TIMESTAMP", "a ARRAY<STRUCT<t: TIMESTAMP>>", "m MAP<STRING, TIMESTAMP>"]
)
def test_another_zone_is_said_with_what_to_set(name: str, schema: str) -> None:
    warning = said(schema, "Europe/Paris", name)
    assert warning is not None
    for part in ("spark.sql.session.timeZone is Europe/Paris", "timeZone=Europe/Paris", "UTC"):
        assert part in warning


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Z", "GMT", "+00:00", None])
def test_nothing_is_said_where_it_is_the_same(zone: str | None) -> None:
    assert said("t TIMESTAMP", zone) is None


def test_nothing_is_said_where_it_makes_no_difference() -> None:
    assert said("t TIMESTAMP_NTZ, d DATE, s STRING", "Europe/Paris") is None
    assert said("t TIMESTAMP", "Europe/Paris", "parquet") is None
    assert said("t TIMESTAMP", "Europe/Paris", timeZone="UTC") is None
