"""Delta's own stream and ours go alike over tables that Delta's own writer makes and changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from tests.delta_spark.test_delta_reads_what_we_write import HISTORIES
from tests.delta_spark.test_schema_tracking import EVOLVED
from tests.delta_spark.test_we_read_what_delta_writes import (
    MORE,
    PLAIN,
    TABLES,
    VECTORS,
    make,
)
from tests.support.delta_pairs import Started, Streams
from tests.support.delta_spark import DeltaSpark
from tests.support.delta_writes import Sink, snapshot_of

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", TABLES)
def test_each_kind_of_table_is_streamed_alike(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    target = tmp_path / "table"
    make(delta, target, TABLES[name])
    streams = Streams(delta, target, tmp_path)
    for change in (None, f"INSERT INTO {{}} (id, v, p) {MORE}", "OPTIMIZE {}"):
        if change:
            delta.run(change.format(f"delta.`{target}`"))
        ours, theirs = streams.ours(), streams.theirs()
        assert ours == theirs, change
    assert ours == ("", [])  # of what was compacted only


CHANGES = {
    "UPDATE": "UPDATE {} SET v = 'changed' WHERE id < 7",
    "DELETE of rows": "DELETE FROM {} WHERE id % 2 = 0",
    "DELETE of files": "DELETE FROM {} WHERE p = 1",
    "DELETE of all": "DELETE FROM {}",
    "TRUNCATE": "TRUNCATE TABLE {}",
    "MERGE": "MERGE INTO {0} t USING (SELECT 3L AS id, 'merged' AS v, 0L AS p UNION ALL "
    "SELECT 300L, 'new', 0L) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED THEN INSERT *",
    "INSERT OVERWRITE": f"INSERT OVERWRITE {{}} {MORE}",
    "RESTORE": "RESTORE TABLE {} TO VERSION AS OF 1",
    "OPTIMIZE": "OPTIMIZE {}",
}
"""What Delta's writer does to a table that has its rows in version 1."""
OPTIONS = ("", "ignoreDeletes", "ignoreChanges", "skipChangeCommits")
KINDS = {
    "plain": (PLAIN,),
    "partitioned": (f"{PLAIN} PARTITIONED BY (p)",),
    "deletion vectors": (f"{PLAIN} TBLPROPERTIES {VECTORS}",),
    "mapped": (f"{PLAIN} TBLPROPERTIES (delta.columnMapping.mode='name')",),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_rows_stops_or_passes_both(
    delta: DeltaSpark, tmp_path: Path, kind: str, change: str
) -> None:
    target = tmp_path / "table"
    make(delta, target, KINDS[kind])
    before = Streams(delta, target, tmp_path / "before")
    assert before.ours() == before.theirs()
    delta.run(f"INSERT INTO delta.`{target}` {MORE}")
    delta.run(CHANGES[change].format(f"delta.`{target}`"))
    assert before.ours() == before.theirs()
    delta.run(f"INSERT INTO delta.`{target}` {MORE}")
    for option in OPTIONS:
        after = Streams(delta, target, tmp_path / f"after {option}")
        options = {"startingVersion": "2", **({option: "true"} if option else {})}
        assert after.ours(**options) == after.theirs(**options), option


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_table_stops_both(delta: DeltaSpark, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "table"
    make(delta, target, KINDS[kind])
    streams = Streams(delta, target, tmp_path)
    assert streams.ours() == streams.theirs()
    delta.run(f"CREATE OR REPLACE TABLE delta.`{target}` USING delta AS {MORE}")
    stopped = ("DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", [])
    assert streams.ours() == streams.theirs() == stopped


def test_a_table_of_ours_is_streamed_alike_past_a_compaction(
    delta: DeltaSpark, tmp_path: Path
) -> None:
    target, sink = tmp_path / "table", Sink(tmp_path / "table")
    for number in range(3):
        sink.write(pa.table({"id": [number], "v": [str(number)]}))
    streams = Streams(delta, target, tmp_path)
    assert streams.ours() == streams.theirs() == ("", [f'{{"id": {n}, "v": "{n}"}}' for n in "012"])
    optimize(str(target))  # no row changes, so that both pass over it
    sink.write(pa.table({"id": [3], "v": ["3"]}))
    assert streams.ours() == streams.theirs() == ("", ['{"id": 3, "v": "3"}'])


def test_what_vacuum_has_removed_stops_both(delta: DeltaSpark, tmp_path: Path) -> None:
    target = tmp_path / "table"
    make(delta, target, KINDS["plain"])
    delta.run(f"UPDATE delta.`{target}` SET v = 'changed'")
    delta.run(f"VACUUM delta.`{target}` RETAIN 0 HOURS")
    streams = Streams(delta, target, tmp_path)
    # The options have both pass over the UPDATE: it is the file that stops them.
    options = {"startingVersion": "0", "ignoreChanges": "true"}
    for start, reason in (
        (streams.ours, "perhaps vacuumed"),
        (streams.theirs, "FileNotFoundException"),
    ):
        error, rows = start(**options)
        assert reason in error
        assert rows == []


OPTIONS_OF_A_START = {
    "a version": {"startingVersion": "2"},
    "the newest": {"startingVersion": "latest"},
    "a moment": {"startingTimestamp": "2001-01-01T00:00:00Z"},
    "one file": {"maxFilesPerTrigger": "1"},
    "few bytes": {"maxBytesPerTrigger": "1b"},
    "excluded": {"excludeRegex": "parquet$"},
    "a version to come": {"startingVersion": "99"},
    "no version": {"startingVersion": "x"},
    "a moment to come": {"startingTimestamp": "2101-01-01T00:00:00Z"},
    "no moment": {"startingTimestamp": "x"},
    "two beginnings": {"startingVersion": "1", "startingTimestamp": "2001-01-01T00:00:00Z"},
    "no file": {"maxFilesPerTrigger": "0"},
    "no bytes": {"maxBytesPerTrigger": "-1"},
    "no expression": {"excludeRegex": "("},
    "no flag": {"ignoreChanges": "perhaps"},
    "a version that is gone": {"startingVersion": "1"},
}


@pytest.mark.parametrize("name", OPTIONS_OF_A_START)
def test_an_option_means_the_same_to_both(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    target = tmp_path / "table"
    make(delta, target, (f"{PLAIN} TBLPROPERTIES (delta.checkpointInterval=2)",))
    for _ in range(3):
        delta.run(f"INSERT INTO delta.`{target}` {MORE}")
    if name == "a version that is gone":
        remove_commits(target, 0, 1)
    streams = Streams(delta, target, tmp_path)
    ours, theirs = (each(**OPTIONS_OF_A_START[name]) for each in (streams.ours, streams.theirs))
    assert (bool(ours[0]), ours[1]) == (bool(theirs[0]), theirs[1])


def remove_commits(target: Path, *versions: int) -> None:
    """Remove commits that a checkpoint has, as Delta does when they are old enough."""
    for version in versions:
        (target / "_delta_log" / f"{version:020}.json").unlink()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_commit_that_is_gone_before_it_was_read_stops_or_passes_both(
    delta: DeltaSpark, tmp_path: Path, fails: str
) -> None:
    target = tmp_path / "table"
    delta.run(f"CREATE TABLE delta.`{target}` {PLAIN} TBLPROPERTIES (delta.checkpointInterval=2)")
    streams = Streams(delta, target, tmp_path)
    assert streams.ours() == streams.theirs() == ("", [])
    for _ in range(4):
        delta.run(f"INSERT INTO delta.`{target}` {MORE}")
    remove_commits(target, 1)
    ours, theirs = (each(failOnDataLoss=fails) for each in (streams.ours, streams.theirs))
    assert (bool(ours[0]), ours[1]) == (bool(theirs[0]), theirs[1])
    assert bool(ours[0]) is (fails == "true")


@pytest.mark.parametrize("name", HISTORIES)
def test_each_history_of_ours_is_streamed_alike(
    delta: DeltaSpark, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "table"
    HISTORIES[name](target)
    streams = Streams(delta, target, tmp_path, tracks=True)
    changes = ("Rename", "Drop", "TypeChange")
    options = {f"allowSourceColumn{each}": "always" for each in changes}
    first = snapshot_of(target).version if name.startswith("compaction") else 0
    options |= {"startingVersion": str(first), "ignoreChanges": "true"}
    assert _whole(streams.ours, options) == _whole(streams.theirs, options)


def _whole(start: Callable[..., Started], options: dict[str, str]) -> list[str]:
    """Start a stream until it has all; its rows. Delta's begins its schema log with a failure."""
    rows: list[str] = []
    for _ in range(20):
        error, more = start(**options)
        rows += more
        if not error:
            return sorted(rows)
        assert error == EVOLVED
    raise AssertionError(f"It has not ended after {rows}")
