"""A task takes a Delta table as its source, from bronze to silver."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import (
    OptionError,
    StateLockedError,
    TableEvolvedError,
    UnknownOptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta.stream.commits import TableOffset
from airflow_cloudfiles.operators.cloud_files import (
    CloudFilesInferSchemaOperator,
    CloudFilesIngestOperator,
)
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger
from tests.provider.test_example_dags import _dag
from tests.support.delta_tables import MAPPED, HandMadeTable
from tests.support.table_streams import CONFIGURED, GrowingTable


def _stream(**changes: Any) -> dict[str, Any]:
    return {
        "task_id": "t",
        "source": "/bronze",
        "format": "delta",
        "checkpoint_location": "/state",
        "target": "/silver",
        **changes,
    }


def _context(try_number: int = 1) -> Any:
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=try_number)
    return {"ti": ti}


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"maxFilePerTrigger": 1}, UnknownOptionError, "Did you mean maxFilesPerTrigger"),
        ({"cloudFiles.maxFilesPerTrigger": 1}, UnknownOptionError, "no option of a stream"),
        ({"maxFilesPerTrigger": 0}, OptionError, "at least 1"),
        ({"readChangeFeed": True}, OptionError, "readChangeFeed"),
        ({"cloudFiles.clientSecret": "{{ x }}"}, UnsupportedOptionError, "credential"),
    ],
)
def test_options_are_checked_when_the_dag_is_parsed(
    options: dict[str, Any], error: type[Exception], what: str
) -> None:
    with pytest.raises(error, match=what):
        CloudFilesIngestOperator(**_stream(options=options))


def test_templates_and_options_of_the_sink_are_left_for_later() -> None:
    options = {"allowSourceColumnDrop": "{{ params.x }}", "mergeSchema": False, "ignoreDeletes": 1}
    task = CloudFilesIngestOperator(**_stream(options={**options, "ignoreDeletes": True}))
    assert task.stream_arguments().validated().engine_options()["ignoreDeletes"] == "true"


def test_other_tasks_refuse_a_table_by_name() -> None:
    stream = _stream()
    with pytest.raises(OptionError, match="only CloudFilesSensor and CloudFilesIngestOperator"):
        CloudFilesInferSchemaOperator(**stream)
    del stream["task_id"]
    trigger = CloudFilesTrigger(**stream)
    with pytest.raises(OptionError, match="only CloudFilesSensor and CloudFilesIngestOperator"):
        trigger.serialize()


def test_a_sensor_waits_for_a_version_that_was_not_read(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "t", "a")
    state = tmp_path / "state"
    sensor = CloudFilesSensor(
        **_stream(source=str(table.folder), checkpoint_location=str(state)), deferrable=True
    )
    found = sensor.execute(_context())
    of_state = {"version": 1, "checkpoint_location": str(state)}
    assert found == {**of_state, "next_version": None, "last_version": 0}
    offset = TableOffset("id", 1).to_json()
    for name, content in (("offsets", json.dumps(offset)), ("commits", "{}")):
        (state / name).mkdir(parents=True)
        (state / name / "0").write_text(f"v1\n{{}}\n{content}")
    assert not sensor.poke(_context()).is_done
    table.append(1)
    found = sensor.poke(_context()).xcom_value
    assert found == {**of_state, "next_version": 1, "last_version": 1}


def test_a_table_that_is_not_there_fails_for_good_before_spark_starts(tmp_path: Path) -> None:
    task = CloudFilesIngestOperator(
        **_stream(
            source=str(tmp_path / "nothing"),
            checkpoint_location=str(tmp_path / "state"),
            target=str(tmp_path / "silver"),
        )
    )
    with pytest.raises(AirflowFailException, match="There is no Delta table"):
        task.execute(_context())


@pytest.mark.spark
@pytest.mark.slow
def test_the_example_goes_from_bronze_to_silver_across_a_renamed_column(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as parsing:
        parsing.setenv("CLOUDFILES_ROOT", str(tmp_path))
        dag = _dag("example_bronze_to_silver")
    bronze: Any = dag.get_task("bronze")
    silver: Any = dag.get_task("silver")
    assert bronze.downstream_task_ids == {"silver"}
    for each in (bronze, silver):
        each.spark = replace(each.spark, master="local[1]")
    silver.options = {"allowSourceColumnRename": ""}  # as Airflow renders it
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.json").write_text('{"id": "1", "qty": "5"}\n')
    bronze.execute(_context())
    report = silver.execute(_context())
    assert (report["rows"], report["batches"]) == (1, 1)
    assert report["source_version"] == report["next_version"] - 1
    bronze_files = DeltaTable(tmp_path / "bronze").get_add_actions(flatten=True)
    assert report["files"] == 1
    assert report["bytes"] == sum(pa.table(bronze_files)["size_bytes"].to_pylist())
    assert (report["first_version"], report["last_version"]) == (0, report["source_version"])
    assert set(report["durations"]) == {"spark_start_seconds", "query_seconds", "total_seconds"}
    again = silver.execute(_context(2))
    assert (again["rows"], again["files"], again["bytes"], again["versions"]) == (0, 0, 0, 0)
    assert (again["first_version"], again["last_version"]) == (None, None)
    assert set(again["durations"]) == {"total_seconds"}  # no Spark was started
    held = RunLock(open_store(str(tmp_path / "checkpoints/silver")), JOB_KEY)
    with held, pytest.raises(StateLockedError):
        silver.execute(_context(3))

    version = _rename_in_bronze(tmp_path / "bronze")
    with pytest.raises(TableEvolvedError):
        silver.execute(_context(4))
    with pytest.raises(AirflowFailException, match="RENAME COLUMN qty to quantity"):
        silver.execute(_context(5))
    silver.options = {"allowSourceColumnRename": str(version)}
    report = silver.execute(_context(6))
    assert (report["files"], report["rows"]) == (1, 1)
    assert (report["first_version"], report["last_version"]) == (version, version + 1)
    rows = DeltaTable(tmp_path / "silver").to_pyarrow_table().to_pylist()
    found = sorted((row["id"], row["qty"], row["quantity"]) for row in rows)
    assert found == [("1", "5", None), ("2", None, "7")]


def _rename_in_bronze(folder: Path) -> int:
    """Rename a column as Delta does, and add a row.

    Returns:
        The version of the renaming.
    """
    log = folder / "_delta_log"
    actions = [
        json.loads(line)
        for path in sorted(log.glob("*.json"))
        for line in path.read_text().splitlines()
    ]
    metadata = [each for each in actions if "metaData" in each][-1]
    schema = json.loads(metadata["metaData"]["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
    next(each for each in schema["fields"] if each["name"] == "qty")["name"] = "quantity"
    metadata["metaData"] |= {"schemaString": json.dumps(schema), "configuration": CONFIGURED}
    made = HandMadeTable.__new__(HandMadeTable)
    made.folder, made.log = folder, log
    made.version = DeltaTable(folder).version()
    version = made.commit({"protocol": MAPPED}, metadata)
    made.commit(made.file("hand.parquet", {"id": ["2"], "qty": ["7"], "_rescued_data": ["x"]}))
    return version
