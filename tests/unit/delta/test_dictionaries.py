"""A column has a dictionary in a data file where its values repeat."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter
from airflow_cloudfiles.engine.tables.delta.statistics import SAMPLE_ROWS, dictionary_columns

ROWS = 10_000


def _table() -> pa.RecordBatch:
    numbers = list(range(ROWS))
    return pa.RecordBatch.from_pydict(
        {
            "id": numbers,
            "kind": [f"kind {number % 7}" for number in numbers],
            "nothing": pa.nulls(ROWS, pa.string()),
            "rare": [number if number % 100 == 0 else None for number in numbers],
            "place": [{"x": number / 7, "zone": number % 3} for number in numbers],
            "tags": [["a", "b"], []] * (ROWS // 2),
            "marks": [[number, -number - 1] for number in numbers],
            "labels": pa.array([[("k", number)] for number in numbers], pa.map_("string", "int64")),
        }
    )


REPEATED = {
    "kind",
    "nothing",
    "place.zone",
    "tags.list.element",
    "labels.key_value.key",
    "labels.key_value.value",
}


def test_columns_that_repeat_get_a_dictionary_and_others_none(tmp_path: Path) -> None:
    rows = _table()
    (file,) = DataFileWriter(str(tmp_path), rows.schema).write([rows])
    written = pq.read_metadata(tmp_path / file.name)
    columns = [written.row_group(0).column(place) for place in range(written.num_columns)]
    with_values = {each.path_in_schema: each for each in columns}
    assert {
        path for path, each in with_values.items() if "RLE_DICTIONARY" in each.encodings
    } == REPEATED
    assert pq.read_table(tmp_path / file.name).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("kinds", [50, 20_000])
def test_as_many_kinds_as_a_dictionary_pays_for_have_one(kinds: int) -> None:
    # Spread evenly, but in no order: 7919 is a prime.
    values = [number * 7919 * 7919 % kinds for number in range(SAMPLE_ROWS)]
    batch = pa.RecordBatch.from_pydict({"c": values + values})
    assert dictionary_columns(batch) == (["c"] if len(set(values)) < SAMPLE_ROWS else [])


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.decimal128(38, 10),
    ],
)
def test_every_type_of_a_table_can_be_examined(kind: pa.DataType, tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_arrays([pa.nulls(5, kind)], names=["c"])
    assert dictionary_columns(rows) == ["c"]
    values = pa.array([0, 1, 1, None], pa.int32() if kind == pa.date32() else pa.int64())
    if not (pa.types.is_decimal(kind) or pa.types.is_binary(kind)):
        rows = pa.RecordBatch.from_arrays([values.cast(kind)], names=["c"])
        DataFileWriter(str(tmp_path), rows.schema).write([rows])


def test_only_the_rows_that_are_there_are_examined() -> None:
    rows = _table().slice(ROWS - 3, 3)
    assert "id" not in dictionary_columns(rows)
    assert set(dictionary_columns(rows)) >= REPEATED - {"kind", "place.zone", "tags.list.element"}
    assert dictionary_columns(rows.slice(0, 0)) != []
