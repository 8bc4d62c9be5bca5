"""The operators start one job on Spark, follow it, and return its report as plain values."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, Asset, BaseNotifier
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_cloudfiles import UnknownFieldException
from airflow_cloudfiles.hooks.assets import EXTRA
from airflow_cloudfiles.operators.cloud_files import (
    CloudFilesInferSchemaOperator,
    CloudFilesIngestOperator,
)
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from tests.support.airflow_stats import CAN_BE_CONFIGURED, received

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.providers.common.compat.sdk import Context

pytestmark = pytest.mark.airflow


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))


def _stream(root: Path, **changes: Any) -> dict[str, Any]:
    (root / "in").mkdir(exist_ok=True)
    return {
        "source": str(root / "in"),
        "format": "json",
        "checkpoint_location": str(root / "state"),
        "target": str(root / "table"),
        **changes,
    }


def _context(try_number: int = 1) -> Any:
    ti = SimpleNamespace(
        dag_id="d", run_id="manual__2026-11-21T00:00:00+00:00", task_id="t", map_index=-1
    )
    ti.try_number = try_number
    return {"ti": ti, "outlet_events": OutletEventAccessors()}


def test_what_varies_between_runs_is_templated() -> None:
    common = {"source", "format", "checkpoint_location", "schema_location", "target"}
    common |= {"options", "conn_id"}
    assert set(CloudFilesInferSchemaOperator.template_fields) == common | {"infer_again"}
    assert set(CloudFilesIngestOperator.template_fields) == common | {"batch", "transform_kwargs"}


def test_a_target_is_required_to_ingest() -> None:
    with pytest.raises(TypeError, match="target"):
        CloudFilesIngestOperator(  # type: ignore[call-arg]
            task_id="t", source="/in", format="json", checkpoint_location="/state"
        )


def test_assets_stand_for_their_locations(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    source, table = (Asset(name, uri=stream[name]) for name in ("source", "target"))
    stream |= {"source": source, "target": table}
    other = Asset("other", uri="s3://lake/other")
    task = CloudFilesIngestOperator(task_id="t", **stream, outlets=[other])
    assert (task.source, task.target) == (source.uri, table.uri)
    assert (task.inlets, task.outlets) == ([source], [other, table])
    again = CloudFilesIngestOperator(task_id="u", **stream, outlets=[table], inlets=[source])
    assert (again.inlets, again.outlets) == ([source], [table])
    sensor = CloudFilesSensor(task_id="s", **stream)
    assert sensor.source == source.uri
    assert not [*sensor.inlets, *sensor.outlets]  # it neither reads nor writes a table


def test_a_plain_path_makes_no_asset(tmp_path: Path) -> None:
    task = CloudFilesIngestOperator(task_id="t", **_stream(tmp_path))
    assert not [*task.inlets, *task.outlets]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"write": "upsert"}, "append or merge"),
        ({"write": "merge"}, "needs keys"),
        ({"write": "merge", "keys": "id"}, "must be a list"),
        ({"keys": ["id"]}, "need write='merge'"),
        ({"delete_when": "op = 'D'"}, "need write='merge'"),
    ],
)
def test_a_merge_that_cannot_work_fails_when_the_dag_is_parsed(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        CloudFilesIngestOperator(task_id="t", **_stream(tmp_path, **changes))


def test_the_arguments_of_a_merge_are_options_of_the_sink(tmp_path: Path) -> None:
    task = CloudFilesIngestOperator(
        task_id="t",
        write="merge",
        keys=["id", "line"],
        order_by="at",
        delete_when="op = 'D'",
        **_stream(tmp_path, options={"mergeNullKeys": "insert"}),
    )
    assert task.stream_arguments().options == {
        "mergeNullKeys": "insert",
        "mergeKeys": "id,line",
        "mergeOrderBy": "at",
        "mergeDeleteWhen": "op = 'D'",
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"batch": {"checkpoint_location": "/other", "last_entry": 0}}, "/other"),
        ({"batch": ["1.json"]}, r"sensor\.output"),
        ({"master": "yarn", "deploy_mode": "custer"}, "deploy_mode"),
        ({"spark_conf": {"spark.some.password": "hush"}}, "looks like a credential"),
        ({"source": "in"}, "relative"),
    ],
)
def test_arguments_that_cannot_work_fail_for_good_before_spark_starts(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    task = CloudFilesIngestOperator(task_id="t", **_stream(tmp_path, **changes))
    with pytest.raises(AirflowFailException, match=reason):
        task.execute(_context())


@pytest.mark.parametrize(
    ("columns", "option"),
    [
        (["file_path", "file_size AS bytes"], "file_path, file_size AS bytes"),
        ({"source_file": "file_path", "all": "_metadata"},
         "file_path AS `source_file`, _metadata AS `all`"),
    ],
)  # fmt: skip
def test_columns_that_say_the_file_are_an_option_of_the_stream(
    tmp_path: Path, columns: Any, option: str
) -> None:
    task = CloudFilesIngestOperator(task_id="t", **_stream(tmp_path), metadata_columns=columns)
    arguments = task.stream_arguments().validated()
    assert arguments.options == {"cloudFiles.metadataColumns": option}
    assert arguments.job("ingest", run_id="r").source_options()["cloudFiles.metadataColumns"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata_columns": ["path"]}, "no field of _metadata. Did you mean file_path"),
        ({"metadata_columns": "file_path"}, "must be a list"),
        ({"metadata_columns": ["file_path"], "format": "delta"}, "reads a table"),
        (
            {
                "metadata_columns": ["file_path"],
                "options": {"cloudfiles.metadatacolumns": "file_path"},
            },
            "Give the argument only",
        ),
    ],
)
def test_columns_that_no_file_has_fail_when_the_dag_is_parsed(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        CloudFilesIngestOperator(task_id="t", **_stream(tmp_path, **changes))


def test_rules_for_rows_are_options_of_the_stream(tmp_path: Path) -> None:
    rules = {"positive": ("amount > 0", "drop"), "known": "id IS NOT NULL", "late": "{{ when }}"}
    task = CloudFilesIngestOperator(task_id="t", **_stream(tmp_path), row_rules=rules)
    assert task.stream_arguments().options == {
        "expect.row.positive": "amount > 0",
        "expect.row.positive.onViolation": "drop",
        "expect.row.known": "id IS NOT NULL",
        "expect.row.late": "{{ when }}",
    }
    task.row_rules = {"positive": ("amount > 0", "drop")}
    (rule,) = task.stream_arguments().job("ingest", run_id="r").table_options.row_rules
    assert (rule.name, rule.predicate, rule.action) == ("positive", "amount > 0", "drop")


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"a": "amount >"}, r"expect\.row\.a"),
        ({"a": ("amount > 0", "dropp")}, "drop"),
        ({"a": 3}, "row_rules must have a condition by each name.*a has 3"),
        ({"a b": "amount > 0"}, "a rule has a name of letters"),
        ({"Given": "amount > 0"}, "as an option and as the argument row_rules"),
    ],
)
def test_rules_that_cannot_be_meant_fail_when_the_dag_is_parsed(
    tmp_path: Path, rules: Any, reason: str
) -> None:
    given = _stream(tmp_path, options={"expect.row.given": "amount > 1"})
    with pytest.raises(ValueError, match=reason):
        CloudFilesIngestOperator(task_id="t", **given, row_rules=rules)


def test_partition_columns_are_an_option_of_the_stream(tmp_path: Path) -> None:
    task = CloudFilesIngestOperator(task_id="t", **_stream(tmp_path), partition_by=["day", "who"])
    assert task.stream_arguments().options["partitionBy"] == "day,who"
    assert "partitionBy" not in (task.options or {})
    task.partition_by = ["a,b"]
    with pytest.raises(AirflowFailException, match="a comma separates names"):
        task.execute(_context())


def test_killing_a_task_that_has_no_spark_yet_is_harmless(tmp_path: Path) -> None:
    CloudFilesIngestOperator(task_id="t", **_stream(tmp_path)).on_kill()


@pytest.mark.spark
def test_an_empty_folder_without_a_schema_fails_for_good_and_says_what_to_do(
    tmp_path: Path,
) -> None:
    task = CloudFilesInferSchemaOperator(task_id="t", **_stream(tmp_path))
    with pytest.raises(AirflowFailException, match="schema"):
        task.execute(_context())


@pytest.mark.parametrize("said", ["yes", "", None])
def test_infer_again_is_true_or_false(tmp_path: Path, said: Any) -> None:
    task = CloudFilesInferSchemaOperator(task_id="t", **_stream(tmp_path), infer_again=said)
    with pytest.raises(AirflowFailException, match="infer_again must be true or false"):
        task.execute(_context())


def test_a_schema_is_inferred_from_what_a_sensor_recorded_and_again_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # it starts no JVM
    stream = _stream(tmp_path, options={"cloudFiles.schemaHints": "id INT"})
    landing = tmp_path / "in" / "day=1"
    landing.mkdir(parents=True)
    (landing / "1.json").write_text('{"id": 1}\n')
    CloudFilesSensor(task_id="sensor", **stream).poke(_context())
    (landing / "2.json").write_text('{"later": 1}\n')

    infer = CloudFilesInferSchemaOperator(task_id="infer", **stream)
    found = infer.execute(_context())
    assert json.loads(json.dumps(found)) == found
    assert found["schema"] == "id INT, day STRING, _rescued_data STRING"
    assert (found["created"], found["sampled_files"]) == (True, 1)
    assert (found["partition_columns"], found["hints"]) == (["day"], ["id INT (was STRING)"])
    assert " |-- id: integer (nullable = true)" in capsys.readouterr().out  # as a tree

    CloudFilesSensor(task_id="sensor", **stream).poke(_context())
    assert infer.execute(_context())["created"] is False
    again = CloudFilesInferSchemaOperator(task_id="again", **stream, infer_again="True")
    found = again.execute(_context())
    assert (found["schema_version"], found["created"]) == (1, True)
    assert found["changes"] == ["later string added"]
    assert again.execute(_context())["created"] is False


class Note(BaseNotifier):
    """Notes what it is told, with its text rendered."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.notes = text, list[str]()

    def notify(self, context: Context) -> None:
        """Note it."""
        self.notes.append(self.text)


def _emits_a_change_and_then_its_rows(lines: list[str]) -> None:
    """What two tries of a task emit, the first of which meets a new column."""
    emitted: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("cloudfiles.d.t."):
            name, _, value = line.removeprefix("cloudfiles.d.t.").partition(":")
            emitted.setdefault(name, []).append(value)
    if CAN_BE_CONFIGURED:
        assert emitted["rows"] == ["0|c", "1|c"]
        assert emitted["schema_changes"] == ["1|c", "0|c"]
        assert emitted["outstanding_files"] == ["1|g", "0|g"]
        assert len(emitted["run_duration"]) == 2


@pytest.mark.spark
@pytest.mark.slow
def test_infer_then_ingest_then_heal(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = _stream(tmp_path)
    (tmp_path / "in" / "1.json").write_text('{"a": 1}\n')
    infer = CloudFilesInferSchemaOperator(task_id="infer", **stream)
    assert infer.execute(_context()) == {
        "schema_version": 0,
        "schema": "a STRING, _rescued_data STRING",
        "schema_location": (tmp_path / "state").as_uri(),
        "sampled_files": 1,
        "sampled_bytes": 9,
        "created": True,
        "partition_columns": [],
        "hints": [],
        "changes": [],
    }
    assert infer.execute(_context())["created"] is False

    table = Asset("table", uri=stream["target"])
    changed = Note("{{ schema_change.fields }} of {{ ti.task_id }}")
    rescued = Note("{{ rescued.rescued_rows }} of {{ rescued.rows }} in {{ rescued.column }}")
    told: list[Any] = []

    def fail(context: Any) -> None:
        told.append(context["schema_change"])
        raise ValueError("the chat is down")

    ingest = CloudFilesIngestOperator(
        task_id="ingest",
        **{**stream, "target": table},
        master="local[1]",
        on_schema_change=[fail, changed],
        on_rescued=rescued,
    )
    with caplog.at_level(logging.INFO):
        context = _context()
        report = ingest.execute(context)
    extra = context["outlet_events"][table].extra
    assert extra == {name: report[name] for name in EXTRA}
    assert json.loads(json.dumps(report)) == report
    counted = ("files", "rows", "rescued_rows", "batches", "schema_version")
    assert [report[name] for name in counted] == [1, 1, 0, 1, 0]

    assert (changed.notes, rescued.notes, told) == ([], [], [])

    (tmp_path / "in" / "2.json").write_text('{"a": 2, "b": 3}\n')
    with received() as metrics:
        with pytest.raises(UnknownFieldException, match=r'\{"b":') as met:
            ingest.execute(_context(try_number=1))
        assert met.value.is_retryable
        context = _context(try_number=2)
        healed = ingest.execute(context)
    _emits_a_change_and_then_its_rows(metrics.lines)
    assert [healed[name] for name in counted] == [1, 1, 0, 1, 1]
    file = (tmp_path / "in" / "2.json").as_uri()
    [change] = told  # not again at the retry
    assert (change["schema_version"], change["fields"]) == (1, ["b"])
    assert (change["files"], change["changes"]) == ({file: ["b"]}, ["b string added"])
    assert '{"b":' in change["message"]
    assert "fail failed; the task goes on" in capsys.readouterr().out
    assert (changed.notes, rescued.notes) == (["['b'] of t"], [])
    assert changed.text.startswith("{{")  # rendered in a copy
    assert healed["schema_change"] == {"try_number": 1, "fields": ["b"], "file": file}
    assert context["outlet_events"][table].extra["new_columns"] == ["b"]

    (tmp_path / "in" / "3.json").write_text('{"a": 3, "B": 4}\n{"a": 5, "c": 6}\n')
    stream["options"] = {"cloudFiles.evolveAhead": "true"}
    ahead = CloudFilesIngestOperator(
        task_id="ahead",
        **stream,
        master="local[1]",
        on_schema_change=fail,
        on_rescued=rescued,
    )
    assert ahead.execute(_context())["evolved_ahead"]
    assert rescued.notes == ["1 of 2 in _rescued_data"]
    assert (told[1]["schema_version"], told[1]["changes"]) == (2, ["c string added"])
