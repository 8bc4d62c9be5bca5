"""Dates and timestamps that Python has not: every format, every place, from a file to the table.

Python's own dates end with the years 1 and 9999; Spark's, Delta's and Arrow's do not. Whatever a
stream reads of them is in the table as it was read, or it is rescued; no run fails for one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from airflow_cloudfiles.engine.spark.tables.source import DeltaTableReader
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import table_schema
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFiles
from tests.support.landed import Stream
from tests.support.promoted import Landed

TEXTS = [
    "1709200800000", "202402", "12345", "0000-01-01", "-0001-01-01", "-290308-12-22", "99999-12-31",
    "+10000-01-01", "10000-01-01 00:00:00", "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00", "294247-01-10T04:00:54.775807Z",
    "-290308-12-21T19:59:05.224192Z", "5881580-07-11", "-5877641-06-23", "999999999", "1e10",
    "9999999999999999999", "0001-01-01", "9999-12-31",
]  # fmt: skip
DAYS = [0, 2932896, 2932897, -719162, -719163, 10**7, -(10**7), 2**31 - 1, -(2**31)]
MICROS = [
    0, 253402300799999999, 253402300800000000, -62135596800000000, -62135596800000001, 2**63 - 1,
    -(2**63), 10**18, -(10**18),
]  # fmt: skip
NESTED = "s STRUCT<d: DATE, t: TIMESTAMP>, a ARRAY<DATE>, m MAP<STRING, TIMESTAMP>"
FLAT = "d DATE, t TIMESTAMP, n TIMESTAMP_NTZ"


def _json() -> bytes:
    values = [json.dumps(text) for text in TEXTS] + [text for text in TEXTS if text.isdigit()]
    record = '{"d":%s,"t":%s,"n":%s,"s":{"d":%s,"t":%s},"a":[%s],"m":{"k":%s}}\n'
    return "".join(record % ((value,) * 7) for value in values).encode()


def _csv() -> bytes:
    return ("d,t,n\n" + "".join(f"{text},{text},{text}\n" for text in TEXTS)).encode()


def _xml() -> bytes:
    row = (
        "<row><d>{0}</d><t>{0}</t><n>{0}</n><s><d>{0}</d><t>{0}</t></s><a>{0}</a>"
        "<m><k>{0}</k></m></row>"
    )
    return f"<rows>{''.join(map(row.format, TEXTS))}</rows>".encode()


def _days(numbers: list[int]) -> pa.Array:
    return pa.array(numbers, pa.int32()).view(pa.date32())


def _moments(numbers: list[int], unit: str, zone: str | None) -> pa.Array:
    return pa.array(numbers, pa.int64()).view(pa.timestamp(unit, zone))


def _nested(days: pa.Array, moments: pa.Array) -> dict[str, pa.Array]:
    places = list(range(len(days) + 1))
    return {
        "s": pa.StructArray.from_arrays([days, moments], ["d", "t"]),
        "a": pa.ListArray.from_arrays(places, days),
        "m": pa.MapArray.from_arrays(places, ["k"] * len(days), moments),
    }


def _parquet(unit: str = "us") -> bytes:
    sink = io.BytesIO()
    numbers = MICROS if unit == "us" else [*MICROS[:5], 2**63 - 1, -(2**63), 2**63 // 1000, -1]
    moments = _moments(numbers, unit, "UTC")
    flat = {"d": _days(DAYS), "t": moments, "n": _moments(numbers, unit, None)}
    pq.write_table(pa.table({**flat, **_nested(_days(DAYS), moments)}), sink)
    return sink.getvalue()


def _int96() -> bytes:
    sink = io.BytesIO()
    numbers = [0, 2**62 + 1, -(2**62), -(10**18)]
    table = pa.table({"d": _days(DAYS[:4]), "t": _moments(numbers, "ns", None)})
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    return sink.getvalue()


def _orc() -> bytes:
    sink = io.BytesIO()
    days = _days(DAYS)
    pyarrow.orc.write_table(
        pa.table({"d": days, "a": pa.ListArray.from_arrays(list(range(10)), days)}), sink
    )
    return sink.getvalue()


def _avro() -> bytes:
    """Written as numbers, under a header that says dates: the library has Python's dates only."""
    kinds = {"d": ("int", "date"), "t": ("long", "timestamp-micros")}
    kinds |= {"n": ("long", "local-timestamp-micros"), "l": ("long", "timestamp-millis")}

    def file(records: list[dict[str, int]], *, is_said: bool) -> bytes:
        sink = io.BytesIO()
        fields = [
            {"name": name, "type": {"type": kind, "logicalType": word} if is_said else kind}
            for name, (kind, word) in kinds.items()
        ]
        schema = {"type": "record", "name": "r", "fields": fields}
        fastavro.writer(sink, schema, records, codec="null", sync_marker=b"0" * 16)
        return sink.getvalue()

    records = [{"d": d, "t": u, "n": u, "l": u} for d, u in zip(DAYS, MICROS, strict=True)]
    header, plain = file([], is_said=True), file([], is_said=False)
    return header + file(records, is_said=False)[len(plain) :]


FILES: dict[str, Callable[[], bytes]] = {
    "json": _json,
    "csv": _csv,
    "xml": _xml,
    "parquet": _parquet,
    "parquet milliseconds": lambda: _parquet("ms"),
    "parquet nanoseconds": lambda: _parquet("ns"),
    "parquet int96": _int96,
    "orc": _orc,
    "avro": _avro,
}
OPTIONS: dict[str, dict[str, str]] = {
    "json": {"cloudFiles.schemaHints": f"{FLAT}, {NESTED}"},
    "csv": {"cloudFiles.schemaHints": FLAT},
    "xml": {"cloudFiles.schemaHints": f"{FLAT}, {NESTED}", "rowTag": "row"},
}


def _numbers(array: pa.Array) -> list[Any]:
    """Values as Arrow keeps them: Python has not all of them."""
    kind = array.type
    if pa.types.is_temporal(kind):
        found = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_struct(kind):
        return list(zip(*map(_numbers, array.flatten()), strict=True))
    elif pa.types.is_nested(kind):
        leaves = array.items if pa.types.is_map(kind) else array.values
        return [*array.is_valid().to_pylist(), _numbers(leaves)]
    else:
        found = array
    return found.to_pylist()


def _all(batches: list[pa.RecordBatch]) -> dict[str, list[Any]]:
    table = pa.Table.from_batches(batches).combine_chunks()
    return {name: _numbers(table[name].chunk(0)) for name in table.column_names}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_date_of_any_year_is_in_the_table_or_rescued(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_bytes(FILES[name]())
    kind = name.partition(" ")[0]
    stream = Stream(tmp_path / "in", tmp_path / "state", kind, **OPTIONS.get(kind, {}))
    [task] = stream.tasks()
    read = list(task.read())
    target = str(tmp_path / "table")
    delta_commit.commit_batch(
        target,
        batch=BatchId("stream", 0),
        files=DataFileWriter(target, task.arrow_schema).write(read),
        schema=task.arrow_schema,
        rules=WriteRules(merge_schema=True),
    )
    wanted = _all(read)
    for row, rescued in enumerate(wanted["_rescued_data"]):
        lost = {key for key in wanted.keys() & {"d", "t", "n", "l"} if wanted[key][row] is None}
        assert lost == json.loads(rescued or "{}").keys() & {"d", "t", "n", "l"}
    assert any(value is not None for value in wanted["d"])
    reader = DeltaTableReader(target, table_schema(target))
    found = _all([batch for part in reader.partitions() for batch in reader.read(part)])
    assert found == wanted
    snapshot = TableFiles(DeltaTable(target), DeltaLocation.of(target), "read")
    [file] = snapshot.files.values()
    assert _all(list(snapshot.batches(file))) == wanted


def _bounds(batch: pa.RecordBatch, folder: Path) -> dict[str, Any]:
    [file] = DataFileWriter(str(folder), batch.schema).write([batch])
    told: dict[str, Any] = json.loads(file.statistics)
    return told


@pytest.mark.parametrize(
    ("days", "bounds"),
    [
        ([-719162, 2932896], ("0001-01-01", "9999-12-31")),
        ([0, 2932897], None),
        ([-719163, 0], None),
        ([None, 19782], ("2024-02-29", "2024-02-29")),
        ([-(2**31), 2**31 - 1], None),
    ],
)
def test_a_date_has_a_bound_only_where_it_is_written_the_same_everywhere(
    tmp_path: Path, days: list[int], bounds: tuple[str, str] | None
) -> None:
    told = _bounds(pa.record_batch({"d": _days(days), "n": pa.array([1, 2])}), tmp_path)
    assert told["nullCount"] == {"d": days.count(None), "n": 0}
    assert (told["minValues"]["n"], told["maxValues"]["n"]) == (1, 2)
    found = (told["minValues"].get("d"), told["maxValues"].get("d"))
    assert found == (bounds or (None, None))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMP_NTZ"])
@pytest.mark.parametrize("format_name", ["json", "csv", "xml", "parquet"])
def test_a_date_of_any_year_is_promoted_as_it_would_be_read(
    tmp_path: Path, format_name: str, kind: str
) -> None:
    landed = Landed.create(tmp_path, "id BIGINT", format_name)
    landed.land(*({"id": number, "born": text} for number, text in enumerate(TEXTS)))
    options = {"rowTag": "row"} if format_name == "xml" else {}
    told = landed.promote({"born": kind}, **options)
    assert (told.values["born"]["occupied"], told.warnings) == (0, [])
    table = landed.table.to_pyarrow_dataset().to_table().sort_by("id").combine_chunks()
    promoted = dict(zip(TEXTS, _numbers(table["born"].chunk(0)), strict=True))
    for text, rescued in zip(TEXTS, table["_rescued_data"].to_pylist(), strict=True):
        left = json.loads(rescued)["born"] if rescued else None
        assert left == (text if promoted[text] is None else None)
    per_day = 1 if kind == "DATE" else 86_400_000_000
    assert promoted["-0001-01-01"] == -719893 * per_day
    assert promoted["+10000-01-01"] == 2932897 * per_day
    if kind == "TIMESTAMP":
        assert promoted["-290308-12-21T19:59:05.224192Z"] == -(2**63)


def test_bounds_of_other_writers_are_not_made_dates(tmp_path: Path) -> None:
    batch = pa.record_batch({"d": _days([0, 4 * 10**6]), "t": _moments([0, 10**18], "us", "UTC")})
    table = DeltaTable.create(tmp_path, schema=batch.schema)
    pq.write_table(pa.table(batch), tmp_path / "part-1.parquet")
    bounds = {
        "numRecords": 2,
        "minValues": {"d": "1970-01-01", "t": "1970-01-01T00:00:00.000Z"},
        "maxValues": {"d": "+12921-08-09", "t": "+33658-09-27T01:46:40.000Z"},
        "nullCount": {"d": 0, "t": 0},
    }
    size = (tmp_path / "part-1.parquet").stat().st_size
    file = AddAction("part-1.parquet", size, {}, 0, True, json.dumps(bounds))
    table.create_write_transaction([file], mode="append", schema=table.schema())
    reader = DeltaTableReader(str(tmp_path), table_schema(str(tmp_path)))
    read = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert _all(read) == _all([batch])
    snapshot = TableFiles(DeltaTable(tmp_path), DeltaLocation.of(str(tmp_path)), "read")
    [file] = snapshot.files.values()
    assert not snapshot.has_only_nulls(file, "d"), "it counts, and looks at no bound"
