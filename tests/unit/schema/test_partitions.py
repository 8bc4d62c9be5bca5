from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.source_columns import (
    beside,
    partition_schema,
    partition_values,
    path_partitions,
)

_NONE = StructType([])


def _inferred(*paths, columns=None, typed=False):
    return partition_schema(paths, columns=columns, typed=typed)


class TestColumns:
    def test_a_key_with_a_control_character_is_no_column(self):
        assert _inferred("k=1/k%00a=2/f") == parse_schema("k STRING")

    def test_keys_of_the_folders_are_string_columns(self):  # B36
        found = _inferred("event=click/date=2021-04-01/f0.json")
        assert found == parse_schema("event STRING, date STRING")

    def test_dates_and_whole_numbers_are_typed_when_types_are_inferred(self):  # B37
        found = _inferred(
            "event=click/date=2021-04-01/n=01/big=1/f0.json",
            "event=7/date=2021-04-02/n=2/big=3000000000/f1.json",
            typed=True,
        )
        assert found == parse_schema("event STRING, date DATE, n INT, big BIGINT")

    @pytest.mark.parametrize(
        "values", [("1.10", "2"), ("2021-02-30",), ("9" * 30,), ("1", "x"), ("2021-01-01", "1")]
    )
    def test_other_text_keeps_its_form_as_a_string(self, values):
        found = _inferred(*(f"v={value}/f" for value in values), typed=True)
        assert found == parse_schema("v STRING")

    def test_null_says_nothing_about_a_type(self):
        null = "n=__HIVE_DEFAULT_PARTITION__/f"
        assert _inferred(null, "n=5/f", typed=True) == parse_schema("n INT")
        assert _inferred(null, typed=True) == parse_schema("n STRING")

    @pytest.mark.parametrize("typed", [False, True])
    def test_contradicting_structure_has_no_partition_columns(self, typed):  # B38
        paths = [
            "partition=1/date=2020-12-31/file1.json",
            "date=2020-12-31/partition=2/file2.json",
            "partition=3/file3.json",
        ]
        assert _inferred(*paths, typed=typed) == _NONE
        assert _inferred(paths[0], paths[2], typed=typed) == _NONE
        assert _inferred("f.json", paths[2], typed=typed) == _NONE

    def test_folders_without_keys_have_none(self):  # B39
        assert _inferred("a/b/f.json", "f=1.json") == _NONE
        assert _inferred() == _NONE

    def test_a_key_twice_in_a_path_is_a_contradiction(self):
        assert _inferred("a=1/A=2/f") == _NONE

    def test_folders_between_the_keys_do_not_matter(self):
        assert _inferred("x/a=1/y/b=2/f", "a=3/b=4/z/f") == parse_schema("a STRING, b STRING")

    def test_named_columns_are_always_there(self):  # B40, B42
        found = _inferred("year=2022/week=1/f", columns=("year", "month", "day"))
        assert found == parse_schema("year STRING, month STRING, day STRING")
        assert _inferred("f", "year=x/f", columns=("Year",)) == parse_schema("Year STRING")

    def test_named_columns_are_typed_when_types_are_inferred(self):
        found = _inferred("year=2022/f", "week=1/f", columns=("year", "month"), typed=True)
        assert found == parse_schema("year INT, month STRING")

    def test_an_empty_list_of_names_drops_them(self):  # B43
        assert _inferred("a=1/f", columns=()) == _NONE

    def test_a_records_own_field_holds_the_column(self):
        partitions = parse_schema("a STRING, b STRING")
        assert beside(parse_schema("A INT"), partitions) == parse_schema("b STRING")


class TestValues:
    def test_missing_ones_are_null(self):  # B40
        values = partition_values("year=2022/week=1/f", ["year", "month", "day"])
        assert values == {"year": "2022", "month": None, "day": None}

    def test_a_new_level_is_ignored(self):  # B41
        assert partition_values("date=1/hour=01/f1.json", ["date"]) == {"date": "1"}

    def test_names_are_found_in_any_case(self):
        assert partition_values("YEAR=2022/f", ["Year"]) == {"Year": "2022"}

    @pytest.mark.parametrize(
        ("folder", "pair"),
        [
            ("a=b%20c%2Fd", ("a", "b c/d")),
            ("a%3Db=c", ("a=b", "c")),
            ("a=b=c", ("a", "b=c")),
            ("a=%E4%BD%A0", ("a", "你")),
            ("a=你", ("a", "你")),
            ("a=100%", ("a", "100%")),
            ("a=%FF", ("a", "%FF")),
            ("a=b+c", ("a", "b+c")),
            ("a=", ("a", "")),
            ("a=\udcff", ("a", "\\xff")),
            ("a=__HIVE_DEFAULT_PARTITION__", ("a", None)),
        ],
    )
    def test_escapes_are_undone_and_nothing_else(self, folder, pair):
        assert path_partitions(f"{folder}/f.json") == [pair]

    @pytest.mark.parametrize("folder", ["=x", "abc", "="])
    def test_what_has_no_key_is_no_partition(self, folder):
        assert path_partitions(f"{folder}/f.json") == []
