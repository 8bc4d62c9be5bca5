"""A run whose state is far away waits for few requests, one after the other."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, launch
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.emulators.aws import Aws
from tests.support.landing import drop, rows
from tests.support.round_trips import RoundTrips, round_trips
from tests.support.shared_runs import run_in
from tests.support.shared_spark import with_variables

pytestmark = [pytest.mark.spark]

NOTHING_NEW = 4
NEW_FILES = 11
"""Exactly, without the two locks, of which one is made beside the first reads, and both are freed
beside the last ones (decisions 93 and 207)."""
SPARE = 1
"""Two threads of a busy machine may begin so late that their requests do not overlap."""


@pytest.fixture
def far(aws: Aws) -> Iterator[RoundTrips]:
    with round_trips(aws.endpoint) as found:
        yield found


def test_a_run_waits_for_few_requests(
    spark: SparkSession, aws: Aws, far: RoundTrips, tmp_path: Path
) -> None:
    state = f"{aws.bucket()}/state"
    source, target = tmp_path / "in", tmp_path / "table"

    def spec() -> JobSpec:
        return JobSpec(
            kind="ingest",
            source=str(source),
            format="json",
            checkpoint_location=state,
            target=str(target),
            run_id=uuid.uuid4().hex,
        )

    def run() -> list[str]:
        far.requests.clear()
        how = LocalSpark(master="local[2]")
        launch(spec(), how, on_log=print, access=aws.access_through(far.endpoint)).wait()
        return [f"{each.method} {each.key}" for each in far.chain(of="state/")]

    drop(source, "0.json", [{"id": 0}])
    with with_variables(spark, to_environment(aws.access)):
        run_in(spark, spec())  # nobody counts what a new stream asks for
    # A busy machine may begin requests one after the other that it makes at once elsewhere.
    drop(source, "1.json", [{"id": 1}])
    with_files = run()
    drop(source, "2.json", [{"id": 2}])
    with_files = min(with_files, run(), key=len)
    nothing_new = min((run() for _ in range(2)), key=len)
    assert sorted(row["id"] for row in rows(target)) == ["0", "1", "2"]
    assert len(nothing_new) <= NOTHING_NEW + SPARE, nothing_new
    assert len(with_files) <= NEW_FILES + SPARE, with_files
