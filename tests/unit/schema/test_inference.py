from __future__ import annotations

import tracemalloc

import pytest
from pyspark.sql.types import NullType, StructField, StructType

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.inference import choose_sample, resolve

GB = 2**30
_NONE = StructType([])


def _files(count, size=1024):
    return [FileEntry(f"f{number:05}.json", size, 1000 + number) for number in range(count)]


class TestSample:
    def test_no_more_files_than_the_limit(self):  # B1
        assert len(choose_sample(_files(1500), 1000, 50 * GB)) == 1000

    def test_no_more_files_once_the_bytes_are_reached(self):  # B2
        assert len(choose_sample(_files(20, 5 * GB), 1000, 50 * GB)) == 10

    def test_limits_can_be_set(self):  # B3
        assert len(choose_sample(_files(1500), 500, 10 * GB)) == 500
        assert len(choose_sample(_files(20, 5 * GB), 500, 10 * GB)) == 2

    def test_the_newest_files_are_taken_newest_first(self):
        sample = choose_sample(_files(100), 3, GB)
        assert [file.path for file in sample] == ["f00099.json", "f00098.json", "f00097.json"]

    def test_files_of_one_moment_are_taken_the_same_way_every_time(self):
        files = [FileEntry(name, 1, 5) for name in "cab"]
        assert [file.path for file in choose_sample(files, 2, GB)] == ["c", "b"]
        assert choose_sample(reversed(files), 2, GB) == choose_sample(files, 2, GB)

    def test_one_file_larger_than_the_limit_is_a_sample(self):
        assert len(choose_sample(_files(3, 100 * GB), 1000, 50 * GB)) == 1

    def test_nothing_gives_nothing(self):
        assert choose_sample([], 1000, GB) == []

    def test_memory_does_not_grow_with_the_listing(self):
        files = (FileEntry(f"f{number:06}", 1, number) for number in range(20_000))
        tracemalloc.start()
        choose_sample(files, 10, GB)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200_000


def _resolve(observed, *paths, **options):
    given = {"cloudFiles.format": "json", "cloudFiles.schemaLocation": "/s"}
    dotted = {f"cloudFiles.{key}": value for key, value in options.items()}
    if "rescuedDataColumn" in options:
        dotted["rescuedDataColumn"] = dotted.pop("cloudFiles.rescuedDataColumn")
    parsed = CloudFilesOptions.parse({**given, **dotted}, path="/landing")
    schema = parse_schema(observed) if isinstance(observed, str) else observed
    return resolve(schema, options=parsed, paths=paths or ("f.json",))


class TestSettling:
    def test_what_never_had_a_value_becomes_a_string_and_what_holds_nothing_is_gone(self):
        observed = StructType(
            [StructField("a", NullType()), StructField("b", _NONE), StructField("c", NullType())]
        )
        assert _resolve(observed) == (parse_schema("a STRING, c STRING"), _NONE)

    @pytest.mark.parametrize("typed", [True, False])
    def test_hints_hold_whether_types_are_inferred_or_not(self, typed):  # B35
        data, _ = _resolve("a STRING", schemaHints="a DATE, b INT", inferColumnTypes=typed)
        assert data == parse_schema("a DATE, b INT")

    def test_a_hint_reaches_into_what_never_had_a_value(self):
        observed = StructType([StructField("a", NullType())])
        data, _ = _resolve(observed, schemaHints="a.b INT")
        assert data == parse_schema("a STRUCT<b: INT>")

    def test_partition_columns_come_from_the_sampled_paths(self):  # B36, B37
        path = "event=click/date=2021-04-01/f0.json"
        assert _resolve("a STRING", path)[1] == parse_schema("event STRING, date STRING")
        typed = _resolve("a STRING", path, inferColumnTypes=True)[1]
        assert typed == parse_schema("event STRING, date DATE")

    def test_partition_columns_can_be_named_and_dropped(self):  # B42, B43
        path = "event=click/f"
        named = _resolve("a STRING", path, partitionColumns="event,date,hour")[1]
        assert named == parse_schema("event STRING, date STRING, hour STRING")
        assert _resolve("a STRING", path, partitionColumns="")[1] == _NONE

    def test_a_hint_may_name_a_partition_column(self):
        hints = "Date DATE, event INT, new STRING"
        data, partitions = _resolve("a STRING", "event=1/date=2021-04-01/f", schemaHints=hints)
        assert data == parse_schema("a STRING, new STRING")
        assert partitions == parse_schema("event INT, Date DATE")

    def test_a_partition_column_is_not_nested(self):
        with pytest.raises(SchemaHintError, match="partition column event"):
            _resolve("a STRING", "event=1/f", schemaHints="event ARRAY<INT>")

    def test_a_records_own_field_hides_the_partition_of_that_name(self):
        data, partitions = _resolve("Event STRING, b STRUCT<>", "event=1/b=2/f")
        assert data == parse_schema("Event STRING")
        assert partitions == parse_schema("b STRING")

    def test_the_corrupt_record_column_is_there_when_hinted(self):  # B78
        data, _ = _resolve("a STRING", schemaHints="_corrupt_record STRING")
        assert data == parse_schema("a STRING, _corrupt_record STRING")

    @pytest.mark.parametrize("hint", ["_corrupt_record INT", "_CORRUPT_RECORD STRING"])
    def test_the_corrupt_record_column_is_a_string_of_that_name(self, hint):
        with pytest.raises(SchemaHintError, match="Write: _corrupt_record STRING"):
            _resolve("a STRING", schemaHints=hint)

    def test_fields_named_as_the_readers_own_columns_are_left_to_be_rescued(self):
        observed = "a STRING, _rescued_data STRING, _Corrupt_Record STRING"
        assert _resolve(observed)[0] == parse_schema("a STRING")
        renamed, _ = _resolve("a STRING, _rescued_data STRING", rescuedDataColumn="_x")
        assert renamed == parse_schema("a STRING, _rescued_data STRING")

    def test_the_rescued_data_column_cannot_be_hinted(self):
        with pytest.raises(SchemaHintError, match="Remove the hint"):
            _resolve("a STRING", schemaHints="_rescued_data STRING")
