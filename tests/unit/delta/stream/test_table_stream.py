"""Each row of a Delta table is in one micro-batch, whatever the limits and the restarts."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import (
    OptionError,
    StateConflictError,
    TargetCorruptedError,
    UnsupportedTableError,
    VersionsGoneError,
)
from airflow_cloudfiles.engine.tables.delta.stream.commits import TableOffset
from tests.support.delta_tables import HandMadeTable, features, removed
from tests.support.table_streams import CONFIGURED, GrowingTable, Query


@pytest.fixture
def table(tmp_path: Path) -> GrowingTable:
    """Three versions with a row each."""
    found = GrowingTable(tmp_path / "t", "a")
    for value in (1, 2, 3):
        found.append(value)
    return found


@pytest.fixture
def query(table: GrowingTable, tmp_path: Path) -> Query:
    return Query(table.folder, tmp_path / "checkpoint")


def values(rows: list[dict[str, Any]]) -> list[int]:
    return [row["a"] for row in rows]


def test_a_stream_begins_with_the_rows_of_the_table_and_goes_on_with_new_ones(
    table: GrowingTable, query: Query
) -> None:
    assert values(query.run()) == [1, 2, 3]
    assert query.offsets == [
        {
            "sourceVersion": 1,
            "reservoirId": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "reservoirVersion": 4,
            "index": -1,
            "isStartingVersion": False,
        }
    ]
    table.append(4)
    assert values(query.run()) == [4]
    assert query.run() == []


def test_an_initial_snapshot_is_served_by_time_and_path_in_batches_and_stays_pinned(
    tmp_path: Path,
) -> None:
    table = GrowingTable(tmp_path / "t", "a")
    numbers = list(range(7))
    random.Random(7).shuffle(numbers)
    for value in numbers:
        table.append(value, modificationTime=5000 + value // 2)
    query = Query(table.folder, tmp_path / "checkpoint", maxFilesPerTrigger=2)
    query.start()
    assert query.plan()
    assert query.offsets[-1]["isStartingVersion"] is True
    query.execute()
    table.append(100, modificationTime=0)
    table.commit(removed(table.files[0]), {"remove": {"path": "x", "dataChange": False}})
    query.options["ignoredeletes"] = "true"
    query.run()
    by_time = [sorted(values(batch)) for batch in query.batches]
    assert by_time[:3] == [[0, 1], [2, 3], [4, 5]]
    assert sorted(values(query.rows)) == [0, 1, 2, 3, 4, 5, 6, 100]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [5]),
        ({"maxFilesPerTrigger": 2}, [2, 2, 1]),
        ({"maxFilesPerTrigger": 5}, [5]),
        ({"maxBytesPerTrigger": "1b"}, [1, 1, 1, 1, 1]),
        ({"maxBytesPerTrigger": "1g"}, [5]),
        ({"maxFilesPerTrigger": 3, "maxBytesPerTrigger": "1b"}, [1, 1, 1, 1, 1]),
        ({"maxFilesPerTrigger": 2, "maxBytesPerTrigger": "1g"}, [2, 2, 1]),
    ],
)
@pytest.mark.parametrize("starting", [{}, {"startingVersion": 0}])
def test_limits_of_files_and_bytes_take_at_least_one_file(
    tmp_path: Path, options: dict[str, Any], sizes: list[int], starting: dict[str, Any]
) -> None:
    table = HandMadeTable(tmp_path / "t")
    files = [table.file(f"{each}.parquet", {"a": [each], "s": ["x"]}) for each in range(5)]
    table.create(*files)
    query = Query(table.folder, tmp_path / "checkpoint", **options, **starting)
    query.run()
    assert [len(batch) for batch in query.batches] == sizes
    assert sorted(values(query.rows)) == [0, 1, 2, 3, 4]


def test_limits_may_change_on_restart_and_a_trigger_may_have_none(
    table: GrowingTable, query: Query
) -> None:
    query.options["maxfilespertrigger"] = "1"
    query.start()
    assert query.plan()
    query.execute()
    query.options["maxfilespertrigger"] = "2"
    assert values(query.run()) == [2, 3]
    for value in (4, 5, 6):
        table.append(value)
    query.start(available_now=False)
    assert query.plan(unlimited=True)
    query.execute()
    assert values(query.batches[-1]) == [4, 5, 6]


@pytest.mark.parametrize(
    "options",
    [
        {"maxFilesPerTrigger": "0"},
        {"maxFilesPerTrigger": "-1"},
        {"maxFilesPerTrigger": "many"},
        {"maxBytesPerTrigger": "0"},
        {"maxBytesPerTrigger": "much"},
        {"startingVersion": "-1"},
        {"startingVersion": "soon"},
        {"startingVersion": 1, "startingTimestamp": "2026-01-01T00:00:00Z"},
        {"excludeRegex": "("},
        {"readChangeFeed": "true"},
        {"failOnDataLoss": "false", "schemaTrackingLocation": "x"},
    ],
)
def test_options_that_are_not_valid_are_refused(query: Query, options: dict[str, Any]) -> None:
    query.options |= {key.lower(): str(value) for key, value in options.items()}
    with pytest.raises(OptionError):
        query.run()


def test_available_now_ends_at_what_was_there_when_it_began(
    table: GrowingTable, query: Query
) -> None:
    query.options["maxfilespertrigger"] = "1"
    query.start()
    table.append(4)  # a fast writer
    while query.plan():
        query.execute()
        table.append(99)
    assert values(query.rows) == [1, 2, 3]


def test_an_empty_table_and_commits_without_data_advance_the_offset(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "t", "a")
    query = Query(table.folder, tmp_path / "checkpoint")
    assert query.run() == []
    assert query.offsets[-1]["reservoirVersion"] == 1
    table.commit({"commitInfo": {"operation": "VACUUM START"}})
    table.commit({"commitInfo": {"operation": "VACUUM END"}})
    assert query.run() == []
    assert query.offsets[-1]["reservoirVersion"] == 3
    table.append(1)
    assert values(query.run()) == [1]


def test_rewritten_rows_without_a_change_of_data_are_not_emitted(
    table: GrowingTable, query: Query
) -> None:
    query.run()
    compacted = table.file("compacted.parquet", {"col-1": [1, 2, 3]})
    compacted["add"]["dataChange"] = False
    table.commit(compacted, *(removed(each, dataChange=False) for each in table.files))
    table.append(4)
    assert values(query.run()) == [4]


def test_a_start_can_be_a_version_the_latest_or_a_time(table: GrowingTable, tmp_path: Path) -> None:
    for version in range(4):
        moment = 1_700_000_000 + 60 * version
        os.utime(table.log / f"{version:020}.json", (moment, moment))
    cases = {
        ("startingVersion", "0"): [1, 2, 3],
        ("startingVersion", "2"): [2, 3],
        ("startingTimestamp", "2023-11-14T22:15:20Z"): [2, 3],  # the time of version 2
        ("startingTimestamp", "2023-11-14T23:15:21+01:00"): [3],
        ("startingTimestamp", "2001-01-01T00:00:00Z"): [1, 2, 3],
    }
    for number, ((name, value), expected) in enumerate(cases.items()):
        query = Query(table.folder, tmp_path / f"c-{number}", **{name: value})
        assert values(query.run()) == expected, (name, value)


def test_a_start_that_does_not_exist_is_refused(table: GrowingTable, tmp_path: Path) -> None:
    for number, options in enumerate(
        (
            {"startingVersion": 4},
            {"startingTimestamp": "2999-01-01T00:00:00Z"},
            {"startingTimestamp": "yesterday"},
            {"startingTimestamp": "2026-01-01"},
        )
    ):
        query = Query(table.folder, tmp_path / f"c-{number}", **options)
        with pytest.raises(OptionError, match=r"starting(Version|Timestamp)="):
            query.run()


def test_the_latest_version_is_where_the_stream_first_started(
    table: GrowingTable, query: Query
) -> None:
    query.options["startingversion"] = "latest"
    query.start()
    assert query.plan()
    table.append(4)  # killed before the first micro-batch is committed
    assert values(query.run()) == [4]
    table.append(5)
    assert values(query.run()) == [5]


def test_where_to_start_matters_to_a_new_checkpoint_only(table: GrowingTable, query: Query) -> None:
    query.run()
    table.append(4)
    query.options["startingversion"] = "1"
    assert values(query.run()) == [4]
    query.options["startingversion"] = "77"
    assert query.run() == []


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_a_planned_batch_means_the_same_files_though_the_start_is_asked_for_again(
    table: GrowingTable, query: Query, limit: int
) -> None:
    query.options["maxfilespertrigger"] = str(limit)
    query.start()
    assert query.plan()
    table.append(4)
    table.append(5)
    query.run()  # runs what was planned, from an initial offset that is newer
    assert values(query.batches[0]) == [1, 2, 3][:limit]
    assert values(query.rows) == [1, 2, 3, 4, 5]


def test_another_process_gives_the_same_files_for_the_same_offsets(
    table: GrowingTable, query: Query
) -> None:
    query.options |= {"maxfilespertrigger": "1", "startingversion": "0"}
    while True:
        query.start()
        if not query.plan():
            break
        query.start()  # which runs it
    assert values(query.rows) == [1, 2, 3]


def test_files_are_left_out_by_their_path(table: GrowingTable, query: Query) -> None:
    query.options["excluderegex"] = "part-00[02]"
    assert values(query.run()) == [2]
    table.append(4)
    table.append(5)
    query.options["excluderegex"] = "part-004"
    assert values(query.run()) == [4]


def test_a_version_that_was_cleaned_up_is_an_error_or_is_skipped(
    table: GrowingTable, query: Query
) -> None:
    query.run()
    for value in (4, 5, 6):
        table.append(value)
    for version in range(5):
        (table.log / f"{version:020}.json").unlink()
    whole = [{"protocol": features("columnMapping")}, table.metadata(table.columns, (), CONFIGURED)]
    table.checkpoint(f"{5:020}.checkpoint.parquet", [*whole, *table.files[:5]])
    message = query.failing(VersionsGoneError)
    assert "from version 4" in message
    assert "the earliest available version after that is 5" in message
    query.options["failondataloss"] = "false"
    assert values(query.run()) == [5, 6]


def test_a_gap_in_the_log_is_an_error(table: GrowingTable, query: Query) -> None:
    query.run()
    for value in (4, 5, 6):
        table.append(value)
    query.start()
    (table.log / f"{5:020}.json").unlink()
    with pytest.raises(VersionsGoneError, match=r"from version 5, but the earliest .* is 6"):
        query.plan()


def test_a_stream_whose_last_version_vanished_says_so(table: GrowingTable, query: Query) -> None:
    query.run()
    (table.log / f"{3:020}.json").unlink()
    (table.log / f"{2:020}.json").unlink()
    assert "no version 3 any more" in query.failing(VersionsGoneError)


def test_an_initial_snapshot_that_cannot_be_read_any_more_says_so(
    table: GrowingTable, query: Query
) -> None:
    query.options["maxfilespertrigger"] = "1"
    query.start()
    assert query.plan()
    query.execute()
    whole = [{"protocol": features("columnMapping")}, table.metadata(table.columns, (), CONFIGURED)]
    table.append(4)
    table.checkpoint(f"{4:020}.checkpoint.parquet", [*whole, *table.files])
    for version in range(4):
        (table.log / f"{version:020}.json").unlink()
    assert "has not read all rows" in query.failing(VersionsGoneError)


def test_a_data_file_that_is_gone_is_named(table: GrowingTable, query: Query) -> None:
    (table.folder / "part-001.parquet").unlink()
    assert "part-001.parquet" in query.failing(TargetCorruptedError)


def test_a_table_that_was_recreated_is_refused(table: GrowingTable, query: Query) -> None:
    query.run()
    for path in table.log.iterdir():
        path.write_text(path.read_text().replace("5fba94ed", "00000000"))
    message = query.failing(StateConflictError)
    assert "(id = '00000000-9794" in message
    assert "(id = '5fba94ed-9794" in message


def test_a_table_that_is_recreated_under_a_running_stream_is_refused(
    table: GrowingTable, query: Query
) -> None:
    query.start(available_now=False)
    assert query.plan()
    query.execute()
    assert not query.plan()
    table.append(4)
    for path in table.log.iterdir():
        path.write_text(path.read_text().replace("5fba94ed", "00000000"))
        os.utime(path, (1, 1))
    with pytest.raises(StateConflictError, match="deleted and re-created"):
        query.plan()


def test_a_feature_that_is_not_supported_stops_a_stream_at_any_time(
    table: GrowingTable, query: Query
) -> None:
    query.start(available_now=False)
    assert query.plan()
    query.execute()
    table.commit({"protocol": features("columnMapping", "somethingNew")})
    for _ in range(2):  # in the middle, and at the next start
        with pytest.raises(UnsupportedTableError, match="somethingNew"):
            query.plan()
        with pytest.raises(UnsupportedTableError, match="somethingNew"):
            query.start()


def test_partition_values_and_old_checkpoints_of_the_log_are_read(tmp_path: Path) -> None:
    table = HandMadeTable(tmp_path / "t")
    name = "s=50%25/x.parquet"
    file = table.file("s=50%/x.parquet", {"a": [1]}, path=name, partition={"s": "50%"})
    table.create(file, partitions=("s",))
    query = Query(table.folder, tmp_path / "checkpoint")
    assert query.run() == [{"a": 1, "s": "50%"}]


def test_an_offset_of_delta_at_the_last_file_of_a_version_goes_on_with_the_next(
    table: GrowingTable, query: Query
) -> None:
    query.run()
    ours = TableOffset("5fba94ed-9794-4965-ba6e-6ee3c0d22af9", 3, 0).to_json()
    query.offsets = [json.loads(json.dumps(ours))]
    table.append(4)
    assert values(query.run()) == [4]
