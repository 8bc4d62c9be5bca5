"""`cloudFiles.metadataColumns` is the list of a SELECT over Spark's `_metadata`."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.metadata_columns import (
    FIELDS,
    NAME,
    MetadataColumn,
    metadata_option,
)


def parsed(text: str, **given: object) -> list[tuple[str, str]]:
    options = CloudFilesOptions.parse(
        {"cloudFiles.format": "json", NAME: text, **given}, path="/data/in"
    )
    return [(each.name, each.field) for each in options.metadata_columns]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", []),
        ("_metadata", [("_metadata", "_metadata")]),
        ("_metadata AS source", [("source", "_metadata")]),
        ("file_path", [("file_path", "file_path")]),
        (" _metadata.FILE_path as Src ,file_size", [("Src", "file_path"), ("file_size",) * 2]),
        ("file_name AS `a, ``b`` c`", [("a, `b` c", "file_name")]),
        ("_metadata.*", [(each, each) for each in FIELDS]),
    ],
)
def test_columns_are_named_as_in_a_select(text: str, columns: list[tuple[str, str]]) -> None:
    assert parsed(text) == columns


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("file_pth", "'file_pth', which is no field of _metadata. Did you mean file_path"),
        ("_metadata.size", "It has file_path, file_name"),
        ("file_path AS", "cannot read 'file_path AS'"),
        ("file_path AS a b", "cannot read"),
        ("file_path; file_name", "cannot read"),
        (",", "cannot read"),
        ("_metadata.* AS a", "is several columns"),
        ("file_path, file_name AS FILE_PATH", "two columns 'FILE_PATH'"),
        ("file_path AS _rescued_data", "rescuedDataColumn names as well"),
        ("file_path AS day", "cloudFiles.partitionColumns names as well"),
    ],
)
def test_what_is_no_column_is_named(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason.replace(".", r"\.").replace("*", r"\*")):
        parsed(text, **{"cloudFiles.partitionColumns": "day"})


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (["file_path", "file_size AS bytes"], [("file_path",) * 2, ("bytes", "file_size")]),
        ({"source, `file`": "file_path"}, [("source, `file`", "file_path")]),
        (("_metadata",), [("_metadata",) * 2]),
    ],
)
def test_values_of_python_are_written_as_the_option(
    given: Any, columns: list[tuple[str, str]]
) -> None:
    assert parsed(metadata_option(given)) == columns


@pytest.mark.parametrize("given", ["file_path", [1], {"a": "path"}])
def test_what_python_cannot_mean_is_refused(given: Any) -> None:
    with pytest.raises(OptionError):
        metadata_option(given)


def test_fields_of_these_names_are_never_columns_of_the_records() -> None:
    options = CloudFilesOptions(
        path="/in", format="json", metadata_columns=(MetadataColumn("source", "file_path"),)
    )
    assert "source" in options.reserved_columns
