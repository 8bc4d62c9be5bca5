"""A run on a server begins behind what the query of a lost client commits until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import RunFailedError, StateLockedError
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.job.connect.query import run_on_server
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.state.plan_log import PREFIX
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import open_store

FILES = 10


class Stream:
    """A state with plans of one file each, on which another query commits."""

    def __init__(self, folder: Path) -> None:
        self._state = open_store(str(folder))
        self.spec = JobSpec(
            kind="ingest",
            source=str(folder / "in"),
            format="json",
            checkpoint_location=str(folder),
            target=str(folder / "table"),
            run_id="1",
            batch={"last_entry": FILES - 1},
        )
        plans = NumberedLog(self._state, PREFIX)
        for number in range(FILES):
            ends = {
                name: Offset(number + n, 0).to_json() for n, name in enumerate(("start", "end"))
            }
            plans.append(number, {**ends, "files": 1, "bytes": 1})

    def commit(self, batch: int) -> None:
        """Commit a batch, as the query of a lost client does."""
        SinkLog(self._state).add(SinkRecord(batch=batch, end=Offset(batch + 1, 0)))

    def run(self, errors: list[Exception | None], commits: list[int], before: int) -> list[int]:
        """Run with queries that end so; give the batches behind which they were started."""
        started: list[int] = []

        def start(after: int) -> Any:
            started.append(after)

        def follow(_query: Any) -> None:
            for _ in range(commits.pop(0) if commits else 0):
                self.commit(self.committed)
                self.committed += 1
            error = errors.pop(0)
            if error is not None:
                raise error

        self.committed = before + 1
        try:
            run_on_server(start, follow, self.spec, before)
        finally:
            self.started = started
        return started


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def test_a_query_that_comes_through_is_started_once(stream):
    stream.commit(0)
    assert stream.run([None], [], 0) == [0]


def test_what_another_query_committed_meanwhile_is_gone_on_from(stream):
    assert stream.run([StateLockedError("moved"), None], [3], -1) == [-1, 2]


def test_where_it_has_committed_everything_nothing_is_started_again(stream):
    assert stream.run([StateLockedError("moved")], [FILES], -1) == [-1]


def test_a_query_that_is_still_at_work_is_an_error(stream):
    stream.commit(0)
    with pytest.raises(StateLockedError, match="held"):
        stream.run([StateLockedError("held")], [], 0)


def test_it_does_not_try_for_ever(stream):
    with pytest.raises(StateLockedError):
        stream.run([StateLockedError("moved") for _ in range(5)], [1, 1, 1, 1, 1], -1)
    assert stream.started == [-1, 0, 1]


def test_any_other_error_ends_the_run(stream):
    with pytest.raises(RunFailedError):
        stream.run([RunFailedError("stopped by signal 15")], [2], -1)
