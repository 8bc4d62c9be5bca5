"""Delta's own implementation reads each version of what we write as we do, and goes on with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.extensions.upkeep.alter import (
    add_column,
    drop_column,
    drop_not_null,
    rename_column,
    set_properties,
)
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from airflow_cloudfiles.engine.extensions.upkeep.vacuum import vacuum
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from tests.support.delta_spark import IS_OLDER, DeltaError, DeltaSpark
from tests.support.delta_tables import read, sorted_rows
from tests.support.delta_writes import ANY_SIZE, Sink, merge_rows, snapshot_of, write_dataframe

pytestmark = pytest.mark.spark

INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
NESTED = pa.schema(
    [("id", pa.int64()), ("s", INNER), ("l", pa.list_(INNER)), ("m", pa.map_(pa.string(), INNER))]
)
ONE = {"x": 1, "y": "a"}
ROW = {"id": 1, "s": ONE, "l": [ONE, None], "m": [("k", ONE)]}
MOMENT = datetime(2024, 1, 31, 12, 30, 15, 123456, tzinfo=UTC)
LOCAL = MOMENT.replace(tzinfo=None)
TYPES = pa.schema(
    [
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("small", pa.decimal128(5, 2)),
        ("large", pa.decimal128(38, 10)),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("bytes", pa.binary()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
    ]
)
VALUES = (
    *(-128, 2**15 - 1, -(2**31), 2**63 - 1, 1.5, -0.0, Decimal("-999.99")),
    *(Decimal("12345678901234567890.0123456789"), True, "é\n\x00☃", b"\x00\xff"),
    *(date(1582, 10, 15), MOMENT, LOCAL),
)
VECTORS = "delta.enableDeletionVectors"
TEXTS = ("", "a b", "a/b", "a%2Fb", "a=b", "é☃", "..", "a:b", "{}[]", "'\"\\", "NULL")


def _types(target: Path) -> None:
    sink = Sink(target)
    row = dict(zip(TYPES.names, VALUES, strict=True))
    sink.write([row, dict.fromkeys(TYPES.names)], TYPES)
    sink.write([{"f32": float("inf"), "f64": float("-inf"), "d": date(1, 1, 1)}], TYPES)
    sink.write([{"f64": 1e300, "d": date(9999, 12, 31), "s": "x" * 100}], TYPES)


def _evolution(target: Path) -> None:
    sink = Sink(target)
    sink.write([ROW], NESTED)
    sink.write([], NESTED)
    wider = pa.struct([*INNER, ("z", pa.float64())])
    more = pa.schema([*NESTED, ("new", pa.list_(pa.string()))])
    more = more.set(1, pa.field("s", wider)).set(2, pa.field("l", pa.list_(wider)))
    sink.write([{**ROW, "s": {**ONE, "z": 1.5}, "new": ["n", None]}], more)
    sink.write([{"id": 3}], pa.schema([("id", pa.int64())]))


def _partitions(target: Path) -> None:
    names = [
        ("t", pa.string()),
        ("d", pa.date32()),
        ("n", pa.int32()),
        ("ts", TYPES.field("ts").type),
    ]
    schema = pa.schema([("id", pa.int64()), *names, ("b", pa.bool_()), ("x", pa.decimal128(5, 2))])
    sink = Sink(target, partition_by=("t", "d", "n", "ts", "b", "x"))
    rows = [{"id": each, "t": text} for each, text in enumerate(TEXTS)]
    row = {"id": 99, "t": None, "d": date(2024, 2, 29), "n": -1, "ts": MOMENT, "b": False}
    sink.write([*rows, {**row, "x": Decimal("1.10")}], schema)
    sink.write([{**row, "id": 100, "ts": MOMENT.replace(microsecond=0)}], schema)
    optimize(str(target))


def _mapping(mode: str, target: Path) -> None:
    sink = Sink(target, partition_by=("p",), delta_columnMapping_mode=mode)
    schema = pa.schema([*NESTED, ("p", pa.string()), ("a b,;{}()=", pa.string())])
    sink.write([{**ROW, "p": "x y", "a b,;{}()=": "odd"}], schema)
    rename_column(str(target), "s.x", "renamed")
    rename_column(str(target), "p", "part")
    drop_column(str(target), "s.y")
    add_column(str(target), "l.element.z BIGINT")
    inner = pa.struct([("renamed", pa.int32()), ("more", pa.string())])
    sink.write(
        [{"id": 2, "s": {"renamed": 2, "more": "m"}, "part": None}],
        pa.schema([("id", pa.int64()), ("s", inner), ("part", pa.string())]),
    )
    drop_column(str(target), "`a b,;{}()=`")
    optimize(str(target))


def _mapped_by_name(target: Path) -> None:
    _mapping("name", target)


def _mapped_by_id(target: Path) -> None:
    _mapping("id", target)


def _upgraded(target: Path) -> None:
    sink = Sink(target)
    sink.write([ROW], NESTED)
    set_properties(str(target), {"delta.columnMapping.mode": "name", "owner": "us"})
    rename_column(str(target), "id", "key")
    sink.write([{"key": 2}], pa.schema([("key", pa.int64())]))


def _widening(target: Path) -> None:
    narrow = pa.schema(
        [("id", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(5, 2)), ("s", INNER)]
    )
    wide = pa.schema(
        [
            *(("id", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(10, 4))),
            ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ]
    )
    row = {"id": 1, "f": 1.5, "d": Decimal("1.25"), "s": ONE}
    sink = Sink(target, widening=ANY_SIZE, delta_enableTypeWidening="true")
    sink.write([row], narrow)
    sink.write([{**row, "id": 2**40, "d": Decimal("123456.1234")}], wide)
    sink.write([{**row, "id": 3}], narrow)


def _widened_by_rewriting(target: Path) -> None:
    sink = Sink(target, widening=ANY_SIZE)
    sink.write([{"id": 1}], pa.schema([("id", pa.int32())]))
    sink.write([{"id": 2**40}], pa.schema([("id", pa.int64())]))


def _merges(target: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    for number, rows in enumerate(([(1, "a"), (2, "b")], [(2, "B"), (3, "c")], [(1, "A")])):
        table = pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], schema)
        merge_rows(target, number, table, keys=("k",))


def _upkeep(target: Path) -> None:
    sink = Sink(
        target, delta_checkpointInterval="2", delta_deletedFileRetentionDuration="interval 0 hours"
    )
    for number in range(6):
        sink.write(pa.table({"id": [number, -number]}))
    optimize(str(target))
    log = TableLog(DeltaLocation.to_read(str(target)))
    vacuum(log, retention=timedelta(0), dry_run=False, allow_short_retention=True)
    sink.write(pa.table({"id": [7]}))


def _overwrites(target: Path) -> None:
    write_dataframe(target, pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
    write_dataframe(target, pa.table({"id": [3], "v": ["C"]}), replaceWhere="id = 3")
    write_dataframe(target, pa.table({"other": ["x"]}), overwriteSchema="true")


def _runs(target: Path) -> None:
    """Runs that rescue a field, its promotion, and a replay of what the table has lost."""
    source, state = target.with_name("in"), target.with_name("state")
    source.mkdir()
    places = ["--checkpoint-location", str(state), "--target", str(target)]
    ingest = ["ingest", "--engine", "local", "--source", str(source), "--format", "json", *places]
    for option in ("inferColumnTypes=true", "schemaEvolutionMode=rescue"):
        ingest += ["--option", f"cloudFiles.{option}"]
    replay = ["replay", *places, "--from-batch", "2"]
    for number, text in enumerate(('{"a": 0}', '{"a": 1, "b": 1}', '{"a": 2, "b": 2}')):
        (source / f"{number}.json").write_text(text)
        assert cli.main(ingest) == 0
    before = snapshot_of(target).version - 1
    assert cli.main(["promote", *places, "--field", "b"]) == 0
    (source / "3.json").write_text('{"a": 3, "b": 3}')
    assert cli.main(ingest) == 0
    DeltaTable(target).restore(before)
    assert cli.main(replay) == 0
    assert sorted(read(target)["a"].to_pylist()) == [0, 1, 2, 3]


HISTORIES: dict[str, Callable[[Path], None]] = {
    "every type": _types,
    "evolution": _evolution,
    "partitions": _partitions,
    "mapped by name": _mapped_by_name,
    "mapped by id": _mapped_by_id,
    "upgraded to column mapping": _upgraded,
    "types that widen": _widening,
    "types that are rewritten": _widened_by_rewriting,
    "merges": _merges,
    "compaction, vacuum and checkpoints": _upkeep,
    "overwrites": _overwrites,
    "runs, a promotion and a replay": _runs,
}


def same(ours: pa.Table, theirs: pa.Table) -> None:
    """Compare columns and rows, whatever Arrow types strings have."""
    assert theirs.column_names == ours.column_names
    assert sorted_rows(theirs.cast(ours.schema)) == sorted_rows(ours)


@pytest.mark.parametrize("name", HISTORIES)
def test_each_version_is_read_alike(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    target = tmp_path / "table"
    HISTORIES[name](target)
    newest = snapshot_of(target).version
    first = newest if name.startswith("compaction") else 0  # what is vacuumed is gone
    for version in range(first, newest + 1):
        same(read(target, version), delta.table(target, version))
    history = delta.rows(f"DESCRIBE HISTORY delta.`{target}`")
    assert max(history["version"].to_pylist()) == newest


def _statements(target: Path) -> dict[str, str]:
    table, first = f"delta.`{target}`", read(target).column_names[0]
    return {
        "appended": f"INSERT INTO {table} SELECT * FROM {table}",
        "compacted": f"OPTIMIZE {table}",
        "given deletion vectors": f"ALTER TABLE {table} SET TBLPROPERTIES ({VECTORS}=true)",
        "merged into": f"MERGE INTO {table} t USING (SELECT * FROM {table} LIMIT 1) s "
        f"ON t.`{first}` = s.`{first}` WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *",
        "deleted from": f"DELETE FROM {table} WHERE pmod(hash(`{first}`), 2) = 0",
        "restored": f"RESTORE TABLE {table} TO VERSION AS OF 0",
    }


@pytest.mark.parametrize("name", HISTORIES)
def test_delta_goes_on_and_so_do_we(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    target = tmp_path / "table"
    HISTORIES[name](target)
    for what, statement in _statements(target).items():
        if what == "restored" and name.startswith("compaction"):
            continue  # its files are vacuumed
        delta.run(statement)
        rows = read(target)
        same(rows, delta.table(target))
        Sink(target, app=what).write(rows.slice(0, 1))
        same(read(target), delta.table(target))
        assert read(target).num_rows == rows.num_rows + min(1, rows.num_rows), what


def test_columns_that_may_be_null_again(delta: DeltaSpark, tmp_path: Path) -> None:
    target = tmp_path / "table"
    delta.run(f"CREATE TABLE delta.`{target}` (id BIGINT NOT NULL, v STRING) USING delta")
    drop_not_null(str(target), "id")
    Sink(target).write(pa.table({"id": pa.array([None, 1], pa.int64()), "v": ["a", "b"]}))
    same(read(target), delta.table(target))


def test_types_that_widen_are_read_or_refused_by_name(delta: DeltaSpark, tmp_path: Path) -> None:
    target = tmp_path / "table"
    HISTORIES["types that widen"](target)
    refused = pytest.raises(DeltaError, match=r"upgrade to Delta 4\.0 or higher")
    with refused if IS_OLDER else contextlib.nullcontext():
        same(read(target), delta.table(target))
