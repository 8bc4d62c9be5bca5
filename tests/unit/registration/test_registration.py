"""Files that fit become data files where they lie; the others of their batch are copied."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_cloudfiles.engine.errors import SchemaMismatchError, UnknownFieldException
from airflow_cloudfiles.engine.storage.local import LocalStore
from tests.support.delta_tables import read_by_duckdb
from tests.support.registered import REFERENCE, Landing, ingested, multiset

FITTING = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("share", pa.float64()),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("tags", pa.list_(pa.string())),
    ]
)


def rows(first: int = 0, count: int = 3) -> pa.Table:
    """Rows that fit, with nulls."""
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "name": None if number % 3 == 0 else f"n{number}",
                "at": datetime(2024, 1, 1 + number % 20, 1, 2, 3, 4567, tzinfo=UTC),
                "price": Decimal(number) + Decimal("0.25"),
                "share": math.nan if number % 2 else 0.5,
                "place": {"city": "c", "zip": number} if number % 2 else None,
                "tags": ["t", None],
            }
            for number in range(first, first + count)
        ],
        FITTING,
    )


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """A stream of one batch, which has made the table."""
    landing = Landing(tmp_path)
    landing.add("first.parquet", rows())
    landing.run()
    return landing


def test_files_that_fit_are_the_data_files(landing: Landing) -> None:
    landing.add("2026/11/second.parquet", rows(10))
    report = landing.run()
    assert landing.registered() == ["2026/11/second.parquet", "first.parquet"]
    assert not list(landing.target.glob("part-*"))
    wanted = ("files", "registered_files", "copied_files", "rows", "batches")
    assert [report[name] for name in wanted] == [1, 1, 0, 3, 1]
    assert report["bytes"] == (landing.source / "2026/11/second.parquet").stat().st_size
    assert landing.rows().num_rows == 6


def test_the_log_has_the_statistics_of_the_footer(landing: Landing) -> None:
    [found] = landing.statistics().values()
    assert found["numRecords"] == 3
    assert found["nullCount"] == {
        "_rescued_data": 3,
        "id": 0,
        "name": 1,
        "at": 0,
        "price": 0,
        "share": 0,
        "place": {"city": 2, "zip": 2},
    }
    low, high = found["minValues"], found["maxValues"]
    assert (low["id"], high["id"], low["name"], high["name"]) == (0, 2, "n1", "n2")
    assert (low["at"], high["at"]) == ("2024-01-01T01:02:03.004Z", "2024-01-03T01:02:03.005Z")
    assert (low["price"], high["price"]) == (0.25, 2.25)
    assert low["place"] == {"city": "c", "zip": 1}
    assert "share" not in {**low, **high}  # a footer leaves NaN out of its bounds


def test_every_reader_reads_them_alike(landing: Landing) -> None:
    landing.add("a b/ü%41 [x].parquet", rows(10), compression="zstd")
    landing.add("narrow.parquet", pa.table({"id": pa.array([7], pa.int16())}))
    assert landing.run()["registered_files"] == 1
    table = DeltaTable(str(landing.target))
    query = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    found = landing.rows()
    for read in (pa.table(query), table.to_pyarrow_table(), read_by_duckdb(landing.target)):
        assert sorted(read["id"].to_pylist()) == sorted(found["id"].to_pylist())
        assert read.num_rows == 7
        assert sorted(map(str, read["price"].to_pylist())) == sorted(
            map(str, found["price"].to_pylist())
        )
    assert table.to_pyarrow_table(filters=[("id", ">", 10)]).num_rows == 2


_NARROW = rows(10).set_column(0, "id", pa.array([1, 2, 3], pa.int32()))
_LOWER = rows(10).rename_columns(["ID", *FITTING.names[1:]])
_NESTED = rows(10).set_column(
    5, "place", pa.array([{"city": "x"}] * 3, pa.struct([("city", pa.string())]))
)
_MILLIS = rows(10).set_column(2, "at", rows(10)["at"].cast(pa.timestamp("ms", "UTC"), safe=False))
COPIED: dict[str, tuple[pa.Table, dict[str, Any], str]] = {
    "a narrower type": (_NARROW, {}, "id has another type"),
    "another unit": (_MILLIS, {}, "at has another type"),
    "INT96": (rows(10), {"use_deprecated_int96_timestamps": True}, "at has another type"),
    "another case": (_LOWER, {}, "the stream has no column ID"),
    "another struct": (_NESTED, {}, "place has another type"),
    "an unknown field": (rows(10).append_column("more", pa.array([1, 2, 3])), {}, "no column more"),
    "names of lists": (rows(10), {"use_compliant_nested_type": False}, "tags has another type"),
    "brotli": (rows(10), {"compression": "brotli"}, "its compression BROTLI"),
    "an encoding": (
        rows(10),
        {"use_dictionary": False, "column_encoding": {"id": "BYTE_STREAM_SPLIT"}},
        "its encoding BYTE_STREAM_SPLIT",
    ),
    "rescued data": (
        rows(10).append_column("_rescued_data", pa.array(["x"] * 3)),
        {},
        "no column _rescued_data",
    ),
}


@pytest.mark.parametrize("name", COPIED)
def test_a_file_in_doubt_is_copied_and_the_log_says_why(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    table, how, why = COPIED[name]
    caplog.set_level(logging.INFO)
    one, other = Landing(tmp_path / "one"), Landing(tmp_path / "other", {})
    for stream in (one, other):
        stream.options["cloudFiles.schemaEvolutionMode"] = "rescue"
        stream.add("first.parquet", rows())
        stream.run()
        stream.add("second.parquet", table, **how)
        report = stream.run()
        if stream is one:
            assert (report["registered_files"], report["copied_files"]) == (0, 1)
            assert why in caplog.text
            assert "second.parquet" in caplog.text
    assert one.registered() == ["first.parquet"]
    assert multiset(one.rows(), one.target) == multiset(other.rows(), other.target)


def test_a_new_field_evolves_the_schema_as_ever(landing: Landing) -> None:
    landing.add("new.parquet", rows(10).append_column("more", pa.array([1, 2, 3])))
    with pytest.raises(UnknownFieldException, match="more"):
        ingested(landing.spec())
    assert landing.run()["registered_files"] == 1  # it is what the table is now
    assert landing.rows()["more"].to_pylist().count(None) == 3


def test_files_without_rows_are_files_that_were_read(landing: Landing) -> None:
    landing.add("none.parquet", rows(count=0))
    (landing.source / "empty.parquet").touch()
    report = landing.run()
    assert (report["files"], report["rows"]) == (2, 0)
    assert landing.registered() == ["first.parquet"]


def test_partitions_come_from_the_path_into_the_log(tmp_path: Path) -> None:
    landing = Landing(tmp_path, {**REFERENCE, "partitionBy": "day"})
    for day in ("day=2024-01-01", "day=2024-01-02", "day=__HIVE_DEFAULT_PARTITION__"):
        landing.add(f"{day}/a.parquet", rows())
    assert landing.run()["registered_files"] == 3
    values = {each.partition_values["day"] for each in landing.snapshot().files}
    assert values == {"2024-01-01", "2024-01-02", None}
    assert len(set(landing.rows()["day"].to_pylist())) == 3
    landing.add("day=today/b.parquet", rows(10))  # no date, where the column is one
    landing.add("c.parquet", rows(20))  # which has no day
    report = landing.run()
    text = report["schema"].split("day ")[1]
    assert report["registered_files"] == (1 if text.startswith("DATE") else 2)
    assert landing.rows()["day"].to_pylist().count(None) >= 6


def test_a_column_of_the_path_in_a_plain_table_is_written(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.add("day=1/a.parquet", rows())
    assert landing.run()["copied_files"] == 1
    assert landing.rows()["day"].to_pylist() == ["1"] * 3


def test_a_table_partitioned_by_a_column_of_the_files_takes_copies(tmp_path: Path) -> None:
    landing = Landing(tmp_path, {**REFERENCE, "partitionBy": "name"})
    landing.add("a.parquet", rows())
    assert landing.run()["copied_files"] == 1
    assert landing.rows().num_rows == 3


@pytest.mark.parametrize(("table", "registered"), [(rows(1, 2), 1), (rows(0, 1), 0)])
def test_a_column_that_is_not_null_is_checked_by_the_counts_of_the_footer(
    landing: Landing, table: pa.Table, registered: int
) -> None:
    _forbid_nulls(landing, "name")
    landing.add("second.parquet", table)
    if not registered:
        with pytest.raises(SchemaMismatchError, match="constraint violated for column: name"):
            ingested(landing.spec())
        assert (landing.source / "second.parquet").exists()
        return
    assert landing.run()["registered_files"] == 1


def _forbid_nulls(landing: Landing, column: str) -> None:
    """Give the table a column that is NOT NULL, as another writer would."""
    log = landing.target / "_delta_log"
    first = next(each for each in sorted(log.glob("*.json")) if "metaData" in each.read_text())
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    action = next(each for each in lines if "metaData" in each)
    schema = json.loads(action["metaData"]["schemaString"])
    for each in schema["fields"]:
        each["nullable"] = each["name"] != column
    action["metaData"]["schemaString"] = json.dumps(schema)
    (log / f"{len(list(log.glob('*.json'))):020}.json").write_text(json.dumps(action))


def test_only_the_ends_of_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = Landing(tmp_path)
    landing.add("first.parquet", rows())
    landing.run()
    wide = pa.table({"id": pa.array(range(400_000), pa.int64())})
    for number in range(5):
        landing.add(f"{number}.parquet", wide, use_dictionary=False, compression="none")
    sizes = sum(each.stat().st_size for each in landing.source.glob("[0-9].parquet"))
    asked: list[tuple[str, int]] = []
    read: Callable[..., bytes] = LocalStore.get_range

    def counted(store: LocalStore, key: str, start: int, length: int, **more: Any) -> bytes:
        asked.append((key, length))
        return read(store, key, start, length, **more)

    monkeypatch.setattr(LocalStore, "get_range", counted)
    assert landing.run()["registered_files"] == 5
    of_files = [each for each in asked if each[0].endswith(".parquet")]
    assert len(of_files) == 5
    assert sum(length for _, length in of_files) <= sizes // 100


def test_a_footer_longer_than_what_is_asked_for_takes_one_more_request(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    wide = pa.table({f"column_{number}": [number] for number in range(300)})
    path = landing.add("wide.parquet", wide)
    assert pq.read_metadata(path).serialized_size > 2**13
    assert landing.run()["registered_files"] == 1
