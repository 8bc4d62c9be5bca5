"""Spark's own readers are the oracle of Avro, text, binary files and compressions.

The classes of Spark's Avro reader are in its core since Spark 4, though not under the name `avro`.
"""

from __future__ import annotations

import codecs
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.formats.base import FileReader
from airflow_cloudfiles.engine.formats.registry import open_reader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.types import canonical_struct, seen_columns
from tests.support.formats.avro_files import (
    LEAVES,
    NAMED,
    encode,
    infer,
    logical,
    named,
    read,
    record,
    some_record,
)

pytestmark = pytest.mark.spark

SPARK_AVRO = "org.apache.spark.sql.avro.AvroFileFormat"
TIMES = {"time"}
"""Spark has a type of its own for times of day, which Delta has not: here they are numbers."""
PLAIN = {name: shape for name, shape in LEAVES.items() if name not in TIMES}
USER = record(("name", "string"), ("age", ["null", "int"]), name="User")
SCHEMA = record(
    *((name.replace(" ", "_"), ["null", schema]) for name, (schema, _) in PLAIN.items()),
    *((f"bare_{name.replace(' ', '_')}", schema) for name, (schema, _) in PLAIN.items()),
    ("enum", ["null", {**NAMED["enum"][0], "name": "E"}]),
    ("fixed", {**NAMED["fixed"][0], "name": "F"}),
    ("fixed_decimal", ["null", {**NAMED["fixed decimal"][0], "name": "D"}]),
    ("uuid", logical("string", "uuid")),
    ("strings", {"type": "array", "items": "string"}),
    ("enums", ["null", {"type": "array", "items": ["null", "E"]}]),
    ("weights", {"type": "map", "values": ["null", "double"]}),
    ("user", ["null", USER]),
    ("users", {"type": "map", "values": {"type": "array", "items": "User"}}),
    ("int_or_long", ["int", "long", "null"]),
    ("float_or_double", ["float", "double"]),
    ("only", ["string"]),
    ("one_of", ["null", "long", "string", "User", "boolean"]),
    ("two_of", ["int", "string"]),
    ("nothing", "null"),
)


def _value(generator: random.Random, name: str) -> Any:
    bare = name.removeprefix("bare_").replace("_", " ")
    user = {"name": "né", "age": generator.choice([None, 7])}
    if bare in LEAVES:
        may_be_null = not name.startswith("bare_")
        return None if may_be_null and generator.random() < 0.2 else LEAVES[bare][1](generator)
    if bare in NAMED:
        return NAMED[bare][1](generator)
    number = generator.randrange(-(2**31), 2**31)
    choices: dict[str, list[Any]] = {
        "uuid": [f"{number:032x}"],
        "only": [f"{number:032x}"],
        "strings": [[LEAVES["string"][1](generator) for _ in range(number % 3)]],
        "enums": [None, [], ["A", None, "B"]],
        "weights": [{str(key): generator.choice([None, key / 3]) for key in range(number % 3)}],
        "user": [None, user],
        "users": [{"k": [user] * (number % 3), "l": []}],
        "int_or_long": [("int", number), ("long", number * 2**20), None],
        "float_or_double": [("float", 0.1), ("double", 0.1)],
        "one_of": [None, ("long", number), ("string", "s"), ("User", user), ("boolean", True)],
        "two_of": [("int", number), ("string", str(number))],
        "nothing": [None],
    }
    return generator.choice(choices[name])


def _sorted(table: pa.Table, by: str) -> list[dict[str, Any]]:
    return table.take(pc.sort_indices(table, [(by, "ascending")])).to_pylist()


def _assert_same(ours: pa.Table, theirs: pa.Table) -> None:
    """Column by column, so that a failure says which."""
    ours = ours.take(pc.sort_indices(ours, [("number", "ascending")]))
    theirs = theirs.take(pc.sort_indices(theirs, [("number", "ascending")]))
    for name in ours.column_names:
        assert _unordered(ours[name].to_pylist()) == _unordered(theirs[name].to_pylist()), name


def _unordered(value: Any) -> Any:
    """Values without the order of maps, which Java does not keep."""
    if isinstance(value, dict):
        return {key: _unordered(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_unordered, value))
    if not isinstance(value, list):
        return value
    found = [_unordered(each) for each in value]
    return sorted(found, key=repr) if all(isinstance(each, tuple) for each in found) else found


def _spark_avro(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.format(SPARK_AVRO).load(str(path))


def test_avro_of_all_types_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    generator = random.Random(5)
    numbered = record(("number", "long"), *((f["name"], f["type"]) for f in SCHEMA["fields"]))
    records = [
        {"number": number, **{f["name"]: _value(generator, f["name"]) for f in SCHEMA["fields"]}}
        for number in range(3000)
    ]
    data = encode(numbered, records, codec="deflate", sync_interval=20_000)
    (tmp_path / "f.avro").write_bytes(data)
    frame = _spark_avro(spark, tmp_path)
    schema = infer(data)
    assert schema == canonical_struct(seen_columns(frame.schema))  # B12: the types are the file's
    ours = read(data, schema, schemaEvolutionMode="none").drop(["_rescued_data"])
    theirs = frame.select(ours.column_names).toArrow().cast(ours.schema)
    _assert_same(ours, theirs)


def test_avro_of_any_shape_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    """Forty random schemas in one job: each is a column of its own."""
    generator = random.Random(77)
    shapes = [named(some_record(generator, 3)) for _ in range(40)]
    schema = record(("number", "long"), *((f"s{n}", each[0]) for n, each in enumerate(shapes)))
    records = [
        {"number": number, **{f"s{n}": each[1](generator) for n, each in enumerate(shapes)}}
        for number in range(100)
    ]
    data = encode(schema, records)
    (tmp_path / "f.avro").write_bytes(data)
    frame = _spark_avro(spark, tmp_path)
    fits = infer(data)
    ours = read(data, fits).drop(["_rescued_data"])
    names = [name for name in fits.names if _is_comparable(fits[name].dataType, frame, name)]
    assert len(names) > 20
    theirs = frame.select(*names).toArrow()
    _assert_same(ours.select(names), theirs)


def _is_comparable(kind: Any, frame: DataFrame, name: str) -> bool:
    """Whether Spark finds the same type: not where empty structs are left out here (B77)."""
    return bool(kind == frame.schema[name].dataType)


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "deflate", "bzip2", "xz", "zstandard"])
def test_avro_that_spark_wrote_is_read(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    frame = spark.range(0, 4000, 1, 1).selectExpr(
        "id", "cast(id as string) s", "cast(id as decimal(20, 3)) / 8 d", "array(id, null) a",
        "named_struct('x', id % 3, 'y', date_add(date'1969-12-30', cast(id as int))) n",
        "timestamp_micros(id * 1000001) t", "map('k', cast(id as float)) m",
    )  # fmt: skip
    frame.write.format(SPARK_AVRO).option("compression", codec).save(str(tmp_path / "out"))
    [path] = (tmp_path / "out").glob("part-*")
    data = path.read_bytes()
    ours = read(data)
    assert ours["_rescued_data"].null_count == 4000
    theirs = frame.toArrow()
    assert _sorted(ours.drop(["_rescued_data"]), "id") == _sorted(theirs, "id")


def test_old_calendars_are_told_from_the_header(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 400, 1, 1).selectExpr(
        "id number", "date_add(date'1582-10-04', cast(id as int) * 400 - 130000) d",
        "array(timestamp_micros(-12219292800000000 - id * 1000000000000)) t",
    )  # fmt: skip
    for mode in ("CORRECTED", "LEGACY"):
        spark.conf.set("spark.sql.avro.datetimeRebaseModeInWrite", mode)
        zone = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        try:
            frame.write.format(SPARK_AVRO).save(str(tmp_path / mode))
        finally:
            spark.conf.unset("spark.sql.avro.datetimeRebaseModeInWrite")
            spark.conf.set("spark.sql.session.timeZone", zone)
        [path] = (tmp_path / mode).glob("part-*")
        for option in ("CORRECTED", "EXCEPTION"):  # the file says it: no option matters
            ours = read(path.read_bytes(), datetimeRebaseMode=option).drop(["_rescued_data"])
            _assert_same(ours, _spark_avro(spark, tmp_path / mode).toArrow())
    assert pc.min(ours["d"]).as_py().year < 1300


# Text and binary files -----------------------------------------------------------------------

LINES = [
    b"one\ntwo\n\nlast without an end",
    b"dos\r\nlines\r\n\r\n",
    b"old\rmac\rlines",
    codecs.BOM_UTF8 + "marked ü\nzwei\n".encode(),
    b"\n\n\n",
    b"",
    "  blanks stay \t\n\u2028 no line break \u0085 either\x0b\x0c\x1c\n".encode(),
    b"x" * 300_000 + b"\n" + b"y" * 70_000,
]


def _ours(folder: Path, name: str, schema: StructType, **given: str) -> Iterator[dict[str, Any]]:
    options = CloudFilesOptions.parse({"cloudFiles.format": name, "path": str(folder), **given})
    store = open_store(str(folder))
    for path in sorted(folder.iterdir()):
        entry = store.head(path.name)
        assert entry is not None
        reader = open_reader(schema, options)
        assert isinstance(reader, FileReader)
        for batch in reader.read_file(StoreFile(store, entry)):
            yield from batch.to_pylist()


@pytest.mark.parametrize(
    "given",
    [{}, {"lineSep": "i"}, {"lineSep": "\r\n"}, {"lineSep": "li"}, {"wholeText": "true"}],
    ids=str,
)
def test_text_is_read_as_spark_reads_it(
    spark: SparkSession, tmp_path: Path, given: dict[str, str]
) -> None:  # B14
    for number, content in enumerate(LINES):
        (tmp_path / f"{number}.txt").write_bytes(content)
    frame = spark.read.format("text").options(**given).load(str(tmp_path))
    expected = [row["value"] for row in frame.collect()]
    if "wholeText" in given:
        # Spark passes over empty files, and leaves the mark of UTF-8 in the text.
        expected = ["", *(each.removeprefix("\ufeff") for each in expected)]
    found = [row["value"] for row in _ours(tmp_path, "text", frame.schema, **given)]
    assert sorted(found) == sorted(expected)


def test_binary_files_are_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:  # B14
    generator = random.Random(1)
    for number in range(1, 20):  # Spark passes over empty files; here each file is a row
        (tmp_path / f"f {number}.gz").write_bytes(generator.randbytes(number * 100))
    frame = spark.read.format("binaryFile").load(str(tmp_path))
    ours = sorted(_ours(tmp_path, "binaryFile", frame.schema), key=lambda row: row["length"])
    theirs = sorted(frame.toArrow().to_pylist(), key=lambda row: row["length"])
    for own, other in zip(ours, theirs, strict=True):
        # Two documented differences: the path is as in rescued data, the time has all its digits.
        assert own.pop("path") == "file://" + other.pop("path").removeprefix("file:")
        own_time, other_time = own.pop("modificationTime"), other.pop("modificationTime")
        assert own_time.replace(microsecond=own_time.microsecond // 1000 * 1000) == other_time
        assert own == other


@pytest.mark.parametrize("codec", ["none", "bzip2", "deflate", "gzip", "lz4", "snappy"])
def test_what_spark_compressed_is_read(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    frame = spark.range(0, 40_000, 1, 1).selectExpr("concat(id, '-', sha1(cast(id as string))) v")
    frame.write.option("compression", codec).text(str(tmp_path / "out"))
    [path] = (tmp_path / "out").glob("part-*")
    kept = tmp_path / "kept"
    kept.mkdir()
    path.rename(kept / path.name)
    schema = spark.read.text(str(kept)).schema
    assert [row["value"] for row in _ours(kept, "text", schema)] == [
        row["v"] for row in frame.collect()
    ]
