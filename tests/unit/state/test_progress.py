"""The line that a log has of a batch."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.state.run_history import BatchDone


@pytest.mark.parametrize(
    ("corrupt", "line"),
    [
        (0, "Batch 7: 1 file, 3 rows, 0 rescued, 0 corrupt; table version 2"),
        (2, "Batch 7: 1 file, 3 rows, 0 rescued, 2 corrupt; table version 2"),
    ],
)
def test_a_batch_shows_the_records_that_are_not_valid(corrupt: int, line: str) -> None:
    counts = {"files": 1, "rows": 3, "rescued_rows": 0, "corrupt_records": corrupt}
    done = BatchDone(batch_id=7, table_version=2, is_new=True, schema_version=0, counts=counts)
    assert done.line() == line
