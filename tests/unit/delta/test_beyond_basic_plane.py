"""Characters of every plane are the same to three readers, wherever the log of a table has them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.extensions.upkeep.alter import add_column, rename_column
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.write.log_commit import write_unescaped, write_version
from tests.support.delta_tables import (
    HandMadeTable,
    column,
    duckdb_session,
    features,
    read,
    removed,
    sorted_rows,
)
from tests.support.delta_writes import (
    Sink,
    merge_rows,
    read_by_all,
    read_by_another,
    write_dataframe,
)

PLANES = [f"{chr(plane * 0x10000 + 0xBB7)}野家" for plane in range(17)]
"""A text of each plane: the second begins with U+20BB7."""
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def _table(version: int = 0) -> pa.Table:
    return pa.table({"k": PLANES, "v": [version] * len(PLANES)}, SCHEMA)


def _require_found(target: Path, rows: int = 1) -> None:
    """Each text is found by filters, which skip files by bounds and partition values."""
    builder = QueryBuilder().register("t", DeltaTable(target))
    with duckdb_session() as session:
        for text in PLANES:
            query = f"SELECT count(*) FROM delta_scan('{target}') WHERE k = ?"
            assert session.execute(query, [text]).fetchall() == [(rows,)], hex(ord(text[0]))
            found = builder.execute(f"SELECT count(*) AS n FROM t WHERE k = '{text}'").read_all()
            assert pa.table(found)["n"].to_pylist() == [rows]


def _by_file(sink: Sink) -> None:
    for row in _table().to_pylist():
        sink.write([row], SCHEMA)


def _escape(target: Path) -> None:
    """Make the log as version 0.1.0 wrote it."""
    for entry in (target / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
        for each in actions:
            if stats := each.get("add", {}).get("stats"):
                each["add"]["stats"] = json.dumps(json.loads(stats))
        entry.write_text("".join(json.dumps(each) + "\n" for each in actions), "utf-8")


@pytest.mark.parametrize("mode", ["none", "name"])
@pytest.mark.parametrize("partition_by", [(), ("k",)])
def test_keys_of_every_plane_are_found_merged_and_replaced(
    tmp_path: Path, partition_by: tuple[str, ...], mode: str
) -> None:
    target = tmp_path / "t"
    properties = {} if mode == "none" else {"delta.columnMapping.mode": mode}
    _by_file(Sink(target, partition_by=partition_by, **properties))
    if mode == "none":
        _require_found(target)
    merge_rows(target, 100, _table(1), keys=("k",))
    read_by_another(target)
    assert sorted(read(target).to_pylist(), key=str) == sorted(_table(1).to_pylist(), key=str)
    row = pa.table({"k": PLANES[2:3], "v": [2]}, SCHEMA)
    write_dataframe(target, row, replaceWhere=f"k = '{PLANES[2]}'")
    assert sorted(read(target)["v"].to_pylist()) == [1] * 16 + [2]
    if mode == "none":
        read_by_all(target)


def test_partitions_stay_when_files_are_written_together(tmp_path: Path) -> None:
    target = tmp_path / "t"
    for app in ("one", "two"):
        sink = Sink(target, app=app, partition_by=("k",))
        sink.write(_table())
    assert optimize(str(target)).removed_files == 2 * len(PLANES)
    assert len(read_by_all(target)) == 2 * len(PLANES)
    _require_found(target, rows=2)
    DeltaTable(target).create_checkpoint()
    _require_found(target, rows=2)


def test_an_append_to_a_table_that_widens_keeps_its_partitions(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, partition_by=("k",), **{"delta.enableTypeWidening": "true"})
    sink.write(_table())
    assert len(read_by_all(target, deltalake=False)) == len(PLANES)


def test_names_and_properties_are_those_of_every_plane(tmp_path: Path) -> None:
    target, name = tmp_path / "t", PLANES[2]
    properties = {"delta.columnMapping.mode": "name", "note": name}
    sink = Sink(target, partition_by=("p",), **properties)
    sink.write([{"p": "a", "v": 1}])
    rename_column(str(target), "p", name)
    add_column(str(target), f"`{PLANES[4]}` STRING")
    table = DeltaTable(target)
    assert table.metadata().partition_columns == [name]
    assert table.metadata().configuration["note"] == name
    assert [each.name for each in table.schema().fields] == [name, "v", PLANES[4]]
    assert read_by_another(target).to_pylist() == [{name: "a", "v": 1, PLANES[4]: None}]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_escapes_of_an_earlier_version_are_written_anew_before_a_merge(
    tmp_path: Path, *, has_checkpoint: bool
) -> None:
    target = tmp_path / "t"
    _by_file(Sink(target))
    _escape(target)
    if has_checkpoint:
        DeltaTable(target).create_checkpoint()
    with pytest.raises(AssertionError):
        _require_found(target)
    merge_rows(target, 100, _table(1), keys=("k",))
    _require_found(target)
    assert read_by_all(target)["v"].to_pylist() == [1] * len(PLANES)
    versions = DeltaTable(target).version()
    merge_rows(target, 101, _table(2), keys=("k",))
    assert DeltaTable(target).version() == versions + 1, "it is done once"


@pytest.mark.parametrize("mode", ["none", "name"])
def test_partition_values_that_a_checkpoint_has_misread_are_found_in_the_folders(
    tmp_path: Path, mode: str
) -> None:
    target = tmp_path / "t"
    properties = {} if mode == "none" else {"delta.columnMapping.mode": mode}
    _by_file(Sink(target, partition_by=("k",), **properties))
    _escape(target)
    DeltaTable(target).create_checkpoint()
    assert sorted(read(target)["k"].to_pylist()) != sorted(PLANES)
    assert optimize(str(target)).removed_files == 0
    assert sorted(read(target)["k"].to_pylist()) == sorted(PLANES)
    read_by_another(target)
    version = DeltaTable(target).version()
    optimize(str(target))
    assert DeltaTable(target).version() == version, "it is done once"


def test_escaped_partition_values_are_written_anew_by_optimize(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _by_file(Sink(target, partition_by=("k",)))
    _escape(target)
    with pytest.raises(AssertionError, match="DuckDB"):
        read_by_all(target)
    assert optimize(str(target)).removed_files == 0
    assert len(read_by_all(target)) == len(PLANES)
    _require_found(target)


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_what_else_the_log_says_of_a_file_stays(tmp_path: Path, *, has_checkpoint: bool) -> None:
    made = HandMadeTable(tmp_path / "t")
    files = [made.file(f"{n}.parquet", {"k": [text, "x"], "v": [n, n]}) for n, text in
             enumerate(PLANES[:4])]  # fmt: skip
    files[3]["add"].pop("stats")
    files[2]["add"] |= {"tags": {"a": "b"}, "stats": json.dumps(
        {"numRecords": 2, "minValues": {"k": "x"}, "maxValues": {"k": PLANES[2]},
         "tightBounds": False})}  # fmt: skip
    vector = made.vector([1])
    deleted = {"add": {**files[2]["add"], "deletionVector": vector}}
    columns = [column("k", "string"), column("v", "long")]
    made.create(*files, columns=columns, protocol=features("deletionVectors"))
    made.commit(removed(files[2]), deleted)
    if has_checkpoint:
        DeltaTable(made.folder).create_checkpoint()
    rows = sorted_rows(read(made.folder))
    assert mended_files(made.folder) == {"2.parquet": vector["pathOrInlineDv"]}
    assert sorted_rows(read_by_all(made.folder)) == rows


def mended_files(folder: Path) -> dict[str, str]:
    """Write unescaped what is; the files with their deletion vectors."""
    table = DeltaTable(folder)
    write_unescaped(table, DeltaLocation.of(str(folder)))
    entry = (folder / "_delta_log" / f"{table.version():020}.json").read_text("utf-8")
    actions = [json.loads(line) for line in entry.splitlines()]
    adds = [each["add"] for each in actions if "add" in each]
    assert all(each["tags"] == {"a": "b"} and not each["dataChange"] for each in adds)
    return {each["path"]: each["deletionVector"]["pathOrInlineDv"] for each in adds}


def test_a_backslash_before_what_looks_like_an_escape_stays(tmp_path: Path) -> None:
    target, text = tmp_path / "t", "\\ud842\\udfb7"
    sink = Sink(target)
    sink.write([{"k": text, "v": 0}, {"k": PLANES[1], "v": 0}], SCHEMA)
    _escape(target)
    merge_rows(target, 100, pa.table({"k": [text], "v": [1]}, SCHEMA), keys=("k",))
    assert dict(map(dict.values, read_by_all(target).to_pylist())) == {text: 1, PLANES[1]: 0}


def test_half_of_a_pair_is_refused_by_name(tmp_path: Path) -> None:
    target = tmp_path / "t"
    Sink(target).write(_table())
    with pytest.raises(SinkError, match="half of a surrogate pair"):
        write_version(
            DeltaLocation.of(str(target)), 9, [], operation="WRITE", parameters={"a": "\ud842"}
        )
    broken = pa.array([b"\xed\xa1\x82"]).view(pa.string())
    with pytest.raises(SchemaMismatchError, match=r"k, whose value b'\\xed\\xa1\\x82' is no UTF-8"):
        Sink(tmp_path / "p", partition_by=("k",)).write(
            pa.table([broken, pa.array([1])], schema=SCHEMA)
        )
