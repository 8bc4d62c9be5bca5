"""Files of every format go through Spark into a Delta table, and through plain Spark sinks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles import UnknownFieldException
from tests.support.landing import rows, run
from tests.unit.stream.test_every_format import OPTIONS, WRITERS

pytestmark = pytest.mark.spark


def _stream(spark: SparkSession, name: str, source: Path, state: Path, **options: object):
    given = {"cloudFiles.format": name, "cloudFiles.schemaLocation": str(state), **options}
    reader = spark.readStream.format("cloudFiles")
    for key, value in {**OPTIONS.get(name, {}), **given}.items():
        reader = reader.option(key, str(value))
    return reader.load(str(source))


@pytest.mark.parametrize("name", [each for each in WRITERS if each != "json"])
def test_a_format_lands_in_a_table(spark: SparkSession, tmp_path: Path, name: str) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    source.mkdir()
    typed = {"cloudFiles.inferColumnTypes": "true"}
    (source / "1").write_bytes(WRITERS[name]([{"id": 1, "name": "a b"}, {"id": 2, "name": "é"}]))
    run(_stream(spark, name, source, state, **typed), state, target)
    (source / "2").write_bytes(WRITERS[name]([{"id": 3, "name": "c", "new": 0.5}]))
    with pytest.raises(UnknownFieldException, match="automatic retry: true"):
        run(_stream(spark, name, source, state, **typed), state, target)
    run(_stream(spark, name, source, state, **typed), state, target)
    found = sorted(rows(target), key=lambda row: row["id"])
    assert [(row["id"], row["name"], row["new"]) for row in found] == [
        (1, "a b", None),
        (2, "é", None),
        (3, "c", 0.5),
    ]


def test_text_lands_line_by_line(spark: SparkSession, tmp_path: Path) -> None:  # B14
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    (source / "day=1").mkdir(parents=True)
    (source / "day=1" / "a.txt").write_bytes("one\r\nzwei ü\n\nlast".encode())
    frame = _stream(spark, "text", source, state)
    assert frame.schema.simpleString() == "struct<value:string,day:string>"
    run(frame, state, target)
    assert sorted(row["value"] for row in rows(target)) == ["", "last", "one", "zwei ü"]
    assert {row["day"] for row in rows(target)} == {"1"}


def test_binary_files_land_whole(spark: SparkSession, tmp_path: Path) -> None:  # B14
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    source.mkdir()
    content = bytes(range(256)) * 10
    (source / "a b.bin").write_bytes(content)
    (source / "empty").write_bytes(b"")
    frame = _stream(spark, "binaryFile", source, state)
    kinds = "struct<path:string,modificationTime:timestamp,length:bigint,content:binary>"
    assert frame.schema.simpleString() == kinds
    run(frame, state, target)
    found = sorted(rows(target), key=lambda row: row["length"])
    assert [(row["length"], row["content"]) for row in found] == [(0, b""), (2560, content)]
    assert found[1]["path"].endswith("/in/a b.bin")


@pytest.mark.parametrize("sink", ["delta", "parquet"])
def test_dates_that_python_has_not_go_through_spark(
    spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    source.mkdir()
    values = [('"202402"', "1709200800000"), ('"0000-01-01"', '"99999-12-31"'), ('"1"', '"x"')]
    lines = [f'{{"d":{day},"t":{moment}}}\n' for day, moment in values]
    (source / "1").write_text("".join(lines))
    hints = {"cloudFiles.schemaHints": "d DATE, t TIMESTAMP"}
    run(_stream(spark, "json", source, state, **hints), state, target, sink)
    table = spark.read.format(sink).load(str(target))
    found = table.selectExpr("CAST(d AS STRING)", "unix_micros(t)", "_rescued_data IS NULL")
    assert sorted(tuple(row) for row in found.filter("d IS NOT NULL").collect()) == [
        ("+202402-01-01", 1709200800000 * 10**6, True),
        ("0000-01-01", 3093527894400 * 10**6, True),
    ]
    assert table.filter("d > DATE'9999-12-31'").count() == 1
    assert table.filter("d IS NULL AND t IS NULL AND _rescued_data IS NOT NULL").count() == 1
