"""What runs and queries have committed is cleaned by later runs, and by the command."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.extensions.cleaning.of_stream import clean_source
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.emulators.aws import Aws
from tests.support.landing import drop, rows, run, stream
from tests.support.shared_runs import run_in
from tests.support.shared_spark import with_variables

pytestmark = [pytest.mark.spark]


def test_the_command_cleans_what_a_query_of_ones_own_has_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, archive = (tmp_path / name for name in ("in", "state", "archive"))
    options = {
        "cloudFiles.cleanSource": "MOVE",
        "cloudFiles.cleanSource.retentionDuration": "1 millisecond",
        "cloudFiles.cleanSource.moveDestination": str(archive),
    }
    drop(source, "a.json", [{"id": 1}])
    query = run(stream(spark, source, state, **options), state, tmp_path / "table")
    assert query.exception() is None
    assert (source / "a.json").exists(), "a query does not clean by itself"
    drop(source, "b.json", [{"id": 2}])
    spec = JobSpec(
        kind="clean",
        source=str(source),
        format="json",
        checkpoint_location=str(state),
        options=options,
        run_id="clean",
    )
    assert clean_source(spec)["files"] == 1
    assert [each.name for each in source.iterdir()] == ["b.json"]
    assert [each.name for each in archive.iterdir()] == ["a.json"]
    run(stream(spark, source, state, **options), state, tmp_path / "table")
    assert sorted(row["id"] for row in rows(tmp_path / "table")) == ["1", "2"]


@pytest.mark.emulator
def test_a_run_moves_what_the_run_before_it_has_committed(
    spark: SparkSession, aws: Aws, tmp_path: Path
) -> None:
    """In an object store; three runs, so that the second has something to move."""
    bucket, client = aws.bucket(), aws.client("s3")
    name = bucket.removeprefix("s3://")

    def land(key: str) -> None:
        content = drop(tmp_path, "draft.json", [{"id": key}]).read_bytes()
        client.put_object(Bucket=name, Key=f"in/{key}.json", Body=content)

    def ingest() -> dict[str, Any]:
        spec = JobSpec(
            kind="ingest",
            source=f"{bucket}/in",
            format="json",
            checkpoint_location=f"{bucket}/state",
            target=str(tmp_path / "table"),
            options={
                "cloudFiles.cleanSource": "MOVE",
                "cloudFiles.cleanSource.retentionDuration": "1 millisecond",
                "cloudFiles.cleanSource.moveDestination": f"{bucket}/archive",
            },
            run_id=uuid.uuid4().hex,
        )
        with with_variables(spark, to_environment(aws.access)):
            return run_in(spark, spec)

    def keys(prefix: str) -> list[str]:
        found = client.list_objects_v2(Bucket=name, Prefix=prefix).get("Contents", ())
        return [each["Key"] for each in found]

    land("a")
    assert ingest()["cleaning"]["files"] == 0, "its own files stay"
    land("b")
    time.sleep(1.1)  # the store tells whole seconds, and its clock, too, must say that it is time
    cleaning = ingest()["cleaning"]
    assert (cleaning["files"], cleaning["others"], cleaning["is_complete"]) == (1, {}, True)
    assert (keys("in/"), keys("archive/")) == (["in/b.json"], ["archive/a.json"])
    assert "cleaning" not in ingest(), "nothing is new"
    assert sorted(row["id"] for row in rows(tmp_path / "table")) == ["a", "b"]
