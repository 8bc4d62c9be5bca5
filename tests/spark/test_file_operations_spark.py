"""Operations on files, from query to query, with Spark itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from airflow_cloudfiles import operate_on_files
from tests.support.landing import drop, rows, run, stream

pytestmark = pytest.mark.spark


def test_a_replayed_file_replaces_its_rows_in_one_commit_and_a_quarantined_one_gives_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"

    def caught_up() -> list[str]:
        options = {"cloudFiles.metadataColumns": "_metadata.file_path AS origin"}
        run(stream(spark, source, state, **options), state, target)
        return sorted(row["id"] for row in rows(target))

    drop(source, "a b.json", [{"id": "wrong 1"}, {"id": "wrong 2"}])
    drop(source, "c.json", [{"id": "c"}])
    assert caught_up() == ["c", "wrong 1", "wrong 2"]
    version = DeltaTable(str(target)).version()

    drop(source, "a b.json", [{"id": "right"}])
    drop(source, "poison.json", [{"id": "poison"}])
    operate_on_files(str(state), "quarantine", "poison.json")
    operate_on_files(str(state), "replay", "a b.json", path_column="origin")
    assert caught_up() == ["c", "right"]
    found = DeltaTable(str(target))
    assert found.version() == version + 1
    assert found.history(1)[0]["operationParameters"]["mode"] == "Overwrite"

    drop(source, "poison 2.json", [{"id": "poison"}])
    with pytest.raises(Exception, match="is too late to skip it"):
        operate_on_files(str(state), "skip", ["poison 2.json", "c.json"])
    operate_on_files(str(state), "skip", "poison 2.json")
    assert caught_up() == ["c", "right"]
    operate_on_files(str(state), "release", "poison.json")
    assert caught_up() == ["c", "poison", "right"]
    assert DeltaTable(str(target)).version() == version + 2
