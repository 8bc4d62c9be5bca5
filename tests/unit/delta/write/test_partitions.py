"""Rows are in the files of their partitions, none missing, and other implementations find them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.tables.delta.data_files import FileSettings
from airflow_cloudfiles.engine.tables.delta.read.files import parse_value
from airflow_cloudfiles.engine.tables.delta.write import rows as writing
from airflow_cloudfiles.engine.tables.delta.write.rows import in_partition, value_text
from tests.support.delta_tables import read, sorted_rows
from tests.support.delta_writes import Sink, read_by_all, snapshot_of

ODD = [
    "plain",
    "a/b",
    "a=b",
    "100%",
    "x%20y",
    "sp ace",
    " ",
    "ä€😀",
    "'\"*?:#[]{}^\\",
    "line\nfeed\ttab",
    "__HIVE_DEFAULT_PARTITION__",
    "null",
    "..",
    ".",
    "+&;,$@!~",
    "x" * 300,
    "ä" * 300,
    None,
]


def _rows(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"v": pa.array(range(len(values))), "p": pa.array(values, kind)})


def test_every_odd_string_comes_back_and_files_are_named_as_hive_does(tmp_path: Path) -> None:
    target = tmp_path / "t"
    table = _rows(ODD, pa.string())
    Sink(target, partition_by=("p",)).write(table)
    assert sorted_rows(read_by_all(target)) == sorted_rows(table)
    folders = {path.parent.relative_to(target).as_posix() for path in target.rglob("*.parquet")}
    assert {
        "p=plain",
        "p=a%2Fb",
        "p=a%3Db",
        "p=100%25",
        "p=x%2520y",
        "p=sp ace",
        "p=ä€😀",
        "p=__HIVE_DEFAULT_PARTITION__",
        "p=line%0Afeed%09tab",
        "p=%27%22%2A%3F%3A%23%5B%5D{}%5E%5C".replace("{}", "%7B}"),
    } <= folders
    assert all(len(folder.encode()) < 255 for folder in folders)
    assert "p" not in pq.read_schema(next(target.rglob("*.parquet"))).names


def test_an_empty_string_is_null_as_in_delta(tmp_path: Path) -> None:
    target = tmp_path / "t"
    Sink(target, partition_by=("p",)).write(_rows(["", None, "x"], pa.string()))
    assert sorted(read_by_all(target)["p"].to_pylist(), key=str) == [None, None, "x"]
    assert len(list(target.rglob("*.parquet"))) == 2, "one partition for both"


TYPED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127]),
    (pa.int16(), [-(2**15), 0]),
    (pa.int32(), [2**31 - 1, -1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.float32(), [1.5, -0.25]),
    (pa.float64(), [1e300, -1.25, 0.1]),
    (pa.decimal128(10, 2), [Decimal("1.20"), Decimal("-99999999.99"), Decimal("0.00")]),
    (pa.decimal128(38, 0), [Decimal(10) ** 37]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(2024, 2, 29, 23, 59, 59, 999999, dt.UTC),
            dt.datetime(1969, 12, 31, 23, 0, 0, 1, dt.UTC),
        ],
    ),
    (pa.timestamp("us"), [dt.datetime(2024, 2, 29, 1, 2, 3), dt.datetime(1900, 1, 1)]),  # noqa: DTZ001
    (pa.binary(), [b"abc", "ä".encode()]),
]


@pytest.mark.parametrize(("kind", "values"), TYPED, ids=lambda each: str(each)[:20])
def test_every_type_comes_back(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    target = tmp_path / "t"
    table = _rows([*values, None, *values], kind)
    Sink(target, partition_by=("p",)).write(table)
    assert len(list(target.rglob("*.parquet"))) == len(values) + 1
    assert sorted_rows(read(target)) == sorted_rows(table)
    read_by_all(target, deltalake=True)


def test_values_are_in_the_log_as_the_protocol_has_them() -> None:
    def text(value: Any, kind: pa.DataType) -> str | None:
        return value_text(pa.scalar(value, kind), "p", "t")

    assert text(True, pa.bool_()) == "true"
    assert text(Decimal("1E+3"), pa.decimal128(10, 0)) == "1000"
    assert text(dt.date(2024, 1, 2), pa.date32()) == "2024-01-02"
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC)
    assert text(moment, pa.timestamp("us", "UTC")) == "2024-01-02T03:04:05.000006Z"
    assert text(moment.replace(tzinfo=None), pa.timestamp("us")) == "2024-01-02 03:04:05.000006"
    assert text(float("nan"), pa.float64()) == "NaN"
    assert text(float("-inf"), pa.float64()) == "-Infinity"
    with pytest.raises(SchemaMismatchError, match=r"partitioned by p, whose value .* no UTF-8"):
        text(b"\xff", pa.binary())


@given(days=st.integers(-1_000_000, 10_000_000))
def test_dates_of_any_year_are_read_back(days: int) -> None:
    value = pa.scalar(days, pa.int32()).cast(pa.date32())
    assert parse_value(value_text(value, "p", "t"), pa.date32()) == value


@given(micros=st.integers(-(10**17), 10**18), zone=st.sampled_from(["UTC", None]))
def test_timestamps_of_any_year_are_read_back(micros: int, zone: str | None) -> None:
    kind = pa.timestamp("us", zone)
    value = pa.scalar(micros, pa.int64()).cast(kind)
    assert parse_value(value_text(value, "p", "t"), kind) == value


@given(value=st.floats(allow_nan=False) | st.sampled_from([float("inf"), float("-inf")]))
def test_floats_are_read_back(value: float) -> None:
    text = value_text(pa.scalar(value, pa.float64()), "p", "t")
    assert parse_value(text, pa.float64()).as_py() == value


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_folders_are_single_short_names(text: str) -> None:
    folder = in_partition(FileSettings(), (("p", text),)).folder
    assert folder.endswith("/")
    assert folder.count("/") == 1
    assert len(folder.encode()) <= 130
    assert not any(ord(each) < 32 for each in folder)


def test_several_columns_in_the_middle_and_nothing_is_lost(tmp_path: Path) -> None:
    target = tmp_path / "t"
    count = 10_000
    table = pa.table(
        {
            "day": pa.array([dt.date(2024, 1, 1 + i % 7) for i in range(count)]),
            "v": pa.array(range(count)),
            "who": pa.array([None if i % 5 == 0 else f"w{i % 3}" for i in range(count)]),
        }
    )
    sink = Sink(target, partition_by=("who", "DAY"))
    sink.write(table)
    sink.write(table.slice(0, 100).select(["v", "who", "day"]))
    found = read_by_all(target)
    assert found.column_names == ["day", "v", "who"]
    assert sorted_rows(found) == sorted_rows(pa.concat_tables([table, table.slice(0, 100)]))
    [file, *_] = snapshot_of(target).files
    assert sorted(file.partition_values) == ["day", "who"]
    assert file.path.startswith("who=")
    assert snapshot_of(target).metadata.partition_columns == ["who", "day"]


@pytest.mark.slow
def test_memory_is_bounded_however_many_partitions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 200_000
    monkeypatch.setattr(writing, "BUFFER_BYTES", most)
    held: list[int] = []
    flush = writing._PartitionedWriter._flush

    def noted(self: Any, values: Any) -> None:
        held.append(self._bytes)
        flush(self, values)

    monkeypatch.setattr(writing._PartitionedWriter, "_flush", noted)
    target = tmp_path / "t"
    count = 20_000
    whole = pa.table(
        {
            "p": pa.array([f"p{i % 50}" for i in range(count)]),
            "v": pa.array([f"{i:050}" for i in range(count)]),
        }
    )
    batches = whole.to_batches(max_chunksize=1000)
    Sink(target, partition_by=("p",)).write(pa.Table.from_batches(batches))
    assert max(held) < 2 * most, "one block more than the bound"
    assert len(held) > 50, "some were written before the end"
    assert sorted_rows(read(target)) == sorted_rows(whole)
    for file in snapshot_of(target).files:
        values = pq.read_table(target / file.path, columns=["v"], partitioning=None)["v"]
        numbers = [int(each) for each in values.to_pylist()]
        assert numbers == sorted(numbers), "rows of a partition keep their order"


def test_a_failed_task_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BUFFER_BYTES", 1)
    target = tmp_path / "t"
    sink = Sink(target, partition_by=("p",))
    with pytest.raises(SchemaMismatchError, match="no UTF-8"):
        sink.write(_rows([b"a", b"b", b"\xff"], pa.binary()))
    assert not list(target.rglob("*.parquet"))


def test_statistics_leave_out_partition_columns(tmp_path: Path) -> None:
    target = tmp_path / "t"
    Sink(target, partition_by=("p",)).write(_rows(["a"], pa.string()))
    [line] = [
        json.loads(each)
        for each in (target / "_delta_log" / f"{1:020}.json").read_text().splitlines()
        if '"add"' in each
    ]
    stats = json.loads(line["add"]["stats"])
    assert stats["minValues"] == {"v": 0}
    assert line["add"]["partitionValues"] == {"p": "a"}


def test_a_table_of_others_is_appended_to_and_rows_may_lack_the_column(tmp_path: Path) -> None:
    target = tmp_path / "t"
    theirs = pa.table({"p": ["x", None], "v": [1, 2]})
    write_deltalake(str(target), theirs, partition_by=["p"])
    sink = Sink(target)
    sink.write(pa.table({"V": [3], "P": ["y"]}))
    sink.write(pa.table({"v": [4], "new": ["n"]}))
    found = read_by_all(target).sort_by("v").to_pylist()
    assert found == [
        {"p": "x", "v": 1, "new": None},
        {"p": None, "v": 2, "new": None},
        {"p": "y", "v": 3, "new": None},
        {"p": None, "v": 4, "new": "n"},
    ]
    assert snapshot_of(target).metadata.partition_columns == ["p"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("v",), "is partitioned by p, and partitionBy asks for v"),
        (("p", "v"), "asks for p, v"),
    ],
)
def test_another_partitioning_is_refused(tmp_path: Path, asked: tuple[str, ...], says: str) -> None:
    target = tmp_path / "t"
    table = _rows(["a"], pa.string())
    Sink(target, partition_by=("p",)).write(table)
    with pytest.raises(SchemaMismatchError, match=says):
        Sink(target, app="other", partition_by=asked).write(table)
    Sink(target, app="same", partition_by=("P",)).write(table)
    plain = tmp_path / "plain"
    Sink(plain).write(table)
    with pytest.raises(SchemaMismatchError, match="is partitioned by no column"):
        Sink(plain, app="other", partition_by=("p",)).write(table)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (("missing",), "the stream has no column missing"),
        (("s",), "column s is struct<x:int>"),
        (("v", "V"), "names a column twice"),
        (("v", "s"), "column s is struct"),
    ],
)
def test_what_cannot_partition_a_table_is_refused(
    tmp_path: Path, columns: tuple[str, ...], says: str
) -> None:
    rows = pa.table({"v": [1], "s": pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))})
    with pytest.raises(SchemaMismatchError, match=says):
        Sink(tmp_path / "t", partition_by=columns).write(rows)
    with pytest.raises(SchemaMismatchError, match="all of its columns"):
        Sink(tmp_path / "t", partition_by=("v",)).write(rows.select(["v"]))
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_rows_of_partition_columns_only_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, partition_by=("p",))
    sink.write(_rows(["a"], pa.string()))
    with pytest.raises(SchemaMismatchError, match="at least one other column"):
        sink.write(pa.table({"p": ["b"]}))


def test_a_batch_is_there_once_also_when_its_answer_was_lost(tmp_path: Path) -> None:
    """The names of files in the log are encoded; those of the sink are not."""
    target = tmp_path / "t"
    sink = Sink(target, partition_by=("p",))
    table = _rows(["100%", "a/b", "sp ace", "x%20y"], pa.string())
    sink.batch = 0
    files, layout = sink.task(table)
    assert sink.commit(files, layout, table.schema).is_new
    again = sink.commit(files, layout, table.schema)
    assert again.is_new, "these very files are in the table: they stay"
    assert sorted_rows(read_by_all(target)) == sorted_rows(table)
    assert not sink.repeat(table).is_new
    assert len(list(target.rglob("*.parquet"))) == 4, "files of the repetition are removed"


def test_a_partition_that_must_not_be_null_is_checked(tmp_path: Path) -> None:
    target = tmp_path / "t"
    schema = pa.schema([pa.field("p", pa.string(), nullable=False), ("v", pa.int64())])
    write_deltalake(str(target), pa.table({"p": ["a"], "v": [1]}, schema), partition_by=["p"])
    with pytest.raises(SinkError, match="NOT NULL constraint violated for column: p"):
        Sink(target).write(pa.table({"p": ["b", None], "v": [1, 2]}))
    assert pc.sum(read(target)["v"]).as_py() == 1
