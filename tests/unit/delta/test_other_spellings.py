"""Files that spell columns in another case, as Hive does, are read (CONVERT TO DELTA)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from tests.support.delta_tables import MAPPED, HandMadeTable, column, read, sorted_rows
from tests.support.delta_writes import ANY_SIZE, Sink, merge_rows, read_by_all, write_dataframe
from tests.support.table_streams import Query

INNER = {"type": "struct", "fields": [column("Size", "integer")]}
COLUMNS = [
    column("Market", "string"),
    column("Id", "integer"),
    column("In", INNER),
    column("Many", {"type": "array", "elementType": INNER, "containsNull": True}),
    column("By", {"type": "map", "keyType": "string", "valueType": INNER,
                  "valueContainsNull": True}),
]  # fmt: skip
ROWS = [
    {"Market": name, "Id": number, "In": {"Size": number}, "Many": [{"Size": number}, None],
     "By": [(name, {"Size": number})]}
    for number, name in enumerate("abcd")
]  # fmt: skip
KEYS = pa.schema([("Id", pa.int32()), ("Market", pa.string())])


def _lowered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.lower(): _lowered(each) for key, each in value.items()}
    return [_lowered(each) for each in value] if isinstance(value, list) else value


def _in_hive(rows: list[dict[str, Any]]) -> pa.Table:
    size = pa.struct([("size", pa.int32())])
    kinds = {"market": pa.string(), "id": pa.int32(), "in": size, "many": pa.list_(size)}
    pairs = [[(key, _lowered(each)) for key, each in row["By"]] for row in rows]
    table = pa.Table.from_pylist([_lowered(row) for row in rows], pa.schema(kinds))
    return table.append_column("by", pa.array(pairs, pa.map_(pa.string(), size)))


def _converted(folder: Path) -> HandMadeTable:
    made = HandMadeTable(folder)
    files = [made.file(f"{n}.parquet", _in_hive(ROWS[n : n + 2])) for n in (0, 2)]
    made.create(*files, columns=COLUMNS)
    return made


def test_batches_and_streams_read_their_rows(tmp_path: Path) -> None:
    made = _converted(tmp_path / "t")
    assert read(tmp_path / "t").to_pylist() == ROWS
    query = Query(tmp_path / "t", tmp_path / "state")
    assert query.run() == ROWS
    made.commit(made.file("2.parquet", _in_hive(ROWS[:1])))
    assert query.run() == ROWS[:1]


def test_files_that_are_written_anew_keep_their_rows(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _converted(target)
    assert optimize(str(target)).removed_files == 2
    assert sorted_rows(read_by_all(target)) == sorted(map(repr, ROWS))


def test_a_table_that_is_widened_keeps_their_rows(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _converted(target)
    sink = Sink(target, widening=ANY_SIZE)
    sink.write(pa.table({"Id": pa.array([2**40])}))
    ids = [2**40, *(row["Id"] for row in ROWS)]
    assert sorted(read_by_all(target)["Id"].to_pylist()) == sorted(ids)
    assert {row["Market"] for row in read(target).to_pylist()} == {*"abcd", None}


def test_rows_are_changed_once_their_files_are_written_anew(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _converted(target)
    new = pa.Table.from_pylist([{"Id": 1, "Market": "z"}], KEYS)
    for change in (
        lambda: merge_rows(target, 0, new, keys=("Id",)),
        lambda: write_dataframe(target, new, replaceWhere="Id = 1"),
    ):
        with pytest.raises(SinkError, match="has market where the table has Market"):
            change()
    assert read(target).to_pylist() == ROWS, "nothing has happened"
    optimize(str(target), all_files=True)
    merge_rows(target, 1, new, keys=("Id",))
    found = {row["Id"]: row["Market"] for row in read_by_all(target).to_pylist()}
    assert found == {0: "a", 1: "z", 2: "c", 3: "d"}


@pytest.mark.parametrize("key", ["day", "DAY", "Day"])
def test_partition_values_are_found_in_another_case(tmp_path: Path, key: str) -> None:
    made = HandMadeTable(tmp_path / "t")
    file = made.file("a.parquet", {"market": ["a"]}, partition={key: "2024-01-01"})
    made.create(file, columns=[column("Market", "string"), column("Day", "string")],
                partitions=("dAY",))  # fmt: skip
    expected = [{"Market": "a", "Day": "2024-01-01"}]
    assert read(tmp_path / "t").to_pylist() == expected
    assert Query(tmp_path / "t", tmp_path / "state").run() == expected


def test_a_name_that_is_the_same_goes_before_one_in_another_case(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(
        made.file("a.parquet", {"s": ["no"], "S": ["yes"]}), columns=[column("S", "string")]
    )
    assert read(tmp_path / "t").to_pylist() == [{"S": "yes"}]


def test_two_names_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    file = made.file("a.parquet", {"ab": ["x"], "AB": ["y"]})
    made.create(file, columns=[column("Ab", "string")])
    with pytest.raises(SinkError, match=r"duplicate fields .*ab.*AB.* in the data file a.parquet"):
        read(tmp_path / "t")


def test_physical_names_are_found_in_another_case(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    columns = [column("Renamed", "string", 1)]
    columns[0]["metadata"]["delta.columnMapping.physicalName"] = "Market"
    made.create(
        made.file("a.parquet", {"market": ["a"]}),
        columns=columns,
        protocol=MAPPED,
        delta_columnMapping_mode="name",
    )
    assert read(tmp_path / "t").to_pylist() == [{"Renamed": "a"}]


def test_a_file_that_cannot_be_read_is_for_others_to_name(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target)
    for number in range(2):
        sink.write(pa.Table.from_pylist([{"Id": number, "Market": "a"}], KEYS))
    [path] = [
        each for each in DeltaTable(target).file_uris() if pq.read_table(each)["Id"][0].as_py()
    ]
    Path(path).write_bytes(b"x" * Path(path).stat().st_size)
    merge_rows(target, 0, pa.Table.from_pylist([{"Id": 0, "Market": "b"}], KEYS), keys=("Id",))


def test_files_of_this_package_are_not_looked_at_in_vain(tmp_path: Path) -> None:
    target = tmp_path / "t"
    Sink(target).write(pa.Table.from_pylist([{"Id": 1, "Market": "a"}], KEYS))
    merge_rows(target, 0, pa.Table.from_pylist([{"Id": 1, "Market": "b"}], KEYS), keys=("id",))
    [path] = DeltaTable(target).file_uris()
    assert pq.read_table(path).to_pylist() == [{"Id": 1, "Market": "b"}]
