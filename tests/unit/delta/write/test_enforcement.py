"""What a table does not accept fails before anything is visible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles.engine.errors import (
    SchemaMismatchError,
    SinkError,
    TargetChangedError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.tables.delta.commit import check_target
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.actions import APPEND_FEATURES
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from tests.support.delta_tables import SIMPLE, HandMadeTable, features, read, sorted_rows
from tests.support.delta_writes import ANY_SIZE, Sink, read_by_all, snapshot_of

X = pa.field("x", pa.int64())
STRICT = X.with_nullable(False)


def _unchanged(target: Path, version: int = 0) -> None:
    assert DeltaTable(str(target)).version() == version
    live = {file.path for file in snapshot_of(target).files}
    there = {path.relative_to(target).as_posix() for path in target.rglob("*.parquet")}
    assert there == live, "no file of a refused batch stays"


@pytest.mark.parametrize(
    ("strict", "lenient", "good", "bad", "named"),
    [
        (pa.int64(), pa.int64(), 1, None, "a"),
        (pa.struct([STRICT]), pa.struct([X]), {"x": 1}, {"x": None}, "a.x"),
        (pa.list_(STRICT), pa.list_(X), [1, 2], [1, None], "a.element"),
        (
            pa.list_(pa.struct([STRICT])),
            pa.list_(pa.struct([X])),
            [{"x": 1}],
            [{"x": 1}, {"x": None}],
            "a.element.x",
        ),
        (
            pa.map_(pa.string(), STRICT),
            pa.map_(pa.string(), X),
            [("k", 1)],
            [("k", None)],
            "a.value",
        ),
        (
            pa.map_(pa.string(), pa.struct([STRICT])),
            pa.map_(pa.string(), pa.struct([X])),
            [("k", {"x": 1})],
            [("j", {"x": 2}), ("k", {"x": None})],
            "a.value.x",
        ),
    ],
)
def test_not_null_is_checked_in_the_tasks_at_any_depth(
    tmp_path: Path, strict: pa.DataType, lenient: pa.DataType, good: Any, bad: Any, named: str
) -> None:
    target = tmp_path / "t"
    is_whole = named == "a"
    DeltaTable.create(str(target), pa.schema([pa.field("a", strict, nullable=not is_whole)]))
    sink, schema = Sink(target), pa.schema([("a", lenient)])
    with pytest.raises(
        SchemaMismatchError, match=f"NOT NULL constraint violated for column: {named} of"
    ):
        sink.write([{"a": good}, {"a": bad}], schema)
    _unchanged(target)
    rows = [{"a": good}] if is_whole else [{"a": good}, {"a": None}, {"a": good}]
    sink.write(rows, schema)
    assert sorted_rows(read_by_all(target)) == sorted_rows(pa.Table.from_pylist(rows, schema))
    Sink(target, app="sliced").write(pa.Table.from_pylist([{"a": bad}, *rows], schema).slice(1))
    assert len(read(target)) == 2 * len(rows)


def test_files_that_were_not_checked_for_nulls_are_not_committed(tmp_path: Path) -> None:
    """The table got its constraint between the task and the commit."""
    target = tmp_path / "t"
    sink = Sink(target)
    table = pa.table({"x": pa.array([1, None], pa.int64())})
    sink.batch = 0
    written = sink.task(table)
    DeltaTable.create(str(target), pa.schema([STRICT]))
    with pytest.raises(TargetChangedError, match="run again"):
        sink.commit(*written, table.schema)
    _unchanged(target)


COMPUTED = {
    "delta.generationExpression": "s + 1",
    "delta.identity.start": 1,
    "delta.invariants": '{"expression": {"expression": "a > 0"}}',
    "CURRENT_DEFAULT": "5",
}


@pytest.mark.parametrize("key", COMPUTED)
@pytest.mark.parametrize("inside", [False, True])
def test_columns_that_the_table_computes_are_refused_by_name(
    tmp_path: Path, key: str, inside: bool
) -> None:
    made = HandMadeTable(tmp_path / "t")
    field = {"name": "a", "type": "long", "nullable": True, "metadata": {key: COMPUTED[key]}}
    nested = {"type": "struct", "fields": [field]}
    outer = {"name": "s", "type": nested, "nullable": True, "metadata": {}}
    made.create(columns=[outer if inside else field])
    rows = pa.table({"s": [{"a": 1}]}) if inside else pa.table({"a": [1]})
    named = "s.a" if inside else "a"
    with pytest.raises(SinkError, match=rf"column {named} has {key}.*Delta's own jars"):
        check_target(str(made.folder), rows.schema, WriteRules(merge_schema=True))
    with pytest.raises(SinkError, match=key):
        Sink(made.folder).write(rows)
    _unchanged(made.folder)


def test_check_constraints_are_refused_by_name_at_start_and_at_the_commit(tmp_path: Path) -> None:
    target = tmp_path / "t"
    rows = pa.table({"a": [-1]})
    write_deltalake(str(target), pa.table({"a": [1]}))
    sink = Sink(target)
    sink.batch = 0
    written = sink.task(rows)
    DeltaTable(str(target)).alter.add_constraint({"positive": "a > 0"})
    with pytest.raises(SinkError, match=r"it has delta\.constraints\.positive=a > 0"):
        sink.commit(*written, rows.schema)
    _unchanged(target, 1)
    with pytest.raises(SinkError, match=r"delta\.constraints\.positive"):
        check_target(str(target), rows.schema, WriteRules(merge_schema=True))


@pytest.mark.parametrize(
    "feature",
    ["rowTracking", "inCommitTimestamp", "clustering", "icebergCompatV2", "somethingNew"],
)
def test_writer_features_that_are_not_supported_are_refused_by_name(
    tmp_path: Path, feature: str
) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(protocol=features(writer=("appendOnly", feature)))
    with pytest.raises(SinkError, match=f"it has the table feature {feature}"):
        Sink(made.folder).write(pa.table({"a": [1]}))
    assert feature not in APPEND_FEATURES


@pytest.mark.parametrize(
    "feature",
    sorted(
        APPEND_FEATURES.keys()
        - {"columnMapping", "typeWidening-preview", "variantType-preview", "deletionVectors"}
    ),
)
def test_writer_features_that_are_supported_are_written_to(tmp_path: Path, feature: str) -> None:
    made = HandMadeTable(tmp_path / "t")
    for_readers = {
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
    }
    protocol = features(*({feature} & for_readers), writer=(feature,))
    if feature not in for_readers:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    else:
        protocol["writerFeatures"] = [feature]
    made.create(protocol=protocol)
    sink = Sink(made.folder)
    sink.write(pa.table({"a": [1]}))
    sink.write(pa.table({"a": [2], "s": ["x"], "new": [True]}))
    found = read_by_all(
        made.folder, deltalake=feature not in {"typeWidening", "vacuumProtocolCheck"}
    )
    assert sorted(found["a"].to_pylist()) == [1, 2]
    assert not sink.repeat(pa.table({"a": [2], "s": ["x"], "new": [True]})).is_new


@pytest.mark.parametrize("version", range(2, 7))
def test_tables_of_every_legacy_writer_version_are_written_to(tmp_path: Path, version: int) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(protocol={"minReaderVersion": 1, "minWriterVersion": version})
    Sink(made.folder).write(pa.table({"a": [1], "new": [2]}))
    assert read_by_all(made.folder).to_pylist() == [{"a": 1, "s": None, "new": 2}]


def test_a_newer_writer_version_is_refused(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(protocol={"minReaderVersion": 1, "minWriterVersion": 8})
    with pytest.raises(SinkError):
        Sink(made.folder).write(pa.table({"a": [1]}))


def test_append_only_tables_are_appended_to_and_not_rewritten(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, delta_appendOnly="true")
    sink.write(pa.table({"a": pa.array([1], pa.int32())}))
    sink.write(pa.table({"a": pa.array([2], pa.int32()), "b": ["new"]}))
    assert snapshot_of(target).metadata.property("delta.appendOnly") == "true"
    wide = Sink(target, app="wide", widening=ANY_SIZE)
    with pytest.raises(SinkError, match=r"delta\.appendOnly=true"):
        wide.write(pa.table({"a": pa.array([2**40])}))
    assert sorted(read_by_all(target)["a"].to_pylist()) == [1, 2]


def test_narrower_types_and_other_spellings_are_cast_to_the_tables(tmp_path: Path) -> None:
    target = tmp_path / "t"
    inner = pa.struct([("X", pa.int64()), ("Y", pa.float64())])
    whole = pa.schema(
        [
            ("Id", pa.int64()),
            ("s", inner),
            ("l", pa.list_(inner)),
            ("m", pa.map_(pa.string(), inner)),
            ("d", pa.decimal128(12, 2)),
        ]
    )
    big = {"X": 2**40, "Y": 0.5}
    sink = Sink(target, merge_schema=False)
    sink.write([{"Id": 2**40, "s": big, "l": [big], "m": [("k", big)], "d": 1}], whole)
    small = pa.struct([("y", pa.float32()), ("x", pa.int16())])
    rows = pa.schema(
        [
            ("M", pa.map_(pa.string(), small)),
            ("ID", pa.int8()),
            ("S", small),
            ("L", pa.list_(small)),
            ("D", pa.int32()),
        ]
    )
    one = {"y": 1.5, "x": 7}
    sink.write(
        [
            {"M": [("k", one), ("n", None)], "ID": 1, "S": one, "L": [None, one], "D": 5},
            {"M": None, "ID": None, "S": None, "L": [], "D": None},
        ],
        rows,
    )
    kept = {"X": 7, "Y": 1.5}
    found = sorted(read_by_all(target).to_pylist(), key=lambda row: row["Id"] or 0)
    assert found[0] == {"Id": None, "s": None, "l": [], "m": None, "d": None}
    assert found[1] == {
        "Id": 1,
        "s": kept,
        "l": [None, kept],
        "m": [("k", kept), ("n", None)],
        "d": 5,
    }
    assert read(target).column_names == ["Id", "s", "l", "m", "d"]


@pytest.mark.parametrize(
    ("narrow", "wide"), [(pa.int8(), pa.int16()), (pa.int8(), pa.int32()), (pa.int16(), pa.int32())]
)
def test_byte_short_and_int_merge_without_rewriting_a_file(
    tmp_path: Path, narrow: pa.DataType, wide: pa.DataType
) -> None:
    target = tmp_path / "t"
    sink = Sink(target)
    sink.write(pa.table({"a": pa.array([-128, 127], narrow)}))
    before = {file.path for file in snapshot_of(target).files}
    with pytest.raises(SchemaMismatchError, match="mergeSchema"):
        Sink(target, app="strict", merge_schema=False).write(pa.table({"a": pa.array([1], wide)}))
    sink.write(pa.table({"a": pa.array([200], wide)}))
    assert before < {file.path for file in snapshot_of(target).files}
    found = read_by_all(target)
    assert sorted(found["a"].to_pylist()) == [-128, 127, 200]
    assert found.schema.field("a").type == wide


def test_a_void_column_of_a_table_takes_the_type_of_the_rows(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    void = {"name": "v", "type": "void", "nullable": True, "metadata": {}}
    made.create(made.file("part-0.parquet", {"a": [1], "s": ["x"]}), columns=[*SIMPLE, void])
    sink = Sink(made.folder)
    sink.write(pa.table({"a": [2], "V": pa.array([5], pa.int32())}))
    found = sorted(read(made.folder).to_pylist(), key=lambda row: row["a"])
    assert found == [{"a": 1, "s": "x", "v": None}, {"a": 2, "s": None, "v": 5}]


@pytest.mark.parametrize(
    "target", ["uc://main.sales.orders", "glue://sales.orders", "GLUE://x", "main.sales.orders"]
)
def test_names_of_catalogs_are_refused_with_what_to_use_instead(target: str) -> None:
    with pytest.raises(UnsupportedOptionError, match="Give the path of the table"):
        DeltaLocation.of(target)


def test_a_folder_may_be_named_like_a_table_of_a_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.sales.orders").mkdir()
    assert DeltaLocation.of("main.sales.orders").folder == str(tmp_path / "main.sales.orders")
    assert DeltaLocation.of("./main.sales.other").folder is not None
