"""A table is read by one list of reader features; what is not on it is refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import TargetCorruptedError, UnsupportedTableError
from airflow_cloudfiles.engine.tables.delta.read.actions import READER_FEATURES
from tests.support.delta_tables import HandMadeTable, features, read

HOW_TO = Path(__file__).parents[4] / "docs" / "how-to" / "read-delta-tables.md"


def table(folder: Path, protocol: dict[str, Any]) -> Path:
    made = HandMadeTable(folder)
    made.create(made.file("part-0.parquet", {"a": [1], "s": ["x"]}), protocol=protocol)
    return folder


@pytest.mark.parametrize("name", sorted(READER_FEATURES))
def test_a_feature_on_the_list_is_read(tmp_path: Path, name: str) -> None:
    assert read(table(tmp_path / "t", features(name))).num_rows == 1


@pytest.mark.parametrize("name", ["catalogManaged", "geospatial", "somethingNew"])
def test_a_feature_that_is_not_on_the_list_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = table(tmp_path / "t", features("deletionVectors", name))
    with pytest.raises(UnsupportedTableError, match=f"{folder}.* table feature {name}, "):
        read(folder)


def test_several_features_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="features alpha, beta"):
        read(table(tmp_path / "t", features("beta", "alpha")))


def test_features_of_writers_do_not_matter(tmp_path: Path) -> None:
    writer = ("rowTracking", "domainMetadata", "clustering", "somethingNew")
    assert read(table(tmp_path / "t", features(writer=writer))).num_rows == 1
    old = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["somethingNew"]}
    assert read(table(tmp_path / "u", old)).num_rows == 1


def test_a_newer_reader_version_is_refused(tmp_path: Path) -> None:
    protocol = {**features(), "minReaderVersion": 4}
    with pytest.raises(UnsupportedTableError, match="reader version 4"):
        read(table(tmp_path / "t", protocol))


def test_a_protocol_that_names_no_features_is_damaged(tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    with pytest.raises(TargetCorruptedError, match="no readerFeatures"):
        read(table(tmp_path / "t", protocol))


def test_the_version_that_is_read_decides(tmp_path: Path) -> None:
    folder = table(tmp_path / "t", features())
    made = HandMadeTable.__new__(HandMadeTable)
    made.folder, made.log, made.version = folder, folder / "_delta_log", 0
    made.commit({"protocol": features("somethingNew")})
    made.commit({"protocol": features()})
    assert read(folder, 0).num_rows == read(folder).num_rows == 1
    with pytest.raises(UnsupportedTableError, match="somethingNew"):
        read(folder, 1)


def test_an_unknown_column_mapping_is_refused(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(protocol=features("columnMapping"), delta_columnMapping_mode="guess")
    with pytest.raises(TargetCorruptedError, match=re.escape("mode is 'guess'")):
        read(tmp_path / "t")


def test_what_deltalake_does_not_open_is_read_where_the_list_says_so(tmp_path: Path) -> None:
    folder = table(tmp_path / "t", features("typeWidening", "vacuumProtocolCheck"))
    assert read(folder).to_pylist() == [{"a": 1, "s": "x"}]
    assert DeltaTable(str(folder)).version() == 0


def test_the_page_lists_the_features_that_are_read() -> None:
    page = HOW_TO.read_text(encoding="utf-8").partition("## Supported tables")[2]
    table = page.partition("\n\n- ")[0]
    assert dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", table, re.MULTILINE)) == READER_FEATURES
