"""Spark streams from Delta tables without jars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from airflow_cloudfiles.engine.errors import (
    BlockedSchemaChangeError,
    OptionError,
    StateConflictError,
    TableEvolvedError,
    TableRowsChangedError,
)
from tests.support.table_streams import GrowingTable

pytestmark = pytest.mark.spark
ALLOW = "spark.databricks.delta.streaming.allowSourceColumn"


class Run:
    """One stream: each `run` defines and starts it, and gives the rows that are new in its sink."""

    def __init__(self, spark: SparkSession, table: Path, folder: Path) -> None:
        self.spark, self.table = spark, table
        self.checkpoint, self.sink = folder / "checkpoint", folder / "sink"
        self.options: dict[str, Any] = {}
        self.seen: list[str] = []

    def track(self) -> Run:
        """Track schemas."""
        self.options["schemaTrackingLocation"] = str(self.checkpoint / "schema_tracking")
        return self

    def frame(self) -> DataFrame:
        """What is read."""
        return self.spark.readStream.format("delta").options(**self.options).load(str(self.table))

    def run(self, frame: DataFrame | None = None) -> list[dict[str, Any]]:
        """Run it once, with all that is there."""
        writer = (frame or self.frame()).writeStream.format("json")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start(str(self.sink)).awaitTermination()
        return self.new()

    def new(self) -> list[dict[str, Any]]:
        """The rows that are new in the sink."""
        lines = [
            line for path in sorted(self.sink.glob("*.json")) for line in path.read_text().split()
        ]
        found = list(lines)
        for line in self.seen:
            found.remove(line)
        self.seen = lines
        return sorted((json.loads(line) for line in found), key=str)


@pytest.fixture
def table(tmp_path: Path) -> GrowingTable:
    """The table of the documentation: a number and a letter."""
    found = GrowingTable(tmp_path / "t", "number", "letter")
    found.append(1, 2)
    return found


@pytest.fixture
def stream(spark: SparkSession, table: GrowingTable, tmp_path: Path) -> Run:
    return Run(spark, table.folder, tmp_path)


def row(value: int) -> dict[str, int]:
    return {"number": value, "letter": value}


def test_a_stream_reads_what_is_there_and_then_what_comes(table: GrowingTable, stream: Run) -> None:
    stream.options["maxFilesPerTrigger"] = 1
    assert stream.run() == [row(1), row(2)]
    table.append(3)
    table.append(4)
    assert stream.run() == [row(3), row(4)]
    assert stream.run() == []
    offsets = sorted(path.name for path in (stream.checkpoint / "offsets").glob("[0-9]*"))
    assert offsets == ["0", "1", "2"]
    last = (stream.checkpoint / "offsets" / "2").read_text().splitlines()[-1]
    assert json.loads(last) == {
        "sourceVersion": 1,
        "reservoirId": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "reservoirVersion": 4,
        "index": -1,
        "isStartingVersion": False,
    }


def test_a_running_stream_sees_new_versions_and_ends_at_a_new_column(
    table: GrowingTable, stream: Run
) -> None:
    writer = stream.frame().writeStream.format("json")
    writer = writer.option("checkpointLocation", str(stream.checkpoint))
    query = writer.start(str(stream.sink))
    query.processAllAvailable()
    assert stream.new() == [row(1), row(2)]
    table.append(3)
    query.processAllAvailable()
    assert stream.new() == [row(3)]
    table.add("more", 3)
    with pytest.raises(TableEvolvedError, match="ADD COLUMN more") as caught:
        query.awaitTermination(60)
    assert isinstance(caught.value, StreamingQueryException)
    table.append(4)
    assert stream.run() == [{**row(4), "more": 4}]


def test_tracking_as_the_documentation_tells_it(
    spark: SparkSession, table: GrowingTable, stream: Run
) -> None:
    stream.track()
    assert stream.run() == [row(1), row(2)]
    version = table.drop("number")
    table.append(3)
    with pytest.raises(TableEvolvedError, match="Updated table protocol: 2,5"):
        stream.run()
    log = next(iter((stream.checkpoint / "schema_tracking").iterdir()))
    assert log.name == "_schema_log_5fba94ed-9794-4965-ba6e-6ee3c0d22af9"
    first, entry = (log / "1").read_text().splitlines()
    assert first == "v1"
    assert json.loads(entry)["sourceMetadataPath"] == f"file:{stream.checkpoint}/sources/0"
    with pytest.raises(BlockedSchemaChangeError, match="DROP COLUMN") as caught:
        stream.run()
    [key] = {
        word for word in caught.value.message.split("`") if word.endswith(f"= {version}")
        and ".ckpt_" in word
    }  # fmt: skip
    spark.conf.set(key.partition(" =")[0], str(version))
    try:
        assert stream.run() == [{"letter": 3}]
    finally:
        spark.conf.unset(key.partition(" =")[0])
    # Step 2: rows with two schemas in one backlog.
    table.append(4)
    table.rename("letter", "character")
    table.append(5)
    spark.conf.set(f"{ALLOW}RenameAndDrop", "always")
    try:
        with pytest.raises(TableEvolvedError):
            stream.run()
        assert stream.new() == [{"letter": 4}]
        assert stream.run() == [{"character": 5}]
    finally:
        spark.conf.unset(f"{ALLOW}RenameAndDrop")


def test_a_reader_option_allows_a_change(table: GrowingTable, stream: Run) -> None:
    stream.track().options["allowSourceColumnRename"] = "always"
    stream.run()
    table.rename("letter", "character")
    table.append(3)
    with pytest.raises(TableEvolvedError):
        stream.run()
    assert stream.run() == [{"number": 3, "character": 3}]


def test_two_sources_of_a_query_have_a_log_each(
    table: GrowingTable, stream: Run, tmp_path: Path
) -> None:
    other = GrowingTable(tmp_path / "other", "number", "letter")
    other.append(7)
    for path in other.log.iterdir():
        path.write_text(path.read_text().replace("5fba94ed", "00000000"))
    right = Run(stream.spark, other.folder, tmp_path).track()
    assert stream.run(stream.track().frame().union(right.frame())) == [row(1), row(2), row(7)]
    found = {
        each.name.partition("-")[0]: json.loads((each / "0").read_text()[3:])["sourceMetadataPath"]
        for each in (stream.checkpoint / "schema_tracking").iterdir()
    }
    assert found == {
        "_schema_log_5fba94ed": f"file:{stream.checkpoint}/sources/0",
        "_schema_log_00000000": f"file:{stream.checkpoint}/sources/1",
    }


def test_a_log_of_another_source_is_refused(
    table: GrowingTable, stream: Run, tmp_path: Path
) -> None:
    stream.track()
    twice = stream.frame().union(stream.frame())
    with pytest.raises(StateConflictError, match="LOCATION_CONFLICT"):
        stream.run(twice)


def test_changed_rows_and_bad_options_fail_with_our_errors(
    table: GrowingTable, stream: Run
) -> None:
    stream.run()
    table.delete(0)
    with pytest.raises(TableRowsChangedError, match="ignoreDeletes"):
        stream.run()
    stream.options["ignoreDeletes"] = True
    assert stream.run() == []
    for name, value in (("maxFilesPerTrigger", 0), ("versionasof", 1), ("readChangeFeed", True)):
        with pytest.raises(OptionError, match=name):
            Run.frame(_with(stream, **{name: value}))


def _with(stream: Run, **options: Any) -> Run:
    other = Run(stream.spark, stream.table, stream.checkpoint.parent)
    other.options = options
    return other


def test_a_stream_goes_into_a_table_and_its_columns_evolve_there(
    spark: SparkSession, table: GrowingTable, stream: Run, tmp_path: Path
) -> None:
    stream.track()

    def run() -> None:
        writer = stream.frame().writeStream.format("deltalake").option("mergeSchema", "true")
        writer = writer.option("checkpointLocation", str(stream.checkpoint))
        writer.trigger(availableNow=True).start(str(tmp_path / "silver")).awaitTermination()

    run()
    table.add("more", 3)
    table.append(3)
    with pytest.raises(TableEvolvedError):
        run()
    run()
    silver = spark.read.format("delta").load(str(tmp_path / "silver"))
    found = sorted((each.number, each.letter, each.more) for each in silver.collect())
    assert found == [(1, 1, None), (2, 2, None), (3, 3, 3)]


def test_a_schema_of_ones_own_is_refused(table: GrowingTable, stream: Run) -> None:
    reader = stream.spark.readStream.format("delta").schema("number long, letter long")
    with pytest.raises((OptionError, StreamingQueryException), match=r"leave out schema\(\.\.\.\)"):
        stream.run(reader.load(str(table.folder)))


def test_a_frame_from_before_an_incompatible_change_is_refused_as_documented(  # B139
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, key = str(tmp_path / "numbers"), "spark.databricks.delta.checkLatestSchemaOnRead"
    names = "id int, multiplication_result"
    numbers = spark.createDataFrame([(nr, nr * 2) for nr in range(3)], f"{names} int")
    numbers.write.mode("overwrite").format("delta").save(folder)
    reader = spark.read.format("delta").load(folder)
    spark.conf.set(key, "false")
    try:
        unchecked = spark.read.format("delta").load(folder)
    finally:
        spark.conf.unset(key)
    doubles = spark.createDataFrame([(nr, nr * 2.0) for nr in range(3)], f"{names} double")
    overwrite = doubles.write.option("overwriteSchema", True).mode("overwrite")
    overwrite.format("delta").save(folder)
    with pytest.raises(PySparkException) as caught:
        reader.show(truncate=False)
    documented = (
        "Changes:\nLatest type for multiplication_result is different from existing schema:\n"
        "Latest: double\nExisting: integer\n"
        "This check can be turned off by setting the session configuration key "
        "spark.databricks.delta.checkLatestSchemaOnRead to false"
    )
    assert documented in str(caught.value)
    # Without the check it is the data that does not fit, as in the documentation.
    with pytest.raises(PySparkException, match=r"is int32, but the data file .* has double"):
        unchecked.show(truncate=False)
