"""A batch is in an Iceberg table once, and a table that has lost one is not written on."""

from __future__ import annotations

import os
import sqlite3
import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    DataFileLostError,
    LostBatchesError,
    OptionError,
    SinkError,
    TargetChangedError,
    TargetUnreachableError,
    UnsupportedTableError,
)
from airflow_cloudfiles.engine.extensions.iceberg.catalog import IcebergLocation
from airflow_cloudfiles.engine.extensions.iceberg.commit import (
    TableRules,
    check_expected,
    check_table,
    commit_batch,
    ready_table,
)
from airflow_cloudfiles.engine.extensions.iceberg.data_files import (
    IcebergDataFile,
    IcebergFileWriter,
)
from airflow_cloudfiles.engine.extensions.iceberg.lineage import PROPERTY
from airflow_cloudfiles.engine.state.sink_log import (
    BatchId,
    CommitResult,
    ExpectedBatch,
    SinkRecord,
)
from tests.support.iceberg_tables import LocalCatalog

A = pa.schema([("a", pa.int64())])
RULES = TableRules(merge_schema=True)


def write(lake: LocalCatalog, *values: int, rules: TableRules = RULES) -> list[IcebergDataFile]:
    """What the tasks of a batch do."""
    target = IcebergLocation.of(lake.uri("t"))
    rows = [pa.RecordBatch.from_pydict({"a": list(values)}, schema=A)]
    return IcebergFileWriter(target, ready_table(target, A, rules)).write(rows)


def of_record(record: SinkRecord) -> ExpectedBatch:
    return ExpectedBatch(record, "/state", lambda _: None)


def commit(
    lake: LocalCatalog,
    number: int,
    files: list[IcebergDataFile] | None = None,
    *,
    stream: str = "stream",
    plan: str = "",
    expected: SinkRecord | None = None,
) -> CommitResult:
    """What the committer of a batch does; its value is its number."""
    return commit_batch(
        lake.uri("t"),
        batch=BatchId(stream, number, plan),
        files=write(lake, number) if files is None else files,
        columns=A,
        rules=RULES,
        expected=None if expected is None else of_record(expected),
    )


def values(lake: LocalCatalog) -> list[int]:
    return sorted(row["a"] for row in lake.rows("t"))


def record(lake: LocalCatalog, number: int) -> SinkRecord:
    return SinkRecord(batch=number, table_id=str(lake.table("t").metadata.table_uuid))


def test_a_batch_committed_twice_is_in_the_table_once(lake: LocalCatalog) -> None:
    assert commit(lake, 0) == CommitResult(1, is_new=True, table_id=record(lake, 0).table_id)
    again = commit(lake, 0)
    assert (again.is_new, again.version) == (False, 1)
    assert values(lake) == [0]
    assert len(lake.files()) == 1, "the second try's file is removed"


def test_data_files_are_invisible_until_their_commit(lake: LocalCatalog) -> None:
    files = write(lake, 1, 2)
    assert lake.table("t").current_snapshot() is None
    assert len(lake.files()) == 1
    commit(lake, 0, files)
    assert values(lake) == [1, 2]


def test_a_batch_without_rows_is_noted(lake: LocalCatalog) -> None:
    assert commit(lake, 0, []).is_new
    assert not commit(lake, 0, []).is_new
    assert commit(lake, 1).is_new
    assert values(lake) == [1]


def test_a_batch_number_with_another_plan_is_refused_not_skipped(lake: LocalCatalog) -> None:
    commit(lake, 0, plan="p0")
    commit(lake, 1, plan="p1")
    assert not commit(lake, 0, plan="p0").is_new
    with pytest.raises(CorruptedStateError, match="older than the table"):
        commit(lake, 1, plan="other")
    assert values(lake) == [0, 1]


def test_committers_of_one_batch_at_once_commit_it_once(lake: LocalCatalog) -> None:
    commit(lake, 0)
    barrier = threading.Barrier(4)
    outcomes: list[bool] = []

    def one() -> None:
        files = write(lake, 1)
        barrier.wait()
        outcomes.append(commit(lake, 1, files).is_new)

    in_threads(one, 4)
    assert sorted(outcomes) == [False, False, False, True]
    assert values(lake) == [0, 1]
    assert len(lake.files()) == 2, "those of the losers are removed"


@pytest.mark.slow
def test_streams_at_once_land_all_their_batches(lake: LocalCatalog) -> None:
    commit(lake, 0)
    names = iter("abc")

    def one() -> None:
        stream = next(names)
        for number in range(4):
            assert commit(lake, number, stream=stream).is_new

    in_threads(one, 3)
    assert values(lake) == sorted([0, *(3 * list(range(4)))])


def in_threads(function: Any, count: int) -> None:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_stale_commit_does_not_append_to_a_newer_table(
    lake: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg's own retry would: it looks at its own snapshot only."""
    commit(lake, 0)
    files, others, real = write(lake, 1), write(lake, 1), SqlCatalog.commit_table
    calls: list[str] = []

    def beaten(self: SqlCatalog, *args: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        calls.append("beaten")
        assert commit(lake, 1, others).is_new
        return real(self, *args)

    monkeypatch.setattr(SqlCatalog, "commit_table", beaten)
    assert not commit(lake, 1, files).is_new
    assert calls == ["beaten"]
    assert values(lake) == [0, 1]


@pytest.mark.parametrize(
    "error",
    [
        CommitStateUnknownException("?"),
        ConnectionError("cut off"),
        requests.ConnectionError("cut off"),
        requests.ReadTimeout("cut off"),
        requests.exceptions.ChunkedEncodingError("cut off"),
    ],
)
def test_a_commit_whose_answer_is_lost_is_found_by_the_next_try(
    lake: LocalCatalog, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    files, real = write(lake, 0), SqlCatalog.commit_table

    def answer_is_lost(self: SqlCatalog, *args: Any) -> Any:
        real(self, *args)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", answer_is_lost)
        with pytest.raises(TargetUnreachableError, match="may not have taken a commit"):
            commit(lake, 0, files)
    assert len(lake.files()) == 1, "what may be in the table stays"
    assert commit(lake, 0, files).is_new, "these very files are there"
    assert not commit(lake, 0).is_new
    assert values(lake) == [0]
    assert len(lake.files()) == 1


def test_a_certificate_that_is_refused_is_no_outage(
    lake: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(lake, 0)

    def refused(*_: Any) -> Any:
        raise requests.exceptions.SSLError("certificate verify failed")

    monkeypatch.setattr(SqlCatalog, "load_table", refused)
    with pytest.raises(SinkError, match="certificate verify failed") as caught:
        commit(lake, 0, files)
    assert not caught.value.is_retryable


@pytest.mark.slow
def test_a_locked_catalog_is_an_outage(lake: LocalCatalog) -> None:
    files = write(lake, 0)
    other = sqlite3.connect(lake.database)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(TargetUnreachableError, match="database is locked") as caught:
        commit(lake, 0, files)
    assert caught.value.is_retryable
    other.rollback()
    other.close()
    assert commit(lake, 0, files).is_new
    assert values(lake) == [0]


def test_writers_that_always_come_first_are_named(
    lake: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(lake, 0)

    def always_beaten(*_: Any) -> Any:
        raise CommitFailedException("Table has been updated by another process")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", always_beaten)
        patch.setattr("airflow_cloudfiles.engine.extensions.iceberg.commit.COMMIT_TRIES", 3)
        with pytest.raises(SinkError, match="other writers committed first, 3 times"):
            commit(lake, 0, files)
    assert lake.files(), "the next run may still commit a batch of them"


def test_a_vanished_data_file_is_noticed_before_the_commit(lake: LocalCatalog) -> None:
    files = write(lake, 0)
    for file in lake.folder.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(DataFileLostError, match="is gone before its commit"):
        commit(lake, 0, files)
    assert lake.table("t").current_snapshot() is None


def roll_back(lake: LocalCatalog, to: int) -> None:
    table = lake.table("t")
    snapshot = next(each for each in table.snapshots() if each.sequence_number == to)
    table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()


def others_append(lake: LocalCatalog) -> None:
    lake.table("t").append(pa.table({"a": pa.array([100])}))


def test_a_rolled_back_table_lacks_its_batches(lake: LocalCatalog) -> None:
    for number in range(3):
        commit(lake, number)
    check_expected(lake.uri("t"), "stream", of_record(record(lake, 2)))
    roll_back(lake, 1)
    for others in (False, True, True):
        if others:
            others_append(lake)
        with pytest.raises(LostBatchesError, match=r"lacks batch 2.*rolled back"):
            check_expected(lake.uri("t"), "stream", of_record(record(lake, 2)))
        with pytest.raises(LostBatchesError, match="lacks batch 2"):
            commit(lake, 3, expected=record(lake, 2))
        with pytest.raises(LostBatchesError, match="was rolled back"):
            commit(lake, 2)
    assert len(lake.files()) == 5, "three of the batches, two of others"


def test_a_table_that_was_put_back_goes_on(lake: LocalCatalog) -> None:
    for number in range(3):
        commit(lake, number)
    newest = lake.table("t").current_snapshot()
    assert newest is not None
    roll_back(lake, 1)
    lake.table("t").manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()
    assert commit(lake, 3, expected=record(lake, 2)).is_new
    assert values(lake) == [0, 1, 2, 3]


def test_the_batches_before_a_rollback_are_still_there(lake: LocalCatalog) -> None:
    for number in range(3):
        commit(lake, number)
    roll_back(lake, 2)
    check_expected(lake.uri("t"), "stream", of_record(record(lake, 1)))
    assert not commit(lake, 0).is_new


def test_expired_snapshots_are_no_loss(lake: LocalCatalog) -> None:
    for number in range(3):
        commit(lake, number, plan=f"p{number}")
    others_append(lake)
    table = lake.table("t")
    old = [each.snapshot_id for each in table.snapshots() if (each.sequence_number or 0) < 4]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert len(lake.table("t").snapshots()) == 1
    check_expected(lake.uri("t"), "stream", of_record(record(lake, 2)))
    assert not commit(lake, 2, plan="p2").is_new
    assert not commit(lake, 1, plan="p1").is_new
    assert commit(lake, 3).is_new
    assert values(lake) == [0, 1, 2, 3, 100]


def test_a_table_that_shows_nothing_more_of_a_stream_is_told_by_the_record(
    lake: LocalCatalog,
) -> None:
    for number in range(3):
        version = commit(lake, number, plan=f"p{number}").version
    had = replace(record(lake, 2), version=version)
    others_append(lake)
    table = lake.table("t")
    table.transaction().remove_properties(PROPERTY + "stream").commit_transaction()
    check_expected(lake.uri("t"), "stream", of_record(had))
    old = [each.snapshot_id for each in table.snapshots() if (each.sequence_number or 0) < 4]
    table.refresh().maintenance.expire_snapshots().by_ids(old).commit()
    check_expected(lake.uri("t"), "stream", of_record(had))
    for number in (1, 2):
        assert not commit(lake, number, plan=f"p{number}", expected=had).is_new
    assert commit(lake, 3, plan="p3", expected=had).is_new
    assert values(lake) == [0, 1, 2, 3, 100]


def test_a_rolled_back_table_without_the_property_lacks_its_batches(lake: LocalCatalog) -> None:
    for number in range(3):
        version = commit(lake, number).version
    had = replace(record(lake, 2), version=version)
    lake.table("t").transaction().remove_properties(PROPERTY + "stream").commit_transaction()
    roll_back(lake, 1)
    others_append(lake)
    with pytest.raises(LostBatchesError, match=r"lacks batch 2.*rolled back"):
        check_expected(lake.uri("t"), "stream", of_record(had))


def test_another_table_of_the_same_name_lacks_its_batches(lake: LocalCatalog) -> None:
    commit(lake, 0)
    had, files = record(lake, 0), write(lake, 1)
    lake.catalog.drop_table(("db", "t"))
    with pytest.raises(LostBatchesError, match="there is no such table"):
        check_expected(lake.uri("t"), "stream", of_record(had))
    with pytest.raises(TargetChangedError, match="dropped, replaced"):
        commit(lake, 1, files)
    ready_table(IcebergLocation.of(lake.uri("t")), A, RULES)
    with pytest.raises(LostBatchesError, match="another table"):
        check_expected(lake.uri("t"), "stream", of_record(had))
    with pytest.raises(TargetChangedError, match="dropped, replaced"):
        commit(lake, 1, files)


def test_files_for_another_partitioning_are_not_committed(lake: LocalCatalog) -> None:
    files = write(lake, 0)
    with lake.table("t").update_spec() as update:
        update.add_identity("a")
    with pytest.raises(TargetChangedError, match="partitioned otherwise") as caught:
        commit(lake, 0, files)
    assert caught.value.is_retryable
    assert commit(lake, 0).is_new
    assert values(lake) == [0]


def test_everything_is_on_the_disk_before_the_catalog_names_it(
    lake: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[tuple[int, int]] = set()
    real_sync, real_commit = os.fsync, SqlCatalog.commit_table

    def sync(descriptor: int) -> None:
        real_sync(descriptor)
        found = os.fstat(descriptor)
        synced.add((found.st_dev, found.st_ino))

    def unsynced() -> list[str]:
        places = [lake.folder, *lake.folder.rglob("*")]
        stats = {str(each): each.stat() for each in places}
        return [name for name, st in stats.items() if (st.st_dev, st.st_ino) not in synced]

    def commit_table(self: SqlCatalog, *args: Any) -> Any:
        assert unsynced() == []
        return real_commit(self, *args)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    commit(lake, 0)
    assert unsynced() == []
    suffixes = {each.suffix for each in lake.folder.rglob("*") if each.is_file()}
    assert suffixes == {".avro", ".json", ".parquet"}


def test_a_failed_write_leaves_nothing(lake: LocalCatalog) -> None:
    target = IcebergLocation.of(lake.uri("t"))

    def rows() -> Any:
        yield pa.RecordBatch.from_pydict({"a": [1]}, schema=A)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        IcebergFileWriter(target, ready_table(target, A, RULES)).write(rows())
    assert lake.files() == []


def test_what_is_no_target_is_refused_by_name(lake: LocalCatalog) -> None:
    for wrong in ("iceberg://", "iceberg://c/t", "iceberg://c//t", "iceberg://c/a..b/t"):
        with pytest.raises(OptionError, match=r"not an Iceberg table|empty level"):
            IcebergLocation.of(wrong)
    with pytest.raises(OptionError, match=r"knows no catalog elsewhere.*PYICEBERG_CATALOG__"):
        check_table("iceberg://elsewhere/db/t", A, RULES)
    with pytest.raises(SinkError, match="no namespace other"):
        ready_table(IcebergLocation.of(f"iceberg://{lake.name}/other/t"), A, RULES)
    lake.catalog.create_table(("db", "old"), A, properties={"format-version": "1"})
    with pytest.raises(UnsupportedTableError, match="format version 1; version 2 is what"):
        check_table(lake.uri("old"), A, RULES)


def test_a_wrong_configuration_shows_no_secret(
    lake: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"PYICEBERG_CATALOG__{lake.name.upper()}X__"
    monkeypatch.setenv(f"{prefix}TYPE", "nonesuch")
    monkeypatch.setenv(f"{prefix}TOKEN", "hunter2")
    with pytest.raises(OptionError, match="cannot be used") as caught:
        check_table(f"iceberg://{lake.name}x/db/t", A, RULES)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
