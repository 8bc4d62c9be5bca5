"""In-commit timestamps that begin in mid-life: a moment is searched by one clock, never by two."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog, requested_snapshot
from airflow_cloudfiles.engine.tables.delta.stream.tracking import starting_version
from tests.support.delta_tables import SIMPLE, HandMadeTable, features
from tests.support.table_streams import Query

SINCE, LAST = 9, 14
SECONDS = 1_700_000_000
"""The time that version 0 was committed at; each version is 100 seconds later."""


def _table(folder: Path, *, files_of: int, has_moment: bool = True) -> HandMadeTable:
    """A table whose commits carry times since version 9.

    Args:
        folder: Where.
        files_of: The time of the file of version 0; each next one is 100 seconds newer.
        has_moment: Whether the table notes when that began.
    """
    made = HandMadeTable(folder)
    protocol = features(writer=("inCommitTimestamp",))
    for version in range(LAST + 1):
        noted = (SECONDS + 100 * version) * 1000
        actions: list[dict[str, Any]] = [made.file(f"{version}.parquet", {"a": [version]})]
        if version in {0, SINCE}:
            enabled = {
                "delta.enableInCommitTimestamps": "true",
                "delta.inCommitTimestampEnablementVersion": str(SINCE),
            }
            if has_moment:
                enabled["delta.inCommitTimestampEnablementTimestamp"] = str(noted)
            metadata = made.metadata(SIMPLE, (), enabled if version else {})
            actions += [{"protocol": protocol}, metadata]
        if version >= SINCE:
            actions.insert(0, {"commitInfo": {"inCommitTimestamp": noted}})
        made.commit(*actions)
        moment = files_of + 100 * version
        os.utime(made.log / f"{version:020}.json", (moment, moment))
    return made


def _text(version: float) -> str:
    return datetime.fromtimestamp(SECONDS + 100 * version, UTC).isoformat()


def _as_of(folder: Path, version: float) -> int:
    log = TableLog(DeltaLocation.to_read(str(folder)))
    return requested_snapshot(log, {"timestampAsOf": _text(version)}).version


def _starting(folder: Path, version: float) -> Any:
    options = TableStreamOptions.read({"startingtimestamp": _text(version)})
    return starting_version(TableLog(DeltaLocation.to_read(str(folder))), options)


@pytest.mark.parametrize("has_moment", [True, False])
def test_both_clocks_agree(tmp_path: Path, *, has_moment: bool) -> None:
    folder = tmp_path / "t"
    _table(folder, files_of=SECONDS, has_moment=has_moment)
    for version in range(LAST + 1):
        assert _as_of(folder, version) == _starting(folder, version) == version
        if version < LAST:
            assert (_as_of(folder, version + 0.5), _starting(folder, version + 0.5)) == (
                version,
                version + 1,
            )


@pytest.mark.parametrize("ahead", [100, 10_000_000, -10_000_000])
def test_times_of_files_of_another_clock_are_not_compared_with_those_of_commits(
    tmp_path: Path, ahead: int
) -> None:
    folder = tmp_path / "t"
    _table(folder, files_of=SECONDS + ahead)
    for version in range(SINCE, LAST):
        assert (_as_of(folder, version + 0.5), _starting(folder, version + 0.5)) == (
            version,
            version + 1,
        )
    if ahead < 0:  # files that are all older than the moment
        assert (_as_of(folder, SINCE - 0.5), _starting(folder, SINCE - 0.5)) == (SINCE - 1, SINCE)
        assert _as_of(folder, 2) == SINCE - 1
    with pytest.raises(OptionError, match=f"after the last commit .*version {LAST}"):
        _as_of(folder, LAST + 1)
    with pytest.raises(OptionError, match="after the last commit"):
        _starting(folder, LAST + 1)


def test_a_stream_that_starts_between_both_reads_none_of_the_versions_before(
    tmp_path: Path,
) -> None:
    _table(tmp_path / "t", files_of=SECONDS - 10_000_000)
    query = Query(tmp_path / "t", tmp_path / "state", startingTimestamp=_text(SINCE - 0.5))
    assert [row["a"] for row in query.run()] == [*range(SINCE, LAST + 1)]


def test_where_the_versions_before_are_gone_the_rest_is_searched(tmp_path: Path) -> None:
    made = _table(tmp_path / "t", files_of=SECONDS)
    log = TableLog(DeltaLocation.to_read(str(tmp_path / "t")))
    state = log.snapshot(SINCE)
    about = [
        {"protocol": features(writer=("inCommitTimestamp",))},
        made.metadata(SIMPLE, (), dict(state.metadata.configuration)),  # type: ignore[arg-type]
    ]
    adds = [
        {"add": {"path": each.path, "size": each.size, "partitionValues": {}}}
        for each in state.files
    ]
    made.checkpoint(f"{SINCE:020}.checkpoint.parquet", [*about, *adds])
    for version in range(SINCE):
        (made.log / f"{version:020}.json").unlink()
    assert _as_of(tmp_path / "t", SINCE + 0.5) == SINCE
    assert _starting(tmp_path / "t", 2) == SINCE
    with pytest.raises(OptionError, match=f"no version as old.*oldest that can be read is {SINCE}"):
        _as_of(tmp_path / "t", 2)
