"""The sensor finds each file once, says what is outstanding, and starts no Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_cloudfiles.engine.errors import SourceNotFoundError, StateError, UnknownOptionError
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))


def _sensor(root: Path, **changes: Any) -> CloudFilesSensor:
    (root / "in").mkdir(parents=True, exist_ok=True)
    given = {
        "source": str(root / "in"),
        "format": "json",
        "checkpoint_location": str(root / "state"),
        **changes,
    }
    return CloudFilesSensor(task_id="arrived", **given)


def _drop(root: Path, *names: str) -> None:
    for name in names:
        path = root / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"a": 1}\n')


def _poke(sensor: CloudFilesSensor) -> dict[str, Any] | None:
    told = sensor.poke({})  # type: ignore[typeddict-item]
    assert told.is_done == (told.xcom_value is not None)
    return told.xcom_value


def test_nothing_arrived_is_nothing_to_do(tmp_path: Path) -> None:
    assert _poke(_sensor(tmp_path)) is None


def test_a_batch_stays_outstanding_until_it_is_ingested(tmp_path: Path) -> None:
    sensor = _sensor(tmp_path)
    _drop(tmp_path, "1.json", "2.json")
    batch = _poke(sensor)
    assert batch == {
        "version": 1,
        "checkpoint_location": str(tmp_path / "state"),
        "first_entry": 0,
        "last_entry": 0,
        "files": 2,
        "bytes": 18,
        "sample": ["1.json", "2.json"],
    }
    assert _poke(sensor) == batch
    _drop(tmp_path, "3.json")
    later = _poke(_sensor(tmp_path))
    assert later is not None
    assert (later["first_entry"], later["last_entry"], later["files"]) == (0, 1, 3)


def test_a_sensor_that_waits_for_a_file_to_settle_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sensor = _sensor(tmp_path, options={"cloudFiles.minFileAge": "1 hour"})
    _drop(tmp_path, "1.json")
    with caplog.at_level("INFO"):
        assert _poke(sensor) is None
    waits = "1 file not taken yet: 1 for cloudFiles.minFileAge (1.json). The first is old enough in"
    assert waits in caplog.text
    os.utime(tmp_path / "in" / "1.json", (1, 1))
    assert _poke(sensor) is not None


def test_the_reference_is_small_however_many_files_arrive(tmp_path: Path) -> None:  # B143
    sensor = _sensor(tmp_path)
    _drop(tmp_path, *(f"{number:05}-{'x' * 200}.json" for number in range(5000)))
    batch = _poke(sensor)
    assert batch is not None
    assert batch["files"] == 5000
    assert len(json.dumps(batch)) < 4096


def test_names_that_are_no_text_reach_xcom_as_text(tmp_path: Path) -> None:
    sensor = _sensor(tmp_path)
    _drop(tmp_path, "a%20b+c#d.json", "día\n.json", "\udcff.json")
    batch = _poke(sensor)
    assert batch is not None
    assert sorted(batch["sample"]) == ["\\xff.json", "a%20b+c#d.json", "día\n.json"]


def test_target_state_and_schema_below_the_source_are_no_arrivals(tmp_path: Path) -> None:
    places = {
        "checkpoint_location": "in/state",
        "schema_location": "in/schema",
        "target": "in/table",
    }
    sensor = _sensor(tmp_path, **{name: str(tmp_path / at) for name, at in places.items()})
    _drop(tmp_path, "1.json", "state/x.json", "schema/x.json", "table/x.json")
    batch = _poke(sensor)
    assert batch is not None
    assert batch["sample"] == ["1.json"]


def test_a_missing_folder_fails_for_good_and_is_named(tmp_path: Path) -> None:
    sensor = _sensor(tmp_path, source=str(tmp_path / "nowhere"))
    with pytest.raises(AirflowFailException, match="nowhere"):
        sensor.poke({})  # type: ignore[typeddict-item]


def test_a_state_of_another_source_fails_for_good(tmp_path: Path) -> None:
    _drop(tmp_path, "1.json")
    _poke(_sensor(tmp_path))
    (tmp_path / "other").mkdir()
    with pytest.raises(AirflowFailException, match="other"):
        _sensor(tmp_path, source=str(tmp_path / "other")).poke({})  # type: ignore[typeddict-item]


def test_a_rendered_option_is_checked_before_anything_is_listed(tmp_path: Path) -> None:
    sensor = _sensor(tmp_path, options={"cloudFiles.maxFilesPerTrigger": "{{ params.most }}"})
    sensor.options = {"cloudFiles.maxFilesPerTrigger": "many"}
    with pytest.raises(AirflowFailException, match="whole number"):
        sensor.poke({})  # type: ignore[typeddict-item]
    assert not (tmp_path / "state").exists()


def test_a_relative_location_needs_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _drop(tmp_path, "1.json")
    relative = {"source": "in", "checkpoint_location": "state"}
    with pytest.raises(AirflowFailException, match="relative"):
        _sensor(tmp_path, **relative).poke({})  # type: ignore[typeddict-item]
    connection = {"conn_type": "fs", "extra": {"path": str(tmp_path)}}
    monkeypatch.setenv("AIRFLOW_CONN_OURS", json.dumps(connection))
    batch = _poke(_sensor(tmp_path, **relative, conn_id="ours"))
    assert batch is not None
    assert batch["checkpoint_location"] == f"{tmp_path}/state"


def test_a_connection_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OURS", "postgres://user:hush@host")
    with pytest.raises(AirflowFailException, match="'postgres'") as refused:
        _sensor(tmp_path, conn_id="ours").poke({})  # type: ignore[typeddict-item]
    assert "hush" not in str(refused.value)
    with pytest.raises(AirflowNotFoundException):
        CloudFilesHook("nobody").access  # noqa: B018 - it is read when it is asked for


def test_the_default_of_deferrable_is_airflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _sensor(tmp_path).deferrable is False
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    assert _sensor(tmp_path).deferrable is True
    assert _sensor(tmp_path, deferrable=False).deferrable is False


def test_deferred_and_poked_the_batch_is_the_same(tmp_path: Path) -> None:  # B147
    _drop(tmp_path, "1.json", "2.json")
    poked = _sensor(tmp_path).execute({})  # type: ignore[typeddict-item]
    deferred = _sensor(tmp_path, deferrable=True)
    assert deferred.execute({}) == poked  # type: ignore[typeddict-item]
    assert deferred.execute_complete({}, {"arrived": True}) == poked  # type: ignore[typeddict-item]


def test_a_deferred_sensor_looks_again_in_its_worker(tmp_path: Path) -> None:  # B142
    sensor = _sensor(
        tmp_path, deferrable=True, timeout=600, poke_interval=7, options={"mode": "FAILFAST"}
    )
    with pytest.raises(TaskDeferred) as left:
        sensor.execute({})  # type: ignore[typeddict-item]
    path, arguments = left.value.trigger.serialize()
    assert path.endswith(".CloudFilesTrigger")
    assert arguments["poke_interval"] == 7
    assert arguments["options"] == {"mode": "FAILFAST"}
    # the trigger ends itself, before Airflow would end it with an error
    assert arguments["ends_at"] == left.value.kwargs["deadline"] <= time.time() + 600
    assert left.value.timeout is not None
    assert left.value.timeout.total_seconds() > 600
    json.dumps([arguments, left.value.kwargs])

    # fired, but somebody else has taken it: wait on, no longer than asked for at first
    with pytest.raises(TaskDeferred) as again:
        sensor.execute_complete({}, {"arrived": True}, **(left.value.kwargs or {}))  # type: ignore[typeddict-item]
    assert again.value.kwargs == left.value.kwargs
    _drop(tmp_path, "1.json")
    batch = sensor.execute_complete({}, {"arrived": True})  # type: ignore[typeddict-item]
    assert batch["files"] == 1


@pytest.mark.parametrize(
    ("changes", "ends"),
    [({}, AirflowSensorTimeout), ({"soft_fail": True}, AirflowSkipException)],
)
def test_a_deferred_sensor_times_out_like_a_poked_one(
    tmp_path: Path, changes: dict[str, Any], ends: type[Exception]
) -> None:
    for deferrable in (False, True):
        sensor = _sensor(tmp_path, deferrable=deferrable, timeout=0, **changes)
        with pytest.raises(ends):
            sensor.execute({})  # type: ignore[typeddict-item]


@pytest.mark.parametrize("kwargs", [{"deadline": 1.0}, {}], ids=["kept", "lost by dag.test()"])
@pytest.mark.parametrize(
    ("changes", "ends"),
    [({}, AirflowSensorTimeout), ({"soft_fail": True}, AirflowSkipException)],
)
def test_a_deferred_sensor_ends_by_an_event(
    tmp_path: Path, changes: dict[str, Any], ends: type[Exception], kwargs: dict[str, Any]
) -> None:
    sensor = _sensor(tmp_path, deferrable=True, timeout=600, **changes)
    event = {"arrived": False, "is_over": True}
    with pytest.raises(ends, match="600"):
        sensor.execute_complete({}, event, **kwargs)  # type: ignore[typeddict-item]
    _drop(tmp_path, "1.json")  # what came at the last moment is not lost
    assert sensor.execute_complete({}, event, **kwargs)["files"] == 1  # type: ignore[typeddict-item]


def test_soft_fail_skips_quiet_times_but_never_an_error(tmp_path: Path) -> None:
    for deferrable in (False, True):
        sensor = _sensor(
            tmp_path, deferrable=deferrable, source=str(tmp_path / "nowhere"), soft_fail=True
        )
        with pytest.raises(SourceNotFoundError):
            sensor.execute({})  # type: ignore[typeddict-item]
        sensor.never_fail = True
        with pytest.raises(AirflowSkipException):
            sensor.execute({})  # type: ignore[typeddict-item]


def test_silent_fail_waits_on_in_both_modes(tmp_path: Path) -> None:
    """An error that a retry may help: the source is a folder only later."""
    (tmp_path / "state").write_text("no folder yet")
    sensor = _sensor(tmp_path, deferrable=True, silent_fail=True, soft_fail=True)
    with pytest.raises(TaskDeferred):
        sensor.execute({})  # type: ignore[typeddict-item]
    sensor.silent_fail = False
    with pytest.raises(StateError):
        sensor.execute({})  # type: ignore[typeddict-item]


def test_a_misspelt_option_breaks_the_dag_not_the_run(tmp_path: Path) -> None:
    with pytest.raises(UnknownOptionError, match=r"cloudFiles\.schemaHints"):
        _sensor(tmp_path, options={"cloudFiles.schemaHint": "a int"})


def test_a_sensor_loads_no_spark() -> None:
    code = (
        "import sys, airflow_cloudfiles.sensors.cloud_files as sensors\n"
        "sys.exit(any(name.split('.')[0] == 'pyspark' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=600).returncode == 0
