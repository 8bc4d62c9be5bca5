"""Silence and lost files reach people once, from the state; and what waits is in the metrics."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.observability.run_events import lost_files, rescued_data
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger
from tests.support.airflow_stats import CAN_BE_CONFIGURED, received

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow

AT_ONCE = timedelta(microseconds=1)
"""What nothing that was recorded is younger than."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))


def _context(task_id: str = "t", map_index: int = -1) -> Any:
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id=task_id, map_index=map_index, try_number=1)
    return {"ti": ti, "outlet_events": OutletEventAccessors()}


def _stream(root: Path, **changes: Any) -> dict[str, Any]:
    (root / "in").mkdir(exist_ok=True)
    return {
        "source": str(root / "in"),
        "format": "json",
        "checkpoint_location": str(root / "state"),
        "target": str(root / "table"),
        **changes,
    }


def _sensor(root: Path, **changes: Any) -> CloudFilesSensor:
    return CloudFilesSensor(task_id="arrived", **_stream(root, **changes))


def _drop(root: Path, name: str, text: str = '{"a": 1}\n') -> Path:
    path = root / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


class Told:
    """A callback that keeps what it was told under a name of the context."""

    def __init__(self, name: str) -> None:
        self.name, self.all = name, list[Any]()

    def __call__(self, context: Any) -> None:
        """Keep it."""
        self.all.append(context[self.name])


def test_a_silence_is_told_once_by_each_task_until_something_arrives(tmp_path: Path) -> None:
    told = Told("silence")
    for _ in range(3):
        sensor = _sensor(tmp_path, expected_every=AT_ONCE, on_silence=[told])
        assert not sensor.poke(_context()).is_done
    [first] = told.all
    assert (first["last_arrival"], first["expected_seconds"]) == (None, 1e-06)
    assert first["source"] == str(tmp_path / "in")
    assert first["message"].startswith(f"Nothing has arrived in {tmp_path}/in since 20")
    assert ", when the stream was begun: for " in first["message"]
    sensor.poke(_context("other"))
    sensor.poke(_context("other", map_index=2))
    sensor.poke(_context("other", map_index=2))
    assert len(told.all) == 3
    _drop(tmp_path, "1.json")
    for _ in range(2):
        assert sensor.poke(_context()).is_done
    assert len(told.all) == 4
    assert told.all[3]["last_arrival"] == told.all[3]["since"]


def test_a_silence_that_is_short_enough_is_nothing(tmp_path: Path) -> None:
    told = Told("silence")
    sensor = _sensor(tmp_path, expected_every=timedelta(hours=1), on_silence=told)
    sensor.poke(_context())
    assert told.all == []


def test_without_a_callback_a_silence_fails_the_task_unless_something_waits(tmp_path: Path) -> None:
    sensor = _sensor(tmp_path, expected_every=AT_ONCE)
    with pytest.raises(
        AirflowFailException, match=r"Nothing has arrived in .* expected_every is 0"
    ):
        sensor.poke(_context())
    _drop(tmp_path, "1.json")
    assert sensor.poke(_context()).is_done


def test_a_callback_that_fails_is_called_once_and_fails_no_sensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(context: Any) -> None:
        raise ValueError(context["silence"]["seconds"])

    sensor = _sensor(tmp_path, expected_every=AT_ONCE, on_silence=fail)
    sensor.poke(_context())
    sensor.poke(_context())
    assert capsys.readouterr().out.count("fail failed; the task goes on") == 1


def test_a_state_that_cannot_be_asked_fails_no_sensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no answer")

    monkeypatch.setattr("airflow_cloudfiles.hooks.silence.last_arrival", fail)
    assert not _sensor(tmp_path, expected_every=AT_ONCE).poke(_context()).is_done
    assert "How long nothing has arrived could not be found out." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"expected_every": 6}, "expected_every must be a timedelta of more than no time, got 6"),
        ({"expected_every": timedelta(0)}, "of more than no time"),
        ({"on_silence": print}, "on_silence needs expected_every"),
        ({"expected_every": AT_ONCE, "on_silence": "page"}, "on_silence must be a callable"),
        ({"expected_every": AT_ONCE, "format": "delta"}, "expected_every is for streams of files"),
    ],
)
def test_what_cannot_be_meant_fails_when_the_dag_is_parsed(
    tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _sensor(tmp_path, **given)
    with pytest.raises(ValueError, match=message):
        CloudFilesIngestOperator(task_id="t", **_stream(tmp_path, **given))


def test_a_sensor_that_would_be_skipped_has_to_have_a_callback(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"soft_fail would skip it instead\. Give on_silence"):
        _sensor(tmp_path, expected_every=AT_ONCE, soft_fail=True)
    _sensor(tmp_path, expected_every=AT_ONCE, soft_fail=True, on_silence=print)


# ── deferred ─────────────────────────────────────────────────────────────────────────────────────


def test_a_deferred_sensor_wakes_to_tell_of_a_silence_and_waits_on(tmp_path: Path) -> None:
    told = Told("silence")
    hours = {"expected_every": timedelta(hours=2), "on_silence": told, "deferrable": True}
    sensor = _sensor(tmp_path, timeout=36000, **hours)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(_context())
    trigger = deferred.value.trigger
    assert isinstance(trigger, CloudFilesTrigger)
    assert trigger.ends_at is not None
    assert trigger.wakes_at is not None
    assert 7000 < trigger.wakes_at - time.time() < 7201
    assert trigger.ends_at - trigger.wakes_at > 20000
    assert trigger.serialize()[1]["wakes_at"] == trigger.wakes_at

    sensor.expected_every = AT_ONCE
    with pytest.raises(TaskDeferred) as again:
        sensor.execute_complete(_context(), {"arrived": False}, deadline=trigger.ends_at)
    assert len(told.all) == 1
    assert isinstance(again.value.trigger, CloudFilesTrigger)
    assert (again.value.trigger.wakes_at, again.value.trigger.ends_at) == (None, trigger.ends_at)
    assert "wakes_at" not in again.value.trigger.serialize()[1]


def _deferred() -> Any:
    names = ("task_id", "dag_id", "run_id", "map_index", "try_number", "id")
    return SimpleNamespace(**dict.fromkeys(names, "t"))


def test_a_trigger_that_wakes_a_task_does_not_say_that_its_time_is_over(tmp_path: Path) -> None:
    now = time.time()
    given = {**_stream(tmp_path), "poke_interval": 60.0}

    async def first(trigger: CloudFilesTrigger) -> Any:
        trigger.task_instance = _deferred()
        async for event in trigger.run():
            return event.payload
        return None

    woken = asyncio.run(first(CloudFilesTrigger(**given, ends_at=now + 900, wakes_at=now)))
    assert woken["arrived"] is False
    assert "is_over" not in woken
    over = asyncio.run(first(CloudFilesTrigger(**given, ends_at=now, wakes_at=now + 900)))
    assert over["is_over"] is True


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not CAN_BE_CONFIGURED, reason="only with stats of Airflow 3.3")
def test_a_poke_emits_what_waits_and_how_long_nothing_has_arrived(tmp_path: Path) -> None:
    _drop(tmp_path, "1.json")
    _drop(tmp_path, "2.json", '{"a": 22}\n')
    sensor = _sensor(tmp_path, expected_every=timedelta(hours=1))
    with received() as metrics:
        sensor.poke(_context())
    of_stream = f",dag_id=d,task_id=t,stream={str(tmp_path).strip('/')}/state"
    assert f"cloudfiles.waiting_files{of_stream}:2|g" in metrics.lines
    assert "cloudfiles.d.t.waiting_bytes:19|g" in metrics.lines
    values = dict(line.rsplit(":", 1) for line in metrics.lines)
    for name in ("oldest_waiting_seconds", "seconds_since_last_arrival"):
        assert 0 < float(values[f"cloudfiles.d.t.{name}"].removesuffix("|g")) < 3600
    assert len(metrics.lines) == 8


def test_without_a_context_nothing_is_emitted(tmp_path: Path) -> None:
    with received() as metrics:
        _sensor(tmp_path).poke({})
    assert metrics.lines == []


# ── what a run has met ───────────────────────────────────────────────────────────────────────────


def test_files_that_were_gone_are_told_from_the_report_of_the_run() -> None:
    assert lost_files({"files": 1}) is None
    none = lost_files({"missing_files": 0, "run_id": "r"})
    assert none is not None
    assert (none["count"], none["files"], none["run_id"]) == (0, [], "r")
    error = {"class": "FileMissingError", "message": "s3://a/b c was discovered but is gone. Put"}
    found = lost_files({"missing_files": 2, "missing": ["s3://a/1", "s3://a/2"], "error": error})
    assert found is not None
    assert (found["count"], found["message"]) == (3, error["message"])
    assert found["files"] == ["s3://a/1", "s3://a/2", "s3://a/b c"]


def test_rescued_data_that_cannot_be_read_has_no_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = StreamArguments(source="/in", format="json", checkpoint_location="/s")
    hook = CloudFilesHook()
    assert rescued_data(hook, stream, {"target": "iceberg://c/n/t"})["fields"] == []
    assert rescued_data(hook, stream, {"target": str(tmp_path)})["fields"] == []
    assert "Callbacks get no fields of the rescued data" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.slow
def test_an_ingestion_tells_of_silence_lost_files_and_rescued_fields(
    tmp_path: Path,
) -> None:
    silence, lost, rescued = Told("silence"), Told("lost_files"), Told("rescued")

    def ingest(**changes: Any) -> dict[str, Any]:
        options = {"cloudFiles.schemaEvolutionMode": "rescue", **changes.pop("options", {})}
        task = CloudFilesIngestOperator(
            task_id="ingest",
            **_stream(tmp_path, options=options),
            engine="local",
            on_lost_files=lost,
            on_rescued=rescued,
            **changes,
        )
        return task.execute(_context())

    _drop(tmp_path, "1.json")
    ingest(expected_every=timedelta(hours=1), on_silence=silence)
    assert (silence.all, lost.all, rescued.all) == ([], [], [])
    for _ in range(2):  # nothing new, so no Spark is started
        assert ingest(expected_every=AT_ONCE, on_silence=silence)["files"] == 0
    assert len(silence.all) == 1
    with pytest.raises(AirflowFailException, match="Nothing has arrived in"):
        ingest(expected_every=AT_ONCE)

    gone = _drop(tmp_path, "2.json")
    _drop(tmp_path, "3.json", '{"a": 2, "b": {"c": "secret"}}\n')
    _sensor(tmp_path).poke({})
    gone.unlink()
    with (
        received() as metrics,
        pytest.raises(AirflowFailException, match=r"2\.json was discovered"),
    ):
        ingest()
    if CAN_BE_CONFIGURED:
        assert "cloudfiles.d.t.lost_files:1|c" in metrics.lines
    assert (lost.all[0]["count"], lost.all[0]["files"]) == (1, [gone.as_uri()])
    assert "is gone. Put it back" in lost.all[0]["message"]
    report = ingest(options={"ignoreMissingFiles": "true"}, expected_every=AT_ONCE)
    assert (report["files"], report["missing_files"]) == (1, 1)
    assert report["missing"] == [gone.as_uri()]
    assert (lost.all[1]["count"], lost.all[1]["message"]) == (1, "")
    assert lost.all[1]["files"] == [gone.as_uri()]
    [told] = rescued.all
    assert told["fields"] == [{"path": "b.c", "rows": 1}]
    assert "secret" not in str(told)
