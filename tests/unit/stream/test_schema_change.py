"""What a task does when a file has more, or wider values, than the schema: for every format."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cloudfiles.engine.errors import UnknownFieldException
from airflow_cloudfiles.engine.schema.diff import paths_of
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.stream.schema_change import TaskReader
from tests.unit.stream.test_every_format import TYPED, WRITERS, Landing

WIDENING = {
    "cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening",
    "cloudFiles.inferColumnTypes": "true",
}


@pytest.fixture(params=WRITERS)
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    """A folder that takes records in one of the formats."""
    return Landing(request.param, tmp_path)


def types(landing: Landing) -> dict[str, str]:
    return paths_of(SchemaHistory(str(landing.state)).show().data_schema)


def parquet(landing: Landing, name: str, **columns: tuple[pa.DataType, list[Any]]) -> Path:
    path = landing.source / name
    arrays = {column: pa.array(values, kind) for column, (kind, values) in columns.items()}
    pq.write_table(pa.table(arrays), path)
    return path


@pytest.mark.slow
def test_the_error_names_the_new_fields_the_file_and_that_a_retry_helps(landing: Landing) -> None:
    first = landing.drop("1", [{"a": "x"}])
    stream = landing.stream()
    stream.run()
    [origin] = SchemaHistory(str(landing.state)).blame()
    assert (origin.path, origin.version, origin.file) == ("a", 0, first.as_uri())
    path = landing.drop("2", [{"a": "y", "currency": "USD"}])
    with pytest.raises(UnknownFieldException) as caught:
        stream.run()
    error = caught.value  # B66
    assert error.message.startswith(
        "[UNKNOWN_FIELD_EXCEPTION.NEW_FIELDS_IN_RECORD_WITH_FILE_PATH] Encountered unknown fields "
    )
    assert list(error.fields) == ["currency"]
    assert (error.file, error.is_retryable) == (path.as_uri(), True)
    [origin] = [each for each in SchemaHistory(str(landing.state)).blame() if each.version == 1]
    assert (origin.path, origin.file) == ("currency", path.as_uri())


def test_no_type_widens_in_the_plain_mode(landing: Landing) -> None:  # B58
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**{**WIDENING, "cloudFiles.schemaEvolutionMode": "addNewColumns"})
    stream.run()
    landing.drop("2", [{"a": 2.5}])
    [row] = stream.run()
    assert row["a"] is None
    assert json.loads(row["_rescued_data"])["a"] in {2.5, "2.5"}
    assert landing.versions() == [0]


@pytest.mark.parametrize("landing", ["json", "csv", "xml"], indirect=True)
def test_a_number_in_a_text_widens_its_column(landing: Landing) -> None:
    landing.drop("1", [{"id": 1, "a": 1, "b": 1}])
    stream = landing.stream(**WIDENING)
    stream.run()
    small = {"csv": ("int", "bigint")}.get(landing.format, ("bigint", "decimal(20,0)"))
    assert types(landing)["a"] == small[0]
    large = 2**31 if landing.format == "csv" else 2**63
    landing.drop("2", [{"id": 2, "a": large, "b": 1}])
    path = landing.drop("3", [{"id": 3, "a": 1, "b": 1.25}, {"id": 4, "a": 1, "b": "text"}])
    with pytest.raises(UnknownFieldException, match="wider types") as caught:  # B57
        stream.run()
    assert caught.value.is_retryable
    assert caught.value.file is not None
    assert caught.value.fields["a"] == " -> ".join(small)
    assert landing.versions() == [0, 1]  # B47
    found = {row["id"]: row for row in stream.run()}
    assert found[2]["a"] == large
    assert found[3]["b"] == Decimal("1.25")  # B59
    assert json.loads(found[4]["_rescued_data"])["b"] == "text"  # B60
    reason = SchemaHistory(str(landing.state)).show().reason
    assert reason["widened"]["b"]["file"] == path.as_uri()
    assert landing.versions() == [0, 1]


_FLOATS = (pa.float32(), [0.5])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "wider"),
    [
        ((pa.int8(), [1]), (pa.int16(), [300]), "smallint"),
        ((pa.int32(), [1]), (pa.int64(), [2**31]), "bigint"),  # B57
        ((pa.int32(), [1]), (pa.decimal128(5, 2), [Decimal("1.25")]), "decimal(12,2)"),  # B59
        ((pa.int64(), [1]), (pa.decimal128(5, 2), [Decimal("1.25")]), "decimal(22,2)"),  # B59
        ((pa.int8(), [1]), (pa.float64(), [0.1]), "double"),  # B62
        (_FLOATS, (pa.float64(), [0.1]), "double"),  # B62
        (
            (pa.decimal128(5, 2), [Decimal("1.25")]),
            (pa.decimal128(9, 4), [Decimal("12345.6789")]),
            "decimal(9,4)",
        ),
        (
            (pa.date32(), [date(2026, 1, 31)]),
            (pa.timestamp("us"), [datetime.fromisoformat("2026-01-31T12:30:00")]),
            "timestamp_ntz",
        ),  # B63
    ],
)
def test_a_parquet_files_own_types_widen_columns(
    tmp_path: Path, before: Any, after: Any, wider: str
) -> None:
    landing = Landing("parquet", tmp_path)
    parquet(landing, "1", a=before)
    stream = landing.stream(**WIDENING)
    stream.run()
    path = parquet(landing, "2", a=after)
    with pytest.raises(UnknownFieldException, match="automatic retry: true") as caught:
        stream.run()
    assert caught.value.file == path.as_uri()
    assert types(landing) == {"a": wider}
    [row] = stream.run()
    assert (row["a"], row["_rescued_data"]) == (after[1][0], None)
    parquet(landing, "3", a=before)  # old files go on to be read
    [row] = stream.run()
    assert row["_rescued_data"] is None
    assert landing.versions() == [0, 1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((pa.int64(), [1]), (pa.float64(), [0.5])),  # B61
        ((pa.float64(), [0.5]), (pa.int64(), [2**53 + 1])),  # B61
        ((pa.int32(), [1]), (pa.string(), ["text"])),  # B60
        ((pa.string(), ["x"]), (pa.int64(), [1])),
    ],
)
def test_what_the_matrix_does_not_have_is_rescued(tmp_path: Path, before: Any, after: Any) -> None:
    landing = Landing("parquet", tmp_path)
    parquet(landing, "1", a=before)
    stream = landing.stream(**WIDENING)
    stream.run()
    parquet(landing, "2", a=after)
    [row] = stream.run()
    assert row["a"] is None
    assert json.loads(row["_rescued_data"])["a"] == after[1][0]
    assert landing.versions() == [0]


def test_an_avro_files_own_types_widen_columns(tmp_path: Path) -> None:
    landing = Landing("avro", tmp_path)

    def write(name: str, kind: object, value: object) -> None:
        schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
        with (landing.source / name).open("wb") as file:
            fastavro.writer(file, schema, [{"a": value}])

    write("1", "int", 1)
    stream = landing.stream(**WIDENING)
    stream.run()
    write("2", "long", 2**40)
    with pytest.raises(UnknownFieldException):
        stream.run()
    assert types(landing) == {"a": "bigint"}
    assert [row["a"] for row in stream.run()] == [2**40]


def test_new_and_wider_columns_of_one_batch_are_one_version(tmp_path: Path) -> None:  # B47
    landing = Landing("parquet", tmp_path)
    parquet(landing, "1", a=(pa.int32(), [1]))
    stream = landing.stream(**WIDENING)
    stream.run()
    parquet(landing, "2", a=(pa.int64(), [2**40]))
    parquet(landing, "3", a=(pa.int32(), [1]), b=(pa.int32(), [1]))
    with pytest.raises(UnknownFieldException):
        stream.run()
    assert types(landing) == {"a": "bigint", "b": "int"}
    assert landing.versions() == [0, 1]
    assert len(stream.run()) == 2


def test_a_file_outside_the_sample_is_looked_at_by_itself(landing: Landing) -> None:
    landing.drop("1", [{"a": "x"}])
    small = {"cloudFiles.schemaInference.sampleSize.numFiles": "1"}
    stream = landing.stream(**small)
    stream.run()
    new = landing.drop("2", [{"a": "x", "new": "n"}])
    for number in range(3, 6):
        landing.drop(str(number), [{"a": "x"}])
    old = new.stat().st_mtime - 1000
    os.utime(new, (old, old))
    with pytest.raises(UnknownFieldException, match="automatic retry: true"):
        stream.run()
    assert "new" in types(landing)
    assert len(stream.run()) == 4


def test_a_new_partition_is_no_column_unless_it_is_named(landing: Landing) -> None:  # B41
    landing.drop("event=a/1", [{"x": "1"}])
    stream = landing.stream()
    stream.run()
    landing.drop("event=a/hour=01/2", [{"x": "2", "new": "n"}])
    with pytest.raises(UnknownFieldException):
        stream.run()
    [row] = stream.run()
    assert list(row) == ["x", "new", "event", "_rescued_data"]
    named = Landing.stream(landing, **{"cloudFiles.partitionColumns": "event,hour"})
    named.given["cloudFiles.schemaLocation"] = str(landing.state.with_name("named"))
    found = sorted(named.run(), key=lambda each: each["x"])  # B42, B40
    assert [(each["event"], each["hour"]) for each in found] == [("a", None), ("a", "01")]


@pytest.mark.slow
def test_evolving_ahead_writes_one_version_and_nothing_fails(landing: Landing) -> None:
    landing.drop("first", [{"id": 0, "n": 1}])
    stream = landing.stream(**WIDENING, **{"cloudFiles.evolveAhead": "true"})
    stream.run()
    landing.put("broken", b"\x00\x01")
    wide = 2.5 if landing.format != "csv" else 2**40
    kinds = {"json": 2**70, "xml": 2**70, "csv": 2**40, "excel": 2**40, "parquet": 1}
    kinds |= {"orc": 1, "avro": 1}
    for number in range(1, 40):
        value = kinds[landing.format]
        landing.drop(f"{number:02}", [{"id": number, "n": value, f"new{number % 5}": f"x{wide}"}])
    stream.given["ignoreCorruptFiles"] = "true"
    found = [row for row in stream.run() if row["id"]]
    assert landing.versions() == [0, 1]
    assert sorted(row["id"] for row in found) == list(range(1, 40))
    assert all(row["_rescued_data"] is None for row in found)
    for row in found:
        assert [name for name in row if name.startswith("new") and row[name]] == [
            f"new{row['id'] % 5}"
        ]
    version = SchemaHistory(str(landing.state)).show()
    assert version.reason["ahead"] is True
    assert set(version.reason["brought"]) <= {path.as_uri() for path in landing.source.iterdir()}


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_what_is_new_inside_of_a_hinted_struct_is_added_to_it(landing: Landing) -> None:  # B48
    hints = {"cloudFiles.schemaHints": "s STRUCT<a: INT>, t ARRAY<STRUCT<a: INT>>"}
    landing.drop("1", [{"id": 1}])
    stream = landing.stream(**hints)
    stream.run()
    landing.drop("2", [{"s": {"a": 1, "b": "x"}, "t": [{"b": 2}]}])
    with pytest.raises(UnknownFieldException) as caught:
        stream.run()
    assert caught.value.is_retryable
    [row] = stream.run()
    assert (row["s"], row["t"]) == ({"a": 1, "b": "x"}, [{"a": None, "b": "2"}])
    # A hint for what is not there yet is a column from the next start on.
    landing.drop("3", [{"s": {"c": 3}, "u": 4}])
    stream = landing.stream(**{"cloudFiles.schemaHints": "s.c INT, u DOUBLE"})
    found = [row for row in stream.run() if row["u"]]
    assert [(row["s"]["c"], row["u"]) for row in found] == [(3, 4.0)]


@pytest.mark.slow
def test_a_pinned_schema_is_neither_evolved_nor_widened_nor_evolved_ahead(landing: Landing) -> None:
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**WIDENING, **{"cloudFiles.evolveAhead": "true"})
    stream.run()
    history = SchemaHistory(str(landing.state))
    history.pin()
    landing.drop("2", [{"a": 2.5, "new": "n"}])
    [row] = stream.run()
    rescued = json.loads(row["_rescued_data"])
    assert rescued["new"] == "n"
    assert row.get("a") is None
    history.pin(new_fields="fail")
    landing.drop("3", [{"a": 1, "new": "n"}])
    with pytest.raises(UnknownFieldException, match="pinned at version 2") as caught:
        stream.run()
    assert not caught.value.is_retryable
    history.unpin()
    [row] = stream.run()
    assert row["new"] == "n"


@pytest.mark.parametrize("landing", ["json", "avro"], indirect=True)
def test_after_a_rollback_alone_the_same_field_evolves_again(landing: Landing) -> None:
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**TYPED)
    stream.run()
    landing.drop("2", [{"a": 2, "new": "x"}])
    with pytest.raises(UnknownFieldException):
        stream.run()
    assert stream.run()[0]["new"] == "x"
    SchemaHistory(str(landing.state)).rollback(0)
    landing.drop("3", [{"a": 3}])
    assert stream.run() == [{"a": 3, "_rescued_data": None}]
    landing.drop("4", [{"a": 4, "new": "y"}])
    with pytest.raises(UnknownFieldException, match="automatic retry: true"):
        stream.run()
    assert landing.versions() == [0, 1, 2, 3]
    [row] = stream.run()
    assert (row["a"], row["new"]) == (4, "y")


@pytest.mark.parametrize("landing", ["json", "parquet"], indirect=True)
def test_a_rollback_while_tasks_read_fails_them_once(landing: Landing) -> None:
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**TYPED)
    stream.run()
    landing.drop("2", [{"a": 2, "new": "x"}])
    [reader] = stream.tasks()
    SchemaHistory(str(landing.state)).pin()
    with pytest.raises(UnknownFieldException, match="automatic retry: true"):
        list(reader.read())
    assert landing.versions() == [0, 1], "what is pinned did not evolve"
    [row] = stream.run()
    assert json.loads(row["_rescued_data"])["new"] == "x"


@pytest.mark.parametrize("landing", ["json", "parquet"], indirect=True)
def test_tasks_that_meet_a_change_at_once_write_one_version(landing: Landing) -> None:  # B47
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**WIDENING)
    stream.run()
    for number in range(2, 10):
        value = 2**70 if landing.format == "json" else 0.5
        landing.drop(str(number), [{"a": 1, f"new{number}": value}])
    readers = stream.tasks()
    barrier = threading.Barrier(len(readers))

    def read(reader: TaskReader) -> str:
        barrier.wait()
        with pytest.raises(UnknownFieldException) as caught:
            list(reader.read())
        assert caught.value.is_retryable
        return caught.value.message

    with ThreadPoolExecutor(len(readers)) as pool:
        list(pool.map(read, readers))
    assert landing.versions() == [0, 1]
    assert len(stream.run()) == 8


def test_fixed_columns_are_never_looked_at(tmp_path: Path) -> None:
    landing = Landing("binaryFile", tmp_path)
    landing.put("1", b"\x00\xff")
    stream = landing.stream(**WIDENING)
    [row] = stream.run()
    assert (row["length"], row["content"]) == (2, b"\x00\xff")
    assert landing.versions() == [0]
