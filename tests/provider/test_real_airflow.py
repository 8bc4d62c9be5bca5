"""What only a real Airflow can show: retries, their absence, the end of a task, the triggerer.

One Airflow (scheduler, triggerer, DAG processor, API server) serves all tests of this module. So
does one Spark Connect server, where it does not matter that a task starts a Spark of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles import SchemaHistory, cli
from airflow_cloudfiles.engine import spark_versions
from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.hooks import approval
from airflow_cloudfiles.hooks.assets import EXTRA
from airflow_cloudfiles.hooks.task import HEALING_POLICY
from demo.airflow_home import COMPONENTS, TRIGGERER, AirflowHome
from tests.support.airflow_approvals import answer, asked, decides_in_the_tab
from tests.support.airflow_backfills import (
    backfilled,
    create_backfill,
    drop_at,
    first_ended,
    names_in,
)
from tests.support.airflow_pages import LINEAGE, get, lineage_of, links_lead_to_the_stream, pages_of
from tests.support.airflow_shell import shell_knows_the_stream
from tests.support.airflow_tasks import (
    SUPERVISOR,
    meets_a_new_column,
    parent_of,
    processes_named,
    spark_is_gone,
    spark_is_up,
    tries_of_mapped,
)
from tests.support.aws_landing import bucket_with_queue, put, queue_size, with_landing
from tests.support.browser import BROWSER, DRIVER, MISSING, browser
from tests.support.connect_server import ConnectServer
from tests.support.marked_credentials import (
    has_marker,
    metrics_received,
    nothing_has_a_marker,
    open_to_others,
    with_first_version,
)
from tests.support.other_user import OtherUser
from tests.support.wake_ups import log_wake_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.emulators.aws import Aws

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAGS = Path(__file__).parent / "real"
EXAMPLES = Path(__file__).parents[2] / "dags_examples"
_FILES = 30
HOSTILE = "<img src=x onerror=alert(1)>"
SECRET, TOKEN = "hush-8d1f0c6a+/=", "token-4e7b91c2%"
OF_STREAMS = (
    "heals asks is_decided asks_deferred asks_in_three approves is_mapped fails_on_new_columns "
    "is_killed is_marked_failed is_deferred links"
)
RUN_SECONDS = 900  # most of it is waiting for a busy machine
NEEDS_PARKING = pytest.mark.skipif(approval.TaskAwaitingInput is None, reason="needs Airflow 3.3")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the streams live."""
    return tmp_path_factory.mktemp("streams")


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A folder that every user can enter, as `/tmp` is; those of pytest are closed."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def metrics(root: Path) -> Iterator[dict[str, str]]:
    """What tells an Airflow to send its metrics into a file."""
    with metrics_received(root) as env:
        yield env


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer | None]:
    """What the connection `server` leads to; PySpark 3.5 comes without one."""
    if spark_versions.installed() < "4":
        yield None
        return
    with ConnectServer(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def airflow(
    root: Path, shared: Path, server: ConnectServer | None, metrics: dict[str, str]
) -> Iterator[AirflowHome]:
    """A running Airflow with the DAGs of `real/` and some of the examples."""
    dags = shutil.copytree(DAGS, root / "dags")
    for name in ("backfill", "event_driven", "new_columns"):
        shutil.copy(EXAMPLES / f"example_{name}.py", dags)
    env = {
        **metrics,
        "STREAMS_ROOT": str(root),
        "CLOUDFILES_ROOT": str(root / "events"),
        "CLOUDFILES_POKE_SECONDS": "2",
        "CLOUDFILES_CACHE_DIR": str(shared / "cache"),
        "TMPDIR": str(shared),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(root / LINEAGE), "append": True}
        ),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",  # a watcher begins at a parse
        # What asks again and again costs more than the tasks: DAGs are read when they change.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
    }
    if server is not None:
        env["AIRFLOW_CONN_SERVER"] = json.dumps(
            {
                "conn_type": "spark_connect",
                "host": "localhost",
                "port": server.port,
                "password": server.token,
            }
        )
    (root / "events" / "landing").mkdir(parents=True)
    components = (*COMPONENTS, TRIGGERER)
    users = {"admin": "admin", "ann": "viewer"}
    with AirflowHome(root / "airflow", dags, env, components, users) as home:
        for dag_id in OF_STREAMS.split():
            home.wait(lambda dag=dag_id: home.api.has_dag(dag), RUN_SECONDS, dag_id)  # type: ignore[misc]
        yield home


def _drop(root: Path, dag_id: str, name: str, *records: dict[str, object]) -> None:
    landing = root / dag_id / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    landing.joinpath(name).write_text("".join(f"{json.dumps(each)}\n" for each in records))


def _discover(root: Path, dag_id: str, name: str, *records: dict[str, object]) -> None:
    """Drop a file, and record it without ingesting it."""
    _drop(root, dag_id, name, *records)
    state = ["--checkpoint-location", str(root / dag_id / "state")]
    source = ["--source", str(root / dag_id / "landing"), "--format", "json"]
    assert cli.main(["discover", *source, *state]) == 0


def _run(airflow: AirflowHome, dag_id: str) -> tuple[str, str]:
    """Run a DAG to its end; returns the run's id and final state."""
    run_id = airflow.api.trigger(dag_id)
    state = airflow.wait(lambda: airflow.api.run_ended(dag_id, run_id), RUN_SECONDS, dag_id)
    return run_id, state


def _tries(airflow: AirflowHome, dag_id: str, run_id: str) -> list[str]:
    return [str(each["state"]) for each in airflow.api.tries(dag_id, run_id, "ingest")]


def _table(root: Path, dag_id: str) -> list[dict[str, object]]:
    rows = DeltaTable(str(root / dag_id / "table")).to_pyarrow_dataset().to_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["a"]))


@pytest.fixture(scope="module")
def healed(airflow: AirflowHome, root: Path) -> list[tuple[str, str, list[str]]]:
    """Two runs of a DAG, the second with a new column: id, state, and states of the tries."""
    runs = []
    for name, record in (("1.json", {"a": 1}), ("2.json", {"a": 2, "b": "new"})):
        _drop(root, "heals", name, record)
        run_id, state = _run(airflow, "heals")
        runs.append((run_id, state, _tries(airflow, "heals", run_id)))
    return runs


def test_a_schema_change_fails_the_task_once_and_heals_without_anybody(
    airflow: AirflowHome, root: Path, healed: list[tuple[str, str, list[str]]]
) -> None:
    (_, *first), (run_id, *second) = healed
    assert first == ["success", ["success"]]
    assert second == ["success", ["failed", "success"]]
    log = airflow.api.log("heals", run_id, "ingest", 1)
    assert '"exc_type": "UnknownFieldException"' in log  # B66
    assert [(row["a"], row["b"]) for row in _table(root, "heals")] == [("1", None), ("2", "new")]

    file = (root / "heals" / "landing" / "2.json").as_uri()
    noted = (root / "heals" / "changes").read_text()
    assert noted == f"1: b string added in {{'{file}': ['b']}}\n"  # not again at the retry
    links_lead_to_the_stream(airflow, "heals", run_id)
    shell_knows_the_stream(airflow.env, "heals")

    report = airflow.api.xcom("heals", run_id, "ingest")
    assert (report["files"], report["rows"], report["schema_version"]) == (1, 1, 1)
    beside = root / "heals" / "state" / "_reports" / f"{report['run_id']}.json"
    assert json.loads(beside.read_text())["rows"] == 1
    batch = airflow.api.xcom("heals", run_id, "arrived")
    assert (batch["files"], batch["sample"]) == (1, ["2.json"])

    assert lineage_of(root, "heals.ingest")[-4:] == [
        ("START", None, None, False),
        ("FAIL", 0, 0, True),
        ("START", None, None, False),
        ("COMPLETE", 1, 1, True),
    ]

    pages = pages_of(airflow, "heals", run_id)
    assert [status for status, _ in pages.values()] == [200] * len(pages)
    assert "ingest succeeded" in pages[""][1]
    assert "UnknownFieldException</span>: " in pages[""][1]
    assert "<code>b string added</code>" in pages["/schema"][1]
    assert "landing/2.json" in pages["/files"][1]
    assert "0 rows with rescued data were read" in pages["/rescued"][1]
    viewer = pages_of(airflow, "heals", run_id, airflow.api_of("ann").headers())
    assert viewer.keys() == pages.keys()
    assert [status for status, _ in viewer.values()] == [200] * len(pages)
    nobody = pages_of(airflow, "heals", run_id, {})
    assert [status for status, _ in nobody.values()] == [401] * len(pages)
    assert get(airflow, "/cloudfiles/streams", {})[0] == 401
    status, text = get(airflow, "/cloudfiles/streams", airflow.api_of("ann").headers())
    assert (status, str(root / "heals" / "landing") in text) == (200, True)


@NEEDS_PARKING
def test_a_task_asks_a_person_and_goes_on_in_the_same_try(airflow: AirflowHome, root: Path) -> None:
    _drop(root, "asks", "1.json", {"a": 1})
    assert _run(airflow, "asks")[1] == "success"
    _drop(root, "asks", "2.json", {"a": 2, "b": "```<b>new</b>"})
    run_id = airflow.api.trigger("asks")
    question = asked(airflow, "asks", run_id, "ingest", RUN_SECONDS)
    assert airflow.api.task("asks", run_id, "ingest")["state"] == "awaiting_input"
    assert question["options"] == ["Accept", "Rescue", "Refuse"]
    assert '\n    such as "```<b>new</b>"\n````' in question["body"]
    answer(airflow, "asks", run_id, "ingest", "Accept")
    ended = airflow.wait(lambda: airflow.api.run_ended("asks", run_id), RUN_SECONDS, "the run")
    assert (ended, _tries(airflow, "asks", run_id)) == ("success", ["success"])
    assert [row["b"] for row in _table(root, "asks")] == [None, "```<b>new</b>"]
    entry = SchemaHistory(str(root / "asks" / "state")).show()
    assert (entry.version, entry.reason["change"]) == (1, "accepted")
    assert str(entry.reason["by"]).endswith(" (asks.ingest)")
    assert (root / "asks" / "changes").read_text().startswith("1: b string added in")


@NEEDS_PARKING
@pytest.mark.skipif(DRIVER is None or BROWSER is None, reason=MISSING)
def test_a_person_decides_about_each_column_in_the_tab(airflow: AirflowHome, root: Path) -> None:
    dag_id = "is_decided"
    meets_a_new_column(root / dag_id, b="1.5", c=2, d={"e": 1})
    run_id = airflow.api.trigger(dag_id)
    asked(airflow, dag_id, run_id, "ingest", RUN_SECONDS)
    decides_in_the_tab(airflow, dag_id, run_id)
    ended = airflow.wait(lambda: airflow.api.run_ended(dag_id, run_id), RUN_SECONDS, "the run")
    assert (ended, _tries(airflow, dag_id, run_id)) == ("success", ["success"])
    entry = SchemaHistory(str(root / dag_id / "state")).show()
    assert (entry.reason["hints"], entry.stay_rescued) == ("b DECIMAL(9,2), c int", ("d",))
    assert entry.reason["by"] == "admin (is_decided.ingest)"
    row = _table(root, dag_id)[1]
    assert (row["b"], row["c"]) == (Decimal("1.50"), 2)
    assert json.loads(str(row["_rescued_data"]))["d"] == {"e": 1}


@NEEDS_PARKING
def test_a_deferred_task_waits_for_its_query_for_a_person_and_for_a_query(
    airflow: AirflowHome, root: Path
) -> None:
    """The query that needs an answer and the one after it go on without a worker; it is one try."""
    dag_id = "asks_deferred"
    meets_a_new_column(root / dag_id)
    run_id = airflow.api.trigger(dag_id)
    question = asked(airflow, dag_id, run_id, "ingest", RUN_SECONDS, leaves=2)
    assert airflow.api.task(dag_id, run_id, "ingest")["state"] == "awaiting_input"
    assert "+ b string added" in question["body"]
    answer(airflow, dag_id, run_id, "ingest", "Accept", b="int")
    ended = airflow.wait(lambda: airflow.api.run_ended(dag_id, run_id), RUN_SECONDS, "the run")
    assert (ended, _tries(airflow, dag_id, run_id)) == ("success", ["success"])
    assert [row["b"] for row in _table(root, dag_id)] == [None, 2]
    log = airflow.api.log(dag_id, run_id, "ingest", 1)
    deferred, parked = "goes on; the task defers.", "waits for an answer; the task leaves"
    assert [log.count(deferred), log.count(parked)] == [2, 1]
    assert log.index(deferred) < log.index(parked) < log.rindex(deferred)
    report = airflow.api.xcom(dag_id, run_id, "ingest")
    assert (report["rows"], report["schema_version"], report["outcome"]) == (2, 1, "succeeded")


@pytest.mark.parametrize(
    ("dag_id", "option", "hints", "kind"),
    [("asks_in_three", "Accept", {"hints": "b INT"}, int), ("approves", "Approve", {}, str)],
)
def test_three_tasks_ask_a_person_and_ingest_what_is_accepted(
    airflow: AirflowHome, root: Path, dag_id: str, option: str, hints: dict[str, str], kind: type
) -> None:
    meets_a_new_column(root / dag_id)
    run_id = airflow.api.trigger(dag_id)
    assert "+ b string added" in asked(airflow, dag_id, run_id, "ask", RUN_SECONDS)["body"]
    answer(airflow, dag_id, run_id, "ask", option, **hints)
    assert airflow.wait(lambda: airflow.api.run_ended(dag_id, run_id), RUN_SECONDS, "the run") == (
        "success"
    )
    assert [row["b"] for row in _table(root, dag_id)] == [None, kind(2)]
    entry = SchemaHistory(str(root / dag_id / "state")).show()
    assert (entry.version, entry.reason["change"]) == (1, "accepted")
    assert airflow.api.xcom(dag_id, run_id, "decide")["rows"] == 2


def test_a_mapped_task_heals_as_the_documentation_says(airflow: AirflowHome, root: Path) -> None:
    names = ("plain", "written_out")
    for name in names:
        meets_a_new_column(root / "is_mapped" / name)
    run_id, _ = _run(airflow, "is_mapped")
    found = {name: tries_of_mapped(airflow, "is_mapped", run_id, name) for name in names}
    heals = ["failed", "success"]
    assert found == {
        # Airflow 3.1 and 3.2 hand a mapped operator their own defaults: no retry.
        "plain": heals if HEALING_POLICY is not None else ["failed"],
        "written_out": heals,
    }
    assert [row["b"] for row in _table(root, "is_mapped/written_out")] == [None, "2"]


@pytest.mark.skipif(DRIVER is None or BROWSER is None, reason=MISSING)
def test_a_viewer_sees_the_stream_in_a_browser(
    airflow: AirflowHome, root: Path, healed: list[tuple[str, str, list[str]]]
) -> None:
    token = airflow.api_of("ann").headers()["Authorization"].removeprefix("Bearer ")
    run_id = quote(healed[1][0], safe="")
    with browser(airflow.url) as seen:
        seen.sign_in(token)
        seen.open(f"/dags/heals/runs/{run_id}/tasks/ingest/plugin/cloudfiles_stream")
        seen.wait_for("Stream")  # the tab, among Airflow's own
        seen.enter_frame()
        shown = seen.wait_for("files outstanding")
        assert "UnknownFieldException" in shown
        assert "ingest succeeded" in shown
        assert all(size["width"] >= 200 and size["height"] >= 50 for size in seen.plots())
        assert len(seen.plots()) == 5
        seen.click("Schema")
        seen.wait_for("b string added")
        seen.click("Files")
        assert "2.json" in seen.wait_for("1.json")
        seen.click("Rescued data")
        seen.wait_for("0 rows with rescued data were read")
        _discover(root, "heals", f"{HOSTILE}\u202e.json", {"a": 3})
        seen.click("Files")
        seen.wait_for(f"{HOSTILE}\\u202e.json")  # as a text that turns nothing
        seen.open("/plugin/cloudfiles_streams")
        seen.enter_frame()
        seen.wait_for("heals")
        seen.open("/plugin/cloudfiles_docs")
        seen.enter_frame()
        seen.wait_for("Files in, rows out, once")
        seen.click("Troubleshooting")
        seen.wait_for("StateLockedError")
        assert seen.complaints() == []


@pytest.mark.skipif(DRIVER is None or BROWSER is None, reason=MISSING)
def test_the_links_of_a_task_instance_lead_to_its_stream_its_report_and_its_table(
    airflow: AirflowHome, root: Path, healed: list[tuple[str, str, list[str]]]
) -> None:
    token = airflow.api_of("ann").headers()["Authorization"].removeprefix("Bearer ")
    of_task = f"/dags/heals/runs/{quote(healed[1][0], safe='')}/tasks/ingest/details"
    with browser(airflow.url) as seen:
        seen.sign_in(token)
        seen.open(of_task)
        seen.follow("Stream")
        seen.enter_frame()
        seen.wait_for("Runs, the newest first")
        seen.open(of_task)
        seen.follow("Report")
        seen.wait_for("Runs, the newest first")
        assert urlsplit(seen.address()).fragment.startswith("run-heals.")
        assert seen.complaints() == []

        run_id, state = _run(airflow, "links")  # there is no such source, and no such table
        assert state == "failed"
        seen.open(f"/dags/links/runs/{quote(run_id, safe='')}/tasks/ingest/details")
        console = "https://console.aws.amazon.com/s3/buckets/acme-lake?prefix=orders%2F"
        assert seen.link("Table") == console


def test_fail_on_new_columns_is_not_retried(airflow: AirflowHome, root: Path) -> None:  # B141
    dag_id = "fails_on_new_columns"
    _drop(root, dag_id, "1.json", {"a": 1})
    assert _run(airflow, dag_id)[1] == "success"

    _drop(root, dag_id, "2.json", {"a": 2, "b": "new"})
    run_id, state = _run(airflow, dag_id)
    assert (state, _tries(airflow, dag_id, run_id)) == ("failed", ["failed"])
    assert airflow.api.task(dag_id, run_id, "ingest")["max_tries"] == 3
    assert "automatic retry: false" in airflow.api.log(dag_id, run_id, "ingest", 1)
    assert len(_table(root, dag_id)) == 1


def test_a_killed_task_process_takes_its_spark_along(airflow: AirflowHome, root: Path) -> None:
    dag_id = "is_killed"
    run_id = _run_until_spark_is_up(airflow, root, dag_id)
    [supervisor] = processes_named(airflow, SUPERVISOR)
    os.kill(parent_of(supervisor), signal.SIGKILL)

    airflow.wait(lambda: spark_is_gone(airflow), RUN_SECONDS, "Spark to be gone")
    # Airflow itself retries the lost try later; a run of the user's own need not wait for that
    first = airflow.wait(lambda: _tries(airflow, dag_id, run_id), RUN_SECONDS, "Airflow to notice")
    assert first[0] != "success"
    _finishes(airflow, root, dag_id)


def test_a_task_that_a_user_marks_failed_ends_its_spark(airflow: AirflowHome, root: Path) -> None:
    dag_id = "is_marked_failed"
    run_id = _run_until_spark_is_up(airflow, root, dag_id)
    airflow.api.mark(dag_id, run_id, "ingest", "failed")

    airflow.wait(lambda: spark_is_gone(airflow), RUN_SECONDS, "Spark to be gone")
    assert airflow.api.task(dag_id, run_id, "ingest")["state"] == "failed"
    _finishes(airflow, root, dag_id)


def test_a_deferred_sensor_takes_a_message_and_credentials_stay_where_they_are(
    airflow: AirflowHome, aws: Aws, root: Path, shared: Path
) -> None:
    """The source, the state and the table are in S3.

    The stream is described in YAML, waits for a person's approval, and has a function; then another
    one is run without Spark.
    """
    markers = [SECRET, TOKEN]
    source, queue = bucket_with_queue(aws)
    lake = aws.bucket()
    with_landing(airflow, aws, SECRET, token=TOKEN)
    with_first_version(aws, f"{lake}/state", source)

    dag_id, question = "is_deferred", dict[str, object]()
    with OtherUser([shared], markers, pause_seconds=1.0) as other:
        given = {"source": source, "lake": lake, "queue": queue}
        run_id = airflow.api.trigger(dag_id, given)
        airflow.wait(
            lambda: airflow.api.task(dag_id, run_id, "arrived")["state"] == "deferred",
            RUN_SECONDS,
            "the sensor to be deferred",
        )
        put(aws, source, "a b.json", '{"a": 1, "b": "new"}')
        if approval.TaskAwaitingInput is not None:
            question = asked(airflow, dag_id, run_id, "ingest", RUN_SECONDS)
            assert "+ b string added" in question["body"]
            answer(airflow, dag_id, run_id, "ingest", "Accept")
        state = airflow.wait(lambda: airflow.api.run_ended(dag_id, run_id), RUN_SECONDS, dag_id)
        assert state == "success"
        other.look_again()
    assert other.seen.found == []
    assert other.seen.commands > 0
    assert open_to_others(shared) == []

    batch = airflow.api.xcom(dag_id, run_id, "arrived")
    assert (batch["files"], batch["sample"]) == (1, ["a b.json"])
    report = airflow.api.xcom(dag_id, run_id, "ingest")
    assert (report["rows"], report["transform"]) == (1, "marked_rows:stamped")
    assert report["schema_version"] == 1
    assert airflow.api.xcom(dag_id, run_id, "has_no_spark")["rows"] == 1
    assert not has_marker(json.dumps([question, report]).encode(), markers)
    assert queue_size(aws, queue) == 0  # B142: acknowledged, behind the file log
    pages = pages_of(airflow, dag_id, run_id)  # the state is reached by the task's connection
    assert [status for status, _ in pages.values()] == [200] * len(pages)
    assert "ingest succeeded" in pages[""][1]
    assert "a b.json" in pages["/files"][1]
    assert "0 rows with rescued data were read" in pages["/rescued"][1]
    assert not [each for each in markers if each in json.dumps(pages)]
    for task_id in ("arrived", "ingest", "has_no_spark"):
        rendered = json.dumps(airflow.api.task(dag_id, run_id, task_id)["rendered_fields"])
        assert source in rendered
        assert not [each for each in markers if each in rendered]
    nothing_has_a_marker(aws, root, shared, lake, markers)


def test_a_file_starts_the_dag_of_its_folder_and_no_other_one(
    airflow: AirflowHome, aws: Aws, root: Path
) -> None:
    """Two watchers, one event log, one queue; one file."""
    bucket, queue = bucket_with_queue(aws)
    log = str(root / "event-log")
    create_log(open_store(log), bucket, {"cloudFiles.queueUrl": queue})
    with_landing(airflow, aws, SECRET, token=TOKEN)
    told = json.dumps({"bucket": bucket, "log": log})
    (root / "watched.json").write_text(told, encoding="utf-8")
    (root / "dags" / "watching.py").touch()  # it is read once more
    for dag_id in ("watches_orders", "watches_clicks"):  # a new watcher fires once
        airflow.wait(lambda dag=dag_id: airflow.api.has_dag(dag), RUN_SECONDS, dag_id)  # type: ignore[misc]
        airflow.wait(lambda dag=dag_id: _ended(airflow, dag, 1), RUN_SECONDS, dag_id)  # type: ignore[misc]
    arrived = datetime.now(tz=UTC)
    put(aws, bucket, "orders/a b.json")
    first, last = airflow.wait(
        lambda: _ended(airflow, "watches_orders", 2), RUN_SECONDS, "a run for the file"
    )
    payloads = [
        [each["payload"] for each in airflow.api.xcom("watches_orders", run_id, "told")]
        for run_id in (first, last)
    ]
    source = f"{bucket}/orders"
    assert payloads == [
        [{"source": source, "files": None, "bytes": None}],
        [{"source": source, "files": 1, "bytes": 9}],
    ]
    log_wake_up(airflow, "watches_orders", last, arrived)
    assert len(airflow.api.runs("watches_clicks")) == 1
    assert queue_size(aws, queue) == 0


def _ended(airflow: AirflowHome, dag_id: str, count: int) -> list[str] | None:
    """Ids of the runs of a DAG, the oldest first, when so many have succeeded."""
    runs = airflow.api.runs(dag_id)
    if len(runs) < count or any(run["state"] != "success" for run in runs):
        return None
    return [str(run["dag_run_id"]) for run in runs]


def test_an_arrival_fires_once_and_past_days_join_the_same_state(
    airflow: AirflowHome, root: Path
) -> None:
    """Two examples on one state: when files arrive, and over past days."""
    driven, backfill = "example_event_driven", "example_backfill"
    for dag_id in (driven, backfill):
        airflow.wait(lambda dag=dag_id: airflow.api.has_dag(dag), RUN_SECONDS, dag_id)  # type: ignore[misc]

    drop_at(root, "third.json", datetime(2026, 1, 3, 12, tzinfo=UTC))
    run_id = airflow.wait(lambda: first_ended(airflow, driven), RUN_SECONDS, driven)
    report = airflow.api.xcom(driven, run_id, "ingest")
    assert report["rows"] == 1
    consumer = "example_new_columns"
    consumed = airflow.wait(lambda: first_ended(airflow, consumer), RUN_SECONDS, consumer)
    assert airflow.api.xcom(consumer, consumed, "report_new_columns") == []
    # Airflow 3.3.2 answers with 500 as long as a run that an event has started is queued.
    events = airflow.api.call("GET", f"/api/v2/assets/events?source_dag_id={driven}")
    [event] = events["asset_events"]
    assert event["extra"] == {name: report[name] for name in EXTRA}
    assert len(airflow.api.runs(driven)) == 1  # B145: checked again and again, fired for once
    airflow.api.pause(driven, paused=True)

    drop_at(root, "first.json", datetime(2026, 1, 1, tzinfo=UTC))
    drop_at(root, "last.json", datetime(2026, 1, 1, 23, 59, 59, 999999, tzinfo=UTC))
    create_backfill(airflow, backfill, RUN_SECONDS)
    airflow.api.pause(backfill, paused=False)
    days = airflow.wait(lambda: backfilled(airflow, backfill), RUN_SECONDS, "three days")
    airflow.api.pause(backfill, paused=True)
    assert days == {
        "2026-01-01": {"picked": "success", "ingest": "success"},
        "2026-01-02": {"picked": "skipped", "ingest": "skipped"},
        "2026-01-03": {"picked": "skipped", "ingest": "skipped"},  # not repeated
    }
    assert names_in(root) == ["first.json", "last.json", "third.json"]


def _run_until_spark_is_up(airflow: AirflowHome, root: Path, dag_id: str) -> str:
    """Start a run and wait for its JVM.

    The run has a batch for each of many files, since a task learns by its next heartbeat only that
    a user has marked it.
    """
    for number in range(_FILES):
        _drop(root, dag_id, f"{number:02}.json", {"a": number})
    run_id = airflow.api.trigger(dag_id)
    airflow.wait(lambda: spark_is_up(airflow), RUN_SECONDS, "the JVM")
    return run_id


def _finishes(airflow: AirflowHome, root: Path, dag_id: str) -> None:
    """Run once more: every row is there once, whatever the run before has come to."""
    run_id = airflow.api.trigger(dag_id, {"files_per_batch": 1000})
    whole = list(range(_FILES + 1))
    _drop(root, dag_id, "last.json", {"a": _FILES})
    airflow.wait(lambda: _numbers(root, dag_id) == whole, RUN_SECONDS, "every row, once")
    # A try of Airflow's own may have taken the files; the sensor then waits for another one.
    _drop(root, dag_id, "end.json", {"a": -1})
    state = airflow.wait(lambda: airflow.api.run_ended(dag_id, run_id), RUN_SECONDS, dag_id)
    assert state == "success"
    assert [number for number in _numbers(root, dag_id) if number >= 0] == whole


def _numbers(root: Path, dag_id: str) -> list[int]:
    if not DeltaTable.is_deltatable(str(root / dag_id / "table")):
        return []
    return sorted(int(str(row["a"])) for row in _table(root, dag_id))
