"""A run cleans its source of what earlier runs have committed."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, launch
from tests.support.emulators.aws import Aws
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.emulator]


def test_a_run_moves_what_the_run_before_it_has_committed(aws: Aws, tmp_path: Path) -> None:
    """In an object store; three runs, so that the second has something to move."""
    bucket, client = aws.bucket(), aws.client("s3")
    name = bucket.removeprefix("s3://")

    def land(key: str) -> None:
        content = drop(tmp_path, "draft.json", [{"id": key}]).read_bytes()
        client.put_object(Bucket=name, Key=f"in/{key}.json", Body=content)

    def run() -> dict[str, Any]:
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
        found: dict[str, Any] = launch(
            spec, LocalSpark(master="local[2]"), on_log=print, access=aws.access
        ).wait()
        return found

    def keys(prefix: str) -> list[str]:
        found = client.list_objects_v2(Bucket=name, Prefix=prefix).get("Contents", ())
        return [each["Key"] for each in found]

    land("a")
    assert run()["cleaning"]["files"] == 0, "its own files stay"
    land("b")
    cleaning = run()["cleaning"]
    assert (cleaning["files"], cleaning["others"], cleaning["is_complete"]) == (1, {}, True)
    assert (keys("in/"), keys("archive/")) == (["in/b.json"], ["archive/a.json"])
    assert "cleaning" not in run(), "nothing is new"
    assert sorted(row["id"] for row in rows(tmp_path / "table")) == ["a", "b"]
