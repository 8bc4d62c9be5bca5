"""With a given schema and no rescued data column, Spark's own readers are the law.

Random records, most of them odd (`odd_records`), are read by Spark and by us with the same schema
and mode: the same values, the same NULLs, the same `_corrupt_record`, the same rows dropped, the
same records that fail. Where they differ there is a rule with a name and a reason (decision 51).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import CorruptRecordError
from airflow_cloudfiles.engine.formats.base import LinePiece
from airflow_cloudfiles.engine.formats.json.reader import JsonReader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from tests.support.formats import csv_files, xml_files
from tests.support.formats.xml_files import numbers
from tests.support.landing import drop, rows, run
from tests.support.odd_records import Records, random_schema, with_corrupt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CORRUPT = "_corrupt_record"
Row = dict[str, Any]
XML_COLUMNS = parse_schema(
    "_id BIGINT, a INT, b DOUBLE, c DATE, d TIMESTAMP, e DECIMAL(10,2), f BOOLEAN, g STRING, "
    "h FLOAT, t TINYINT, ntz TIMESTAMP_NTZ, long BIGINT, arr ARRAY<INT>, "
    "st STRUCT<_k: INT, x: INT, y: STRING, _VALUE: STRING>, "
    "items ARRAY<STRUCT<_sku: STRING, n: INT, p: DECIMAL(10,2)>>"
)


class Source:
    """One file of records, read by Spark and by us."""

    def __init__(self, spark: SparkSession, path: Path, content: str) -> None:
        path.write_text(content, encoding="utf-8")
        self._spark = spark
        self._path = path
        self._format = path.suffix[1:]

    def spark(self, schema: StructType, mode: str) -> list[Row]:
        """What Spark reads."""
        reader = self._spark.read.schema(schema).option("mode", mode)
        if self._format == "xml":
            reader = reader.option("rowTag", "row")
        return _plain(reader.format(self._format).load(str(self._path)).toArrow())

    def ours(self, schema: StructType, mode: str) -> list[Row]:
        """What we read."""
        if self._format == "json":
            given = {"cloudFiles.format": "json", "mode": mode}
            options = CloudFilesOptions.parse(given, path="/landing", has_schema=True)
            reader = JsonReader(schema, options)
            batches = [reader.read([LinePiece("f", self._path.read_bytes())])]
        elif self._format == "csv":
            found = csv_files.CsvReader(schema, csv_files.options(given=True, mode=mode))
            batches = list(found.read_file(csv_files.opened(self._path)))
        else:
            other = xml_files.XmlReader(schema, xml_files.options(given=True, mode=mode))
            batches = list(other.read_file(xml_files.opened(self._path)))
        for batch in batches:
            batch.validate(full=True)
        return _plain(pa.Table.from_batches(batches)) if batches else []


def _plain(table: pa.Table) -> list[Row]:
    """Rows, with dates and times as the numbers they are."""
    schema = pa.schema([each.with_type(numbers(each.type)) for each in table.schema])
    found: list[Row] = table.cast(schema).to_pylist()
    return found


def _same(theirs: object, ours: object) -> bool:
    """Whether two values are equal; NaN is equal to itself."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(_same(theirs[key], ours[key]) for key in ours)
    if isinstance(theirs, list | tuple) and isinstance(ours, list | tuple):
        pairs = zip(theirs, ours, strict=False)
        return len(theirs) == len(ours) and all(_same(*pair) for pair in pairs)
    return theirs == ours or (theirs != theirs and ours != ours)  # noqa: PLR0124 - NaN


def _is_part(theirs: object, ours: object) -> bool:
    """Whether a value has nothing that the other has not."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(_is_part(theirs[key], ours[key]) for key in ours)
    if isinstance(theirs, list) and isinstance(ours, list):
        return all(_is_part(*pair) for pair in zip(theirs, ours, strict=False))
    return theirs is None or _same(theirs, ours)


def _without(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != CORRUPT}


def _fails(read: Any, *args: Any) -> bool:
    try:
        read(*args)
    except (Py4JJavaError, PySparkException, CorruptRecordError):
        return True
    return False


# JSON -------------------------------------------------------------------------------------


def _rows_of(line: str) -> int:
    """How many rows a line has."""
    try:
        found = json.loads(line.rstrip(" ,"))
    except ValueError:
        return 1
    is_rows = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    return len(found) if is_rows else 1


def _is_json(line: str) -> bool:
    try:
        json.loads(line.rstrip(" ,"))
    except ValueError:
        return False
    return True


def _has_more(line: str) -> bool:
    """Rule "more after the record": here a bad record, or it would be lost; passed over by Spark.

    Its values are Spark's all the same.
    """
    try:
        end = json.JSONDecoder().raw_decode(line)[1]
    except ValueError:
        return False
    return bool(line[end:].strip(" ,"))


def _repeats_a_key(line: str) -> bool:
    """Rule "a repeated key": a bad record in Spark if any of its values does not fit.

    Here only if none of them does; the last one that fits counts in both.
    """
    repeats = False

    def check(pairs: list[tuple[str, object]]) -> None:
        nonlocal repeats
        repeats = repeats or len({key for key, _ in pairs}) < len(pairs)

    try:
        json.loads(line, object_pairs_hook=check)
    except ValueError:
        return False
    return repeats


def _differs_by_rule(line: str) -> bool:
    return _has_more(line) or _repeats_a_key(line)


def _has_binary(schema: StructType) -> bool:
    """Rule "broken base64": Spark's parser loses its place in the record."""
    return "binary" in schema.simpleString()


def _json(seed: int, fitting: float = 0.85) -> tuple[StructType, list[str]]:
    records = Records(("json", seed), fitting)
    schema = random_schema(records, nested=True)
    return schema, [records.json_line(schema) for _ in range(120)]


@pytest.mark.parametrize("seed", range(8))
def test_json_is_what_spark_reads(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    schema, lines = _json(seed)
    source = Source(spark, tmp_path / "f.json", "\n".join(lines))
    kept = with_corrupt(schema)
    theirs, ours = source.spark(kept, "PERMISSIVE"), source.ours(kept, "PERMISSIVE")
    of = [line for line in lines for _ in range(_rows_of(line))]
    assert len(theirs) == len(ours) == len(of)
    wrong = []
    for line, spark_row, our_row in zip(of, theirs, ours, strict=True):
        is_bad = our_row[CORRUPT] is not None
        if not _differs_by_rule(line) and spark_row[CORRUPT] != our_row[CORRUPT]:
            wrong.append((line, spark_row, our_row))
        elif not _is_json(line) and not _has_more(line):
            # Rule "no JSON": no values here; Spark's parser goes on after some errors.
            assert _without(our_row) == dict.fromkeys(schema.names)
        elif not (is_bad and _has_binary(schema)) and not _same(
            _without(spark_row), _without(our_row)
        ):
            wrong.append((line, spark_row, our_row))
    assert wrong == []
    # Without the column for corrupt records the values are the same.
    assert repr(source.ours(schema, "PERMISSIVE")) == repr([_without(row) for row in ours])


@pytest.mark.parametrize("seed", range(4))
def test_json_is_dropped_or_fails_as_in_spark(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    schema, lines = _json(seed)
    lines = [line for line in lines if not _differs_by_rule(line)]
    source = Source(spark, tmp_path / "f.json", "\n".join(lines))
    theirs, ours = (read(schema, "DROPMALFORMED") for read in (source.spark, source.ours))
    assert len(theirs) == len(ours) < sum(map(_rows_of, lines))
    assert _same(theirs, ours)
    if seed == 0:
        schema, lines = _json(seed, fitting=0.99)
        lines = [line for line in lines if not _differs_by_rule(line)]
        _compare_failing(spark, tmp_path / "one.json", schema, lines[:12])


# CSV --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_csv_is_what_spark_reads(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    records = Records(("csv", seed), fitting=0.85)
    schema = random_schema(records, nested=False)
    lines = [records.csv_line(schema) for _ in range(120)]
    source = Source(spark, tmp_path / "f.csv", "\n".join(lines))
    kept = with_corrupt(schema)
    for columns, mode in ((kept, "PERMISSIVE"), (schema, "PERMISSIVE"), (schema, "DROPMALFORMED")):
        theirs, ours = source.spark(columns, mode), source.ours(columns, mode)
        wrong = [pair for pair in zip(theirs, ours, strict=True) if not _same(*pair)]
        assert wrong == []
    if seed == 0:
        _compare_failing(spark, tmp_path / "one.csv", schema, lines[:8])


# XML --------------------------------------------------------------------------------------


def _has_the_least_number(line: str) -> bool:
    """Rule "the least number": Spark takes its sign off first, and the rest is too large."""
    return "-9223372036854775808" in line


@pytest.mark.parametrize("seed", range(8))
def test_xml_is_what_spark_reads(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    records = Records(("xml", seed), fitting=(0.85, 0.97)[seed % 2])
    columns = set(records.random.sample(XML_COLUMNS.names, 6))
    schema = StructType([each for each in XML_COLUMNS.fields if each.name in columns])
    lines = [records.xml_row(schema) for _ in range(100)]
    lines = [line for line in lines if not _has_the_least_number(line)]
    source = Source(spark, tmp_path / "f.xml", f"<rows>{''.join(lines)}</rows>")
    kept = with_corrupt(schema)
    theirs, ours = source.spark(kept, "PERMISSIVE"), source.ours(kept, "PERMISSIVE")
    wrong = []
    for line, spark_row, our_row in zip(lines, theirs, ours, strict=True):
        if our_row[CORRUPT] is None:
            is_same = _same(spark_row, our_row)
        else:
            # Rules "after a misfit": Spark misses the rest of the row; "the text of a bad row":
            # Spark's is the whole file.
            is_part = _is_part(_without(spark_row), _without(our_row))
            is_same = is_part and our_row[CORRUPT] == line and line in (spark_row[CORRUPT] or "")
        if not is_same:
            wrong.append((line, spark_row, our_row))
    assert wrong == []
    assert repr(source.ours(schema, "PERMISSIVE")) == repr([_without(row) for row in ours])
    theirs, ours = (read(schema, "DROPMALFORMED") for read in (source.spark, source.ours))
    assert _same(theirs, ours)
    if seed == 0:
        _compare_failing(
            spark, tmp_path / "one.xml", schema, [f"<r>{row}</r>" for row in lines[:8]]
        )


def _compare_failing(spark: SparkSession, path: Path, schema: StructType, lines: list[str]) -> None:
    """One record a file: it fails in both, or in none."""
    found = set()
    for line in lines:
        source = Source(spark, path, line)
        both = [_fails(read, schema, "FAILFAST") for read in (source.spark, source.ours)]
        assert both[0] == both[1], line
        found.add(both[0])
    assert found == {False, True}


# Columns ----------------------------------------------------------------------------------


COLUMNS = ["n INT", "s STRING", "_rescued_data STRING", "_corrupt_record STRING"]
ORDERS = [", ".join(COLUMNS[place:] + COLUMNS[:place]) for place in range(len(COLUMNS))]


@pytest.mark.parametrize("order", ORDERS)
def test_columns_of_records_and_paths_run_in_any_order(
    spark: SparkSession, tmp_path: Path, order: str
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "n=1/a.json", [{"s": "x"}])
    frame = (
        spark.readStream.format("cloudFiles")
        .schema(order)
        .option("cloudFiles.format", "json")
        .option("rescuedDataColumn", "_rescued_data")
        .load(str(source))
    )
    assert frame.schema == parse_schema(order)
    run(frame, state, target)
    [row] = rows(target)
    assert row == {"n": 1, "s": "x", "_rescued_data": None, "_corrupt_record": None}
