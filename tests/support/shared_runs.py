"""Runs of jobs in this process, on the session that tests share.

They do what a driver does that was launched, from the specification to the report and the error;
only their Spark is not their own. What differs with a driver's own start is tested where runs are
launched.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.errors import from_record
from airflow_cloudfiles.engine.job import run as job
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.storage import open_store


class SharedSpark(SparkStart):
    """The session that tests share, which a run neither starts nor stops."""

    def __init__(self, spec: JobSpec, shared: SparkSession) -> None:
        super().__init__(spec)
        self.shared, self.begun = shared, False

    def begin(self) -> None:
        self.begun = True

    def context(self) -> SparkContext:
        return self.shared.sparkContext

    def session(self) -> SparkSession:
        return self.shared

    def stop_session(self) -> None:
        """It goes on."""


def run_in(spark: SparkSession, spec: JobSpec) -> dict[str, Any]:
    """Carry out a run.

    Args:
        spark: The session.
        spec: What a driver would be given.

    Returns:
        The report.

    Raises:
        CloudFilesError: What the run failed with, as whoever launches a run gets it.
    """
    state = open_store(spec.checkpoint_location)
    state.put(spec.spec_key, spec.sealed())
    given = JobSpec.from_json(spec.to_json())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "_spark_of", lambda spec, _: SharedSpark(spec, spark))
        report = job.run(given)
    if report["outcome"] != "succeeded":
        raise from_record(report["error"])
    return report
