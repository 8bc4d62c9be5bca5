"""Entries of the file log are shared out over the tasks that read them."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.spark.state_source import MOST_TASKS, shared_out


@pytest.mark.parametrize("sizes", [[], [10], [5_000_000] * 3, [100] * 10_000, [9_000_000] * 200])
def test_entries_are_shared_out_without_gaps(sizes: list[int]) -> None:
    parts = shared_out(sizes)
    assert [number for part in parts for number in part] == list(range(len(sizes)))
    assert 1 <= len(parts) <= MOST_TASKS + 1


def test_a_large_state_is_shared_out_evenly() -> None:
    assert [len(part) for part in shared_out([9_000_000] * 128)] == [2] * 64
