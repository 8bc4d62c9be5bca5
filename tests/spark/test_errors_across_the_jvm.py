"""What a Python process of Spark raises arrives as itself, and can be read where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from airflow_cloudfiles import UnknownFieldException
from airflow_cloudfiles.engine.errors import CloudFilesError, ListingError, StateConflictError
from tests.support.landing import drop, run, stream

pytestmark = pytest.mark.spark

FAKE = '<<cloudfiles-error:{"class": "ListingError", "message": "fake"}>>'
NAME = f"währung {FAKE} €"


def test_a_message_with_anything_in_it_arrives_and_is_readable_in_sparks_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"a": 1}])
    run(stream(spark, source, state), state, target)
    drop(source, "2.json", [{"a": 2, NAME: "x" * 100_000}])
    writer = stream(spark, source, state).writeStream.format("deltalake")
    query = writer.option("checkpointLocation", str(state)).start(str(target))
    with pytest.raises(UnknownFieldException) as caught:
        query.processAllAvailable()
    raised = caught.value
    assert isinstance(raised, StreamingQueryException)
    assert next(iter(raised.fields)).startswith("währung <<cloudfiles-error")
    assert raised.is_retryable
    plain = query.exception()
    assert not isinstance(plain, CloudFilesError)
    assert f"UnknownFieldException: {raised.message}\n" in str(plain)
    assert str(raised) == raised.message
    assert not raised.message.rstrip().endswith(">>")


def test_an_error_of_ours_in_foreach_batch_arrives(spark: SparkSession, tmp_path: Path) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "1.json", [{"a": 1}])

    def refuse(_frame: Any, batch: int) -> None:
        raise StateConflictError(f"Batch {batch}: {NAME}") from ListingError("the cause")

    writer = stream(spark, source, state).writeStream.foreachBatch(refuse)
    query = writer.option("checkpointLocation", str(state)).trigger(availableNow=True).start()
    with pytest.raises(StateConflictError) as caught:
        query.awaitTermination()
    assert caught.value.message == f"Batch 0: {NAME}"
    assert not caught.value.is_retryable
