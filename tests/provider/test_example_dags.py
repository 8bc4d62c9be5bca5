"""Every example DAG imports, says what it promises, and does it on a local folder.

Those that need Spark run in `test_real_airflow.py`.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from airflow.sdk import DAG, Asset
from airflow.sdk.execution_time import macros

from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger
from airflow_cloudfiles.triggers.file_events import CloudFilesEventsTrigger
from tests.support.promoted import Landed

if TYPE_CHECKING:
    from types import ModuleType

    from tests.support.sftp_servers import Served

pytestmark = pytest.mark.airflow

FOLDER = Path(__file__).parents[2] / "dags_examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
if find_spec("airflow.providers.amazon") is None:  # `make providers` has it and others
    EXAMPLES = [each for each in EXAMPLES if "_provider" not in each.stem]
MANY = "example_many_streams"
SHARED = "example_one_queue"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the examples find their files."""
    monkeypatch.setenv("CLOUDFILES_ROOT", str(tmp_path))
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "landing").mkdir()
    return tmp_path


def _imported(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _dags(name: str) -> dict[str, DAG]:
    """The DAGs of an example, as they are made."""
    made: dict[str, DAG] = {}
    enter = DAG.__enter__

    def entered(dag: DAG) -> DAG:
        made[dag.dag_id] = dag
        return enter(dag)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DAG, "__enter__", entered)
        _imported(FOLDER / f"{name}.py")
    return made


def _dag(name: str) -> DAG:
    """The one DAG of an example."""
    [dag] = _dags(name).values()
    return dag


def _drop(root: Path, name: str, modified: datetime | None = None) -> None:
    path = root / "landing" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"a": 1}\n')
    if modified is not None:
        whole = int(modified.replace(microsecond=0).timestamp())
        at = (whole * 1_000_000 + modified.microsecond) * 1000
        os.utime(path, ns=(at, at))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize(
    "path", [p for p in EXAMPLES if p.stem not in {MANY, SHARED}], ids=lambda p: p.stem
)
def test_an_example_imports_and_its_dag_has_its_name(path: Path) -> None:
    dag = _dag(path.stem)
    assert dag.dag_id == path.stem
    assert dag.doc_md
    assert dag.max_active_runs == 1  # a state has one run at a time
    dag.validate()


def test_twenty_streams_have_an_asset_each_and_one_poller() -> None:
    dags = _dags(SHARED)
    assert len(dags) == 20
    keys, sources = set(), set()
    for dag in dags.values():
        dag.validate()
        assert dag.max_active_runs == 1
        [asset] = dag.timetable.asset_condition.objects
        [watcher] = asset.watchers
        assert isinstance(watcher.trigger, CloudFilesEventsTrigger)
        keys.add(watcher.trigger.shared_stream_key())
        ingest = dag.get_task("ingest")
        assert ingest.source == watcher.trigger.source  # type: ignore[attr-defined]
        assert ingest.checkpoint_location not in sources  # type: ignore[attr-defined]
        sources.add(ingest.checkpoint_location)  # type: ignore[attr-defined]
    assert len(keys) == 1


def test_the_flights_example_waits_infers_and_ingests_in_this_order() -> None:
    module = _imported(next(path for path in EXAMPLES if "flights" in path.stem))
    assert module.arrived.downstream_task_ids == {"infer_schema", "ingest"}
    assert module.infer_schema.downstream_task_ids == {"ingest"}
    assert module.ingest.retries == 3
    assert module.ingest.target == module.arrived.target


def test_batch_streaming_waits_for_files_and_hands_them_on(root: Path) -> None:
    dag = _dag("example_batch_streaming")
    arrived, ingest = dag.get_task("arrived"), dag.get_task("ingest")
    assert isinstance(arrived, CloudFilesSensor)
    assert not arrived.poke({}).is_done  # type: ignore[typeddict-item]
    _drop(root, "1.json")
    told = arrived.poke({})  # type: ignore[typeddict-item]
    assert told.is_done
    stream = StreamArguments(
        source=ingest.source,  # type: ignore[attr-defined]
        format=ingest.format,  # type: ignore[attr-defined]
        checkpoint_location=ingest.checkpoint_location,  # type: ignore[attr-defined]
        target=ingest.target,  # type: ignore[attr-defined]
    )
    assert CloudFilesHook().discover(stream) == told.xcom_value  # both speak of one stream
    assert _outstanding(root) == ["1.json"]


def test_the_inbox_on_a_server_is_found_by_its_connection(
    root: Path, monkeypatch: pytest.MonkeyPatch, asyncssh_server: Served
) -> None:
    access = asyncssh_server.access
    connection = {
        "conn_type": "cloudfiles_sftp",
        "host": access.host,
        "port": access.port,
        "login": access.user,
        "password": access.password,
        "extra": {"host_key": access.host_key},
    }
    monkeypatch.setenv("AIRFLOW_CONN_ACME_SFTP", json.dumps(connection))
    monkeypatch.setenv("SFTP_INBOX_SERVER", f"sftp://{access.host}:{access.port}")
    (asyncssh_server.folder / "inbox").mkdir()
    workbook = asyncssh_server.folder / "inbox/1.xlsx"
    workbook.write_bytes(b"a workbook")
    os.utime(workbook, (0, time.time() - 3600))  # the example lets young files wait
    arrived = _dag("example_sftp_inbox").get_task("arrived")
    assert isinstance(arrived, CloudFilesSensor)
    told = arrived.poke({})  # type: ignore[typeddict-item]
    assert told.xcom_value["sample"] == ["1.xlsx"]


def test_an_arrival_schedules_the_event_driven_dag(root: Path) -> None:
    dag = _dag("example_event_driven")
    [asset] = dag.timetable.asset_condition.objects
    [watcher] = asset.watchers
    assert isinstance(watcher.trigger, CloudFilesTrigger)
    assert watcher.trigger.stream.source == str(root / "landing")
    [ingest] = dag.tasks
    assert ingest.source == watcher.trigger.stream.source  # type: ignore[attr-defined]
    [table] = ingest.outlets
    assert table.uri == (root / "table").as_uri()
    [awaited] = _dag("example_new_columns").timetable.asset_condition.objects
    assert (awaited.name, awaited.uri) == (table.name, table.uri)


def test_the_columns_that_events_name_are_reported(root: Path) -> None:
    [react] = _dag("example_new_columns").tasks
    table = Asset("table", uri=(root / "table").as_uri())
    extras = [
        {"rows": 1, "new_columns": ["b", "a"]},
        {"rows": 2},
        {"rows": 0, "new_columns": ["b"]},
    ]

    class Events:
        """Takes an asset as Airflow's own accessor does; assets of 3.1 are no keys of a `dict`."""

        def __getitem__(self, asset: Asset) -> list[SimpleNamespace]:
            assert (asset.name, asset.uri) == (table.name, table.uri)
            return [SimpleNamespace(extra=extra) for extra in extras]

    assert react.python_callable(Events()) == ["a", "b"]  # type: ignore[attr-defined]


DAY = datetime(2026, 1, 2, tzinfo=UTC)
TICK = timedelta(microseconds=1)


def test_a_backfilled_day_takes_each_file_that_was_modified_in_it(root: Path) -> None:  # B92
    """Half-open days: what is on a boundary is in one day, whoever runs first, however often."""
    for name, modified in {
        "before.json": DAY - TICK,
        "start.json": DAY,
        "soon.json": DAY + TICK,
        "end.json": DAY + timedelta(days=1) - TICK,
        "after.json": DAY + timedelta(days=1),
    }.items():
        _drop(root, name, modified)
    assert _picked(root, DAY) == ["end.json", "soon.json", "start.json"]
    assert _picked(root, DAY) == []
    assert _picked(root, DAY + timedelta(days=1)) == ["after.json"]
    assert _picked(root, DAY - timedelta(days=1)) == ["before.json"]


def _picked(root: Path, day: datetime) -> list[str]:
    """The files that a backfill run of a day adds to the state."""
    before = set(_outstanding(root))
    sensor = _dag("example_backfill").get_task("picked")
    assert isinstance(sensor, CloudFilesSensor)
    interval = {"data_interval_start": day, "data_interval_end": day + timedelta(days=1)}
    context: Any = {**interval, "macros": macros}
    sensor.render_template_fields(context)
    sensor.poke(context)
    return sorted(set(_outstanding(root)) - before)


def _outstanding(root: Path) -> list[str]:
    """What the state has recorded; nothing is committed here."""
    opened = Intake.open(
        source=str(root / "landing"), format="json", checkpoint_location=str(root / "checkpoint")
    )
    with closing(opened) as intake:
        end = intake.head()
        return [file.path for file in intake.files.slice(intake.committed(), end)]


def test_the_reconciliation_reports_and_records_and_fails_when_much_was_lost(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a queue that lost events, the same: `tests/provider/test_sensor_aws.py`."""
    monkeypatch.setenv("CLOUDFILES_MOST_LOST", "1")
    _drop(root, "1.json")
    report = _reconciled()
    assert (report["listed"], report["outstanding_files"], report["files"]) == (1, 1, 0)
    assert _outstanding(root) == ["1.json"]

    judge = _dag("example_reconciliation").get_task("too_many_lost").python_callable  # type: ignore[attr-defined]
    judge(report)
    with pytest.raises(ValueError, match=r"2\.json"):
        judge({**report, "files": 2, "sample": ["2.json", "3.json"]})


def _reconciled() -> dict[str, Any]:
    report = _dag("example_reconciliation").get_task("reconcile").execute({})  # type: ignore[typeddict-item]
    assert isinstance(report, dict)
    return report


def test_many_streams_are_as_many_dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = tmp_path / "streams.yaml"
    monkeypatch.setenv("CLOUDFILES_STREAMS", str(streams))
    given = {
        name: {
            "source": f"/in/{name}",
            "format": "json",
            "checkpoint_location": f"/state/{name}",
            "target": f"/table/{name}",
        }
        for name in "abc"
    }
    streams.write_text(json.dumps({"streams": given}))
    made = _dags(MANY)
    assert sorted(made) == ["example_stream_a", "example_stream_b", "example_stream_c"]
    states = {task.checkpoint_location for dag in made.values() for task in dag.tasks}
    assert len(states) == 3  # type: ignore[attr-defined]
    assert all(task.retries == 3 for dag in made.values() for task in dag.tasks)
    assert all(dag.max_active_runs == 1 for dag in made.values())
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "example_stream_b")  # as a task does
    [one] = _dags(MANY).values()
    assert one.dag_id == "example_stream_b"


def test_the_list_of_streams_is_complete() -> None:
    names = yaml.safe_load((FOLDER / "many_streams.yaml").read_text())["streams"]
    made = _dags(MANY)
    assert sorted(made) == sorted(f"example_stream_{name}" for name in names)
    for dag in made.values():
        dag.validate()


def test_the_promotion_example_makes_columns_of_what_its_stream_rescued(root: Path) -> None:
    landed = Landed.create(root, "id BIGINT")
    (root / "state").rename(root / "checkpoint")
    landed.land({"id": 1, "customer": {"zip": "01", "name": "a"}})
    dag = _dag("example_promote_rescued")
    ingest, promote = dag.get_task("ingest"), dag.get_task("promote")
    assert ingest.downstream_task_ids == {"promote"}
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1)
    report = promote.execute({"ti": ti})  # type: ignore[attr-defined]
    assert report["columns"] == {"customer.zip": "string"}
    [row] = landed.rows()
    assert row["customer"] == {"zip": "01"}
    assert row["_rescued_data"]["customer"] == {"name": "a"}
