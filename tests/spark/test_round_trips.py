"""A run whose state is far away waits for few requests, one after the other."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, launch
from tests.support.emulators.aws import Aws
from tests.support.landing import drop, rows
from tests.support.round_trips import RoundTrips, round_trips

pytestmark = [pytest.mark.spark]

LOCK = 3
"""A lock that nobody else has: created; looked at, and deleted."""
NOTHING_NEW = 12 - LOCK
NEW_FILES = 45
"""Without its two locks. It was 36; a slow query asks every ten seconds what is left, too."""


@pytest.fixture
def far(aws: Aws) -> Iterator[RoundTrips]:
    with round_trips(aws.endpoint) as found:
        yield found


def test_a_run_waits_for_few_requests(aws: Aws, far: RoundTrips, tmp_path: Path) -> None:
    state = f"{aws.bucket()}/state"
    source, target = tmp_path / "in", tmp_path / "table"

    def run() -> int:
        spec = JobSpec(
            kind="ingest",
            source=str(source),
            format="json",
            checkpoint_location=state,
            target=str(target),
            run_id=uuid.uuid4().hex,
        )
        far.requests.clear()
        how = LocalSpark(master="local[2]")
        launch(spec, how, on_log=print, access=aws.access_through(far.endpoint)).wait()
        return len(far.chain(of="state/"))

    drop(source, "0.json", [{"id": 0}])
    run()
    drop(source, "1.json", [{"id": 1}])
    with_files = run()
    nothing_new = run()
    assert sorted(row["id"] for row in rows(target)) == ["0", "1"]
    assert nothing_new <= NOTHING_NEW
    assert with_files <= NEW_FILES
