"""A run writes what file a row came from, through evolution, merge, replay and promotion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import OptionError, UnknownFieldException
from airflow_cloudfiles.engine.extensions.promotion.promote import Promotion, promote
from airflow_cloudfiles.engine.reading.file_columns import file_path
from tests.support.ingested import Ingested

COLUMNS = "cloudFiles.metadataColumns"


def _rows(stream: Ingested) -> list[dict[str, Any]]:
    table = stream.table.to_pyarrow_dataset().to_table()
    found: list[dict[str, Any]] = table.sort_by("a").to_pylist()
    return found


def _path(stream: Ingested, name: str) -> str:
    return file_path(f"file://{stream.source}", f"{name}.json")


def test_each_row_of_the_table_says_its_file(tmp_path: Path) -> None:
    stream = Ingested(tmp_path, **{COLUMNS: "_metadata", "cloudFiles.maxFilesPerTrigger": "2"})
    stream.add("a b", "c")
    stream.run()
    stream.add("d", new=1)
    with pytest.raises(UnknownFieldException):
        stream.run()
    stream.run()
    assert [row["_metadata"]["file_path"] for row in _rows(stream)] == [
        _path(stream, name) for name in ("a b", "c", "d")
    ]
    assert [(row["a"], row["new"]) for row in _rows(stream)] == [
        ("a b", None),
        ("c", None),
        ("d", "1"),
    ]


def test_a_table_gets_the_columns_later_and_keeps_them_in_a_replay(tmp_path: Path) -> None:
    stream = Ingested(tmp_path)
    stream.add("a")
    stream.run()
    stream.given[COLUMNS] = "file_path AS source, file_size"
    stream.add("b")
    stream.run()
    assert [row["source"] for row in _rows(stream)] == [None, _path(stream, "b")]
    stream.table.restore(stream.table.version() - 1)
    stream.replay(1)
    assert [(row["source"], row["file_size"]) for row in _rows(stream)] == [
        (None, None),
        (_path(stream, "b"), (stream.source / "b.json").stat().st_size),
    ]


def test_a_merge_writes_the_file_of_the_newest_state(tmp_path: Path) -> None:
    stream = Ingested(tmp_path, **{COLUMNS: "file_name"})
    stream.sink = {"mergekeys": "key"}
    stream.add("a", key="1")
    stream.run()
    stream.add("b", key="1")
    stream.run()
    [row] = _rows(stream)
    assert (row["a"], row["file_name"]) == ("b", "b.json")


def test_a_field_of_that_name_is_not_promoted_over_it(tmp_path: Path) -> None:
    stream = Ingested(tmp_path, **{COLUMNS: "file_name"})
    stream.given["cloudFiles.schemaEvolutionMode"] = "rescue"
    stream.add("a")
    stream.run()
    stream.add("b", file_name="mine", other="x")
    stream.run()

    def promoted(*fields: str) -> None:
        promote(
            Promotion(
                target=str(stream.target),
                checkpoint_location=str(stream.state),
                fields=fields,
                options=stream.given,
            )
        )

    with pytest.raises(OptionError, match="Give that column another name"):
        promoted("file_name")
    promoted("other")
    assert [(row["file_name"], row["other"]) for row in _rows(stream)] == [
        ("a.json", None),
        ("b.json", "x"),
    ]
