"""A batch read gives what a stream would, and leaves no trace."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import (
    FileChangedError,
    FileMissingError,
    OptionError,
    SchemaInferenceError,
    SourceNotFoundError,
    StaleSchemaError,
    StateConflictError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.files import iso_time
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landed import Stream
from tests.unit.stream.test_every_format import WRITERS, Landing

IS_BATCH = "cloudFiles.internal.isBatch"
Rows = list[dict[str, Any]]


@pytest.fixture(params=WRITERS)
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    """A folder that takes records in one of the formats."""
    return Landing(request.param, tmp_path)


@pytest.fixture
def files(tmp_path: Path) -> Landing:
    """A folder that takes JSON."""
    return Landing("json", tmp_path)


def source(where: Landing, path: str = "", **options: object) -> CloudFilesDataSource:
    """What `spark.read` makes; options may come in any case."""
    given = {**where.stream(**options).given, "path": f"{where.source}{path}"}
    for name in ("checkpointLocation", "cloudFiles.schemaLocation"):
        if name not in options:
            del given[name]
    return CloudFilesDataSource({key: str(value) for key, value in given.items()})


def read(found: CloudFilesDataSource, schema: StructType | None = None) -> Rows:
    """Read it, as Spark does."""
    reader = found.reader(found.schema() if schema is None else schema)
    rows: Rows = []
    for part in reader.partitions():
        batches: Iterable[Any] = reader.read(part)
        rows += [row for batch in batches for row in batch.to_pylist()]
    return rows


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_a_batch_has_the_rows_of_a_stream_each_time(landing: Landing, tmp_path: Path) -> None:
    landing.drop("day=1/a b", [{"id": 1, "name": "x"}, {"id": 2, "name": "é"}])
    landing.drop("day=2/c", [{"id": 3, "name": "y", "more": 0.5}])
    options = {
        "cloudFiles.inferColumnTypes": "true",
        "cloudFiles.schemaHints": "id BIGINT",
        "cloudFiles.metadataColumns": "_metadata",
    }
    before = tree(tmp_path)
    first = read(source(landing, **options))
    assert read(source(landing, **options)) == first
    assert tree(tmp_path) == before
    assert not Path(os.environ["CLOUDFILES_CACHE_DIR"]).exists()
    rows = landing.stream(**options).run()
    assert sorted(first, key=lambda row: row["id"]) == sorted(rows, key=lambda row: row["id"])
    assert [row["day"] for row in rows] == [1, 1, 2]


def test_it_reads_what_the_path_and_the_filters_say(files: Landing) -> None:
    for name in ("2026/01/a.json", "2026/02/a.json", "2026/02/b.csv", "2025/a.json", "_no/a.json"):
        files.drop(name, [{"a": name}])

    def found(path: str, **options: object) -> list[str]:
        return sorted(row["a"] for row in read(source(files, path, **options)))

    assert found("") == ["2025/a.json", "2026/01/a.json", "2026/02/a.json", "2026/02/b.csv"]
    assert found("/2026/*/a.json") == ["2026/01/a.json", "2026/02/a.json"]
    assert found("/{2025,2026/01}") == ["2025/a.json", "2026/01/a.json"]
    assert found("/2026", pathGlobFilter="*.csv") == ["2026/02/b.csv"]
    assert read(source(files, modifiedAfter="2100-01-01"), parse_schema("a STRING")) == []


def test_splits_are_shared_among_tasks(files: Landing) -> None:
    text = "".join(f'{{"a":{number:08}}}\n'.replace(":0", ":1") for number in range(1000))
    for number in range(8):
        files.put(str(number), text.encode() * 100)
    found = source(files, **{"cloudFiles.internal.parallelism": "3"})
    parts = found.reader(found.schema()).partitions()
    assert len(parts) == 3
    names = [part.file.path for each in parts for part in each.value.ranges]
    assert names == sorted(map(str, range(8)))


# Schemas ---------------------------------------------------------------------------------


def test_new_fields_are_rescued_and_no_schema_is_written(files: Landing) -> None:
    files.drop("1", [{"a": 1}])
    files.stream().run()
    files.drop("2", [{"a": 2, "new": "x"}])
    before = tree(files.state)
    for location in ("checkpointLocation", "cloudFiles.schemaLocation"):
        rows = read(source(files, **{location: str(files.state)}))
        assert [list(row) for row in rows] == [["a", "_rescued_data"]] * 2
        assert json.loads(rows[1]["_rescued_data"])["new"] == "x"
    assert tree(files.state) == before
    assert next(map(list, read(source(files)))) == ["a", "new", "_rescued_data"]


@pytest.mark.parametrize("marked", [True, False])
def test_a_schema_location_is_only_read(files: Landing, marked: bool) -> None:
    mark = {IS_BATCH: "true", "cloudFiles.evolveAhead": "true"} if marked else {}
    files.drop("1", [{"a": 1}])
    location = {"cloudFiles.schemaLocation": str(files.state), **mark}
    assert len(read(source(files, **location))) == 1
    assert not files.state.exists()
    files.stream().run()
    hinted = {**location, "cloudFiles.schemaHints": "b INT"}
    assert read(source(files, **hinted)) == [{"a": "1", "b": None, "_rescued_data": None}]
    assert files.versions() == [0]
    elsewhere = files.source.parent / "elsewhere"
    elsewhere.mkdir()
    other = Landing("json", elsewhere)
    other.drop("1", [{"a": 1}])
    with pytest.raises(StateConflictError, match="belongs to the source"):
        read(source(other, **location))


def test_a_given_schema_has_its_columns_only(landing: Landing) -> None:
    landing.drop("n=7/1", [{"a": 1, "b": "x"}])
    schema = parse_schema("n INT, b STRING")
    options = {"header": "true"} if landing.format == "csv" else {}
    assert read(source(landing, **options), schema) == [{"n": 7, "b": "x"}]


def test_a_mode_that_fails_on_new_fields_fails_for_good(files: Landing) -> None:
    files.drop("1", [{"a": 1, "b": 2}])
    mode = {"cloudFiles.schemaEvolutionMode": "failOnNewColumns"}
    with pytest.raises(UnknownFieldException, match="or to the given schema") as caught:
        read(source(files, **mode), parse_schema("a STRING, _rescued_data STRING"))
    assert (set(caught.value.fields), caught.value.is_retryable) == ({"b"}, False)


# What there is nothing of, and what is refused -------------------------------------------


def test_no_file_is_no_row_with_a_schema_and_an_error_without(files: Landing) -> None:
    found = source(files)
    with pytest.raises(SchemaInferenceError, match="There is no file"):
        found.schema()
    assert read(found, parse_schema("a STRING")) == []
    with pytest.raises(SourceNotFoundError):
        read(source(files, "/none"), parse_schema("a STRING"))


def test_a_file_that_goes_meanwhile_is_named(files: Landing) -> None:
    path = files.drop("1", [{"a": 1}])
    for ignore in ("false", "true"):
        reader = source(files, ignoreMissingFiles=ignore).reader(parse_schema("a STRING"))
        [part] = reader.partitions()
        content = path.read_bytes()
        path.unlink()
        later = files.drop("2", [{"a": 2}])  # the source is no empty one
        if ignore == "true":
            assert list(reader.read(part)) == []
        else:
            with pytest.raises(FileMissingError, match=str(path)):
                list(reader.read(part))
        path.write_bytes(content)
        later.unlink()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"badRecordsPath": "/bad"}, "badRecordsPath is for streams"),
        ({"cloudFiles.includeExistingFiles": "false"}, "is for streams: a batch read is of"),
    ],
)
def test_options_that_would_write_or_leave_nothing_are_refused(
    files: Landing, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        read(source(files, **options), parse_schema("a STRING"))


def test_options_of_how_a_stream_goes_on_are_passed_over(files: Landing) -> None:
    files.drop("1", [{"a": 1}])
    files.drop("2", [{"a": 2}])
    options = {
        "cloudFiles.maxFilesPerTrigger": 1,
        "cloudFiles.useNotifications": "true",
        "cloudFiles.queueUrl": "https://sqs.eu-west-1.amazonaws.com/1/q",
        "cloudFiles.allowOverwrites": "true",
        "cloudFiles.backfillInterval": "1 day",
        "cloudFiles.evolveAhead": "true",
    }
    assert len(read(source(files, **options))) == 2


# A stream that `register` does not know --------------------------------------------------


def test_a_stream_without_register_writes_its_schema_when_it_starts(files: Landing) -> None:
    files.drop("1", [{"a": 1}])
    where = {"checkpointLocation": str(files.state)}

    def started(found: CloudFilesDataSource, schema: StructType) -> None:
        reader = found.streamReader(schema)
        try:
            reader.prepareForTriggerAvailableNow()
        finally:
            reader.stop()

    found = source(files, **where)
    schema = found.schema()
    assert not files.state.exists()
    found_late = source(files, **where)
    late = found_late.schema()
    started(found, schema)
    assert files.versions() == [0]
    more = source(files, **where, **{"cloudFiles.schemaHints": "b INT"})
    with_hint = more.schema()
    assert files.versions() == [0]
    started(more, with_hint)
    assert files.versions() == [0, 1]
    with pytest.raises(StaleSchemaError, match="register"):
        started(found_late, late)


def test_a_stream_that_is_known_writes_its_schema_when_it_is_defined(files: Landing) -> None:
    files.drop("1", [{"a": 1}])
    token = {"cloudFiles.internal.token": "x", "cloudFiles.schemaLocation": str(files.state)}
    source(files, **token).schema()
    log = SchemaLog(open_store(str(files.state)), open_store(str(files.source)).uri)
    assert log.versions() == [0]
    assert isinstance(files.stream(), Stream)


def test_a_store_with_versions_says_what_it_knows_of_a_file() -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}/in")
    store.put("k=1/a b+c%20.json", b'{"a":1}\n')
    entry = store.head("k=1/a b+c%20.json")
    assert entry is not None
    assert entry.etag
    options = {"cloudFiles.format": "json", "cloudFiles.metadataColumns": "_metadata"}
    [row] = read(CloudFilesDataSource({**options, "path": store.uri}))
    found = row["_metadata"]
    assert found["file_path"] == f"{store.uri}/k=1/a%20b+c%2520.json"
    assert found["file_name"] == "a%20b+c%2520.json"
    modified = datetime.fromisoformat(iso_time(entry.modification_time_us))
    assert found["file_modification_time"] == modified
    assert (found["file_size"], found["file_block_length"]) == (entry.size, entry.size)


# Files that are still being written ------------------------------------------------------

YOUNG = {"cloudFiles.minFileAge": "10 minutes"}
MARKED = {"cloudFiles.completionMarker": "{name}.done"}
A_STRING = parse_schema("a STRING")


def settle(path: Path, seconds: float = 3600) -> Path:
    """Make a file older than it is."""
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


def test_a_file_that_is_not_whole_is_left_out_and_named(
    landing: Landing, caplog: pytest.LogCaptureFixture
) -> None:
    settle(landing.drop("whole", [{"a": 1}]))
    landing.drop("half", [{"a": 2}])
    header = {"header": "true"} if landing.format == "csv" else {}
    assert len(read(source(landing, **header), A_STRING)) == 2
    assert warnings_of(caplog) == []
    assert len(read(source(landing, **header, **YOUNG), A_STRING)) == 1
    [said] = warnings_of(caplog)
    assert "leaves out what is not whole: 1 file not taken yet: 1 for cloudFiles.minFileAge" in said
    assert "half" in said


def test_a_schema_is_inferred_without_files_that_are_not_whole(
    files: Landing, caplog: pytest.LogCaptureFixture
) -> None:
    settle(files.put("1.json", b'{"a": 1}\n'))
    files.put("2.json", b'{"a": 2, "torn_field": 3}\n{"a": 4, "to')
    assert source(files, **YOUNG).schema().names == ["a", "_rescued_data"]
    [said] = warnings_of(caplog)
    assert said.startswith("The schema was inferred without files that are not whole: 1 file")
    assert "2.json" in said
    settle(files.source / "2.json")
    assert "torn_field" in source(files, **YOUNG).schema().names


def test_where_no_file_is_whole_there_is_no_schema_yet(files: Landing) -> None:
    files.drop("1", [{"a": 1}])
    with pytest.raises(SchemaInferenceError, match=r"No file in .* is whole yet.*minFileAge"):
        source(files, **YOUNG).schema()
    assert read(source(files, **YOUNG), A_STRING) == []


@pytest.mark.parametrize("marker", ["{name}.done", "_SUCCESS"])
def test_a_file_without_its_marker_is_left_out(
    files: Landing, marker: str, caplog: pytest.LogCaptureFixture
) -> None:
    marked = {"cloudFiles.completionMarker": marker}
    files.put("one/1.json", b'{"a": 1}\n')
    files.put("two/2.json", b'{"a": 2}\n')
    files.put("one/" + marker.replace("{name}", "1.json"), b"")
    assert [row["a"] for row in read(source(files, **marked), A_STRING)] == ["1"]
    assert "1 for cloudFiles.completionMarker (two/2.json)" in warnings_of(caplog)[0]
    assert read(source(files, "/two", **marked), A_STRING) == []


def test_a_marker_of_the_version_before_is_none_where_versions_are_files(files: Landing) -> None:
    path = files.put("1.json", b'{"a": 1}\n')
    settle(files.put("1.json.done", b""))
    assert len(read(source(files, **MARKED), A_STRING)) == 1
    overwritten = {**MARKED, "cloudFiles.allowOverwrites": "true"}
    assert read(source(files, **overwritten), A_STRING) == []
    settle(path, 7200)
    assert len(read(source(files, **overwritten), A_STRING)) == 1


@pytest.mark.parametrize("way", [YOUNG, MARKED])
def test_a_file_that_is_written_again_after_the_listing_is_not_read(
    landing: Landing, way: dict[str, str]
) -> None:
    path = settle(landing.drop("1", [{"a": 1}]))
    Path(f"{path}.done").touch()
    header = {"header": "true"} if landing.format == "csv" else {}
    reader = source(landing, **header, **way).reader(A_STRING)
    [part] = reader.partitions()
    with path.open("ab") as file:
        file.write(b"\n")
    with pytest.raises(FileChangedError, match="make the DataFrame anew"):
        list(reader.read(part))
    settle(path)


def test_names_of_unfinished_files_are_left_out_of_a_batch(files: Landing) -> None:
    files.put("1.json", b'{"a": 1}\n')
    files.put("2.json.filepart", b'{"a": 2, "torn": 1}\n')
    files.put("3.writing", b'{"a": 3}\n')
    assert sorted(row["a"] for row in read(source(files))) == ["1", "3"]
    named = {"cloudFiles.inProgressNames": "*.writing,*.filepart"}
    assert [row["a"] for row in read(source(files, **named))] == ["1"]
    assert source(files).schema().names == ["a", "_rescued_data"]
