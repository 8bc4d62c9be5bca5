"""Runs pack what is old in their state, and the stream, its checks and a replay go on as before."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

from airflow_cloudfiles.engine.errors import LostBatchesError
from airflow_cloudfiles.engine.intake import upkeep
from airflow_cloudfiles.engine.job import run as job
from airflow_cloudfiles.engine.state import compaction
from airflow_cloudfiles.engine.storage import open_store
from tests.support.ingested import Ingested

LOGS = ("_source/files", "_source/plans", "_source/sink/0")


@pytest.fixture
def stream(tmp_path: Path):
    """A stream with five batches, of which runs pack two at a time at once."""
    stream = Ingested(tmp_path, **{"cloudFiles.stateCompactInterval": "2"})
    for name in "abcde":
        stream.add(name)
        stream.run()
    sizes = {"KEPT": 1, "PACK_ENTRIES": 2}
    with (
        mock.patch.multiple(compaction, **sizes),
        mock.patch.object(upkeep, "GRACE_SECONDS", 0.0),
    ):
        yield stream


def objects(stream: Ingested, log: str) -> tuple[int, int]:
    """How many entries of a log are objects, and how many objects its packs are."""
    keys = [each.path for each in open_store(str(stream.state)).list(f"{log}/")]
    packed = sum("/packs/" in key for key in keys)
    return len(keys) - packed, packed


def test_a_run_packs_when_its_report_is_there(stream: Ingested) -> None:
    report = job.run(stream.spec())
    assert report["outcome"] == "succeeded", report
    assert [objects(stream, log) for log in LOGS] == [(5, 4)] * 3
    assert stream.position().batch == 4
    for name in "fgh":
        stream.add(name)
        stream.run()
    assert job.run(stream.spec())["outcome"] == "succeeded"
    assert [objects(stream, log)[0] for log in LOGS] == [4] * 3
    stream.add("i")
    stream.run()
    assert stream.rows() == list("abcdefghi")


def test_a_stream_that_is_not_to_compact_does_not(stream: Ingested) -> None:
    stream.given["cloudFiles.stateCompactInterval"] = "0"
    assert job.run(stream.spec())["outcome"] == "succeeded"
    assert [objects(stream, log) for log in LOGS] == [(5, 0)] * 3


def test_a_table_that_lost_packed_batches_is_noticed_and_gets_them_back(stream: Ingested) -> None:
    upkeep.compact(open_store(str(stream.state)), retention_seconds=86400.0, grace_seconds=0.0)
    assert [objects(stream, log) for log in LOGS] == [(1, 4)] * 3
    shutil.rmtree(stream.target)
    stream.add("f")
    with pytest.raises(LostBatchesError):
        stream.run()
    assert stream.replay(0)["batches"] == [0, 1, 2, 3, 4]
    stream.run()
    assert stream.rows() == list("abcdef")


def test_a_packed_batch_that_is_run_again_is_skipped(stream: Ingested) -> None:
    upkeep.compact(open_store(str(stream.state)), retention_seconds=86400.0, grace_seconds=0.0)
    for batch in range(5):
        stream.batch_again(batch)
    assert stream.rows() == list("abcde")
