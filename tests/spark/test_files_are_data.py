"""What lands in a folder is data: no name and no content of a file makes it anything else."""

from __future__ import annotations

import base64
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.job.spec import JobSpec
from tests.support.landing import drop, rows, run, stream
from tests.support.shared_runs import run_in

pytestmark = pytest.mark.spark
NAMES = ("__cloudfiles_split", "split")


class Touches:
    """Pickles as a command that creates a file."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._trace}",)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file_format", ["parquet", "json"])
@pytest.mark.parametrize("through", ["stream", "job"])
def test_a_file_with_a_pickle_in_its_only_column_is_ingested_as_it_is(
    spark: SparkSession, tmp_path: Path, name: str, file_format: str, through: str
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    source.mkdir()
    trace = tmp_path / "trace"
    payload: Any = pickle.dumps(Touches(trace))
    if file_format == "parquet":
        pq.write_table(pa.table({name: pa.array([payload], pa.binary())}), source / "a.parquet")
    else:
        payload = base64.b64encode(payload).decode()
        drop(source, "a.json", [{name: payload}])
    if through == "stream":
        frame = stream(spark, source, state, **{"cloudFiles.format": file_format})
        run(frame.select(name), state, target)  # a frame of that one column
    else:
        spec = JobSpec(
            kind="ingest",
            source=str(source),
            format=file_format,
            checkpoint_location=str(state),
            run_id="r",
            target=str(target),
        )
        run_in(spark, spec)
    found = rows(target)
    assert [row[name] for row in found] == [payload]
    assert not trace.exists()
