"""Bad input gets an answer: it works, or an error says what to do; nothing is lost."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    CorruptRecordError,
    FileMissingError,
    FileUnreadableError,
    IncompatibleStateError,
    OptionError,
    SinkError,
    SourceNotFoundError,
    StateConflictError,
    StateLockedError,
    TargetNotDeltaError,
)
from airflow_cloudfiles.engine.spark import source as streaming
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing import drop, forget_index, rows, run, stream

pytestmark = pytest.mark.spark


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    (tmp_path / "in").mkdir()
    return tmp_path / "in", tmp_path / "state", tmp_path / "table"


def test_a_folder_that_does_not_exist_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="nowhere"):
        stream(spark, tmp_path / "nowhere", tmp_path / "state")


def test_a_file_in_the_place_of_the_folder_is_named(spark: SparkSession, tmp_path: Path) -> None:
    file = drop(tmp_path, "file.json", [{"a": 1}])
    with pytest.raises(SourceNotFoundError, match=r"file\.json"):
        stream(spark, file, tmp_path / "state")


def test_what_is_not_json_is_kept_in_the_rescued_column(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    drop(source, "good.json", [{"a": 1}])
    (source / "prose.json").write_text('Dear customer, {"a": 2}\n')
    (source / "cut.json").write_text('{"a": 3}\n{"a": 4, "b')
    run(stream(spark, source, state), state, target)
    found = rows(target)
    assert sorted(r["a"] for r in found if r["a"]) == ["1", "3"]
    kept = {json.loads(r["_rescued_data"])["_corrupt_record"] for r in found if not r["a"]}
    assert kept == {'Dear customer, {"a": 2}', '{"a": 4, "b'}


def test_a_hinted_corrupt_record_column_takes_the_line(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    (source / "1.json").write_text('{"a": 1}\n{"a": \n')
    hint = {"cloudFiles.schemaHints": "_corrupt_record string"}
    run(stream(spark, source, state, **hint), state, target)
    found = {(r["a"], r["_corrupt_record"], r["_rescued_data"]) for r in rows(target)}
    assert found == {("1", None, None), (None, '{"a": ', None)}  # B78


@pytest.mark.parametrize(("mode", "left"), [("DROPMALFORMED", ["1", "2"]), ("FAILFAST", None)])
def test_the_parse_mode_says_what_a_broken_record_does(
    spark: SparkSession, folders: tuple[Path, Path, Path], mode: str, left: list[str] | None
) -> None:
    source, state, target = folders
    (source / "1.json").write_text('{"a": 1}\n{"a": \n{"a": 2}\n')
    frame = stream(spark, source, state, mode=mode)
    if left is None:
        with pytest.raises(CorruptRecordError, match=r"1\.json"):  # B75
            run(frame, state, target)
        assert not target.exists() or rows(target) == []
    else:
        run(frame, state, target)
        assert sorted(r["a"] for r in rows(target)) == left


def test_empty_files_byte_order_marks_archives_and_huge_lines_are_read(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    (source / "empty.json").touch()
    (source / "blank.json").write_text("\n \n\n")
    (source / "bom.json").write_bytes(b'\xef\xbb\xbf{"a":"bom"}\n')
    (source / "packed.json.gz").write_bytes(gzip.compress(b'{"a":"gzip"}\n'))
    (source / "misnamed.json").write_bytes(gzip.compress(b'{"a":"misnamed"}\n'))
    (source / "huge.json").write_text(json.dumps({"a": "x" * (20 * 2**20)}))
    run(stream(spark, source, state), state, target)
    assert sorted(len(r["a"]) for r in rows(target)) == [3, 4, 8, 20 * 2**20]
    assert all(r["_rescued_data"] is None for r in rows(target))


def test_a_damaged_archive_is_named_and_mended_by_replacing_it(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    drop(source, "good.json", [{"a": 1}])
    run(stream(spark, source, state), state, target)
    whole = gzip.compress(b"".join(b'{"a":"%d"}\n' % i for i in range(10_000)))
    (source / "cut.json.gz").write_bytes(whole[:-100])
    with pytest.raises(FileUnreadableError, match=r"cut\.json\.gz"):
        run(stream(spark, source, state), state, target)
    assert len(rows(target)) == 1
    (source / "cut.json.gz").write_bytes(whole)
    run(stream(spark, source, state), state, target)
    assert len(rows(target)) == 10_001


def test_every_name_a_file_can_have_is_read_once(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    names = [
        "with space.json",
        "100%.json",
        "%41.json",
        "a+b.json",
        "hash#1?.json",
        "key=value.json",
        "new\nline.json",
        "Zürich-東京.json",
        "e\u0301 and \u00e9.json",
        "-rf",
        'sub dir/it\'s "quoted".json',
        "back\\slash.json",
        "no-ending",
        os.fsdecode(b"latin-\xe9.json"),
    ]
    for number, name in enumerate(names):
        drop(source, name, [{"n": number}])
    run(stream(spark, source, state), state, target)
    run(stream(spark, source, state), state, target)
    assert sorted(int(r["n"]) for r in rows(target)) == list(range(len(names)))


def test_folders_may_have_any_name_too(spark: SparkSession, tmp_path: Path) -> None:
    odd = tmp_path / "o dd %4+#?ü="
    drop(odd / "in %", "1.json", [{"a": 1}])
    for _ in range(2):
        run(stream(spark, odd / "in %", odd / "state #"), odd / "state #", odd / "table +")
    assert [r["a"] for r in rows(odd / "table +")] == ["1"]
    escaped, state = odd / "%41", tmp_path / "%41"
    with pytest.raises(SinkError, match="hexadecimal"):
        run(stream(spark, odd / "in %", state), state, escaped)
    assert not escaped.exists()


def test_a_file_deleted_before_it_was_read_is_an_error_or_skipped_as_asked(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    limit = {"cloudFiles.maxFilesPerTrigger": "1", "mode": "FAILFAST"}
    (source / "1.json").write_text('{"a": 1}\n')
    run(stream(spark, source, state, **limit), state, target)
    (source / "2.json").write_text("broken\n")
    drop(source, "3.json", [{"a": 3}])
    with pytest.raises(CorruptRecordError):
        run(stream(spark, source, state, **limit), state, target)
    (source / "2.json").unlink()
    with pytest.raises(FileMissingError, match=r"2\.json.*ignoreMissingFiles"):
        run(stream(spark, source, state, **limit), state, target)
    run(stream(spark, source, state, ignoreMissingFiles="true", **limit), state, target)
    assert sorted(r["a"] for r in rows(target)) == ["1", "3"]


def test_a_state_of_another_source_is_refused(
    spark: SparkSession, folders: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    source, state, target = folders
    drop(source, "1.json", [{"a": 1}])
    run(stream(spark, source, state), state, target)
    drop(tmp_path / "other", "1.json", [{"a": 1}])
    with pytest.raises(StateConflictError, match="other"):  # B22: the shared schema location
        stream(spark, tmp_path / "other", state)
    frame = stream(spark, tmp_path / "other", tmp_path / "schema")
    with pytest.raises(StateConflictError, match="other"):
        run(frame, state, target)
    assert len(rows(target)) == 1


def test_a_state_restored_from_before_the_table_is_refused_not_skipped(
    spark: SparkSession, folders: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    source, state, target = folders
    drop(source, "1.json", [{"a": 1}])
    run(stream(spark, source, state), state, target)
    shutil.copytree(state, tmp_path / "backup")
    drop(source, "2.json", [{"a": 2}])
    run(stream(spark, source, state), state, target)
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "backup", state)
    drop(source, "3.json", [{"a": 3}])
    with pytest.raises(CorruptedStateError, match=r"index of seen files .* delete the index"):
        run(stream(spark, source, state), state, target)
    forget_index(state)  # the backup is meant
    with pytest.raises(CorruptedStateError, match="older than the table"):
        run(stream(spark, source, state), state, target)
    assert sorted(r["a"] for r in rows(target)) == ["1", "2"]


def test_a_target_that_is_not_a_delta_table_is_refused_and_left_alone(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    drop(source, "1.json", [{"a": 1}])
    target.mkdir()
    (target / "ledger.xlsx").write_text("precious")
    with pytest.raises(TargetNotDeltaError, match=r"ledger\.xlsx"):
        run(stream(spark, source, state), state, target)
    assert [path.name for path in target.iterdir()] == ["ledger.xlsx"]
    file = drop(target.parent, "file", [])
    with pytest.raises(TargetNotDeltaError, match="file"):
        run(stream(spark, source, state), state, file)


@pytest.mark.parametrize("name", ["_source/files/00000000000000000000", "_schemas/0"])
def test_a_state_written_by_a_newer_version_is_refused(
    spark: SparkSession, folders: tuple[Path, Path, Path], name: str
) -> None:
    source, state, target = folders
    drop(source, "1.json", [{"a": 1}])
    run(stream(spark, source, state), state, target)
    path = state / name
    path.write_bytes(path.read_bytes().replace(b"v1\n", b"v2\n", 1))
    drop(source, "2.json", [{"a": 2}])
    with pytest.raises(IncompatibleStateError, match="format version 2"):
        run(stream(spark, source, state), state, target)


def test_a_second_run_on_one_checkpoint_is_refused_with_who_holds_it(
    spark: SparkSession, folders: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, state, target = folders
    drop(source, "1.json", [{"a": 1}])
    frame = stream(spark, source, state)
    assert streaming.LOCK_PATIENCE_SECONDS > 1
    lock = RunLock(open_store(str(state)))
    lock.acquire(timeout_seconds=1)
    try:
        with pytest.raises(StateLockedError, match=str(os.getpid())) as caught:
            run(frame, state, target)
        assert caught.value.is_retryable
    finally:
        lock.release()
    run(frame, state, target)
    assert len(rows(target)) == 1


def test_an_error_that_is_not_ours_stays_what_it_was(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, _ = folders
    drop(source, "1.json", [{"a": 1}])

    def explode(_frame: object, _batch: int) -> None:
        raise ZeroDivisionError

    query = (
        stream(spark, source, state)
        .writeStream.option("checkpointLocation", str(state))
        .foreachBatch(explode)
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        query.awaitTermination()


def test_a_missing_table_path_is_told(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, _ = folders
    drop(source, "1.json", [{"a": 1}])
    writer = stream(spark, source, state).writeStream.format("deltalake")
    with pytest.raises((OptionError, StreamingQueryException), match="No target"):
        writer.option("checkpointLocation", str(state)).start().awaitTermination()
