"""The micro-batches of a run begin where the stream is when the run gets its lock."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.counts import files_of
from tests.support.ingested import Ingested
from tests.support.landing import rows


@pytest.mark.parametrize("batches", [0, 1, 2, 3])
def test_a_run_goes_on_behind_what_was_committed_since_it_looked(
    tmp_path: Path, batches: int
) -> None:
    stream = Ingested(tmp_path)
    stream.add("a", "b", "c")
    last = stream.discover().entry - 1
    with closing(files_of(stream.spec(), last, parallelism=1)) as source:
        stream.run(batches)
        source.open()
        numbers = []
        while (planned := source.plan()) is not None:
            numbers.append(planned.number)
            stream.write(source, planned)
    assert numbers == list(range(batches, 3))
    assert sorted(row["a"] for row in rows(stream.target)) == ["a", "b", "c"]
