"""Which files a schema is inferred from, and what becomes of what they hold."""

from __future__ import annotations

import json
import logging
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import (
    FileUnreadableError,
    SchemaHintError,
    SchemaInferenceError,
    StateConflictError,
)
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.job import run as job
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.stream.definition import resolve_schema
from benchmarks import format_data


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def _land(path: Path, record: dict[str, Any], at: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record) + "\n")
    os.utime(path, (1_700_000_000 + at, 1_700_000_000 + at))
    return path


def _options(source: Path, **more: str) -> CloudFilesOptions:
    given = {
        "cloudFiles.format": "json",
        "checkpointLocation": str(source.parent / "state"),
        "cloudFiles.inferColumnTypes": "true",
        **more,
    }
    return CloudFilesOptions.parse(given, path=str(source))


def _record(source: Path, **discovery: str) -> None:
    """What a sensor does."""
    options = _options(source, **discovery)
    with closing(
        Intake.open(
            source=str(source),
            format="json",
            checkpoint_location=str(source.parent / "state"),
            discovery=options.discovery,
        )
    ) as intake:
        intake.discover()


def _infer(source: Path, **more: Any) -> dict[str, Any]:
    """What the operator's job does, without Airflow."""
    again = more.pop("infer_again", False)
    spec = JobSpec(
        kind="infer",
        source=str(source),
        format=more.pop("format", "json"),
        checkpoint_location=str(source.parent / "state"),
        run_id="test",
        options={"cloudFiles.inferColumnTypes": "true", **more},
        infer_again=again,
    )
    return job.run(spec)


@pytest.mark.slow
def test_the_newest_thousand_files_are_looked_at(source: Path) -> None:  # B1
    for number in range(1500):
        _land(source / f"{number:04}.json", {"a": 1, f"old{number < 500}": 1}, at=number)
    resolved = resolve_schema(_options(source))
    assert resolved.sampled_files == 1000
    assert resolved.data_schema.names == ["a", "oldFalse"]
    assert resolved.sampled_bytes == 1000 * len('{"a": 1, "oldFalse": 1}\n')


def test_looking_stops_with_the_file_that_reaches_the_limit_of_bytes(source: Path) -> None:  # B2
    for number in range(20):
        _land(source / f"{number:02}.json", {"x": "." * 5000, f"n{number}": 1}, at=number)
    size = (source / "19.json").stat().st_size
    limit = {"cloudFiles.schemaInference.sampleSize.numBytes": str(10 * size - 100)}
    resolved = resolve_schema(_options(source, **limit))
    assert resolved.sampled_files == 10
    assert resolved.data_schema.names == ["x", *(f"n{number}" for number in range(19, 9, -1))]


def test_the_limit_of_files_can_be_set(source: Path) -> None:  # B3
    for number in range(9):
        _land(source / f"{number}.json", {f"n{number}": 1}, at=number)
    limit = {"cloudFiles.schemaInference.sampleSize.numFiles": "3"}
    resolved = resolve_schema(_options(source, **limit))
    assert (resolved.sampled_files, resolved.data_schema.names) == (3, ["n8", "n7", "n6"])


def test_what_is_recorded_is_looked_at_and_not_what_came_later(source: Path) -> None:
    _land(source / "1.json", {"a": 1}, at=1)
    _record(source)
    _land(source / "2.json", {"b": 1}, at=2)
    resolved = resolve_schema(_options(source))
    assert (resolved.sampled_files, resolved.data_schema.names) == (1, ["a"])


def test_the_source_is_listed_when_nothing_is_recorded(source: Path) -> None:
    _record(source)
    _land(source / "1.json", {"a": 1}, at=1)
    assert resolve_schema(_options(source)).data_schema.names == ["a"]


def test_files_that_are_never_ingested_serve_when_there_are_no_others(source: Path) -> None:
    _land(source / "1.json", {"a": 1}, at=1)
    _record(source, **{"cloudFiles.includeExistingFiles": "false"})
    assert resolve_schema(_options(source)).data_schema.names == ["a"]


def test_the_source_is_listed_when_all_that_is_recorded_is_gone(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = _land(source / "1.json", {"a": 1}, at=1)
    _record(source)
    old.unlink()
    _land(source / "2.json", {"b": 1}, at=2)
    assert resolve_schema(_options(source)).data_schema.names == ["b"]
    assert "are gone" in caplog.text


def test_where_there_is_a_schema_nothing_is_looked_at(source: Path) -> None:  # B21
    _land(source / "1.json", {"a": 1}, at=1)
    assert resolve_schema(_options(source)).created
    (source / "1.json").unlink()
    again = resolve_schema(_options(source))
    assert (again.created, again.sampled_files, again.data_schema.names) == (False, 0, ["a"])


def test_an_empty_source_has_no_schema(source: Path) -> None:  # B4
    with pytest.raises(SchemaInferenceError, match="Give a schema"):
        resolve_schema(_options(source))


@pytest.mark.parametrize(
    ("options", "content", "says"),
    [
        (
            {},
            '{\n "a": 1\n}\n',
            "lacks a JSON object with .* one JSON document: set multiLine=true",
        ),
        ({"multiLine": "true"}, "[]", "lacks a JSON object with a field. Give a schema"),
        ({"cloudFiles.format": "csv"}, "\n", "lacks a line of CSV. Give a schema"),
        (
            {"cloudFiles.format": "xml", "rowTag": "Book"},
            "<books><book><a>1</a></book></books>",
            "lacks an element <Book> .* Elements there are books, book, a: set rowTag",
        ),
    ],
)
def test_a_sample_without_a_field_says_what_may_be_wrong(
    source: Path, options: dict[str, str], content: str, says: str
) -> None:
    (source / "1").write_text(content)
    with pytest.raises(SchemaInferenceError, match=says):
        resolve_schema(_options(source, **options))


def test_a_damaged_file_of_the_sample_is_named_unless_it_is_to_be_passed_over(
    source: Path,
) -> None:
    _land(source / "1.json", {"a": 1}, at=1)
    (source / "2.json.gz").write_bytes(b"\x1f\x8b\x08 no more of it")
    with pytest.raises(FileUnreadableError, match=r"2\.json\.gz"):
        resolve_schema(_options(source))
    resolved = resolve_schema(_options(source, ignoreCorruptFiles="true"))
    assert (resolved.sampled_files, resolved.data_schema.names) == (1, ["a"])


# Inferring again ----------------------------------------------------------------------------


def test_inferring_again_writes_what_differs_as_a_new_version(source: Path) -> None:
    _land(source / "1.json", {"a": 1, "b": {"c": 1}}, at=1)
    assert _infer(source)["schema_version"] == 0
    _land(source / "1.json", {"a": "x", "b": {"c": 1, "d": 2}}, at=2)
    done = _infer(source)
    assert (done["created"], done["sampled_files"], done["changes"]) == (False, 0, [])
    again = _infer(source, infer_again=True)
    assert (again["created"], again["schema_version"], again["sampled_files"]) == (True, 1, 1)
    assert again["changes"] == ["a retyped from bigint to string", "b.d bigint added"]
    [_, version] = SchemaHistory(str(source.parent / "state")).versions()
    assert version.reason["change"] == "inferredAgain"
    assert version.reason["differences"] == again["changes"]
    third = _infer(source, infer_again=True)
    assert (third["created"], third["schema_version"], third["sampled_files"]) == (False, 1, 1)


def test_a_column_that_the_sample_lacks_goes_and_hints_come(source: Path) -> None:
    _land(source / "1.json", {"a": 1, "b": 1}, at=1)
    _infer(source)
    _land(source / "1.json", {"a": 1}, at=2)
    hint = {"cloudFiles.schemaHints": "a decimal(9,2)"}
    again = _infer(source, infer_again=True, **hint)
    assert again["schema"] == "a DECIMAL(9,2), _rescued_data STRING"
    assert again["changes"] == ["a retyped from bigint to decimal(9,2)", "b bigint removed"]
    assert again["hints"] == ["a DECIMAL(9,2) (was BIGINT)"]


def test_a_pinned_schema_is_not_inferred_again(source: Path) -> None:
    _land(source / "1.json", {"a": 1}, at=1)
    _infer(source)
    SchemaHistory(str(source.parent / "state")).pin()
    _land(source / "1.json", {"b": 1}, at=2)
    with pytest.raises(StateConflictError, match="pinned"):
        resolve_schema(_options(source), again=True)
    assert resolve_schema(_options(source)).data_schema.names == ["a"]


def test_a_schema_of_a_source_that_never_bound_the_state_is_inferred_anew(source: Path) -> None:
    """Killed between the schema and the first file; then the source is corrected."""
    _land(source / "1.json", {"a": 1}, at=1)
    _infer(source)
    _land(source.parent / "right" / "1.json", {"b": 1}, at=1)
    right = _options(source.parent / "right")
    resolved = resolve_schema(right)
    assert (resolved.version, resolved.data_schema.names) == (1, ["b"])
    assert resolve_schema(right).version == 1
    _record(source.parent / "right")
    with pytest.raises(StateConflictError, match="right"):
        resolve_schema(_options(source))


# What a person is told ----------------------------------------------------------------------


def test_hints_are_told_with_what_they_changed(source: Path) -> None:
    record = {"a": 1, "user": {"dob": "x", "tags": ["y"]}, "none": None}
    _land(source / "day=1" / "1.json", record, at=1)
    hints = (
        "a STRING, user.dob DATE, user.tags.element INT, none INT, new MAP<STRING, INT>, day INT"
    )
    report = _infer(source, **{"cloudFiles.schemaHints": hints})
    assert report["hints"] == [
        "a STRING (was BIGINT)",
        "user.dob DATE (was STRING)",
        "user.tags.element INT (was STRING)",
        "none INT (no value in the sample)",
        "new MAP<STRING, INT> (not in the sample)",
        "day INT (a partition column)",
    ]
    assert report["partition_columns"] == ["day"]


def test_a_hint_that_cannot_be_fails_before_anything_is_written(source: Path) -> None:
    _land(source / "1.json", {"a": [1]}, at=1)
    with pytest.raises(SchemaHintError, match=r"write a\.element"):
        resolve_schema(_options(source, **{"cloudFiles.schemaHints": "a.b INT"}))
    assert resolve_schema(_options(source)).created


def test_folders_that_contradict_each_other_are_named(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:  # B38
    _land(source / "date=1" / "part=2" / "1.json", {"a": 1}, at=2)
    _land(source / "part=2" / "date=1" / "2.json", {"a": 1}, at=1)
    assert resolve_schema(_options(source)).partition_schema.names == []
    assert "date/part in date=1/part=2/1.json, part/date in part=2/date=1/2.json" in caplog.text
    assert "cloudFiles.partitionColumns" in caplog.text


def test_a_field_that_is_a_folder_too_is_named(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _land(source / "day=1" / "1.json", {"day": 2}, at=1)
    assert resolve_schema(_options(source)).partition_schema.names == []
    assert "day is both a field of the records and a key in the paths" in caplog.text


def test_the_log_shows_the_schema_as_a_tree(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    _land(source / "1.json", {"a": {"b": 1}}, at=1)
    with caplog.at_level(logging.INFO):
        _infer(source)
    assert " |-- a: struct (nullable = true)\n |    |-- b: long (nullable = true)" in caplog.text
    assert "Inferred 1 column from 1 file," in caplog.text


FIXED = {
    "text": ["value"],
    "binaryFile": ["path", "modificationTime", "length", "content"],
}
OPTIONS = {"csv": {"header": "true"}, "excel": {"headerRows": "1"}, "xml": {"rowTag": "row"}}


@pytest.mark.parametrize("name", format_data.FORMATS)
def test_every_format_is_inferred(tmp_path: Path, name: str) -> None:
    folder = format_data.folder(tmp_path, name, 40, rows_a_file=20)
    report = _infer(folder, format=name, **OPTIONS.get(name, {}))
    assert report["outcome"] == "succeeded", report
    names = [column.split()[0] for column in report["schema"].split(", ")]
    assert names == FIXED.get(name, [*format_data.ARROW.names, "_rescued_data"])
    assert report["sampled_files"] == (0 if name in FIXED else 2)
