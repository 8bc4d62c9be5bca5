"""Columns are renamed, dropped and added without a file being written, and streams go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import (
    OptionError,
    SchemaMismatchError,
    SinkError,
    TargetChangedError,
)
from airflow_cloudfiles.engine.extensions.upkeep.alter import (
    add_column,
    drop_column,
    rename_column,
    set_properties,
)
from airflow_cloudfiles.engine.tables.delta.merge_schema import SOURCE_NAME
from airflow_cloudfiles.engine.tables.delta.read.columns import ID, PHYSICAL_NAME
from tests.support.delta_tables import read, sorted_rows
from tests.support.delta_writes import Sink, read_by_all, read_by_another, snapshot_of

INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", INNER),
        ("l", pa.list_(INNER)),
        ("m", pa.map_(pa.string(), INNER)),
    ]
)
ONE = {"x": 1, "y": "a"}
ROW = {"id": 1, "s": ONE, "l": [ONE, None], "m": [("k", ONE)]}
MODES = ["name", "id"]


def _fields(target: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(snapshot_of(target).metadata.schema_string)["fields"]
    return found


def _log(target: Path) -> list[list[dict[str, Any]]]:
    return [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted((target / "_delta_log").glob("*.json"))
    ]


def _kinds(target: Path) -> list[str]:
    return [key for line in _log(target)[-1] for key in line]


@pytest.mark.parametrize("mode", MODES)
def test_a_mapped_table_is_created_and_appended_to_at_any_depth(tmp_path: Path, mode: str) -> None:
    target = tmp_path / "t"
    sink = Sink(target, delta_columnMapping_mode=mode)
    sink.write([ROW], SCHEMA)
    grown = pa.struct([*INNER, ("new", pa.int8())])
    more = {**ONE, "new": 7}
    wide = pa.schema(
        [
            ("extra", pa.string()),
            ("l", pa.list_(grown)),
            ("ID", pa.int16()),
            ("s", grown),
            ("m", pa.map_(pa.string(), grown)),
        ]
    )
    sink.write([{"extra": "e", "l": [more], "ID": 2, "s": more, "m": [("k", more)]}], wide)
    # `deltalake` (1.6) reads no map whose values have got a field, mapped or not.
    found = sorted(read_by_all(target, deltalake=False).to_pylist(), key=lambda row: row["id"])
    old = {**ONE, "new": None}
    assert found == [
        {"id": 1, "s": old, "l": [old, None], "m": [("k", old)], "extra": None},
        {"id": 2, "s": more, "l": [more], "m": [("k", more)], "extra": "e"},
    ]
    metadata = snapshot_of(target).metadata
    ids = _ids(json.loads(metadata.schema_string))
    assert sorted(ids) == list(range(1, len(ids) + 1)), "each once"
    assert metadata.property("delta.columnMapping.maxColumnId") == str(len(ids))


def _ids(kind: Any) -> list[int]:
    """All column ids in a schema."""
    if isinstance(kind, list):
        return [each for one in kind for each in _ids(one)]
    if not isinstance(kind, dict):
        return []
    own = [kind["metadata"][ID]] if ID in kind.get("metadata", {}) else []
    return own + [each for key, one in kind.items() if key != "metadata" for each in _ids(one)]


@pytest.mark.parametrize("mode", MODES)
def test_files_have_physical_names_ids_and_statistics(tmp_path: Path, mode: str) -> None:
    target = tmp_path / "t"
    Sink(target, delta_columnMapping_mode=mode).write([ROW], SCHEMA)
    [file] = snapshot_of(target).files
    columns = {each["metadata"][PHYSICAL_NAME]: each for each in _fields(target)}
    assert all(name.startswith("col-") for name in columns)
    schema = pq.read_schema(target / file.path)
    assert set(schema.names) == set(columns)
    for each in schema:
        wanted = columns[each.name]["metadata"][ID]
        assert each.metadata[b"PARQUET:field_id"] == str(wanted).encode()
    inside = schema.field(next(name for name, each in columns.items() if each["name"] == "s")).type
    [x, _] = next(each for each in _fields(target) if each["name"] == "s")["type"]["fields"]
    assert inside.field(0).name == x["metadata"][PHYSICAL_NAME]
    [add] = [line["add"] for line in _log(target)[-1] if "add" in line]
    id_name = next(name for name, each in columns.items() if each["name"] == "id")
    s_name = next(name for name, each in columns.items() if each["name"] == "s")
    low = json.loads(add["stats"])["minValues"]
    assert low[id_name] == 1
    assert low[s_name].keys() == {inside.field(0).name, inside.field(1).name}


@pytest.mark.parametrize("mode", MODES)
def test_a_renamed_column_does_not_break_the_ingest_that_feeds_it(
    tmp_path: Path, mode: str
) -> None:
    target = tmp_path / "t"
    sink = Sink(target, delta_columnMapping_mode=mode)
    sink.write([ROW], SCHEMA)
    files = sorted(target.rglob("*.parquet"))
    assert rename_column(str(target), "ID", "key").version == 2
    rename_column(str(target), "s.x", "z")
    rename_column(str(target), "l.element.y", "text")
    rename_column(str(target), "m.value.y", "word")
    assert sorted(target.rglob("*.parquet")) == files, "no file was written"
    assert _kinds(target) == ["commitInfo", "metaData"]
    sink.write([{**ROW, "id": 2}], SCHEMA)
    Sink(target, app="another machine").write([{**ROW, "id": 3}], SCHEMA)
    rows = [
        {
            "key": number,
            "s": {"z": 1, "y": "a"},
            "l": [{"x": 1, "text": "a"}, None],
            "m": [("k", {"x": 1, "word": "a"})],
        }
        for number in (1, 2, 3)
    ]
    found = read_by_all(target)
    assert sorted(found.to_pylist(), key=lambda row: row["key"]) == rows
    assert not found.schema.field("key").metadata, "notes of ours are not shown"
    earlier = read(target, 1)
    assert earlier.column_names == SCHEMA.names, "as it was before"


def test_a_stream_may_bring_the_new_name_too_but_not_both(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, delta_columnMapping_mode="name")
    sink.write(pa.table({"a": [1], "b": [1]}))
    rename_column(str(target), "a", "c")
    sink.write(pa.table({"c": [2], "b": [2]}))
    with pytest.raises(SchemaMismatchError, match="Columns a and c both feed column c"):
        sink.write(pa.table({"a": [3], "c": [3], "b": [3]}))
    rename_column(str(target), "b", "x")
    rename_column(str(target), "c", "b")
    sink.write(pa.table({"a": [4], "b": [5]}))
    found = sorted(read_by_all(target).to_pylist(), key=lambda row: row["b"])
    assert found == [{"b": 1, "x": 1}, {"b": 2, "x": 2}, {"b": 4, "x": 5}], "also when swapped"


def test_a_dropped_column_is_gone_and_comes_back_empty(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, delta_columnMapping_mode="name")
    table = pa.table({"a": [1], "b": ["old"], "s": [{"x": 1, "y": 2}]})
    sink.write(table)
    files = sorted(target.rglob("*.parquet"))
    dry = drop_column(str(target), "b", dry_run=True)
    assert (dry.version, dry.after) == (None, "a BIGINT, s STRUCT<x: BIGINT, y: BIGINT>")
    assert "b" in read(target).column_names
    drop_column(str(target), "b")
    drop_column(str(target), "s.y")
    assert sorted(target.rglob("*.parquet")) == files
    assert read_by_all(target).to_pylist() == [{"a": 1, "s": {"x": 1}}]
    with pytest.raises(SchemaMismatchError, match="lacks"):
        Sink(target, app="strict", merge_schema=False).write(table)
    sink.write(table)
    found = read_by_all(target).to_pylist()
    assert sorted(found, key=lambda row: str(row["b"])) == [
        {"a": 1, "s": {"x": 1, "y": None}, "b": None},
        {"a": 1, "s": {"x": 1, "y": 2}, "b": "old"},
    ], "values of the dropped column do not come back"
    drop_column(str(target), "a")
    drop_column(str(target), "b")
    with pytest.raises(SchemaMismatchError, match="the only one"):
        drop_column(str(target), "s")


@pytest.mark.parametrize("mode", ["none", *MODES])
def test_columns_are_added_in_any_mode(tmp_path: Path, mode: str) -> None:
    target = tmp_path / "t"
    sink = Sink(target, delta_columnMapping_mode=mode)
    sink.write([ROW], SCHEMA)
    add_column(str(target), "price DECIMAL(10,2)")
    add_column(str(target), "s.z BIGINT")
    add_column(str(target), "l.element.z BIGINT")
    added = add_column(str(target), "local TIMESTAMP_NTZ")
    assert added.features[-1:] == ("timestampNtz",)
    with pytest.raises(SchemaMismatchError, match="a column PRICE already"):
        add_column(str(target), "PRICE INT")
    with pytest.raises(SchemaMismatchError, match="cannot be added inside"):
        add_column(str(target), "id.x INT")
    with pytest.raises(SchemaMismatchError, match="has no column nothing"):
        add_column(str(target), "nothing.x INT")
    sink.write([{**ROW, "id": 2}], SCHEMA)
    inner = {**ONE, "z": None}
    one, two = sorted(read_by_all(target).to_pylist(), key=lambda row: row["id"])
    assert one["s"] == two["s"] == inner
    assert one["l"] == [inner, None]
    assert one["price"] is None


def test_a_table_gets_column_mapping_and_its_files_stay_readable(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target)
    sink.write([ROW], SCHEMA)
    with pytest.raises(SinkError, match=r"set-property .* delta\.columnMapping"):
        rename_column(str(target), "id", "key")
    found = set_properties(str(target), {"delta.columnMapping.mode": "name", "owner": "me"})
    assert "columnMapping" in found.features
    assert dict(found.properties or {}) == {"delta.columnMapping.mode": "name", "owner": "me"}
    assert [each["metadata"][PHYSICAL_NAME] for each in _fields(target)] == SCHEMA.names
    protocol = snapshot_of(target).protocol
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert set(protocol.writer_features or ()) == {"appendOnly", "columnMapping", "invariants"}
    again = set_properties(str(target), {"delta.columnMapping.mode": "name"})
    assert again.version is None, "it is like that already"
    rename_column(str(target), "id", "key")
    sink.write([{**ROW, "id": 2}], SCHEMA)
    assert sorted(read_by_all(target)["key"].to_pylist()) == [1, 2]
    with pytest.raises(OptionError, match="is name, and cannot become none"):
        set_properties(str(target), {"delta.columnMapping.mode": "none"})


def test_a_partition_column_is_renamed_but_not_dropped(tmp_path: Path) -> None:
    target = tmp_path / "t"
    table = pa.table({"p": ["a b", None, "c"], "v": [1, 2, 3]})
    sink = Sink(target, partition_by=("p",), delta_columnMapping_mode="name")
    sink.write(table)
    rename_column(str(target), "p", "part")
    sink.write(table)
    expected = pa.concat_tables([table, table]).rename_columns(["part", "v"])
    assert sorted_rows(read_by_all(target)) == sorted_rows(expected)
    assert snapshot_of(target).metadata.partition_columns == ["part"]
    with pytest.raises(SchemaMismatchError, match="partitioned by part"):
        drop_column(str(target), "part")


def test_files_written_before_a_change_of_ids_are_not_committed(tmp_path: Path) -> None:
    """Both streams add a column, and give it the same id; the later one writes its files anew."""
    target = tmp_path / "t"
    Sink(target, delta_columnMapping_mode="id").write(pa.table({"a": [1]}))
    one, two = Sink(target, app="one"), Sink(target, app="two")
    first, second = pa.table({"a": [2], "x": ["x"]}), pa.table({"a": [3], "y": [True]})
    one.batch = two.batch = 0
    written = one.task(first), two.task(second)
    one.commit(*written[0], first.schema)
    with pytest.raises(TargetChangedError) as told:
        two.commit(*written[1], second.schema)
    assert told.value.is_retryable
    assert not two.repeat(second).version < 0
    found = sorted(read_by_all(target).to_pylist(), key=lambda row: row["a"])
    assert found == [
        {"a": 1, "x": None, "y": None},
        {"a": 2, "x": "x", "y": None},
        {"a": 3, "x": None, "y": True},
    ]
    assert len(list(target.glob("*.parquet"))) == 3, "the files of the first try are gone"


def test_a_rename_between_task_and_commit_does_not_matter(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, delta_columnMapping_mode="name")
    table = pa.table({"a": [1]})
    sink.write(table)
    sink.batch = 1
    written = sink.task(table)
    rename_column(str(target), "a", "b")
    sink.commit(*written, table.schema)
    assert read_by_all(target)["b"].to_pylist() == [1, 1]


def test_properties_that_cannot_be_set_are_refused_by_name(tmp_path: Path) -> None:
    target = tmp_path / "t"
    Sink(target).write(pa.table({"a": [1]}))
    for properties, says in (
        ({"delta.enableRowTracking": "true"}, "delta.enableRowTracking cannot be set here"),
        ({"delta.appendOnly": "yes"}, "must be true or false"),
        ({"delta.columnMapping.mode": "id"}, "is none, and cannot become id"),
        ({}, "No property"),
    ):
        with pytest.raises(OptionError, match=says):
            set_properties(str(target), properties)
    assert DeltaTable(str(target)).version() == 1


def test_an_option_for_another_mapping_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "t"
    table = pa.table({"a": [1]})
    Sink(target).write(table)
    with pytest.raises(SchemaMismatchError, match="set-property"):
        Sink(target, app="b", delta_columnMapping_mode="name").write(table)


# The example of the article "Table file formats - Schema evolution: Delta Lake".
def test_the_log_after_a_rename_is_the_articles(tmp_path: Path) -> None:
    target = tmp_path / "t"
    numbers = pa.table(
        {name: pa.array([0, 1, 2], pa.int32()) for name in ("id", "multiplication_result")}
    )
    sink = Sink(target)
    sink.write(numbers)
    set_properties(str(target), {"delta.columnMapping.mode": "name"})
    rename_column(str(target), "multiplication_result", "result")
    metadata = _log(target)[-1][-1]["metaData"]
    noted = {SOURCE_NAME: "multiplication_result"}
    assert json.loads(metadata["schemaString"]) == {
        "type": "struct",
        "fields": [
            {
                "name": "id",
                "type": "integer",
                "nullable": True,
                "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"},
            },
            {
                "name": "result",
                "type": "integer",
                "nullable": True,
                "metadata": {
                    "delta.columnMapping.id": 2,
                    "delta.columnMapping.physicalName": "multiplication_result",
                    **noted,
                },
            },
        ],
    }
    assert metadata["configuration"] == {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "2",
    }
    with_result = pa.table({"id": numbers["id"], "result": pa.array([0, 3, 6], pa.int32())})
    sink.write(with_result)
    for file in snapshot_of(target).files:
        assert pq.read_schema(target / file.path).names == ["id", "multiplication_result"]
    assert read_by_all(target).column_names == ["id", "result"]


@pytest.mark.parametrize("mode", MODES)
def test_partition_values_are_under_physical_names_as_the_protocol_has_it(
    tmp_path: Path, mode: str
) -> None:
    target = tmp_path / "t"
    rows = [{"id": 1, "day": "a"}, {"id": 2, "day": None}]
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    Sink(target, partition_by=("day",), delta_columnMapping_mode=mode).write(rows, schema)
    physical = _fields(target)[1]["metadata"][PHYSICAL_NAME]
    assert physical != "day"
    added = [line["add"] for line in _log(target)[-1] if "add" in line]
    assert [each["partitionValues"] for each in added] == [{physical: "a"}, {physical: None}]
    assert sorted_rows(read(target)) == sorted_rows(pa.Table.from_pylist(rows, schema))
    assert sorted_rows(read_by_another(target)) == sorted_rows(read(target))


def test_a_partitioned_table_that_becomes_mapped_is_read_by_all(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, partition_by=("day",))
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    sink.write([{"id": 1, "day": "a"}], schema)
    set_properties(str(target), {"delta.columnMapping.mode": "name"})
    sink.write([{"id": 2, "day": "b"}], schema)
    assert read_by_all(target).num_rows == 2
