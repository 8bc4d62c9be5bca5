"""A stream whose state is in an object store goes on from there, on whatever disk."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.errors import StateError, TableEvolvedError
from airflow_cloudfiles.engine.intake.ledger.opening import CACHE_DIR
from airflow_cloudfiles.engine.spark import checkpoint_mirror
from airflow_cloudfiles.engine.spark.checkpoint_mirror import CheckpointMirror
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.locks.run_lock import KEY, FileLock
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.emulators.aws import Aws
from tests.support.landing import drop, rows, run, stream
from tests.support.shared_spark import with_variables
from tests.support.table_streams import GrowingTable


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE_DIR, str(folder))
    return folder


@pytest.fixture
def state(aws: Aws, spark: SparkSession, cache: Path) -> Iterator[ObjectStore]:
    """A state in S3, for which every process of the session has the credentials."""
    with with_variables(spark, to_environment(aws.access) | {CACHE_DIR: str(cache)}):
        yield open_store(f"{aws.bucket()}/streams/orders")


def test_a_run_on_another_disk_reads_only_what_is_new(
    spark: SparkSession, state: ObjectStore, cache: Path, tmp_path: Path
) -> None:
    source, target = tmp_path / "in", tmp_path / "table"

    def ingest(batches: list[int], *, read: int) -> None:
        frame = stream(spark, source, state.uri, **{"cloudFiles.maxFilesPerTrigger": "1"})
        query = run(frame, state.uri, target)
        assert not list(cache.glob("mirrors/*/*")), query.id
        assert sum(progress.numInputRows for progress in query.recentProgress) == read
        assert sorted(row["a"] for row in rows(target)) == [str(batch) for batch in batches]
        assert names(state, "offsets") == names(state, "commits") == batches
        assert state.head("metadata")
        assert state.head(KEY) is None  # or the next run, elsewhere, would wait for it

    drop(source, "0.json", [{"a": 0}])
    drop(source, "1.json", [{"a": 1}])
    ingest([0, 1], read=2)
    query_id = state.get("metadata")
    shutil.rmtree(cache)
    drop(source, "2.json", [{"a": 2}])
    ingest([0, 1, 2], read=1)
    assert state.get("metadata") == query_id

    # As after a kill between Spark's commit and its publication.
    state.delete("commits/2")
    shutil.rmtree(cache)
    drop(source, "3.json", [{"a": 3}])
    ingest([0, 1, 2, 3], read=2)


def test_a_stream_from_a_table_keeps_its_checkpoint_and_its_schemas_there(
    spark: SparkSession, state: ObjectStore, cache: Path, tmp_path: Path
) -> None:
    table, target = GrowingTable(tmp_path / "t", "a"), tmp_path / "silver"

    def run() -> list[int]:
        shutil.rmtree(cache, ignore_errors=True)  # as on another disk
        reader = spark.readStream.format("deltalake").option("maxFilesPerTrigger", 1)
        reader = reader.option("schemaTrackingLocation", f"{state.uri}/schemas")
        writer = reader.load(str(table.folder)).writeStream.format("deltalake")
        writer = writer.option("checkpointLocation", state.uri).option("mergeSchema", "true")
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()
        assert names(state, "offsets") == names(state, "commits")
        return sorted(row["a"] for row in rows(target))

    table.append(1)
    assert run() == [1]
    table.append(2)
    assert run() == [1, 2]
    # As after a kill between Spark's commit and its publication.
    state.delete("commits/1")
    table.append(3)
    assert run() == [1, 2, 3]
    table.add("b", 2)
    table.append(4)
    with pytest.raises(TableEvolvedError):
        run()
    assert run() == [1, 2, 3, 4]
    log = sorted(entry.path.rpartition("/")[2] for entry in state.list("schemas/"))
    assert log == ["0", "1"]


def names(state: ObjectStore, folder: str) -> list[int]:
    return sorted(int(entry.path.rpartition("/")[2]) for entry in state.list(f"{folder}/"))


@pytest.fixture
def memory(cache: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A state in memory, whose requests are counted whoever makes them."""
    store = open_store(f"memory://{uuid.uuid4().hex}/state")
    monkeypatch.setattr(checkpoint_mirror, "open_store", lambda _uri: store)
    return store


def write(mirror: CheckpointMirror, *keys: str) -> None:
    for key in keys:
        path = mirror.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(key)


def test_a_mirror_sends_what_changed_and_nothing_twice(memory: ObjectStore) -> None:
    mirror = CheckpointMirror.create(memory.uri)
    write(mirror, "metadata", "offsets/0", "offsets/.0.crc", "state/0/1/.draft.tmp", "other/x")
    mirror.publish()
    assert {entry.path for entry in memory.list()} == {"metadata", "offsets/0"}
    before = memory.requests.copy()
    CheckpointMirror(mirror.folder).publish()  # as the planning process does
    assert memory.requests == before
    write(mirror, "commits/0", "state/0/1/1.delta")
    CheckpointMirror(mirror.folder).publish()
    mirror.publish()
    assert memory.requests["put"] - before["put"] == 2
    mirror.finish()
    assert not mirror.folder.exists()
    assert memory.get("state/0/1/1.delta") == b"state/0/1/1.delta"


def test_what_a_commit_needs_is_there_before_it(
    memory: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = CheckpointMirror.create(memory.uri)
    keys = ["commits/9", "commits/10", "offsets/10", "offsets/9", "sources/0/0", "metadata"]
    write(mirror, *keys, "state/0/0/1.delta")
    sent: list[str] = []
    put = type(memory).put
    monkeypatch.setattr(type(memory), "put", lambda s, k, c: (sent.append(k), put(s, k, c)))
    mirror.publish()
    assert sent == [
        "metadata", "sources/0/0", "state/0/0/1.delta",
        "offsets/9", "offsets/10", "commits/9", "commits/10",
    ]  # fmt: skip


def test_a_mirror_begins_with_what_spark_needs(memory: ObjectStore) -> None:
    for number in range(20):
        memory.put(f"offsets/{number}", b"v1")
        memory.put(f"commits/{number}", b"v1")
    for key in ("metadata", "state/0/0/1.delta", "sources/0/0", "_source/metadata.json"):
        memory.put(key, b"x")
    mirror = CheckpointMirror.create(memory.uri)
    found = {
        path.relative_to(mirror.folder).as_posix()
        for path in mirror.folder.rglob("*")
        if path.is_file()
    }
    logs = {f"{log}/{number}" for log in ("offsets", "commits") for number in (17, 18, 19)}
    assert found == {"metadata", "state/0/0/1.delta", "sources/0/0"} | logs


def test_what_spark_purges_is_purged_in_the_state(memory: ObjectStore) -> None:
    for number in range(5):
        memory.put(f"offsets/{number}", b"v1")
    mirror = CheckpointMirror.create(memory.uri)
    write(mirror, "state/0/0/1.delta", "state/0/0/2.delta")
    mirror.publish()
    assert names(memory, "offsets") == [0, 1, 2, 3, 4]
    (mirror.folder / "state/0/0/1.delta").unlink()
    (mirror.folder / "offsets/2").unlink()
    write(mirror, f"offsets/{spark_checkpoint.KEPT_BATCHES + 1}")
    mirror.publish()
    assert names(memory, "offsets") == [1, 3, 4, spark_checkpoint.KEPT_BATCHES + 1]
    assert [entry.path for entry in memory.list("state/")] == ["state/0/0/2.delta"]


def test_a_mirror_that_goes_is_not_taken_for_a_purge(
    memory: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = CheckpointMirror.create(memory.uri)
    keys = ("metadata", "offsets/0", "commits/0", "offsets/1", "commits/1", "state/0/0/1.delta")
    write(mirror, *keys)
    planner = CheckpointMirror(mirror.folder)
    planner.publish()
    removed = shutil.rmtree

    def slowly(folder: Path, **arguments: bool) -> None:
        """The planning process, which Spark has not ended yet, publishes meanwhile."""
        for part in ("commits", "metadata", "offsets", "state"):
            part_of = folder / part
            removed(part_of) if part_of.is_dir() else part_of.unlink()
            with contextlib.suppress(StateError):
                planner.publish()
        removed(folder, **arguments)

    monkeypatch.setattr(shutil, "rmtree", slowly)
    mirror.finish()
    assert {entry.path for entry in memory.list()} == set(keys)
    with pytest.raises(StateError, match="cannot be published"):
        planner.publish()


def test_a_batch_that_ends_while_files_are_looked_for_is_sent_whole_or_not_at_all(
    memory: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = CheckpointMirror.create(memory.uri)
    write(mirror, *(f"{log}/0" for log in ("commits", "offsets")), "state/0/0/1.delta", "metadata")
    scanned = Path.rglob

    def spark_goes_on(folder: Path, pattern: str) -> list[Path]:
        """Commit a micro-batch while folders are looked at, in whatever order the disk has them."""
        found = sorted(scanned(folder, pattern))
        write(mirror, "offsets/1", "state/0/0/2.delta", "commits/1")
        late = [*scanned(mirror.folder / "commits", "*")] if folder == mirror.folder else []
        return sorted({*found, *late})

    monkeypatch.setattr(Path, "rglob", spark_goes_on)
    mirror.publish()
    for needed in ("offsets/1", "state/0/0/2.delta"):
        assert memory.head(needed) or not memory.head("commits/1")


def test_a_mirror_left_behind_is_removed_and_one_in_use_is_not(
    memory: ObjectStore, cache: Path
) -> None:
    one = CheckpointMirror.create(memory.uri)
    write(one, "offsets/0")
    two = CheckpointMirror.create(memory.uri)
    assert one.folder.exists()
    assert one._in_use is not None
    one._in_use.release()
    CheckpointMirror.create(memory.uri)
    assert not one.folder.exists()
    assert two.folder.exists()
    assert memory.head("offsets/0") is None


def test_a_mirror_that_another_driver_took_for_left_behind_is_not_used(
    memory: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[FileLock] = []
    acquire = FileLock.try_acquire

    def second_is_later(lock: FileLock) -> bool:
        taken.append(lock)
        return len(taken) > 1 and acquire(lock)

    monkeypatch.setattr(FileLock, "try_acquire", second_is_later)
    mirror = CheckpointMirror.create(memory.uri)
    assert mirror._in_use is taken[1] is not taken[0]


def test_a_checkpoint_that_cannot_be_mirrored_is_told(memory: ObjectStore, cache: Path) -> None:
    cache.write_text("not a folder")
    with pytest.raises(StateError, match="cannot be fetched"):
        CheckpointMirror.create(memory.uri)


def test_spark_keeps_its_checkpoint_where_it_can(spark: SparkSession, tmp_path: Path) -> None:
    assert checkpoint_mirror.for_spark(spark, str(tmp_path)) == (str(tmp_path), None)
    conf = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
    conf.set("fs.s3a.impl", "org.apache.hadoop.fs.LocalFileSystem")
    try:
        found = checkpoint_mirror.for_spark(spark, "s3://bucket/state")
        assert found == ("s3a://bucket/state", None)
    finally:
        conf.unset("fs.s3a.impl")
