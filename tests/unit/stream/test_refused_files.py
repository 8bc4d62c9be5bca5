"""What heals a stream that fails on new columns: for every format, and every cure of the docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import FileMissingError, UnknownFieldException
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from tests.support.landed import Stream
from tests.unit.stream.test_every_format import WRITERS, Landing

FAILING = {"cloudFiles.schemaEvolutionMode": "failOnNewColumns"}


@pytest.fixture(params=WRITERS)
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    """A folder that takes records in one of the formats."""
    return Landing(request.param, tmp_path)


def refused(landing: Landing, stream: Stream) -> tuple[Path, UnknownFieldException]:
    """A stream that has refused a file, twice, beside which another is outstanding."""
    landing.drop("1", [{"a": "1"}])
    stream.run()
    offending = landing.drop("2", [{"a": "2", "new": "n"}])
    landing.drop("3", [{"a": "3"}])
    for _ in range(2):
        with pytest.raises(UnknownFieldException) as caught:
            stream.run()
        assert not caught.value.is_retryable
        assert caught.value.file == offending.as_uri()
    return offending, caught.value


def ingested(stream: Stream) -> list[str]:
    return sorted(str(row["a"]) for row in stream.rows)


def test_the_stream_goes_on_when_the_refused_file_is_removed(landing: Landing) -> None:  # B52
    stream = landing.stream(**FAILING)
    offending, error = refused(landing, stream)
    assert "remove it" in error.message
    offending.unlink()
    stream.run()
    assert ingested(stream) == ["1", "3"]
    assert sum(each.fetched.missing_files for each in stream.counts) == 1
    assert landing.versions() == [0]


@pytest.mark.slow
def test_no_other_file_may_be_removed(landing: Landing) -> None:
    stream = landing.stream(**FAILING)
    offending, _ = refused(landing, stream)
    (landing.source / "3").unlink()
    landing.put("2", WRITERS[landing.format]([{"a": "2"}]))
    with pytest.raises(FileMissingError, match="ignoreMissingFiles"):
        stream.run()
    landing.drop("3", [{"a": "3"}])
    stream.run()
    assert ingested(stream) == ["1", "2", "3"]
    assert offending.exists()


def test_a_later_version_of_the_refused_file_may_not_be_removed(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    stream = landing.stream(**FAILING, **{"cloudFiles.allowOverwrites": "true"})
    offending, _ = refused(landing, stream)
    offending.unlink()
    stream.run()
    landing.drop("2", [{"a": "22"}])
    stream.tasks()  # discovers it
    offending.unlink()
    with pytest.raises(FileMissingError):
        stream.run()


def test_the_stream_goes_on_when_the_refused_file_is_corrected(landing: Landing) -> None:
    stream = landing.stream(**FAILING)
    refused(landing, stream)
    landing.drop("2", [{"a": "corrected"}])
    stream.run()
    assert ingested(stream) == ["1", "3", "corrected"]


@pytest.mark.slow
def test_the_stream_goes_on_with_a_hint_for_the_new_field(landing: Landing) -> None:  # B52
    stream = landing.stream(**FAILING)
    _, error = refused(landing, stream)
    assert "cloudFiles.schemaHints" in error.message
    stream.given["cloudFiles.schemaHints"] = "new STRING"
    stream.run()
    assert ingested(stream) == ["1", "2", "3"]
    assert [row["new"] for row in stream.rows if row["a"] == "2"] == ["n"]
    assert [row["_rescued_data"] for row in stream.rows if row["a"] == "2"] == [None]
    version = SchemaHistory(str(landing.state)).show()
    assert (version.version, version.reason["change"]) == (1, "optionsChanged")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["addNewColumns", "rescue"])
def test_the_stream_goes_on_in_the_modes_that_the_error_names(landing: Landing, mode: str) -> None:
    stream = landing.stream(**FAILING)
    _, error = refused(landing, stream)
    assert mode in error.message
    stream.given["cloudFiles.schemaEvolutionMode"] = mode
    if mode == "addNewColumns":
        with pytest.raises(UnknownFieldException, match="automatic retry: true"):
            stream.run()
    stream.run()
    assert ingested(stream) == ["1", "2", "3"]


def given(*names: str) -> StructType:
    """A given schema, with the rescued data column that `load()` adds in this mode."""
    return StructType([StructField(name, StringType()) for name in (*names, "_rescued_data")])


def test_the_stream_goes_on_with_a_corrected_schema(landing: Landing) -> None:  # B52
    stream = (
        landing.stream(**FAILING, header="true")
        if landing.format == "csv"
        else (landing.stream(**FAILING))
    )
    stream.schema = given("a")
    _, error = refused(landing, stream)
    assert ".schema(...)" in error.message
    assert "addNewColumns" not in error.message, "not allowed with a given schema"
    assert "schemaHints" not in error.message, "ignored with a given schema"
    stream.schema = given("a", "new")
    stream.run()
    assert ingested(stream) == ["1", "2", "3"]


def test_a_refused_file_may_be_removed_beside_a_given_schema(landing: Landing) -> None:
    stream = landing.stream(**FAILING, **({"header": "true"} if landing.format == "csv" else {}))
    stream.schema = given("a")
    offending, _ = refused(landing, stream)
    offending.unlink()
    stream.run()
    assert ingested(stream) == ["1", "3"]


def test_a_value_that_does_not_fit_a_given_schema_is_rescued(landing: Landing) -> None:  # B53
    landing.drop("1", [{"a": "$1.00"}])
    stream = landing.stream(**FAILING, **({"header": "true"} if landing.format == "csv" else {}))
    stream.schema = StructType([StructField("a", LongType()), *given().fields])
    [row] = stream.run()
    assert row["a"] is None
    assert json.loads(row["_rescued_data"])["a"] == "$1.00"


def test_a_pinned_schema_says_how_it_is_unpinned_and_goes_on_without_the_file(
    landing: Landing,
) -> None:
    landing.drop("1", [{"a": "1"}])
    stream = landing.stream()
    stream.run()
    SchemaHistory(str(landing.state)).pin(new_fields="fail")
    offending = landing.drop("2", [{"a": "2", "new": "n"}])
    with pytest.raises(UnknownFieldException, match="cloudfiles schema unpin"):
        stream.run()
    offending.unlink()
    stream.run()
    assert ingested(stream) == ["1"]
