"""Options that changed between two starts: applied, or said to have no effect, at every start."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.diff import paths_of
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.schema.log import full_schema
from airflow_cloudfiles.engine.schema.log_entry import open_log, read_entry
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream import definition
from tests.support.landed import Stream
from tests.unit.stream.test_every_format import Landing

HINTS = "cloudFiles.schemaHints"
PARTITIONS = "cloudFiles.partitionColumns"


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """A folder that takes JSON."""
    return Landing("json", tmp_path)


@pytest.fixture
def stream(landing: Landing) -> Stream:
    """A stream that has ingested a file."""
    landing.drop("day=1/1", [{"id": 1, "s": {"a": 1}, "m": {"k": 1}}])
    found = landing.stream()
    found.run()
    return found


def started(stream: Stream) -> definition.ResolvedSchema:
    """The schema of one more start; a second one says the same and writes nothing more."""
    first = definition.resolve_schema(stream.options)
    again = definition.resolve_schema(stream.options)
    assert (again.version, again.created) == (first.version, False)
    assert again.warnings == first.warnings
    return first


def columns(resolved: definition.ResolvedSchema) -> dict[str, str]:
    full = full_schema(resolved.data_schema, resolved.partition_schema, None)
    return paths_of(full.jsonValue())


def test_what_a_hint_adds_is_a_new_version_and_filled_from_then_on(
    stream: Stream, landing: Landing
) -> None:
    before = columns(definition.resolve_schema(stream.options))
    stream.given[HINTS] = "price DECIMAL(9,2), s.b INT, id STRING"
    resolved = started(stream)
    assert columns(resolved) == before | {"s": "struct<a:string,b:int>", "s.b": "int"} | {
        "price": "decimal(9,2)"
    }
    assert (resolved.version, resolved.warnings) == (1, ())
    landing.drop("day=1/2", [{"price": 9.5, "s": {"b": 7}}])
    [row] = stream.run()
    assert (str(row["price"]), row["s"]["b"], row["_rescued_data"]) == ("9.50", 7, None)


@pytest.mark.parametrize(
    ("hint", "names"),
    [
        ("id INT", ["id", "string", "int"]),
        ("s MAP<STRING, STRING>", ["s", "struct<a:string>", "map<string,string>"]),
        ("s.a INT", ["s.a", "string", "int"]),
        ("day INT", ["day", "string", "int"]),
        ("ID STRING", ["id", "ID"]),
    ],
)
def test_a_hint_of_another_type_is_a_warning_at_every_start(
    stream: Stream, hint: str, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    stream.given[HINTS] = hint
    with caplog.at_level(logging.WARNING):
        [warning] = started(stream).warnings
    assert caplog.messages == [warning] * 2
    for name in (*names, HINTS, "schema version 0", "cloudfiles infer --again", "infer_again=True"):
        assert name in warning
    again = definition.resolve_schema(stream.options, again=True)
    assert again.created
    assert not started(stream).warnings


def test_a_hint_that_does_not_fit_is_a_warning_at_every_start(stream: Stream) -> None:
    stream.given[HINTS] = "id.x INT"
    [warning] = started(stream).warnings
    assert "hint it as a whole" in warning
    assert "no effect" in warning


def test_a_hint_that_was_taken_away_is_said_to_stay(stream: Stream) -> None:
    stream.given[HINTS] = "price INT"
    assert not started(stream).warnings
    del stream.given[HINTS]
    [warning] = started(stream).warnings
    assert "no longer names price" in warning
    definition.resolve_schema(stream.options, again=True)
    assert not started(stream).warnings
    assert "price" not in columns(started(stream))


def test_a_hint_that_cannot_be_read_fails_the_start(stream: Stream) -> None:
    stream.given[HINTS] = "price INTT"
    with pytest.raises(SchemaHintError, match="INT"):
        definition.resolve_schema(stream.options)


@pytest.mark.parametrize("before", [False, True])
def test_another_inference_of_types_is_a_warning_until_it_is_inferred_again(
    landing: Landing, before: bool
) -> None:
    landing.drop("1", [{"id": 1}])
    stream = landing.stream(**{"cloudFiles.inferColumnTypes": before})
    stream.run()
    assert not started(stream).warnings
    stream.given["cloudFiles.inferColumnTypes"] = not before
    [warning] = started(stream).warnings
    was, now = str(before).lower(), str(not before).lower()
    assert f"cloudFiles.inferColumnTypes is {now}" in warning
    assert f"inferred with {was}" in warning
    definition.resolve_schema(stream.options, again=True)
    assert not started(stream).warnings


def test_inferring_again_without_a_difference_ends_the_warning_too(landing: Landing) -> None:
    landing.drop("1", [{"id": "x"}])
    stream = landing.stream()
    stream.run()
    stream.given["cloudFiles.inferColumnTypes"] = True
    assert started(stream).warnings
    definition.resolve_schema(stream.options, again=True)
    assert not started(stream).warnings


def test_partition_columns_become_those_that_are_named(stream: Stream, landing: Landing) -> None:
    assert columns(started(stream))["day"] == "string"
    stream.given[PARTITIONS] = "Day,hour"  # B42
    resolved = started(stream)
    assert resolved.partition_schema.names == ["day", "hour"]
    landing.drop("day=2/hour=7/1", [{"id": 2}])
    [row] = stream.run()
    assert (row["day"], row["hour"]) == ("2", "7")
    stream.given[PARTITIONS] = ""  # B43
    resolved = started(stream)
    assert resolved.partition_schema.names == []
    landing.drop("day=3/1", [{"id": 3}])
    assert "day" not in stream.run()[0]
    assert [str(each) for each in landing.versions()] == ["0", "1", "2"]


def test_a_field_of_the_records_does_not_become_a_partition_column(stream: Stream) -> None:
    stream.given[PARTITIONS] = "id,day"
    assert not started(stream).changes


def test_a_hint_gives_a_new_partition_column_its_type(stream: Stream) -> None:
    stream.given |= {PARTITIONS: "day,hour", HINTS: "hour INT"}
    resolved = started(stream)
    assert (columns(resolved)["hour"], resolved.warnings) == ("int", ())


def test_a_pinned_schema_stays_and_says_so(stream: Stream, landing: Landing) -> None:
    SchemaHistory(str(landing.state)).pin()
    stream.given |= {HINTS: "price INT", PARTITIONS: "hour"}
    [warning] = started(stream).warnings
    for name in ("pinned at version 1", "price", "hour", "cloudfiles schema unpin"):
        assert name in warning
    SchemaHistory(str(landing.state)).unpin()
    assert started(stream).changes


def test_what_evolved_inside_of_a_hinted_struct_stays(landing: Landing) -> None:
    landing.drop("1", [{"s": {"a": 1}}])
    stream = landing.stream(**{HINTS: "s STRUCT<a: INT>"})
    stream.run()
    landing.drop("2", [{"s": {"a": 1, "b": 2}}])
    with pytest.raises(Exception, match="automatic retry: true"):
        stream.run()
    resolved = started(stream)
    assert (resolved.version, resolved.warnings) == (1, ())
    assert columns(resolved)["s"] == "struct<a:int,b:string>"


def test_a_log_that_does_not_say_its_options_gives_no_warning(
    stream: Stream, landing: Landing
) -> None:
    """Versions that were written before the log kept the options."""
    log = open_log(open_store(str(landing.state)))
    entry = read_entry(log, 0)
    assert entry.options == {
        "schemaHints": None,
        "inferColumnTypes": False,
        "partitionColumns": None,
    }
    (landing.state / "_schemas" / "0").unlink()
    log.append(0, {}, replace(entry, options=None).to_body())
    stream.given["cloudFiles.inferColumnTypes"] = True
    assert not started(stream).warnings
    stream.given[HINTS] = "price INT"
    assert started(stream).version == 1
    assert not started(stream).warnings


@pytest.mark.parametrize(
    "hints", ["id INT NOT NULL", "s STRUCT<a: INT NOT NULL>", "s STRUCT<a: INT> NOT NULL"]
)
def test_not_null_in_a_hint_is_said_not_to_be_enforced(landing: Landing, hints: str) -> None:
    landing.drop("1", [{"id": 1}])
    stream = landing.stream(**{HINTS: hints})
    [warning] = definition.resolve_schema(stream.options).warnings
    assert "NOT NULL is not enforced" in warning
    assert hints.split(maxsplit=1)[0] in warning
    assert started(stream).warnings == (warning,)


def test_options_compare_equal_however_they_are_written() -> None:
    given = {"cloudFiles.format": "json", HINTS: "a INT"}
    other = {"CLOUDFILES.FORMAT": "json", HINTS.lower(): "a INT"}
    assert CloudFilesOptions.parse(given, path="/in") == CloudFilesOptions.parse(other, path="/in")
