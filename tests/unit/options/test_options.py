"""Options are Auto Loader's, and a wrong one is met with the right one."""

from __future__ import annotations

import re

import pytest

from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.options.formats.registry import FORMATS
from airflow_cloudfiles.engine.options.values import REFUSED, parse_interval, parse_size, parse_time

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


def test_an_option_of_the_sink_is_sent_there() -> None:
    with pytest.raises(UnknownOptionError, match="typeWidening is an option of the Delta sink"):
        CloudFilesOptions.parse({**JSON, "typewidening": "true"})


def _of_others(format_name: str) -> list[str]:
    """Options of another format that JSON does not have."""
    own = {name.lower() for name in FORMATS["json"].names()}
    return [name for name in FORMATS[format_name].names() if name.lower() not in own]


@pytest.mark.parametrize(
    "name",
    [
        *(each.name for each in REFUSED if not each.accepts),
        *(name for format_name in FORMATS for name in _of_others(format_name)),
    ],
)
def test_every_documented_option_that_is_not_offered_is_refused_by_name(name: str) -> None:
    for validate in ("true", "false"):
        with pytest.raises(UnsupportedOptionError) as caught:
            CloudFilesOptions.parse({**JSON, name: "x", "cloudFiles.validateOptions": validate})
        assert name in str(caught.value)


LOGGED = {
    **JSON,
    "cloudFiles.useManagedFileEvents": "true",
    "cloudFiles.fileEventsLocation": "s3://ops/events",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cloudFiles.useNotifications", "true"),
        ("cloudFiles.useIncrementalListing", "auto"),
        ("cloudFiles.fetchParallelism", "2"),
        ("cloudFiles.backfillInterval", "1 day"),  # B102
        ("cloudFiles.pathRewrites", '{"s3://a": "s3://b"}'),
        ("cloudFiles.queueUrl", "https://q"),
        ("cloudFiles.subscription", "s"),
        ("cloudFiles.resourceTag", "x"),
        ("cloudFiles.clientSecret", "x"),
    ],
)
def test_what_has_no_meaning_with_an_event_log_is_refused(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=re.escape(name)):
        CloudFilesOptions.parse({**LOGGED, name: value})


def test_an_event_log_goes_with_list_on_start_and_with_what_changes_nothing() -> None:
    found = CloudFilesOptions.parse(
        {**LOGGED, "cloudFiles.listOnStart": "true", "cloudFiles.useNotifications": "false"}
    ).discovery
    assert found.use_managed_file_events
    assert found.file_events_location == "s3://ops/events"
    assert not CloudFilesOptions.parse(JSON).discovery.is_announced


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cloudFiles.format": "jsn"}, "Did you mean json"),
        ({"cloudFiles.format": ""}, "required"),
        ({"cloudFiles.format": "cvs"}, "Did you mean csv"),
        ({"cloudFiles.format": "parquet", "mode": "FAILFAST"}, "not of parquet"),
        ({"cloudFiles.format": "text", "singleVariantColumn": "v"}, "json, xml, not of text"),
        ({"mode": "PERMISIVE"}, "Did you mean PERMISSIVE"),
        ({"cloudFiles.schemaEvolutionMode": "addColumns"}, "Did you mean addNewColumns"),
        ({"cloudFiles.schemaEvolutionMode": "addNewColumnsWithWidening"}, "WithTypeWidening"),
        ({"cloudFiles.maxFilesPerTrigger": "0"}, "at least 1"),
        ({"cloudFiles.maxFilesPerTrigger": "many"}, "whole number"),
        ({"cloudFiles.maxBytesPerTrigger": "10 parsecs"}, "10g"),
        ({"cloudFiles.inferColumnTypes": "yes"}, "true or false"),
        ({"rescuedDataColumn": " "}, "column name"),
        ({"path": ""}, "No source"),
        ({"cloudFiles.awsSecretKey": "x"}, "conn_id"),
        ({"cloudFiles.useIncrementalListing": "yes"}, "auto, true, false"),
        ({"cloudFiles.backfillInterval": "1 month"}, "1 day"),
        ({"cloudFiles.backfillInterval": "0 days"}, "1 day"),
        ({"cloudFiles.maxFileAge": "13 days"}, "at least 14 days"),  # B108
        ({"modifiedAfter": "yesterday"}, "2026-01-31T08:00:00"),
        ({"pathGlobFilter": "*.a", "fileNamePattern": "*.b"}, "two names of one option"),
        ({"cloudFiles.fetchParallelism": "0"}, "at least 1"),
        ({"cloudFiles.useNotifications": "true", "cloudFiles.pathRewrites": "{"}, "JSON object"),
        ({"cloudFiles.queueUrl": "https://q"}, "useNotifications=true"),
        (
            {"cloudFiles.allowOverwrites": "true", "cloudFiles.useIncrementalListing": "true"},
            "contradict",
        ),
        ({"cloudFiles.useManagedFileEvents": "true"}, "needs cloudFiles.fileEventsLocation"),
        ({"cloudFiles.fileEventsLocation": "s3://b"}, "useManagedFileEvents is not true"),
    ],
)
def test_a_wrong_value_says_what_is_right(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        CloudFilesOptions.parse({**JSON, **options})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 day", 86400),
        ("interval 2 weeks", 14 * 86400),
        ("1 hour 30 minutes", 5400),
        ("90days", 90 * 86400),
        ("1.5 hours", 5400),
        ("1 month", None),
        ("day", None),
        ("1", None),
        ("", None),
    ],
)
def test_intervals_are_read_as_spark_reads_them(text: str, seconds: float | None) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("1970-01-01", 0),
        ("1970-01-02T00:00:00.000001", 86400 * 10**6 + 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01 00:00:01Z", 10**6),
        ("1969-12-31T23:59:59", -(10**6)),
        ("noon", None),
    ],
)
def test_times_are_utc_where_they_name_no_zone(text: str, time_us: int | None) -> None:
    assert parse_time(text) == time_us


def test_defaults_of_discovery_are_those_of_the_documentation() -> None:
    found = CloudFilesOptions.parse(JSON).discovery
    assert found == DiscoveryOptions()
    assert found.use_incremental_listing == "auto"
    assert found.include_existing_files is True
    assert (found.allow_overwrites, found.use_notifications, found.fetch_parallelism) == (
        False,
        False,
        1,
    )
    assert found.max_file_age_seconds is None


def test_path_rewrites_are_pairs_in_the_order_given() -> None:
    rewrites = '{"s3://old/in": "s3://new/in", "s3://old": "s3://newer"}'
    options = {"cloudFiles.useNotifications": "true", "cloudFiles.pathRewrites": rewrites}
    found = CloudFilesOptions.parse({**JSON, **options}).discovery
    assert found.path_rewrites == (("s3://old/in", "s3://new/in"), ("s3://old", "s3://newer"))


def test_recursive_file_lookup_takes_no_columns_from_folders() -> None:
    assert CloudFilesOptions.parse({**JSON, "recursiveFileLookup": "true"}).partition_columns == ()
    named = {"recursiveFileLookup": "true", "cloudFiles.partitionColumns": "day"}
    assert CloudFilesOptions.parse({**JSON, **named}).partition_columns == ("day",)
    assert CloudFilesOptions.parse(JSON).partition_columns is None


def test_a_secret_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(OptionError) as caught:
        CloudFilesOptions.parse({**JSON, "cloudFiles.clientSecret": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_add_new_columns_with_a_given_schema_is_an_error() -> None:  # B51
    with pytest.raises(OptionError, match="schemaHints"):
        CloudFilesOptions.parse(
            {**JSON, "cloudFiles.schemaEvolutionMode": "addNewColumns"}, has_schema=True
        )
