"""A VARIANT of a stream is one in its Delta table, whoever reads it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql.types import StructField, StructType
from pyspark.sql.variant_utils import VariantUtils

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    SchemaMismatchError,
    SinkError,
)
from airflow_cloudfiles.engine.extensions.merge.batch_write import add_action
from airflow_cloudfiles.engine.spark.tables.source import DeltaTableReader
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.tables.delta.opening import table_schema
from airflow_cloudfiles.engine.tables.delta.read.columns import schema_of
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from airflow_cloudfiles.engine.types import VARIANT, VariantType
from tests.support.delta_writes import ANY_SIZE
from tests.support.formats.columnar_files import parquet
from tests.support.formats.variant_files import NOTHING, annotated, plain, variant
from tests.support.landed import Stream
from tests.support.laws import some
from tests.support.promoted import Landed

NULL = plain(None)
"""A null of JSON, which is a value."""
VALUES = [plain({"a": [1, "é", None]}), None, plain(1.5), NULL, None, plain({"b": {}})]
MANY = [("k", value) for value in VALUES]
SHAPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "column": (VARIANT, VALUES),
    "field": (
        pa.struct([("n", pa.int64()), ("v", VARIANT)]),
        [None, *({"n": 1, "v": each} for each in VALUES)],
    ),
    "element": (pa.list_(pa.field("element", VARIANT)), [VALUES, None, []]),
    "value": (pa.map_(pa.string(), VARIANT), [MANY, None, [], MANY[1:2]]),
    "deep": (
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.struct([("v", VARIANT)])))])),
        [[None, {"m": [("k", {"v": each}) for each in VALUES]}], [{"m": None}]],
    ),
}


def commit(target: Path, number: int, *batches: pa.RecordBatch, merge: bool = True) -> Any:
    """Write batches as a task does, and commit them as the driver does."""
    schema = batches[0].schema
    return delta_commit.commit_batch(
        str(target),
        batch=BatchId("stream", number),
        files=DataFileWriter(str(target), schema).write(batches),
        schema=schema,
        rules=WriteRules(merge_schema=merge, widened_bytes=ANY_SIZE if merge else None),
    )


def column(kind: pa.DataType, rows: list[Any], name: str = "v") -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(rows, kind)], schema=pa.schema([(name, kind)]))


def read(target: Path) -> list[dict[str, Any]]:
    """Rows as `spark.read` gets them."""
    reader = DeltaTableReader(str(target), table_schema(str(target)))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted((row for batch in batches for row in batch.to_pylist()), key=str)


def decoded(value: Any) -> Any:
    """Values with their VARIANTs as Python has them."""
    if isinstance(value, dict) and value.keys() == {"value", "metadata"}:
        return ("variant", VariantUtils.to_python(value["value"], value["metadata"]))
    if isinstance(value, dict):
        return {key: decoded(each) for key, each in value.items()}
    return [decoded(each) for each in value] if isinstance(value, list | tuple) else value


def in_order(rows: list[Any]) -> list[str]:
    return sorted(map(str, decoded(rows)))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_variant_is_written_once_and_read_by_all(tmp_path: Path, shape: str) -> None:
    kind, rows = SHAPES[shape]
    target = tmp_path / "t"
    whole = column(kind, rows)
    assert commit(target, 0, whole).is_new
    # Batches that are parts of others, as a reader's, with rows before and behind them.
    assert commit(target, 1, column(kind, [*rows, *rows]).slice(1, len(rows)), whole).is_new
    assert not commit(target, 1, whole).is_new  # B140
    expected = in_order([*rows, *rows[1:], rows[0], *rows])
    table = DeltaTable(str(target))
    for features in (table.protocol().reader_features, table.protocol().writer_features):
        assert features is not None
        assert "variantType" in features
    table.create_checkpoint()
    table = DeltaTable(str(target))
    theirs = (
        table.to_pyarrow_table(),
        pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t")),
    )
    for found in theirs:
        assert in_order(found.column("v").to_pylist()) == expected
    assert in_order([row["v"] for row in read(target)]) == expected
    table.optimize.compact()
    assert in_order([row["v"] for row in read(target)]) == expected
    commit(target, 2, whole)
    assert len(read(target)) == len(expected) + len(rows)


def test_a_data_file_has_two_parts_that_are_never_null_and_no_bounds(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2]), pa.array([plain({"a": 1}), None], VARIANT)],
        schema=pa.schema([("id", pa.int64()), ("v", VARIANT)]),
    )
    (file,) = DataFileWriter(str(tmp_path), batch.schema).write([batch])
    schema = pq.read_metadata(tmp_path / file.name).schema
    assert [schema.column(each).path for each in range(3)] == ["id", "v.value", "v.metadata"]
    levels = [schema.column(each).max_definition_level for each in range(3)]
    assert levels == [1, 1, 1], "the group is optional, its parts are required"
    found = json.loads(file.statistics)
    assert found["numRecords"] == 2
    assert not any("v" in name for kind in ("minValues", "maxValues") for name in found[kind])


def test_a_variant_that_is_null_is_no_null(tmp_path: Path) -> None:
    commit(tmp_path / "t", 0, column(VARIANT, [NULL, None]))
    assert in_order([row["v"] for row in read(tmp_path / "t")]) == in_order([NULL, None])
    assert in_order([NULL]) != in_order([None])


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_spark_have_nulls_in_the_parts_of_a_null(tmp_path: Path, shape: str) -> None:
    """Spark's writer of Arrow sets the parts of a null to null."""
    kind, rows = SHAPES[shape]
    theirs = _with_null_parts(pa.array(rows, kind))
    batch = pa.RecordBatch.from_arrays([theirs], schema=pa.schema([("v", kind)]))
    commit(tmp_path / "t", 0, batch)
    assert in_order([row["v"] for row in read(tmp_path / "t")]) == in_order(rows)


def _with_null_parts(array: pa.Array) -> pa.Array:
    """The array without the marks of a VARIANT, and with nulls in the parts of those that are."""
    kind, own = array.type, array.buffers()
    if pa.types.is_map(kind):
        items = _with_null_parts(array.items)
        kind = pa.map_(kind.key_type, items.type)
        pair = pa.struct([kind.key_field, kind.item_field])
        inner = pa.Array.from_buffers(pair, len(items), [None], children=[array.keys, items])
        return pa.Array.from_buffers(kind, len(array), own[:2], children=[inner])
    if pa.types.is_list(kind):
        inner = _with_null_parts(array.values)
        kind = pa.list_(kind.value_field.with_type(inner.type))
        return pa.Array.from_buffers(kind, len(array), own[:2], children=[inner])
    if not pa.types.is_struct(kind):
        return array
    inner = [_with_null_parts(array.field(place)) for place in range(kind.num_fields)]
    if kind == VARIANT:
        inner = [pc.if_else(array.is_null(), pa.scalar(None, each.type), each) for each in inner]
    fields = [each.with_type(part.type) for each, part in zip(kind, inner, strict=True)]
    kind = pa.struct([each.remove_metadata() for each in fields])
    return pa.Array.from_buffers(kind, len(array), own[:1], children=inner)


INT = pa.schema([("id", pa.int64()), ("s", pa.struct([("n", pa.int32())]))])
GROWN = pa.schema(
    [("id", pa.int64()), ("s", pa.struct([("n", pa.int32()), ("v", VARIANT)])), ("v", VARIANT)]
)
WIDE = pa.schema(
    [("id", pa.int64()), ("s", pa.struct([("n", pa.int64()), ("v", VARIANT)])), ("v", VARIANT)]
)


def test_columns_and_the_table_feature_are_added_in_one_commit(tmp_path: Path) -> None:
    target = tmp_path / "t"
    commit(target, 0, pa.RecordBatch.from_pylist([{"id": 0, "s": {"n": 1}}], INT))
    assert DeltaTable(str(target)).protocol().writer_features is None
    batch = pa.RecordBatch.from_pylist(
        [{"id": 1, "s": {"n": 2, "v": None}, "v": plain([1])}], GROWN
    )
    with pytest.raises(SchemaMismatchError, match=r"lacks s\.v, v.*mergeSchema"):
        commit(target, 1, batch, merge=False)
    assert DeltaTable(str(target)).protocol().writer_features is None
    commit(target, 1, batch)
    entries = [path.read_text() for path in sorted((target / "_delta_log").glob("*.json"))]
    changed = [set(json.loads(line)) for line in entries[2].splitlines()]
    assert {"metaData"} in changed
    assert {"protocol"} in changed
    assert in_order(read(target)) == in_order(
        [
            {"id": 0, "s": {"n": 1, "v": None}, "v": None},
            {"id": 1, "s": {"n": 2, "v": None}, "v": plain([1])},
        ]
    )


def _commit_second(target: Path) -> None:
    rows = [{"id": 1, "s": {"n": 2, "v": plain("x")}, "v": None}]
    commit(target, 1, pa.RecordBatch.from_pylist(rows, GROWN))


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    some(
        ["after-sink-columns", "before-sink-commit", "after-sink-commit"],
        1,
        name="kills of a commit with variants",
        always=["after-sink-commit"],
    ),
)
def test_killed_while_the_column_comes_the_batch_is_there_once(tmp_path: Path, point: str) -> None:
    target = tmp_path / "t"
    commit(target, 0, pa.RecordBatch.from_pylist([{"id": 0, "s": None}], INT))
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.unit.delta.test_delta_variant_sink import _commit_second\n"
        "_commit_second(Path(sys.argv[1]))\n"
    )
    arguments = [sys.executable, "-c", program, str(target)]
    killed = subprocess.run(arguments, env={**os.environ, CRASH_AT: point}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(read(target)) == 1 + (point == "after-sink-commit")
    _commit_second(target)
    assert [decoded(row["s"]) for row in read(target)] == [
        None,
        {"n": 2, "v": ("variant", "x")},
    ]


def test_a_table_with_variants_is_widened_and_keeps_them(tmp_path: Path) -> None:
    """Also those in data files of other writers: in another order, with parts that may be null."""
    target = tmp_path / "t"
    rows = [
        {"id": 1, "s": {"n": 7, "v": plain({"a": 1})}, "v": plain("x")},
        {"id": 2, "s": {"n": None, "v": None}, "v": None},
        {"id": 3, "s": None, "v": plain([])},
    ]
    commit(target, 0, pa.RecordBatch.from_pylist(rows, GROWN))
    other = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    theirs = pa.struct([("n", pa.int32()), ("v", other)])
    foreign = {
        "id": [4],
        "s": pa.array([{"n": 8, "v": plain(2)}], theirs),
        "v": pa.array([None], other),
    }
    pq.write_table(pa.table(foreign), target / "part-other.parquet")
    table = DeltaTable(str(target))
    size = (target / "part-other.parquet").stat().st_size
    file = add_action(DataFile("part-other.parquet", size, 1, 0, '{"numRecords":1}'))
    table.create_write_transaction([file], "append", table.schema())
    new = {"id": 5, "s": {"n": 2**40, "v": None}, "v": plain(True)}
    commit(target, 1, pa.RecordBatch.from_pylist([new], WIDE))
    last = {"id": 4, "s": {"n": 8, "v": plain(2)}, "v": None}
    assert in_order(read(target)) == in_order([*rows, last, new])
    live = DeltaTable(str(target)).file_uris()
    assert {pq.read_schema(each).field("s").type.field("n").type for each in live} == {pa.int64()}


def _stream_with_variants(folder: Path) -> Landed:
    landed = Landed.create(folder, "id BIGINT, user STRUCT<name: STRING>")
    landed.land({"id": 1, "zip": "01", "user": {"name": "a", "age": 5}}, {"id": 2})
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("user", pa.struct([("name", pa.string()), ("v", VARIANT)])),
            ("v", VARIANT),
            ("_rescued_data", pa.string()),
        ]
    )
    rescued = '{"zip":"02","user":{"age":6},"v":{"x":1},"_file_path":"file:///f"}'
    rows = [
        {"id": 3, "user": {"name": "b", "v": plain(1)}, "v": plain("y"), "_rescued_data": None},
        {"id": 4, "user": None, "v": None, "_rescued_data": rescued},
    ]
    landed.land_batch(pa.RecordBatch.from_pylist(rows, schema))
    return landed


def test_a_promotion_carries_the_variants_of_its_rows_along(tmp_path: Path) -> None:
    landed = _stream_with_variants(tmp_path)
    assert landed.promote({"zip": "STRING", "user.age": "BIGINT"}).rows == 2
    found = {row["id"]: decoded(row) for row in read(Path(landed.target))}
    assert [found[each]["zip"] for each in (1, 2, 3, 4)] == ["01", None, None, "02"]
    assert [found[each]["v"] for each in (1, 2, 3, 4)] == [None, None, ("variant", "y"), None]
    assert found[1]["user"] == {"name": "a", "v": None, "age": 5}
    assert found[3]["user"] == {"name": "b", "v": ("variant", 1), "age": None}
    assert found[4]["user"] == {"name": None, "v": None, "age": 6}


def test_nothing_is_promoted_into_a_variant_and_nothing_changes(tmp_path: Path) -> None:
    landed = _stream_with_variants(tmp_path)
    before = landed.table.version(), landed.log.latest()
    for field in ("v", "user.v"):
        with pytest.raises(IncompatibleSchemaError, match=f"{field} is a column of type variant"):
            landed.promote([field])
    assert (landed.table.version(), landed.log.latest()) == before


def test_other_types_are_not_taken_for_a_variant(tmp_path: Path) -> None:
    parts = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    turned = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    for number, kind in enumerate((parts, turned, pa.string())):
        for have, want in ((kind, VARIANT), (VARIANT, kind)):
            target = tmp_path / f"{number}{have == VARIANT}"
            commit(target, 0, column(have, [None]))
            assert (schema_of(DeltaTable(str(target)))["v"].dataType == VariantType()) == (
                have.equals(VARIANT, check_metadata=True)
            )
            with pytest.raises(
                SchemaMismatchError, match=r"to merge fields 'v' and 'v'.*: v is .*vari"
            ) as error:
                commit(target, 1, column(want, [None]))
            assert ("A hint cannot make a column a VARIANT" in str(error.value)) == (want == kind)


def test_a_map_with_variants_as_keys_is_refused_by_name(tmp_path: Path) -> None:
    kind = pa.struct([("m", pa.map_(VARIANT, pa.string()))])
    with pytest.raises(SchemaMismatchError, match=r"Column v\.m is a map whose keys are VARIANTs"):
        commit(tmp_path / "t", 0, column(kind, []))


def _empty_table(folder: Path, *names: str) -> Path:
    """A table with a VARIANT and these table features, as another writer has made it."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": names, "writerFeatures": names}
    meta = {
        "id": "v", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
        "schemaString": StructType([StructField("v", VariantType())]).json(),
        "configuration": {}, "createdTime": 0,
    }  # fmt: skip
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": meta})]
    (log / f"{0:020}.json").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize("feature", ["variantShredding", "variantShredding-preview"])
def test_a_table_whose_files_are_shredded_is_refused_by_name(tmp_path: Path, feature: str) -> None:
    """`deltalake` (1.6) does not commit to it."""
    target = _empty_table(tmp_path / "t", "variantType", feature)
    with pytest.raises(SinkError, match=f"it has the table feature {feature}"):
        commit(target, 0, column(VARIANT, [plain(1)]))
    assert list(target.glob("*.parquet")) == []


def test_a_table_with_the_preview_of_the_feature_takes_rows_and_columns(tmp_path: Path) -> None:
    target = _empty_table(tmp_path / "t", "variantType-preview")
    commit(target, 0, column(VARIANT, [plain(1)]))
    commit(target, 1, column(VARIANT, [plain(2)], "w"))
    assert in_order(read(target)) == in_order(
        [{"v": plain(1), "w": None}, {"v": None, "w": plain(2)}]
    )


JSON = b'{"a":[1,{"b":"x"}]}\n[1]\n"text"\nnull\nbroken\n'
XML = b"<r><row><a>1</a></row><row b='x'/></r>"
SOURCES: dict[str, tuple[str, bytes, dict[str, str], list[Any]]] = {
    "json": ("json", JSON, {"singleVariantColumn": "v"}, [{"a": [1, {"b": "x"}]}, [1], "text"]),
    "xml": ("xml", XML, {"singleVariantColumn": "v", "rowTag": "row"}, [{"a": 1}, {"_b": "x"}]),
    "parquet": ("parquet", b"", {}, [5, "x", {"a": 1}]),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_stream_lands_its_variants(tmp_path: Path, name: str) -> None:
    kind, data, options, values = SOURCES[name]
    if kind == "parquet":
        typed = [{"metadata": NOTHING, "typed_value": 5}, plain("x"), plain({"a": 1}), None]
        table = pa.table({"v": pa.array(typed, variant(pa.int64()))})
        data = annotated(table, "v").data
        assert data != parquet(table).data
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / f"f.{kind}").write_bytes(data)
    stream = Stream(tmp_path / "landing", tmp_path / "state", kind, **options)
    target = tmp_path / "t"
    for number, task in enumerate(stream.tasks()):
        commit(target, number, *task.read())
    found = [decoded(row["v"]) for row in read(target)]
    for value in values:
        assert ("variant", value) in found
    extra = {"json": [("variant", None), None], "xml": [], "parquet": [None]}[name]
    rest = [each for each in found if each not in [("variant", value) for value in values]]
    assert sorted(rest, key=str) == sorted(extra, key=str)
