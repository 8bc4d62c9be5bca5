"""Which tables a batch is merged into: partitioned, mapped, with other names and types, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import CloudFilesError, SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.extensions.merge.commit import merge_batch
from airflow_cloudfiles.engine.extensions.merge.source_rows import MergeRule
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter, FileSettings
from airflow_cloudfiles.engine.tables.delta.read.log import STAGED
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules, create_table
from tests.support.delta_tables import read, sorted_rows
from tests.support.delta_writes import read_by_another

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def _merge(
    target: Path, number: int, rows: list[Any], schema: pa.Schema = SCHEMA, **rule: Any
) -> None:
    dicts = [dict(zip(schema.names, row, strict=True)) for row in rows]
    files = DataFileWriter(str(target), schema, FileSettings(folder=STAGED)).write(
        [pa.RecordBatch.from_pylist(dicts, schema)]
    )
    merge_batch(
        str(target),
        rule=MergeRule((schema.names[0],), **rule),
        batch=BatchId("stream", number),
        files=files,
        schema=schema,
        rules=WriteRules(merge_schema=True),
    )


def _rows(target: Path) -> list[tuple[Any, ...]]:
    assert sorted_rows(read(target)) == sorted_rows(read_by_another(target))
    return sorted(tuple(row[name] for name in ("id", "v")) for row in read(target).to_pylist())


@pytest.mark.parametrize(
    "new",
    [
        WriteRules(partition_by=("v",)),
        WriteRules(properties={"delta.columnMapping.mode": "name"}),
        WriteRules(properties={"delta.columnMapping.mode": "id"}),
        WriteRules(partition_by=("v",), properties={"delta.columnMapping.mode": "name"}),
        WriteRules(partition_by=("v",), properties={"delta.columnMapping.mode": "id"}),
    ],
)
def test_partitioned_and_mapped_tables_are_merged_into(tmp_path: Path, new: WriteRules) -> None:
    target = tmp_path / "t"
    create_table(str(target), SCHEMA, new)
    _merge(target, 0, [(1, "a b"), (2, "a b"), (3, "%=/")])
    _merge(target, 1, [(1, "c d"), (4, "a b")])
    assert _rows(target) == [(1, "c d"), (2, "a b"), (3, "%=/"), (4, "a b")]


def test_names_in_another_case_and_narrower_types_fit(tmp_path: Path) -> None:
    target = tmp_path / "t"
    DeltaTable.create(target, SCHEMA)
    schema = pa.schema([("ID", pa.int32()), ("V", pa.string())])
    _merge(target, 0, [(1, "a"), (2, "a")], schema)
    _merge(target, 1, [(1, "b")], schema)
    assert _rows(target) == [(1, "b"), (2, "a")]


def test_a_null_in_a_not_null_column_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "t"
    DeltaTable.create(target, pa.schema([SCHEMA[0], SCHEMA[1].with_nullable(False)]))
    _merge(target, 0, [(1, "a")])
    for rows in ([(1, None)], [(2, None)]):
        with pytest.raises(SchemaMismatchError, match="NOT NULL constraint violated for column: v"):
            _merge(target, 1, rows)
    with pytest.raises(SinkError, match="failed validation check"):
        _merge(target, 1, [(2, None)], when_matched="ignore")
    assert _rows(target) == [(1, "a")]
    _merge(target, 1, [(1, None), (2, None)], when_matched="delete", when_not_matched="ignore")
    assert not _rows(target)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (WriteRules(properties={"delta.enableTypeWidening": "true"}), "table features"),
        (WriteRules(properties={"delta.appendOnly": "true"}), "delta.appendOnly=true"),
    ],
)
def test_other_tables_are_refused_by_name(tmp_path: Path, new: WriteRules, reason: str) -> None:
    target = tmp_path / "t"
    create_table(str(target), SCHEMA, new)
    with pytest.raises(SinkError, match=reason):
        _merge(target, 0, [(1, "a")])
    assert not list((target / STAGED).glob("*"))


@pytest.mark.parametrize(
    ("rows", "rule", "reason"),
    [
        ([(1, "a", 1), (1, "b", 2)], {}, "1 row of the batch has the keys of another"),
        ([(None, "a", 1)], {}, "1 row of the batch has no id"),
        ([(1, "a", 1)], {"order_by": "seen"}, "mergeOrderBy names"),
        ([(1, "a", 1)], {"delete_when": "op = 'D'"}, "mergeDeleteWhen"),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_refused_merge_leaves_the_version_of_the_table(
    tmp_path: Path, rows: list[Any], rule: dict[str, str], reason: str, *, is_there: bool
) -> None:
    target = tmp_path / "t"
    if is_there:
        create_table(str(target), SCHEMA, WriteRules())
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    with pytest.raises(CloudFilesError, match=reason):
        _merge(target, 0, rows, wider, **rule)
    if is_there:
        assert DeltaTable(target).version() == 0
    else:
        assert not DeltaTable.is_deltatable(str(target))
    assert not list((target / STAGED).glob("*"))
    _merge(target, 0, [(1, "a", 1)], wider)
    assert [each.name for each in DeltaTable(target).schema().fields] == ["id", "v", "more"]


def test_a_refused_table_is_not_given_columns(tmp_path: Path) -> None:
    target = tmp_path / "t"
    create_table(str(target), SCHEMA, WriteRules(properties={"delta.appendOnly": "true"}))
    with pytest.raises(SinkError, match=r"delta\.appendOnly=true"):
        _merge(target, 0, [(1, "a", 1)], SCHEMA.append(pa.field("more", pa.int64())))
    assert DeltaTable(target).version() == 0


def test_a_null_in_a_not_null_column_gives_the_table_no_columns(tmp_path: Path) -> None:
    target = tmp_path / "t"
    DeltaTable.create(target, pa.schema([SCHEMA[0], SCHEMA[1].with_nullable(False)]))
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    with pytest.raises(SchemaMismatchError, match="NOT NULL constraint violated for column: v of"):
        _merge(target, 0, [(1, "a", 1), (2, None, 1)], wider)
    assert DeltaTable(target).version() == 0
    assert not list((target / STAGED).glob("*"))
    _merge(target, 0, [(1, "a", 1), (2, None, 2)], wider, delete_when="more = 2")
    assert _rows(target) == [(1, "a")]


def test_a_null_in_a_not_null_field_gives_the_table_no_columns(tmp_path: Path) -> None:
    target = tmp_path / "t"
    inside = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.int64())])
    DeltaTable.create(target, pa.schema([SCHEMA[0], pa.field("s", inside)]))
    wider = pa.schema([SCHEMA[0], ("S", pa.struct([("z", pa.int64()), ("x", pa.int64())]))])
    refused = [(1, {"z": 1, "x": 1}), (2, None), (3, {"z": 1, "x": None})]
    with pytest.raises(SchemaMismatchError, match=r"column: s\.x of .*: 1 of 2 rows has"):
        _merge(target, 0, refused, wider)
    assert DeltaTable(target).version() == 0
    _merge(target, 0, refused[:2], wider)
    rows = sorted(read(target).to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "s": {"x": 1, "y": None, "z": 1}}, {"id": 2, "s": None}]


def test_nested_values_get_the_fields_of_the_table(tmp_path: Path) -> None:
    target = tmp_path / "t"
    of_table = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.string())])
    of_rows = pa.struct([("z", pa.string()), ("X", pa.int32())])
    fields = ["s", "l", "m"]

    def schema(inside: pa.DataType) -> pa.Schema:
        kinds = [inside, pa.list_(inside), pa.map_(pa.string(), inside)]
        return pa.schema([SCHEMA[0], *zip(fields, kinds, strict=True)])

    DeltaTable.create(target, schema(of_table))
    value = {"z": "a", "X": 1}
    _merge(
        target,
        0,
        [(1, value, [value, None], [("k", value)]), (2, None, None, None), (3, value, [], [])],
        schema(of_rows),
    )
    got = {"x": 1, "y": None, "z": "a"}
    assert sorted(read(target).to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "s": got, "l": [got, None], "m": [("k", got)]},
        {"id": 2, "s": None, "l": None, "m": None},
        {"id": 3, "s": got, "l": [], "m": []},
    ]
    assert sorted_rows(read(target)) == sorted_rows(read_by_another(target))
