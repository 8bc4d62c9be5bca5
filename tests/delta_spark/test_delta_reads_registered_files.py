"""Delta's own implementation reads files that were registered, and keeps them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.delta_spark import DeltaError, DeltaSpark
from tests.support.other_places import PLACES, table_with_file
from tests.support.registered import REFERENCE, Landing

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("d", pa.decimal128(9, 2)),
        ("t", pa.timestamp("us", "UTC")),
        ("o", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("l", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("f", pa.float64()),
    ]
)


def _rows(first: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": first + number,
                "s": "x" if number else None,
                "d": Decimal("1.25") if number else None,
                "t": datetime(2024, 1, 1, 1, 2, 3, 45, tzinfo=UTC) if number else None,
                "o": {"x": number, "y": None} if number else None,
                "l": ["a", None] if number else None,
                "m": [("k", number)] if number else None,
                "f": float("nan") if number else 0.5,
            }
            for number in range(3)
        ],
        SCHEMA,
    )


def _with(table: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    place = table.schema.get_field_index(name)
    column = table[name]
    cast = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    return table.set_column(place, name, cast)


def _required(table: pa.Table) -> pa.Table:
    return table.cast(table.schema.set(0, pa.field("id", pa.int64(), nullable=False)))


FILES: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "plain.parquet": (_rows(0), {}),
    "large.parquet": (_with(_rows(10), "s", pa.large_string()), {"compression": "zstd"}),
    "words.parquet": (_with(_rows(20), "s", pa.dictionary(pa.int32(), pa.string())), {}),
    "zone.parquet": (_with(_rows(30), "t", pa.timestamp("us", "Europe/Berlin")), {}),
    "decimals.parquet": (_rows(40), {"store_decimal_as_integer": True, "compression": "gzip"}),
    "required.parquet": (_required(_rows(50)), {"data_page_version": "2.0"}),
    "fewer.parquet": (_rows(60).select(["f", "id"]), {"compression": "none"}),
    "delta.parquet": (
        _rows(70),
        {
            "use_dictionary": False,
            "column_encoding": {"id": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"},
        },
    ),
    "a b/ü%41 #[x]?;😀.parquet": (_rows(80), {}),
}


def test_delta_reads_each_kind_of_file_that_is_registered(
    tmp_path: Path, delta: DeltaSpark
) -> None:
    landing = Landing(tmp_path)
    for name, (table, how) in FILES.items():
        landing.add(name, table, **how)
    assert landing.run()["registered_files"] == len(FILES)
    ours, theirs = landing.rows(), delta.table(landing.target)
    order = [("id", "ascending")]
    assert _as_text(theirs.sort_by(order)) == _as_text(ours.sort_by(order))
    query = f"SELECT id FROM delta.`{landing.target}` WHERE id > 80 AND d = 1.25"
    assert sorted(delta.rows(query)["id"].to_pylist()) == [81, 82]


def _as_text(table: pa.Table) -> list[str]:
    columns = [
        table[name].cast(pa.int64()) if pa.types.is_timestamp(table[name].type) else table[name]
        for name in SCHEMA.names
    ]
    rows = zip(*(each.to_pylist() for each in columns), strict=True)
    return [repr(row) for row in rows]


def test_partitions_of_the_path_are_deltas(tmp_path: Path, delta: DeltaSpark) -> None:
    landing = Landing(tmp_path, {**REFERENCE, "partitionBy": "day"})
    for day in (1, 2):
        landing.add(f"day=2024-01-0{day}/a.parquet", _rows(day * 10))
    assert landing.run()["registered_files"] == 2
    found = delta.rows(
        f"SELECT id FROM delta.`{landing.target}` WHERE day = DATE'2024-01-02' ORDER BY id"
    )
    assert found["id"].to_pylist() == [20, 21, 22]


def test_deltas_own_vacuum_and_optimize_leave_the_landing_folder(
    tmp_path: Path, delta: DeltaSpark
) -> None:
    landing = Landing(tmp_path)
    for number in range(3):
        landing.add(f"{number}.parquet", _rows(number * 10))
    landing.run()
    landing.add("waits.parquet", _rows(50))
    for each in landing.source.iterdir():
        os.utime(each, (0, 0))
    there = sorted(landing.source.iterdir())
    delta.run(f"DELETE FROM delta.`{landing.target}` WHERE id = 0")
    delta.run(f"OPTIMIZE delta.`{landing.target}`")
    delta.run(f"VACUUM delta.`{landing.target}` RETAIN 0 HOURS")
    assert sorted(landing.source.iterdir()) == there
    assert delta.table(landing.target).num_rows == 8
    assert landing.run()["registered_files"] == 1
    assert delta.table(landing.target).num_rows == 11


@pytest.mark.parametrize("place", PLACES)
def test_where_delta_reads_data_files(tmp_path: Path, delta: DeltaSpark, place: str) -> None:
    target = table_with_file(tmp_path, place)
    try:
        found = sorted(delta.table(target)["a"].to_pylist())
    except DeltaError as error:
        found = str(error)
    assert found == [1, 2, 3]
