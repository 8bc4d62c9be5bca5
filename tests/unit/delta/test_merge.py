"""A batch is merged once, by its keys, whatever is killed, repeated or written beside it."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, SinkError
from airflow_cloudfiles.engine.extensions.merge.commit import merge_batch
from airflow_cloudfiles.engine.extensions.merge.source_rows import MergeRule
from airflow_cloudfiles.engine.state.sink_log import BatchId, CommitResult
from airflow_cloudfiles.engine.tables.delta.commit import commit_batch
from airflow_cloudfiles.engine.tables.delta.data_files import (
    DataFile,
    DataFileWriter,
    FileSettings,
)
from airflow_cloudfiles.engine.tables.delta.read.log import STAGED
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from tests.support.delta_tables import read_by_duckdb, sorted_rows
from tests.support.laws import examples

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("at", pa.int32()), ("op", pa.string())]
)
NEWEST = MergeRule(("id",), order_by="at", delete_when="op = 'D'")


def _staged(target: Path, schema: pa.Schema, *files: list[dict[str, Any]]) -> list[DataFile]:
    return [
        file
        for rows in files
        for file in DataFileWriter(str(target), schema, FileSettings(folder=STAGED)).write(
            [pa.RecordBatch.from_pylist(rows, schema)]
        )
    ]


def _merge(
    target: Path,
    number: int,
    *files: list[dict[str, Any]],
    rule: MergeRule = NEWEST,
    schema: pa.Schema = SCHEMA,
) -> CommitResult:
    return merge_batch(
        str(target),
        rule=rule,
        batch=BatchId("stream", number),
        files=_staged(target, schema, *files),
        schema=schema,
        rules=WriteRules(merge_schema=True),
    )


def _rows(target: Path) -> list[dict[str, Any]]:
    found: pa.Table = DeltaTable(target).to_pyarrow_dataset().to_table()
    return sorted(found.to_pylist(), key=lambda row: str(row["id"]))


def _row(key: int | None, name: str, at: int | None = 0, op: str | None = None) -> dict[str, Any]:
    return {"id": key, "name": name, "at": at, "op": op}


def _names(target: Path) -> dict[int, str]:
    return {row["id"]: row["name"] for row in _rows(target)}


def _staged_files(target: Path) -> list[Path]:
    return list((target / STAGED).glob("*"))


def test_rows_are_inserted_updated_and_deleted(tmp_path: Path) -> None:
    target = tmp_path / "t"
    first = _merge(target, 0, [_row(1, "a"), _row(2, "b")], [_row(3, "c")])
    assert first.counts == {
        "inserted_rows": 3, "updated_rows": 0, "deleted_rows": 0, "superseded_rows": 0,
    }  # fmt: skip
    second = _merge(target, 1, [_row(2, "B", 1), _row(3, "", 1, "D"), _row(9, "", 1, "D")])
    assert (second.is_new, second.version) == (True, 2)
    assert second.counts == {
        "inserted_rows": 0, "updated_rows": 1, "deleted_rows": 1, "superseded_rows": 0,
    }  # fmt: skip
    assert _names(target) == {1: "a", 2: "B"}
    assert not _staged_files(target)
    assert sorted_rows(read_by_duckdb(target)) == sorted_rows(
        DeltaTable(target).to_pyarrow_dataset().to_table()
    )


def test_a_batch_merged_twice_counts_once(tmp_path: Path) -> None:
    target = tmp_path / "t"
    rule = MergeRule(("id",))
    _merge(target, 0, [_row(1, "a")], rule=rule)
    first = _merge(target, 1, [_row(1, "b"), _row(2, "b")], rule=rule)
    again = _merge(target, 1, [_row(1, "other"), _row(7, "other")], rule=rule)
    assert (again.is_new, again.version) == (False, first.version)
    assert again.counts == {"inserted_rows": 1, "updated_rows": 1, "deleted_rows": 0}
    earlier = _merge(target, 0, [_row(1, "older")], rule=rule)
    assert not earlier.is_new
    assert _names(target) == {1: "b", 2: "b"}
    assert not _staged_files(target)


def test_of_several_rows_of_a_key_the_newest_is_merged(tmp_path: Path) -> None:
    target = tmp_path / "t"
    done = _merge(
        target,
        0,
        [_row(1, "old", 1), _row(1, "new", 5), _row(2, "gone", 3), _row(3, "first", 2)],
        [_row(1, "middle", 3), _row(2, "", 4, "D"), _row(3, "same time, read later", 2)],
        [_row(1, "no time", None)],
    )
    assert done.counts["superseded_rows"] == 5
    assert _names(target) == {1: "new", 3: "same time, read later"}
    with pytest.raises(SinkError, match=r"1 row of the batch has the keys .*\(id=1\)"):
        _merge(target, 1, [_row(1, "x")], [_row(1, "x")], rule=MergeRule(("id",)))
    assert not _staged_files(target)


def test_a_row_that_comes_late_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _merge(target, 0, [_row(1, "a", 5), _row(2, "a", 5), _row(3, "a", None)])
    done = _merge(target, 1, [_row(1, "late", 4), _row(2, "", 4, "D"), _row(3, "b", None)])
    assert done.counts["updated_rows"] == 1
    assert _names(target) == {1: "a", 2: "a", 3: "b"}
    _merge(target, 2, [_row(1, "same", 5), _row(2, "", 6, "D"), _row(3, "c", 1)])
    assert _names(target) == {1: "same", 3: "c"}


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (MergeRule(("id",), when_matched="ignore"), {1: "a", 2: "a", 3: "b"}),
        (MergeRule(("id",), when_matched="delete"), {1: "a", 3: "b"}),
        (MergeRule(("id",), when_not_matched="ignore"), {1: "a", 2: "b"}),
        (MergeRule(("ID",)), {1: "a", 2: "b", 3: "b"}),
    ],
)
def test_the_rule_says_what_matching_rows_do(
    tmp_path: Path, rule: MergeRule, left: dict[int, str]
) -> None:
    target = tmp_path / "t"
    _merge(target, 0, [_row(1, "a"), _row(2, "a")])
    _merge(target, 1, [_row(2, "b"), _row(3, "b")], rule=rule)
    assert _names(target) == left


def test_rows_without_a_key_fail_the_batch_or_are_inserted(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _merge(target, 0, [_row(1, "a")])
    rows = [_row(None, "x", 1), _row(None, "y", 1), _row(1, "b", 1)]
    with pytest.raises(SinkError, match=r"2 rows of the batch have no id, .*mergeNullKeys=insert"):
        _merge(target, 1, rows)
    assert not _staged_files(target)
    _merge(target, 1, rows, rule=MergeRule(("id",), order_by="at", null_keys="insert"))
    assert sorted(row["name"] for row in _rows(target)) == ["b", "x", "y"]


def test_keys_of_every_type_that_is_compared_alike(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("n", pa.decimal128(20, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ('it\'s "odd"', pa.string()),
            ("yes", pa.bool_()),
            ("v", pa.int8()),
        ]
    )
    keys = tuple(schema.names[:-1])
    moment = datetime(2024, 2, 29, 12, 0, 0, 1)  # noqa: DTZ001

    def row(number: int, value: int) -> dict[str, Any]:
        return {
            "n": Decimal(number).scaleb(-2),
            "day": date(1, 1, 1 + number),
            "at": moment.replace(tzinfo=UTC, microsecond=number),
            "local": moment,
            'it\'s "odd"': "é'\"\n" + str(number),
            "yes": number % 2 == 0,
            "v": value,
        }

    target, rule = tmp_path / "t", MergeRule(keys)
    _merge(target, 0, [row(each, 1) for each in range(4)], rule=rule, schema=schema)
    _merge(target, 1, [row(each, 2) for each in range(2, 6)], rule=rule, schema=schema)
    found: pa.Table = DeltaTable(target).to_pyarrow_dataset().to_table()
    assert sorted(found["v"].to_pylist()) == [1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (MergeRule(("missing",)), "mergeKeys names missing, which is no column"),
        (MergeRule(("id", "ID")), "names a column twice"),
        (MergeRule(("f",)), "mergeKeys names f, which is of the type double"),
        (MergeRule(("id",), order_by="f"), "mergeOrderBy names f"),
        (MergeRule(("id",), delete_when="1=1"), "mergeDeleteWhen '1=1' cannot be used"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused(tmp_path: Path, rule: MergeRule, message: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("f", pa.float64())])
    with pytest.raises(OptionError, match=message):
        _merge(tmp_path / "t", 0, [{"id": 1, "f": 1.0}], rule=rule, schema=schema)
    assert not _staged_files(tmp_path / "t")


def test_new_columns_are_added_and_missing_ones_keep_their_values(tmp_path: Path) -> None:
    target = tmp_path / "t"
    narrow = pa.schema([("id", pa.int64()), ("name", pa.string())])
    wide = pa.schema([("id", pa.int64()), ("x", pa.struct([("y", pa.int32())]))])
    rule = MergeRule(("id",))
    _merge(target, 0, [{"id": 1, "name": "a"}], rule=rule, schema=narrow)
    rows = [{"id": 1, "x": {"y": 7}}, {"id": 2, "x": None}]
    _merge(target, 1, rows, rule=rule, schema=wide)
    assert _rows(target) == [
        {"id": 1, "name": "a", "x": {"y": 7}},
        {"id": 2, "name": None, "x": None},
    ]


def test_an_empty_batch_is_noted(tmp_path: Path) -> None:
    target = tmp_path / "t"
    assert _merge(target, 0).is_new
    assert not _merge(target, 0, [_row(1, "a")]).is_new
    assert _rows(target) == []


def test_a_merge_without_a_stream_has_no_memory(tmp_path: Path) -> None:
    target = tmp_path / "t"
    for name in ("a", "b"):
        files = _staged(target, SCHEMA, [_row(1, name)])
        done = merge_batch(
            str(target),
            rule=NEWEST,
            batch=None,
            files=files,
            schema=SCHEMA,
            rules=WriteRules(merge_schema=True),
        )
        assert done.is_new
    assert _names(target) == {1: "b"}


_CHANGES = st.lists(
    st.tuples(
        st.integers(0, 4), st.integers(0, 3), st.sampled_from([None, "D"]), st.integers(0, 99)
    ),
    max_size=8,
)


@pytest.mark.law
@settings(max_examples=examples(25), deadline=None)
@given(st.lists(_CHANGES, min_size=1, max_size=4))
def test_a_table_is_what_its_changes_make_of_it(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, int, str, int]]]
) -> None:
    target = tmp_path_factory.mktemp("law") / "t"
    model: dict[int, tuple[int, str]] = {}
    for number, changes in enumerate(batches):
        rows = [_row(key, str(value), at, op) for key, at, op, value in changes]
        newest = {row["id"]: row for row in sorted(rows, key=lambda row: int(row["at"]))}
        for key, row in newest.items():
            if key in model and model[key][0] > row["at"]:
                continue
            if row["op"] == "D":
                model.pop(key, None)
            else:
                model[key] = (row["at"], row["name"])
        half = len(rows) // 2
        _merge(target, number, rows[:half], rows[half:])
    assert _names(target) == {key: name for key, (_, name) in model.items()}


def _merge_many(target: str, app: str, start: int) -> None:
    """Merge ten batches, each of which inserts a row and updates one that all have."""
    for number in range(10):
        rows = [_row(start + number, app), _row(-1, app, number)]
        files = _staged(Path(target), SCHEMA, rows)
        merge_batch(
            target,
            rule=NEWEST,
            batch=BatchId(app, number),
            files=files,
            schema=SCHEMA,
            rules=WriteRules(merge_schema=True),
        )


def _append_many(target: str, start: int) -> None:
    for number in range(10):
        rows = pa.RecordBatch.from_pylist([_row(start + number, "appended")], SCHEMA)
        commit_batch(
            target,
            batch=BatchId("appends", number),
            files=DataFileWriter(target, SCHEMA).write([rows]),
            schema=SCHEMA,
            rules=WriteRules(merge_schema=True),
        )


@pytest.mark.slow
def test_merges_beside_each_other_and_beside_appends_lose_nothing(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _merge(target, 0, [_row(-1, "zero", -1)])
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=_merge_many, args=(str(target), "one", 100)),
        spawn.Process(target=_merge_many, args=(str(target), "two", 200)),
        spawn.Process(target=_append_many, args=(str(target), 300)),
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join(300)
    assert [each.exitcode for each in processes] == [0, 0, 0]
    wanted = [-1, *range(100, 110), *range(200, 210), *range(300, 310)]
    assert sorted(row["id"] for row in _rows(target)) == wanted
    assert not _staged_files(target)


def _killed(target: str, number: int, point: str) -> None:
    os.environ[CRASH_AT] = point
    _merge(Path(target), number, [_row(1, f"b{number}", number), _row(10 + number, "new")])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "is_there"), [("before-sink-commit", False), ("after-sink-commit", True)]
)
def test_a_merge_that_is_killed_is_done_once(tmp_path: Path, point: str, is_there: bool) -> None:
    target = tmp_path / "t"
    _merge(target, 0, [_row(1, "a")])
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_killed, args=(str(target), 1, point))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert (_names(target) == {1: "b1", 11: "new"}) is is_there
    assert _staged_files(target), "what the killed run leaves is hidden"
    again = _merge(target, 1, [_row(1, "b1", 1), _row(11, "new")])
    assert again.is_new is not is_there
    assert (again.counts["inserted_rows"], again.counts["updated_rows"]) == (1, 1)
    assert _names(target) == {1: "b1", 11: "new"}


def test_merged_files_have_no_bounds_that_hide_rows(tmp_path: Path) -> None:
    """deltalake alone writes wrong ones for each of these columns."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("f", pa.float64()),
            ("good", pa.float64()),
            ("day", pa.date32()),
            ("n", pa.decimal128(38, 2)),
            ("odd.name", pa.float32()),
        ]
    )
    far = pa.array([4 * 10**6], pa.int32()).cast(pa.date32())[0]

    def row(key: int, value: float) -> dict[str, Any]:
        wide = Decimal("123456789012345678901234.56")
        return {"id": key, "f": value, "good": 1.5, "day": far, "n": wide, "odd.name": value}

    target, rule = tmp_path / "t", MergeRule(("id",))
    _merge(target, 0, [row(1, math.nan), row(2, 1.0)], rule=rule, schema=schema)
    _merge(target, 1, [row(2, 2.0), row(3, 1.0)], rule=rule, schema=schema)
    entry = (target / "_delta_log" / f"{2:020}.json").read_text().splitlines()
    [add] = [json.loads(line)["add"] for line in entry if '"add"' in line]
    statistics = json.loads(add["stats"])
    assert (statistics["minValues"], statistics["maxValues"]) == (
        {"id": 1, "good": 1.5},
        {"id": 3, "good": 1.5},
    )
    found = DeltaTable(target).to_pyarrow_dataset().to_table(filter=pc.field("good") > 0)
    assert found.num_rows == 3
    nested = pa.schema([("id", pa.int64()), ("s", pa.struct([("f", pa.float32())]))])
    rows = [{"id": each, "s": {"f": math.nan * (each % 2)}} for each in (1, 2)]
    done = _merge(tmp_path / "nested", 0, rows, rule=rule, schema=nested)
    entry = tmp_path / "nested" / "_delta_log" / f"{done.version:020}.json"
    assert "minValues" not in entry.read_text() or r"\"minValues\":{}" in entry.read_text()


def test_a_refused_column_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _merge(target, 0, [_row(1, "a")])
    other = pa.schema([("id", pa.int64()), ("name", pa.list_(pa.string()))])
    with pytest.raises(CloudFilesError, match="Failed to merge fields"):
        _merge(target, 1, [{"id": 1, "name": ["x"]}], rule=MergeRule(("id",)), schema=other)
    assert not _staged_files(target)
    assert DeltaTable(target).version() == 1
