"""Options are Auto Loader's, and a wrong one is met with the right one."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine import option_names
from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.options import CloudFilesOptions, parse_size

JSON = {"cloudFiles.format": "json", "path": "/in"}


def test_defaults_are_those_of_the_documentation() -> None:
    options = CloudFilesOptions.parse(JSON)
    assert options.max_files_per_trigger == 1000
    assert options.max_bytes_per_trigger is None
    assert options.infer_column_types is False
    assert options.schema_evolution_mode == "addNewColumns"  # B56
    assert options.rescued_data_column == "_rescued_data"  # B17
    assert options.reader_case_sensitive is True
    assert options.mode == "PERMISSIVE"
    assert (options.sample_files, options.sample_bytes) == (1000, 50 * 2**30)  # B1, B2


def test_a_given_schema_changes_the_defaults() -> None:
    options = CloudFilesOptions.parse(JSON, has_schema=True)
    assert options.schema_evolution_mode == "none"  # B56
    assert options.rescued_data_column is None  # B18
    named = CloudFilesOptions.parse({**JSON, "rescuedDataColumn": "_x"}, has_schema=True)
    assert named.rescued_data_column == "_x"  # B19
    rescue = {**JSON, "cloudFiles.schemaEvolutionMode": "rescue"}
    assert CloudFilesOptions.parse(rescue, has_schema=True).rescued_data_column == "_rescued_data"


def test_keys_are_compared_without_case_and_values_as_spark_writes_them() -> None:
    options = CloudFilesOptions.parse(
        {
            "CLOUDFILES.FORMAT": "JSON",
            "cloudfiles.maxbytespertrigger": "10g",
            "cloudFiles.inferColumnTypes": True,
            "path": "/in",
        }
    )
    assert (options.format, options.max_bytes_per_trigger) == ("json", 10 * 2**30)
    assert options.infer_column_types is True


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("10g", 10 * 2**30),
        ("512 MB", 512 * 2**20),
        ("1kib", 1024),
        ("x", None),
        ("", None),
    ],
)
def test_sizes_are_read_as_spark_reads_them(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("cloudFiles.maxFilePerTrigger", "cloudFiles.maxFilesPerTrigger"),
        ("cloudFiles.schemaHint", "cloudFiles.schemaHints"),
        ("schemaLocation", "cloudFiles.schemaLocation"),
        ("rescueDataColumn", "rescuedDataColumn"),
        ("cloudfile.inferColumnType", "cloudFiles.inferColumnTypes"),
    ],
)
def test_a_typo_names_the_nearest_option(typo: str, meant: str) -> None:  # B101
    with pytest.raises(UnknownOptionError, match="Did you mean") as caught:
        CloudFilesOptions.parse({**JSON, typo: "1"})
    assert meant in str(caught.value)
    CloudFilesOptions.parse({**JSON, "cloudFiles.foo": "1", "cloudFiles.validateOptions": "false"})


@pytest.mark.parametrize(
    "name",
    [
        *option_names.PLANNED,
        *option_names.CREDENTIALS,
        *option_names.PLATFORM,
        *option_names.FORMAT_ONLY,
    ],
)
def test_every_documented_option_that_is_not_offered_is_refused_by_name(name: str) -> None:
    for validate in ("true", "false"):
        with pytest.raises(UnsupportedOptionError) as caught:
            CloudFilesOptions.parse({**JSON, name: "x", "cloudFiles.validateOptions": validate})
        assert name in str(caught.value)


@pytest.mark.parametrize(("name", "only"), option_names.FIXED.items())
def test_switches_are_accepted_where_they_change_nothing(name: str, only: str) -> None:
    CloudFilesOptions.parse({**JSON, name: only})
    with pytest.raises(UnsupportedOptionError, match=name.replace(".", r"\.")):
        CloudFilesOptions.parse({**JSON, name: f"not {only}"})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cloudFiles.format": "jsn"}, "Did you mean json"),
        ({"cloudFiles.format": ""}, "required"),
        ({"cloudFiles.format": "csv"}, "not in this version"),
        ({"mode": "PERMISIVE"}, "Did you mean PERMISSIVE"),
        ({"cloudFiles.schemaEvolutionMode": "addColumns"}, "Did you mean addNewColumns"),
        ({"cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening"}, "addNewColumns"),
        ({"cloudFiles.maxFilesPerTrigger": "0"}, "at least 1"),
        ({"cloudFiles.maxFilesPerTrigger": "many"}, "whole number"),
        ({"cloudFiles.maxBytesPerTrigger": "10 parsecs"}, "10g"),
        ({"cloudFiles.inferColumnTypes": "yes"}, "true or false"),
        ({"rescuedDataColumn": " "}, "column name"),
        ({"path": ""}, "No source"),
        ({"cloudFiles.awsSecretKey": "x"}, "conn_id"),
    ],
)
def test_a_wrong_value_says_what_is_right(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        CloudFilesOptions.parse({**JSON, **options})


def test_a_secret_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(OptionError) as caught:
        CloudFilesOptions.parse({**JSON, "cloudFiles.clientSecret": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_add_new_columns_with_a_given_schema_is_an_error() -> None:  # B51
    with pytest.raises(OptionError, match="schemaHints"):
        CloudFilesOptions.parse(
            {**JSON, "cloudFiles.schemaEvolutionMode": "addNewColumns"}, has_schema=True
        )
