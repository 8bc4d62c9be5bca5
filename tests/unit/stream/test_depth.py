"""What lies deeper than rows can be carried to a table is rescued, and stops no stream."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import orc
from pyarrow import parquet as pq
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    SchemaHintError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream import definition
from airflow_cloudfiles.engine.tables.delta.read.columns import delta_schema
from airflow_cloudfiles.engine.types import canonical, to_arrow, too_deep
from tests.support.landed import Stream
from tests.unit.stream.test_every_format import Landing

Record = dict[str, Any]


def chain(depth: int) -> Any:
    """Structs one in the other."""
    return {"a": chain(depth - 1)} if depth else 1


def tree(depth: int) -> Record:
    """A node of a tree with one branch."""
    node: Record = {"name": str(depth)}
    return node | {"children": [tree(depth - 1)]} if depth else node


def _json(record: Record) -> bytes:
    return json.dumps(record).encode()


def _xml(record: Record) -> bytes:
    def element(name: str, value: Any) -> str:
        items = value if isinstance(value, list) else [value]
        return "".join(f"<{name}>{inside(each)}</{name}>" for each in items)

    def inside(value: Any) -> str:
        if not isinstance(value, dict):
            return str(value)
        return "".join(element(*member) for member in value.items())

    return f"<rows>{element('row', record)}</rows>".encode()


def _parquet(record: Record) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([record]), sink)
    return sink.getvalue()


def _orc(record: Record) -> bytes:
    sink = io.BytesIO()
    orc.write_table(pa.Table.from_pylist([record]), sink)
    return sink.getvalue()


def _avro(record: Record) -> bytes:
    names = iter(range(1000))

    def schema(value: Any) -> Any:
        if isinstance(value, dict):
            fields = [{"name": key, "type": schema(each)} for key, each in value.items()]
            return {"type": "record", "name": f"r{next(names)}", "fields": fields}
        if isinstance(value, list):
            return {"type": "array", "items": schema(value[0])}
        return "string" if isinstance(value, str) else "long"

    sink = io.BytesIO()
    fastavro.writer(sink, schema(record), [record])
    return sink.getvalue()


WRITERS: dict[str, Callable[[Record], bytes]] = {
    "avro": _avro,
    "json": _json,
    "orc": _orc,
    "parquet": _parquet,
    "xml": _xml,
}
OPTIONS = {"xml": {"rowTag": "row"}}


@pytest.fixture(params=WRITERS)
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    """A folder that takes records in one of the formats."""
    return Landing(request.param, tmp_path)


def put(landing: Landing, name: str, record: Record) -> None:
    """Land a file of one record."""
    landing.put(name, WRITERS[landing.format](record))


def stream_of(landing: Landing, **options: Any) -> Stream:
    """The stream of a folder."""
    return landing.stream(**{**OPTIONS.get(landing.format, {}), **options})


def carried(stream: Stream, folder: Path) -> None:
    """Carry rows as Spark does, and to a Delta table."""
    schema = definition.resolve_schema(stream.options).full_schema(stream.options)
    table = pa.Table.from_pylist(stream.rows, to_arrow(schema))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().num_rows == len(stream.rows)
    assert delta_schema(schema).to_json()
    write_deltalake(str(folder), table)
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == len(stream.rows)


@pytest.mark.parametrize("is_tree", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_lies_too_deep_is_rescued_in_every_format(
    landing: Landing, tmp_path: Path, *, is_tree: bool, is_first: bool
) -> None:
    # A branch of XML is no array; Parquet's library reads no tree of 33.
    value = chain(45) if not is_tree else tree(45 if landing.format == "xml" else 31)
    if not is_first:
        put(landing, "1", {"id": 1})
    else:
        put(landing, "1", {"id": 1, "t": value})
    stream = stream_of(landing)
    stream.run()
    put(landing, "2", {"id": 2, "t": value})
    try:
        stream.run()
    except UnknownFieldException:
        assert is_tree
        stream.run()
    put(landing, "3", {"id": 3})
    stream.run()
    [found] = [row for row in stream.rows if str(row["id"]) == "2"]
    rescued = json.loads(found["_rescued_data"])["t"]
    assert ("t" in found) == is_tree
    assert json.dumps(rescued).count("{") > (0 if is_tree else 44)
    assert len(stream.rows) == 3
    carried(stream, tmp_path / "t")


def test_a_file_of_nothing_but_what_is_too_deep_is_begun_with(landing: Landing) -> None:
    put(landing, "1", {"t": chain(60)})
    [row] = stream_of(landing).run()
    assert (row["t"] or row["_rescued_data"]).count("a") >= 60


@pytest.mark.parametrize(
    ("kind", "most"),
    [(StructType, 41), (ArrayType, 49), (MapType, 31)],
)
def test_the_bound_is_what_transport_and_table_take(
    tmp_path: Path, kind: type[DataType], most: int
) -> None:
    def nested(depth: int) -> DataType:
        if not depth:
            return IntegerType()
        inner = nested(depth - 1)
        if kind is StructType:
            return StructType([StructField("a", inner)])
        return ArrayType(inner) if kind is ArrayType else MapType(StringType(), inner)

    deepest = StructType([StructField("c", nested(most))])
    assert too_deep(deepest) is None
    assert too_deep(StructType([StructField("c", nested(most + 1))])) == "c"
    assert canonical(nested(most + 1)) is None
    stream = Stream(tmp_path, tmp_path / "s", "json", schema=deepest)
    table = pa.Table.from_pylist([{"c": None}], to_arrow(deepest))
    write_deltalake(str(tmp_path / "t"), table)
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 1
    definition.check_readable(definition.given_schema(deepest, stream.options), stream.options)


@pytest.mark.parametrize("wrap", [lambda inner: inner, lambda inner: {"q": [inner]}])
@pytest.mark.parametrize("nodes", [29, 30, 31, 32])
def test_a_tree_becomes_a_table_whatever_its_depth(
    tmp_path: Path, nodes: int, wrap: Callable[[Record], Record]
) -> None:
    """Structs in lists in structs cost other numbers of levels than structs alone."""
    landing = Landing("json", tmp_path)
    put(landing, "1", wrap(tree(nodes)))
    stream = landing.stream(**{"cloudFiles.inferColumnTypes": "true"})
    [row] = stream.run()
    assert f"{nodes}" in json.dumps(row)
    carried(stream, tmp_path / "t")


def deep_schema() -> StructType:
    """A schema beyond the bound."""
    inner: DataType = IntegerType()
    for _ in range(50):
        inner = StructType([StructField("a", inner)])
    return StructType([StructField("id", StringType()), StructField("deep", inner)])


def test_a_given_schema_that_is_too_deep_is_refused_by_name(tmp_path: Path) -> None:
    stream = Stream(tmp_path, tmp_path / "s", "json", schema=deep_schema())
    given = definition.given_schema(deep_schema(), stream.options)
    with pytest.raises(IncompatibleSchemaError, match="Column deep of the given schema"):
        definition.check_readable(given, stream.options)


def test_a_hint_that_is_too_deep_is_refused_by_name(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    put(landing, "1", {"id": 1})
    hint = f"deep {'ARRAY<' * 60}INT{'>' * 60}"
    with pytest.raises(SchemaHintError, match="'deep' a type that is nested deeper"):
        landing.stream(**{"cloudFiles.schemaHints": hint}).run()


def test_a_state_that_holds_such_a_schema_says_the_way_out(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    put(landing, "1", {"id": 1})
    stream = landing.stream()
    stream.run()
    log = SchemaLog(open_store(str(landing.state)), open_store(str(landing.source)).uri)
    log.append(1, data_schema=deep_schema(), partition_schema=StructType([]), reason={})
    resolved = definition.resolve_schema(stream.options)
    with pytest.raises(IncompatibleSchemaError, match=r"schema rollback.*Mode=rescue"):
        definition.check_readable(resolved, stream.options)
