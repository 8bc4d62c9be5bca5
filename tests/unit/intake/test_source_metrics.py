"""What a source has still to give, in Auto Loader's words (B116)."""

from __future__ import annotations

import pytest

from airflow_cloudfiles import cloud_files_metrics
from airflow_cloudfiles.engine.errors import QueueError, StateError
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.intake import stream_logs
from airflow_cloudfiles.engine.intake.stream_logs import source_metrics
from tests.support.written_state import WrittenState


@pytest.fixture
def written(tmp_path) -> WrittenState:
    return WrittenState(f"file://{tmp_path}/state")


def test_metrics_are_texts_and_reach_0_when_all_is_committed(written):
    written.discover("gone", found_by="existing")
    written.discover("a", "bb")
    written.discover("ccc")
    seen = []
    for _ in range(3):
        seen.append(cloud_files_metrics(written.uri))
        if written.plan(2) is not None:
            written.commit()
    assert seen == [
        {
            "numFilesOutstanding": files,
            "numBytesOutstanding": size,
            "isBacklogComputationComplete": "true",
        }
        for files, size in (("3", "6"), ("1", "3"), ("0", "0"))
    ]


def test_without_a_state_it_says_so(tmp_path):
    with pytest.raises(StateError, match="There is no state"):
        cloud_files_metrics(str(tmp_path / "none"))


def test_a_position_in_an_entry_counts_the_rest_of_it(written):
    written.discover("a", "bb", "ccc")
    written.discover("dddd")
    found = source_metrics(written.files, Offset(0, 1), written.files.head())
    assert (found.files, found.bytes, found.is_complete) == (3, 9, True)


def test_a_long_backlog_is_counted_in_part_and_says_so(written, monkeypatch):
    monkeypatch.setattr(stream_logs, "MOST_ENTRIES", 2)
    for name in "abc":
        written.discover(name)
    found = source_metrics(written.files, START, written.files.head())
    assert (found.files, found.is_complete) == (2, False)
    assert found.to_json()["isBacklogComputationComplete"] == "false"
    assert cloud_files_metrics(written.uri)["numFilesOutstanding"] == "3"


class Queue:
    """A queue of which only the size is asked."""

    def __init__(self, size: int | None) -> None:
        self.size = size

    def approximate_size(self) -> int | None:
        return self.size


@pytest.mark.parametrize(("size", "shown"), [(3, {"approximateQueueSize": "3"}), (None, {})])
def test_the_size_of_a_queue_is_shown_where_somebody_counts_it(written, size, shown):
    found = source_metrics(written.files, START, START, lambda: Queue(size)).to_json()
    assert {key: found[key] for key in found if "Queue" in key} == shown


@pytest.mark.parametrize("failure", [QueueError("no such queue"), OSError("no answer")])
def test_a_queue_that_does_not_answer_stops_nothing(written, failure, caplog):
    def fails() -> Queue:
        raise failure

    found = source_metrics(written.files, START, START, fails)
    assert found.queue_size is None
    assert str(failure) in caplog.text
