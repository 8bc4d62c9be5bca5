"""A column whose type no file says yet waits for the first file that says it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from airflow_cloudfiles.engine.errors import UnknownFieldException
from tests.unit.stream.test_every_format import Landing

NOTHING = pa.nulls(1)
NO_ELEMENTS = pa.array([[]], pa.list_(pa.null()))
NO_FIELDS = pa.array([{"a": None, "b": 1}], pa.struct([("a", pa.null()), ("b", pa.int64())]))
NO_VALUES = pa.array([[("k", None)]], pa.map_(pa.string(), pa.null()))
INTEGERS = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))


def parquet(number: int, value: Any) -> bytes:
    """A file of one row."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [number], "x": value}), sink)
    return sink.getvalue()


def avro(number: int, kind: object, value: object) -> bytes:
    """A file of one row."""
    fields = [{"name": "id", "type": "int"}, {"name": "x", "type": kind}]
    sink = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": fields}
    fastavro.writer(sink, schema, [{"id": number, "x": value}])
    return sink.getvalue()


def grown(landing: Landing, first: bytes, second: bytes) -> list[dict[str, Any]]:
    """The rows of a stream that meets a file, and then another with a new type."""
    landing.put("1", first)
    stream = landing.stream()
    stream.run()
    landing.put("2", second)
    with pytest.raises(UnknownFieldException, match=r"automatic retry: true"):
        stream.run()
    stream.run()
    landing.put("3", first)
    stream.run()
    return stream.rows


@pytest.mark.parametrize(
    ("nothing", "something", "value"),
    [
        (NOTHING, [5], 5),
        (NOTHING, [[5]], [5]),
        (NO_ELEMENTS, [[5]], [5]),
        (NO_VALUES, INTEGERS, [("k", 1)]),
        (NO_FIELDS, [{"a": 7, "b": 1}], {"a": 7, "b": 1}),
    ],
)
def test_a_parquet_column_without_a_type_takes_that_of_the_first_value(
    tmp_path: Path, nothing: Any, something: Any, value: Any
) -> None:
    rows = grown(Landing("parquet", tmp_path), parquet(1, nothing), parquet(2, something))
    [found] = [row for row in rows if row["id"] == 2]
    assert (found["x"], found["_rescued_data"]) == (value, None)
    assert [row["id"] for row in rows] == [1, 2, 1]


def test_an_avro_field_of_type_null_takes_that_of_the_first_value(tmp_path: Path) -> None:
    first, second = avro(1, "null", None), avro(2, ["null", "int"], 3)
    rows = grown(Landing("avro", tmp_path), first, second)
    assert [(row["id"], row.get("x"), row["_rescued_data"]) for row in rows] == [
        (1, None, None),
        (2, 3, None),
        (1, None, None),
    ]


def test_what_cannot_be_null_is_rescued_while_the_type_is_unknown(tmp_path: Path) -> None:
    landing = Landing("parquet", tmp_path)
    landing.put("1", parquet(1, NO_ELEMENTS))
    [row] = landing.stream().run()
    assert json.loads(row["_rescued_data"])["x"] == []


def test_a_hint_says_the_type_before_any_file_does(tmp_path: Path) -> None:
    landing = Landing("parquet", tmp_path)
    landing.put("1", parquet(1, NOTHING))
    landing.put("2", parquet(2, [5]))
    rows = landing.stream(**{"cloudFiles.schemaHints": "x DOUBLE"}).run()
    assert [(row["x"], row["_rescued_data"]) for row in rows] == [(None, None), (5.0, None)]


def test_files_of_one_sample_say_the_type_together(tmp_path: Path) -> None:
    for name, (first, second) in {"a": (NOTHING, [5]), "b": ([5], NOTHING)}.items():
        (tmp_path / name).mkdir()
        landing = Landing("parquet", tmp_path / name)
        landing.put("1", parquet(1, first))
        landing.put("2", parquet(2, second))
        assert {row["x"] for row in landing.stream().run()} == {None, 5}
