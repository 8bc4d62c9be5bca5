"""Every version of a log is read, whichever checkpoints it has; what is missing is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles.engine.errors import (
    OptionError,
    TargetCorruptedError,
    TargetNotDeltaError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog, requested_snapshot
from tests.support.delta_tables import (
    HandMadeTable,
    duckdb_session,
    features,
    read,
    read_by_duckdb,
    removed,
    sorted_rows,
)

UNIQUE = "80a083e8-7026-4e79-81be-64bd76c43a11"


def six_versions(folder: Path, protocol: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """A table whose every version adds a file, and the fourth removes one: the actions of all."""
    made = HandMadeTable(folder)
    files = [
        made.file(f"part-{number}.parquet", {"a": [number], "s": [str(number)]})
        for number in range(6)
    ]
    made.create(files[0], protocol=protocol)
    for number in range(1, 6):
        gone = [removed(files[1])] if number == 3 else []
        made.commit(*gone, files[number])
    return files


def values(folder: Path, version: int | None = None) -> list[int]:
    return sorted(read(folder, version)["a"].to_pylist())


EXPECTED = [[0], [0, 1], [0, 1, 2], [0, 2, 3], [0, 2, 3, 4], [0, 2, 3, 4, 5]]


def state(
    folder: Path, files: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What a checkpoint of version 3 says: of the table, and of its files."""
    first = (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    return [json.loads(each) for each in first[:2]], [
        files[0], files[2], files[3], removed(files[1]),
    ]  # fmt: skip


def write_checkpoint(folder: Path, files: list[dict[str, Any]], kind: str) -> None:
    about, listed = state(folder, files)
    made = HandMadeTable.__new__(HandMadeTable)
    made.folder, made.log = folder, folder / "_delta_log"
    name = f"{3:020}.checkpoint"
    if kind == "classic":
        made.checkpoint(f"{name}.parquet", about + listed)
    elif kind == "parts":
        made.checkpoint(f"{name}.{1:010}.{2:010}.parquet", about + listed[:2])
        made.checkpoint(f"{name}.{2:010}.{2:010}.parquet", listed[2:])
    else:
        note = {"checkpointMetadata": {"version": 3}}
        sidecars = []
        for number, part in enumerate((listed[:1], listed[1:])):
            sidecar = f"{3:020}.checkpoint.{number:010}.0000000002.{UNIQUE}.parquet"
            made.checkpoint(f"_sidecars/{sidecar}", part)
            size = (made.log / "_sidecars" / sidecar).stat().st_size
            entry = {"path": sidecar, "sizeInBytes": size, "modificationTime": 0}
            sidecars.append({"sidecar": entry})
        if kind == "v2-inline":
            made.checkpoint(f"{name}.{UNIQUE}.json", [note, *about, *listed])
        else:
            made.checkpoint(f"{name}.{UNIQUE}.{kind}", [note, *about, *sidecars])


@pytest.mark.parametrize("hint", [None, 3, 2, "torn"])
@pytest.mark.parametrize("kind", ["classic", "parts", "json", "parquet", "v2-inline"])
def test_a_checkpoint_of_every_kind_stands_for_the_commits_before_it(
    tmp_path: Path, kind: str, hint: int | str | None
) -> None:
    protocol = None if kind in {"classic", "parts"} else features("v2Checkpoint")
    files = six_versions(tmp_path / "t", protocol)
    write_checkpoint(tmp_path / "t", files, kind)
    log = tmp_path / "t" / "_delta_log"
    parts = {"parts": 2} if kind == "parts" else {}
    if hint is not None:
        note = '{"vers' if hint == "torn" else json.dumps({"version": hint, "size": 6, **parts})
        (log / "_last_checkpoint").write_text(note)
    assert [values(tmp_path / "t", version) for version in range(6)] == EXPECTED
    for version in range(3):
        (log / f"{version:020}.json").unlink()
    assert [values(tmp_path / "t", version) for version in (3, 4, 5, None)] == [
        *EXPECTED[3:],
        EXPECTED[5],
    ]
    assert sorted_rows(read(tmp_path / "t")) == sorted_rows(read_by_duckdb(tmp_path / "t"))
    with pytest.raises(OptionError, match=r"commit 0 of its log was removed.*oldest.*is 3"):
        values(tmp_path / "t", 2)


def test_a_checkpoint_that_lacks_a_part_counts_as_none(tmp_path: Path) -> None:
    files = six_versions(tmp_path / "t")
    write_checkpoint(tmp_path / "t", files, "parts")
    log = tmp_path / "t" / "_delta_log"
    (log / "_last_checkpoint").write_text('{"version": 3, "parts": 2, "size": 6}')
    [last] = log.glob("*.0000000002.0000000002.parquet")
    last.unlink()
    assert values(tmp_path / "t") == EXPECTED[5]
    (log / f"{1:020}.json").unlink()
    with pytest.raises(TargetCorruptedError, match="commit 1 is missing"):
        values(tmp_path / "t")


def test_only_the_log_behind_the_last_checkpoint_is_read(tmp_path: Path) -> None:
    files = six_versions(tmp_path / "t")
    write_checkpoint(tmp_path / "t", files, "classic")
    (tmp_path / "t" / "_delta_log" / "_last_checkpoint").write_text('{"version": 3, "size": 6}')
    store = LocalStore(str(tmp_path / "t"))
    TableLog(DeltaLocation.to_read(str(tmp_path / "t")), store).snapshot()
    assert store.requests["get"] == 3  # the note, and commits 4 and 5


@pytest.mark.parametrize("keeps_commits", [True, False])
def test_a_compacted_log_stands_for_its_commits(tmp_path: Path, keeps_commits: bool) -> None:
    files = six_versions(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log"
    compacted = [files[2], files[3], files[4], removed(files[1])]
    text = "\n".join(map(json.dumps, compacted))
    (log / f"{1:020}.{4:020}.compacted.json").write_text(text)
    if not keeps_commits:
        for version in range(1, 5):
            (log / f"{version:020}.json").unlink()
    known = range(6) if keeps_commits else (0, 4, 5)
    assert [values(tmp_path / "t", version) for version in known] == [EXPECTED[v] for v in known]


def test_a_missing_commit_is_named(tmp_path: Path) -> None:
    six_versions(tmp_path / "t")
    (tmp_path / "t" / "_delta_log" / f"{2:020}.json").unlink()
    assert values(tmp_path / "t", 1) == EXPECTED[1]
    with pytest.raises(TargetCorruptedError, match="commit 2 is missing"):
        values(tmp_path / "t")


@pytest.mark.parametrize("content", [b"", b"  \n", b'{"add": {"pa', b"\0" * 4096, b'{"add": 5}'])
def test_a_torn_commit_is_named(tmp_path: Path, content: bytes) -> None:
    six_versions(tmp_path / "t")
    (tmp_path / "t" / "_delta_log" / f"{5:020}.json").write_bytes(content)
    assert values(tmp_path / "t", 4) == EXPECTED[4]
    with pytest.raises(TargetCorruptedError, match=r"_delta_log/0{19}5\.json"):
        values(tmp_path / "t")


def test_a_log_without_columns_or_protocol_is_refused(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    with pytest.raises(TargetCorruptedError, match="has no columns"):
        read(tmp_path / "t")


def test_no_table_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    for folder in (tmp_path / "t", tmp_path / "nowhere"):
        with pytest.raises(TargetNotDeltaError, match="no Delta table at"):
            read(folder)


def test_files_that_are_no_part_of_the_log_are_ignored(tmp_path: Path) -> None:
    six_versions(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log"
    (log / f"{6:020}.json.tmp").write_text("{")
    (log / f"_torn-{7:020}.json-00").write_text("")
    (log / f".{6:020}.json.crc").write_text("x")
    (log / f"{5:020}.crc").write_text("{}")
    (log / "_staged_commits").mkdir()
    (log / "_staged_commits" / f"{6:020}.{UNIQUE}.json").write_text("{")
    assert values(tmp_path / "t") == EXPECTED[5]


def test_each_version_of_a_table_of_deltalake_is_what_two_others_read(tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    for number in range(12):
        rows = [{"a": number, "p": f"{number % 3} %/ä", "n": {"x": [number]}}, {"a": None}]
        write_deltalake(
            folder,
            pa.Table.from_pylist(rows),
            mode="append",
            partition_by=["p"],
            configuration={"delta.checkpointInterval": "4"} if not number else None,
        )
    DeltaTable(folder).delete("a = 3")
    DeltaTable(folder).optimize.compact()
    table = DeltaTable(folder)
    for version in range(table.version() + 1):
        table.load_as_version(version)
        mine = read(folder, version)
        assert sorted_rows(mine) == sorted_rows(
            pa.table(table.scan()).select(mine.column_names).cast(mine.schema)
        )
    assert sorted_rows(mine) == sorted_rows(read_by_duckdb(folder).select(mine.column_names))


def test_what_duckdb_has_written_is_read(tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    rows = pa.table({"a": [1, None], "x": [1.5, None], "d": ["ä", ""]})
    write_deltalake(folder, rows)
    with duckdb_session() as session:
        session.execute(f"ATTACH '{folder}' AS t (TYPE delta)")
        session.execute("INSERT INTO t SELECT 2, 2.5, 'y'")
        session.execute("INSERT INTO t SELECT a + 10, x, NULL FROM t")
    assert [read(folder, version).num_rows for version in range(3)] == [2, 3, 6]
    assert sorted_rows(read(folder)) == sorted_rows(read_by_duckdb(folder))


def asked(folder: Path, **options: str) -> int:
    return requested_snapshot(TableLog(DeltaLocation.to_read(str(folder))), options).version


def test_a_version_is_found_by_number_and_by_time(tmp_path: Path) -> None:
    six_versions(tmp_path / "t")
    for version in range(6):
        path = tmp_path / "t" / "_delta_log" / f"{version:020}.json"
        os.utime(path, (1_700_000_000 + 10 * version,) * 2)
    assert asked(tmp_path / "t") == 5
    assert asked(tmp_path / "t", versionasof="2") == 2
    assert asked(tmp_path / "t", timestampAsOf="2023-11-14T22:13:30Z") == 1
    assert asked(tmp_path / "t", timestampAsOf="2023-11-14 23:13:39.999+01:00") == 1
    assert asked(tmp_path / "t", timestampAsOf="2023-11-14T22:14:10Z") == 5


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"versionAsOf": "6"}, "no version 6: its newest is 5"),
        ({"versionAsOf": "-1"}, "versionAsOf=-1 is not valid"),
        ({"versionAsOf": "x"}, "versionAsOf=x is not valid"),
        ({"versionAsOf": "1", "timestampAsOf": "2023-11-14T22:13:30Z"}, "not both"),
        ({"timestampAsOf": "2023-11-14T22:13:30"}, "names no time zone.*22:13:30Z for UTC"),
        ({"timestampAsOf": "2023-11-14"}, "2023-11-14T00:00:00Z for UTC"),
        ({"timestampAsOf": "yesterday"}, "timestampAsOf=yesterday is not valid"),
        ({"timestampAsOf": "1999-01-01T00:00:00Z"}, "no version as old.*oldest.*is 0"),
        ({"timestampAsOf": "2199-01-01T00:00:00Z"}, "after the last commit.*version 5"),
    ],
)
def test_a_version_that_is_not_there_is_refused(
    tmp_path: Path, options: dict[str, str], why: str
) -> None:
    six_versions(tmp_path / "t")
    with pytest.raises(OptionError, match=why):
        asked(tmp_path / "t", **options)


def test_the_time_of_a_commit_is_the_one_it_carries(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create()
    enabled = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "1",
    }
    protocol = {**features(writer=("inCommitTimestamp",)), "minReaderVersion": 1}
    del protocol["readerFeatures"]
    columns = [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]
    for number in range(1, 4):
        info = {"commitInfo": {"inCommitTimestamp": 1_900_000_000_000 + number}}
        more = [{"protocol": protocol}, made.metadata(columns, (), enabled)] if number == 1 else []
        made.commit(info, *more)
    assert asked(tmp_path / "t", timestampAsOf="2030-03-17T17:46:40.002Z") == 2
    assert asked(tmp_path / "t", timestampAsOf="2029-01-01T00:00:00Z") == 0


def test_the_change_data_feed_is_refused_by_name(tmp_path: Path) -> None:
    six_versions(tmp_path / "t")
    with pytest.raises(UnsupportedOptionError, match="readChangeFeed"):
        asked(tmp_path / "t", readChangeFeed="true")
