"""Which schema a stream is read with: inferred once, hinted, or given."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    OptionError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.stream import definition
from airflow_cloudfiles.engine.types import as_nullable
from tests.unit.stream.test_every_format import WRITERS, Landing


@pytest.fixture(params=WRITERS)
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    """A folder that takes records in one of the formats."""
    return Landing(request.param, tmp_path)


def options(landing: Landing, *, has_schema: bool = False, **more: object) -> CloudFilesOptions:
    """Without schema location and checkpoint location."""
    given = {"cloudFiles.format": landing.format, "rowTag": "row"} | more
    if landing.format != "xml":
        del given["rowTag"]
    return CloudFilesOptions.parse(given, has_schema=has_schema, path=str(landing.source))


def test_without_a_schema_location_the_checkpoint_takes_the_log(landing: Landing) -> None:
    # B20: Auto Loader demands a schema location; here the checkpoint location, which every query
    # has, serves as one.
    landing.drop("1", [{"a": "x"}])
    defined = definition.resolve_schema(options(landing))
    assert defined.schema_uri is None
    bound = definition.bind(defined, options(landing), str(landing.state))
    assert (bound.version, bound.schema_uri) == (0, landing.state.as_uri())
    assert landing.versions() == [0]
    other = replace(defined, data_schema=parse_schema("b INT"))
    with pytest.raises(IncompatibleSchemaError, match=r"Call load\(\) again"):
        definition.bind(other, options(landing), str(landing.state))


def test_a_second_start_looks_at_no_file(landing: Landing) -> None:  # B21
    landing.drop("1", [{"a": "x"}])
    stream = landing.stream()
    first = definition.resolve_schema(stream.options)
    assert (first.created, first.sampled_files) == (True, 1)
    shutil.rmtree(landing.source)
    again = definition.resolve_schema(stream.options)
    assert (again.created, again.sampled_files) == (False, 0)
    assert again.data_schema == first.data_schema
    reason = SchemaHistory(str(landing.state)).show().reason
    assert (reason["change"], reason["files"]) == ("inferred", 1)
    assert reason["by"]


def test_a_hinted_column_that_comes_later_is_not_new(landing: Landing) -> None:  # B31, B32
    landing.drop("1", [{"a": "x"}])
    stream = landing.stream(**{"cloudFiles.schemaHints": "later INT"})
    [row] = stream.run()
    assert row["later"] is None
    landing.drop("2", [{"a": "y", "later": 7}])
    [row] = stream.run()
    assert (row["later"], row["_rescued_data"]) == (7, None)
    assert landing.versions() == [0]


def test_a_value_that_does_not_fit_its_hint_is_null_and_rescued(landing: Landing) -> None:  # B34
    path = landing.drop("1", [{"a": "N/A", "b": "x"}])
    [row] = landing.stream(**{"cloudFiles.schemaHints": "a INT"}).run()  # B11
    assert (row["a"], row["b"]) == (None, "x")
    assert json.loads(row["_rescued_data"]) == {"a": "N/A", "_file_path": path.as_uri()}


def test_hints_beside_a_given_schema_are_ignored(landing: Landing) -> None:  # B33
    hinted = options(landing, has_schema=True, **{"cloudFiles.schemaHints": "a DATE, c INT"})
    given = definition.given_schema(parse_schema("a INT, b STRING"), hinted)
    assert given.data_schema == parse_schema("a INT, b STRING")
    assert given.version == definition.GIVEN
    assert definition.bind(given, hinted, str(landing.state)) == given
    assert not landing.state.exists()


def test_a_given_schema_has_the_partition_columns_that_are_named(landing: Landing) -> None:  # B44
    named = options(landing, has_schema=True, **{"cloudFiles.partitionColumns": "Day,hour"})
    with pytest.raises(OptionError, match=r"partitionColumns names hour.*Add the columns"):
        definition.given_schema(parse_schema("a INT, day DATE"), named)
    given = definition.given_schema(parse_schema("a INT, day DATE, hour INT"), named)
    assert given.data_schema == parse_schema("a INT")
    assert given.partition_schema == parse_schema("day DATE, hour INT")


@pytest.mark.parametrize(
    "text",
    ["a INT NOT NULL", "a STRUCT<x: INT NOT NULL>", "a ARRAY<STRUCT<x: INT NOT NULL>>"],
)
def test_a_schema_that_promises_what_files_may_lack_is_refused(landing: Landing, text: str) -> None:
    given = options(landing, has_schema=True)
    with pytest.raises(IncompatibleSchemaError, match=r"Column a .* NOT NULL.*register"):
        definition.given_schema(parse_schema(text), given)
    assert definition.given_schema(cast("StructType", as_nullable(parse_schema(text))), given)


def test_contradicting_folders_give_no_partition_columns(landing: Landing) -> None:  # B38
    for path in ("partition=1/date=2020-12-31/1", "date=2020-12-31/partition=2/2", "partition=3/3"):
        landing.drop(path, [{"a": "x"}])
    resolved = definition.resolve_schema(landing.stream().options)
    assert resolved.partition_schema == StructType([])


def test_partition_columns_can_be_named_or_dropped(landing: Landing) -> None:
    landing.drop("year=2022/week=1/1", [{"a": "x"}])
    named = landing.stream(**{"cloudFiles.partitionColumns": "year,month,day"})
    [row] = named.run()  # B40
    assert (row["year"], row["month"], row["day"]) == ("2022", None, None)
    assert "week" not in row
    dropped = landing.stream(**{"cloudFiles.partitionColumns": ""})
    dropped.given["cloudFiles.schemaLocation"] = str(landing.state.with_name("dropped"))
    assert [list(row) for row in dropped.run()] == [["a", "_rescued_data"]]  # B43


@pytest.mark.parametrize("landing", ["json", "parquet", "orc"], indirect=True)
def test_a_new_nested_field_comes_to_the_end_of_its_struct(landing: Landing) -> None:  # B48
    landing.drop("1", [{"user": {"id": "1", "name": "a"}, "last": "x"}])
    stream = landing.stream()
    stream.run()
    landing.drop("2", [{"user": {"zip": "8000", "id": "2"}}])
    with pytest.raises(UnknownFieldException, match="zip"):
        stream.run()
    [row] = stream.run()
    assert row["user"] == {"id": "2", "name": None, "zip": "8000"}
    assert list(row)[:2] == ["user", "last"]


def test_a_pin_holds_in_the_modes_that_add_columns_only(landing: Landing) -> None:
    resolved = replace(definition.given_schema(parse_schema("a INT"), options(landing)), pin="fail")
    for mode, obeyed in (
        ("addNewColumns", "failOnNewColumns"),
        ("addNewColumnsWithTypeWidening", "failOnNewColumns"),
        ("rescue", "rescue"),
        ("none", "none"),
        ("failOnNewColumns", "failOnNewColumns"),
    ):
        asked = options(landing, **{"cloudFiles.schemaEvolutionMode": mode})
        assert definition.obeying_pin(asked, resolved).schema_evolution_mode == obeyed
    rescuing = definition.obeying_pin(options(landing), replace(resolved, pin="rescue"))
    assert rescuing.schema_evolution_mode == "rescue"
