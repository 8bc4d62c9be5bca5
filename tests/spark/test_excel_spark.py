"""Workbooks of all kinds go through Spark into one table, with the names of their sheets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_every_format_spark import _stream
from tests.support.formats.excel_files import WRITERS
from tests.support.landing import rows, run

pytestmark = pytest.mark.spark


def test_sheets_of_all_kinds_of_workbooks_land_with_their_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    source.mkdir()
    for number, (kind, write) in enumerate(WRITERS.items()):
        sheets = {
            "North 1": [["id", "amount"], [number, 1.5], [number, "#N/A"], [number, "n/a"]],
            "Notes": [["not", "read"]],
            "South 1": [["id", "amount"], [number, 2.5]],
        }
        (source / f"{number}.{kind}").write_bytes(write(sheets))
    options = {
        "dataAddress": "* 1",
        "cloudFiles.schemaHints": "id INT, amount DOUBLE",
        "cloudFiles.metadataColumns": "_metadata, sheet_name AS sheet",
    }
    run(_stream(spark, "excel", source, state, **options), state, target)
    found = {
        (row["id"], row["sheet"], row["_metadata"]["sheet_name"], row["amount"],
         json.loads(row["_rescued_data"] or "{}").get("amount"))
        for row in rows(target)
        if row["amount"] is not None or row["_rescued_data"] is not None
    }  # fmt: skip
    assert found == {
        each
        for number in range(len(WRITERS))
        for each in (
            (number, "North 1", "North 1", 1.5, None),
            (number, "North 1", "North 1", None, "n/a"),
            (number, "South 1", "South 1", 2.5, None),
        )
    }
    assert len(rows(target)) == 4 * len(WRITERS)
