"""Delta's own implementation reads what we deleted by vectors, deletes more, and so do we."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from tests.support.delta_spark import DeltaError, DeltaSpark
from tests.support.delta_tables import take_vectors
from tests.support.followed import delete, following, live, put, there
from tests.support.ingested import Ingested

pytestmark = pytest.mark.spark

MANY = 70_000
"""Rows of a file: more than a container of a Roaring bitmap has."""


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    """A stream whose one data file has the rows of three files, and whose table takes vectors."""
    found = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"})
    for name in ("x", "y", "z"):
        put(found, name, f"{name} 1", f"{name} 2")
    found.run()
    take_vectors(found.table)
    return found


def theirs(delta: DeltaSpark, stream: Ingested, condition: str = "TRUE") -> list[str]:
    query = f"SELECT a FROM delta.`{stream.target}` WHERE {condition}"
    return sorted(delta.rows(query)["a"].to_pylist())


@pytest.mark.parametrize("checkpoint", [False, True])
def test_delta_sees_the_rows_that_our_vectors_leave(
    stream: Ingested, delta: DeltaSpark, checkpoint: bool
) -> None:
    put(stream, "x", "new")
    stream.run()
    if checkpoint:
        stream.table.create_checkpoint()
    delete(stream, "y")
    stream.run()
    assert theirs(delta, stream) == live(stream) == there(stream) == ["new", "z 1", "z 2"]
    # Statistics of a file whose rows are partly gone have bounds that are wider than its rows.
    assert theirs(delta, stream, "a < 'z'") == ["new"]
    assert theirs(delta, stream, "a BETWEEN 'x' AND 'y 9'") == []
    counted = delta.rows(f"SELECT count(*) AS n FROM delta.`{stream.target}`")
    assert counted["n"].to_pylist() == [3], "answered from statistics and cardinalities alone"


def test_delta_sees_what_is_left_of_many_rows(tmp_path: Path, delta: DeltaSpark) -> None:
    stream = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"})
    for name in ("x", "y", "z"):
        put(stream, name, *(f"{name} {number:05}" for number in range(MANY)))
    stream.run()
    take_vectors(stream.table)
    put(stream, "x", "new")
    delete(stream, "z")
    stream.run()
    [vectors] = stream.target.glob("deletion_vector_*.bin")
    assert vectors.stat().st_size < MANY, "many rows are bits, not numbers"
    assert theirs(delta, stream) == there(stream)


def test_both_delete_rows_of_one_data_file_by_turns(stream: Ingested, delta: DeltaSpark) -> None:
    delete(stream, "x")
    stream.run()
    delta.run(f"DELETE FROM delta.`{stream.target}` WHERE a = 'y 1'")
    assert theirs(delta, stream) == live(stream) == ["y 2", "z 1", "z 2"]
    put(stream, "y", "new")
    stream.run()
    assert theirs(delta, stream) == live(stream) == there(stream) == ["new", "z 1", "z 2"]
    delta.run(f"UPDATE delta.`{stream.target}` SET a = 'changed' WHERE a = 'z 2'")
    delete(stream, "z")
    stream.run()
    assert theirs(delta, stream) == live(stream) == there(stream) == ["new"]


def test_we_follow_on_after_delta_has_purged_our_vectors(
    stream: Ingested, delta: DeltaSpark
) -> None:
    delete(stream, "x")
    stream.run()
    delta.run(f"REORG TABLE delta.`{stream.target}` APPLY (PURGE)")
    delta.run(f"VACUUM delta.`{stream.target}` RETAIN 0 HOURS")
    assert [*stream.target.glob("deletion_vector_*.bin")] == []
    assert theirs(delta, stream) == live(stream) == there(stream)
    put(stream, "y", "new")
    stream.run()
    assert theirs(delta, stream) == live(stream) == there(stream) == ["new", "z 1", "z 2"]


def test_delta_reads_what_we_have_compacted_past_vectors_of_both(
    stream: Ingested, delta: DeltaSpark
) -> None:
    delete(stream, "x")
    stream.run()
    delta.run(f"DELETE FROM delta.`{stream.target}` WHERE a = 'z 2'")
    put(stream, "new", "new")
    stream.run()
    assert optimize(str(stream.target)).added_files == 1
    assert theirs(delta, stream) == live(stream) == ["new", "y 1", "y 2", "z 1"]
    delete(stream, "y")
    stream.run()
    assert theirs(delta, stream) == live(stream) == ["new", "z 1"]


def test_beside_a_column_metadata_delta_reads_no_vectors_so_we_write_none(
    tmp_path: Path, delta: DeltaSpark
) -> None:
    where = f"delta.`{tmp_path / 'theirs'}`"
    delta.run(
        f"CREATE TABLE {where} (a STRING, _metadata STRUCT<file_path: STRING>) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    delta.run(
        f"INSERT INTO {where} SELECT /*+ COALESCE(1) */ string(id), "
        "named_struct('file_path', 'f') FROM range(3)"
    )
    with pytest.raises(DeltaError, match="row_index"):
        delta.run(f"DELETE FROM {where} WHERE a = '1'")

    options = {"cloudFiles.maxFilesPerTrigger": "10", "cloudFiles.metadataColumns": "_metadata"}
    stream = following(tmp_path, **options)
    for name in ("x", "y"):
        put(stream, name, f"{name} 1", f"{name} 2")
    stream.run()
    take_vectors(stream.table)
    delete(stream, "x")
    stream.run()
    assert theirs(delta, stream) == live(stream) == there(stream) == ["y 1", "y 2"]
