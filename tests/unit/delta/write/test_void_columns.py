"""Columns without a type are taken where Delta takes them: from batch writes, not from streams."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from tests.support.delta_tables import read, sorted_rows
from tests.support.delta_writes import Sink, merge_rows, read_by_all, write_dataframe

VOID = pa.table({"id": [1], "v": pa.nulls(1)})
NESTED = pa.table(
    [pa.array([1]), pa.array([{"x": 2, "v": None}], pa.struct([("x", "int64"), ("v", "null")]))],
    names=["id", "s"],
)
TYPED = pa.table({"id": [2], "v": ["a"]})


def _kinds(target: Path) -> dict[str, str]:
    return {each.name: str(each.type) for each in DeltaTable(target).schema().fields}


def test_a_new_table_gets_a_column_without_a_type_that_later_gets_one(tmp_path: Path) -> None:
    target = tmp_path / "t"
    write_dataframe(target, VOID)
    assert read(target).to_pylist() == [{"id": 1, "v": None}]
    write_dataframe(target, VOID)
    for uri in DeltaTable(target).file_uris():
        assert pq.read_schema(uri).names == ["id"], "files have no such column, as Delta's"
    with pytest.raises(SchemaMismatchError, match="v is void but string"):
        write_dataframe(target, TYPED)
    write_dataframe(target, TYPED, mergeSchema="true")
    assert sorted_rows(read_by_all(target)) == sorted_rows(pa.concat_tables(
        [VOID.cast(TYPED.schema), VOID.cast(TYPED.schema), TYPED]))  # fmt: skip


@pytest.mark.parametrize("partition_by", [(), ("id",)])
@pytest.mark.parametrize("mode", ["none", "name"])
def test_a_column_of_a_table_is_null_where_rows_have_no_type(
    tmp_path: Path, mode: str, partition_by: tuple[str, ...]
) -> None:
    target = tmp_path / "t"
    properties = {} if mode == "none" else {"delta.columnMapping.mode": mode}
    wide = TYPED.append_column("w", pa.array([1]))
    Sink(target, partition_by=partition_by, **properties).write(wide)
    rows = VOID.append_column("w", pa.array([7]))
    write_dataframe(target, rows)
    assert {(row["id"], row["v"]) for row in read(target).to_pylist()} == {(1, None), (2, "a")}
    again = rows.set_column(0, "id", pa.array([2]))
    merge_rows(target, 0, again, keys=("id",), void=True)
    assert {(row["id"], row["v"]) for row in read(target).to_pylist()} == {(1, None), (2, None)}
    write_dataframe(target, rows, replaceWhere="w = 7")
    assert {(row["id"], row["v"]) for row in read(target).to_pylist()} == {(1, None)}


def test_fields_of_structs_have_none_either(tmp_path: Path) -> None:
    target = tmp_path / "t"
    write_dataframe(target, NESTED)
    assert read(target).to_pylist() == NESTED.to_pylist()
    [uri] = DeltaTable(target).file_uris()
    assert [each.name for each in pq.read_schema(uri).field("s").type] == ["x"]
    write_dataframe(target, NESTED)
    optimize(str(target))
    assert read(target).to_pylist() == NESTED.to_pylist() * 2


def test_a_table_is_overwritten_with_such_columns(tmp_path: Path) -> None:
    target = tmp_path / "t"
    Sink(target).write(TYPED)
    write_dataframe(target, VOID, overwriteSchema="true")
    assert read(target).to_pylist() == VOID.to_pylist()


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.null()), pa.map_(pa.string(), pa.null()), pa.list_(NESTED["s"].type)]
)
def test_elements_and_values_without_a_type_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    rows = pa.table({"id": [1], "v": pa.nulls(1, kind)})
    with pytest.raises(SchemaMismatchError, match=r"Column v\..* has no type \(void\)"):
        write_dataframe(tmp_path / "t", rows)


def test_streams_are_refused_as_by_delta(tmp_path: Path) -> None:  # B129
    for rows in (VOID, NESTED):
        with pytest.raises(SchemaMismatchError, match=r"has no type \(void\)"):
            Sink(tmp_path / "t").write(rows)
