"""The pages in Airflow's UI, without its server: what they show, and that nothing of it is run.

That Airflow serves them, and to whom: `test_real_airflow.py`.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.models.hitl import HITLDetail
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from deltalake import write_deltalake
from sqlalchemy import Column, Engine, MetaData, Table, create_engine, insert
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool
from starlette.testclient import TestClient

from airflow_cloudfiles import SchemaHistory
from airflow_cloudfiles.commands import docs
from airflow_cloudfiles.engine.errors import (
    PAGE,
    OptionError,
    UnknownFieldException,
    to_record,
)
from airflow_cloudfiles.engine.extensions.overview.runs import RunSummary
from airflow_cloudfiles.engine.schema.log_entry import SchemaEntry, append_entry, open_log
from airflow_cloudfiles.engine.schema.proposals import Proposal, ProposedChange, propose
from airflow_cloudfiles.engine.state.run_history import encode_report
from airflow_cloudfiles.hooks.approval import TYPES
from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.plugins import tasks, views
from airflow_cloudfiles.plugins.app import age, page, size, task_key, time
from airflow_cloudfiles.plugins.cloud_files import PREFIX, CloudFilesPlugin
from airflow_cloudfiles.plugins.docs import rendered
from airflow_cloudfiles.plugins.tasks import ServerHook, TaskKey, TaskStream
from airflow_cloudfiles.plugins.views import plots_of
from tests.support.seen_page import HOSTILE, SeenPage
from tests.support.written_state import WrittenState

pytestmark = pytest.mark.airflow

KEY = TaskKey("d", "manual__2026-11-23T00:00:00+00:00", "t")
STARTED = datetime(2026, 11, 24, tzinfo=UTC)


class Instances:
    """The task instances that Airflow's database has, with what belongs to them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tables: dict[type, Table] = {}
        for model in (TaskInstance, RenderedTaskInstanceFields, HITLDetail):
            columns = [Column(each.name, each.type) for each in model.__table__.columns]
            table = Table(model.__tablename__, MetaData(), *columns)  # without what it refers to
            table.create(engine)
            self._tables[model] = table

    def add(self, key: TaskKey, *, checkpoint: str = "", asks: bool = False, **more: Any) -> None:
        """Write a task instance, with its rendered fields and its question."""
        kind: type = TaskInstance.__table__.columns["id"].type.python_type  # text until Airflow 3.2
        ti_id = kind(str(uuid.uuid4()))
        named: dict[str, Any] = {"dag_id": key.dag_id, "task_id": key.task_id, "run_id": key.run_id}
        named |= {"map_index": key.map_index}
        made = {"max_tries": 0, "pool": "p", "span_status": "n", "id": ti_id, "try_number": 1}
        made |= {"operator": "CloudFilesIngestOperator", "start_date": STARTED, **named, **more}
        self._insert(TaskInstance, **made)
        if checkpoint:
            rendered = {"checkpoint_location": checkpoint}
            self._insert(RenderedTaskInstanceFields, **named, rendered_fields=rendered)
        if asks:
            question = {"options": [], "subject": "s", "params": {}, "created_at": STARTED}
            self._insert(HITLDetail, ti_id=ti_id, params_input={}, **question)

    def _insert(self, model: type, **values: Any) -> None:
        with self._engine.begin() as connection:
            connection.execute(insert(self._tables[model]).values(values))


@pytest.fixture(autouse=True)
def instances(monkeypatch: pytest.MonkeyPatch) -> Iterator[Instances]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    monkeypatch.setattr(tasks, "create_session", lambda: Session(engine))
    yield Instances(engine)
    engine.dispose()


@pytest.fixture
def written(tmp_path: Path) -> WrittenState:
    return WrittenState(f"file://{tmp_path}/state")


def _task(written: WrittenState, **more: str | None) -> TaskStream:
    stream = StreamArguments(
        source="s3://lake/orders", format="json", checkpoint_location=written.uri
    )
    named = {"source": stream.source, "format": "json", "checkpoint_location": written.uri}
    stream = StreamArguments(**{**named, **more})  # type: ignore[arg-type]
    operator = "CloudFilesIngestOperator"
    fields = {"checkpoint_location": written.uri}
    return TaskStream(KEY, fields, "success", operator, 2, "", stream, None)


def _page(template: str, view: object, task: TaskStream | None, **more: Any) -> str:
    shown = {"problem": "", "here": "/cloudfiles/stream/d/r/t/-1", "may_decide": True, **more}
    shown = {"mistake": "", "given": {}, "is_tab": False, **shown}
    return page(template, root="/cloudfiles", key=KEY, task=task, view=view, **shown)


def _version(written: WrittenState, version: int, *columns: str, **reason: object) -> None:
    fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in columns]
    struct = {"type": "struct", "fields": fields}
    empty = {"type": "struct", "fields": []}
    entry = SchemaEntry(version, "", "s3://lake/orders", reason, None, struct, empty, {})
    assert append_entry(open_log(written.state), entry)


def test_the_plugin_is_found_and_its_views_lead_to_its_pages() -> None:
    (found,) = entry_points(group="airflow.plugins", name="cloudfiles")
    assert found.load() is CloudFilesPlugin
    (served,) = CloudFilesPlugin().fastapi_apps
    client = TestClient(served["app"], raise_server_exceptions=False)
    assert client.get("/nowhere").status_code == 404
    for view in CloudFilesPlugin.external_views:
        for shown in (view["href"], view["icon"]):
            assert shown.startswith(PREFIX)
            page = re.sub(r"{\w+}", "x", shown.removeprefix(PREFIX))
            # Without a login: who may see what is tested with a real Airflow.
            assert client.get(page).status_code != 404
    assert served["url_prefix"] == PREFIX


def test_a_page_shows_the_stream_its_runs_and_their_errors(written: WrittenState) -> None:
    written.discover("a.json", "b.json")
    error = to_record(UnknownFieldException("Encountered unknown fields: price"))
    report: dict[str, Any] = {"run_id": "r1", "kind": "ingest", "outcome": "failed", "error": error}
    report |= {"started": "2026-11-23T08:00:00+00:00", "rows": 12345, "corrupt_records": 7}
    written.state.put("_reports/r1.json", encode_report(report))
    task = _task(written, target="s3://lake/table")
    text = _page("stream.html", views.stream_view(task), task)
    for part in ("s3://lake/orders", "s3://lake/table", "<b>2", "files outstanding", "12,345"):
        assert part in text
    assert '<td class="n warn">7</td>' in text
    code = '<a href="/cloudfiles/errors/CF501">CF501</a>'
    shown = f"UnknownFieldException</span>: Encountered unknown fields: price {code}"
    assert shown in text
    assert text.count("<figure>") == 5


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(written: WrittenState) -> None:
    written.state.put("_source/metadata.json", b"{")
    report = {"run_id": "r1", "started": "2026-11-23T08:00:00Z"}
    written.state.put("_reports/r1.json", encode_report(report))
    task = _task(written)
    view = views.stream_view(task)
    assert "metadata.json" in view.overview.problem
    text = _page("stream.html", view, task)
    assert "metadata.json" in text
    assert "r1" in text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_every_value_is_escaped(written: WrittenState, hostile: str, tmp_path: Path) -> None:
    written.discover(f"{hostile}.json")
    report: dict[str, Any] = {
        "run_id": hostile,
        "kind": hostile,
        "outcome": hostile,
        "warnings": [hostile],
    }
    report |= {
        "started": "2026-11-23T08:00:00Z",
        "error": dict.fromkeys(("class", "code", "message"), hostile),
    }
    written.state.put("_reports/r1.json", encode_report(report))
    _version(written, 0, "a")
    _version(
        written, 1, "a", hostile, change=hostile, by=hostile, brought={hostile: []}, note=hostile
    )
    change = ProposedChange("added", hostile, None, "string", hostile, (hostile,))
    propose(written.state, Proposal(1, "", hostile, hostile, (change,), {}, {}, {}))
    table = str(tmp_path / "table")
    rescued = json.dumps({hostile: hostile, "_file_path": hostile})
    write_deltalake(table, pa.table({"_rescued_data": [rescued]}))
    task = _task(written, source=hostile, target=hostile)
    asked = {"path": hostile, "status": hostile}
    texts = [
        _page("stream.html", views.stream_view(task), task),
        _page("schema.html", views.schema_view(task), task, given={"other0": hostile}),
        _page("files.html", views.files_view(task, "", ""), task, statuses=[hostile], asked=asked),
        _page("rescued.html", views.rescued_view(_task(written, target=table)), task),
        _page("stream.html", None, None, problem=hostile),
    ]
    for text in texts:
        seen = SeenPage.of(text)
        assert not {tag for tag, *_ in seen.elements} & {"script", "img", "iframe", "object"}
        assert not [each for each in text if not each.isprintable() and each != "\n"]
        assert "alert" in seen.text
        assert "{{ 7 * 7 }}" in seen.text or "{{" not in hostile


def test_the_schema_page_says_what_changed_and_who_brought_it(written: WrittenState) -> None:
    _version(written, 0, "a")
    brought = {"s3://lake/orders/b.json": ["b"]}
    _version(written, 1, "a", "b", change="addNewColumns", by="ann@host", brought=brought)
    view = views.schema_view(_task(written))
    assert [(each.entry.version, each.changes) for each in view.versions] == [
        (1, ["b bigint added"]),
        (0, []),
    ]
    assert [each.path for each in view.columns] == ["a", "b"]
    text = _page("schema.html", view, _task(written))
    assert "ann@host" in text
    assert "s3://lake/orders/b.json" in text
    assert SchemaHistory(written.uri).show().version == 1


def test_the_schema_page_says_which_change_waits(written: WrittenState) -> None:
    _version(written, 0, "a")
    assert "somebody to decide" not in _page(
        "schema.html", views.schema_view(_task(written)), _task(written)
    )
    change = ProposedChange("added", HOSTILE[0], None, "string")
    propose(written.state, Proposal(0, "", "s3://lake", "x", (change,), {}, {}, {}))
    text = _page("schema.html", views.schema_view(_task(written)), _task(written))
    assert "Waits for somebody to decide, proposal 0" in text
    assert "&lt;script&gt;" in text
    assert "<script" not in text


def test_who_may_answer_decides_about_each_column_beside_its_values(
    written: WrittenState, instances: Instances
) -> None:
    _version(written, 0, "a")
    changes = (
        ProposedChange("added", "b", None, "string", "s3://lake/orders/b.json", ('"CHF"',)),
        ProposedChange("retyped", "a", "int", "bigint"),
    )
    propose(written.state, Proposal(0, "", "s3://lake", "x", changes, {}, {}, {}))
    task = _task(written)
    nobody_asks = _page("schema.html", views.schema_view(task), task)
    assert "No task asks now" in nobody_asks
    assert "<form" not in nobody_asks
    key = TaskKey("d", "r", "ingest")
    instances.add(key, checkpoint=written.uri, state="awaiting_input", asks=True)
    view = views.schema_view(task)
    given = {"column0": "date", "other1": "decimal(9,2)"}
    text = _page("schema.html", view, task, mistake=HOSTILE[0], given=given)
    assert '<form method="post" action="/cloudfiles/stream/d/r/t/-1/decide"' in text
    assert '<option value="date" selected>date</option>' in text
    assert text.count("<option ") == len(TYPES) + 2 + 3
    assert 'value="decimal(9,2)"' in text
    assert "&lt;script&gt;" in text
    viewer = _page("schema.html", view, task, may_decide=False)
    assert "<form" not in viewer
    assert '<a href="/dags/d/runs/r/tasks/ingest/required_actions">' in viewer


def test_a_stream_without_a_schema_has_an_empty_page(written: WrittenState) -> None:
    view = views.schema_view(_task(written))
    assert "No schema has been inferred yet." in _page("schema.html", view, _task(written))


def test_files_are_filtered(written: WrittenState) -> None:
    written.discover("a.json", "b.csv")
    task = _task(written)
    (row,) = views.files_view(task, "discovered", "*.csv").files
    assert row["path"] == "s3://lake/orders/b.csv"
    assert views.files_view(task, "committed", "").files == []
    with pytest.raises(OptionError, match="status must be one of"):
        views.files_view(task, "done", "")


def test_a_stream_without_a_delta_table_has_no_rescued_data(written: WrittenState) -> None:
    assert views.rescued_view(_task(written)) is None


def test_a_tab_leads_to_no_other_stream(written: WrittenState) -> None:
    task, view = _task(written), views.files_view(_task(written), "", "")
    asked = {"path": "", "status": ""}
    assert "/streams" in _page("files.html", view, task, statuses=[], asked=asked)
    assert "/streams" not in _page("files.html", view, task, statuses=[], asked=asked, is_tab=True)
    assert "/streams" not in _page("files.html", None, None, is_tab=True)
    assert CloudFilesPlugin.external_views[0]["href"].startswith("/cloudfiles/tab/")


def test_a_key_is_read_from_the_path() -> None:
    assert task_key("d", "r", "t", "{MAP_INDEX}").map_index == -1
    assert task_key("d", "r", "t", "-1").map_index == -1
    assert task_key("d", "r", "t", "7").map_index == 7
    assert task_key("d", "r", "t", "--7").map_index == -1


def test_connections_come_from_the_servers_own_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LANDING", '{"conn_type": "fs", "extra": {"path": "/data"}}')
    assert ServerHook("landing").absolute("orders") == "/data/orders"


def test_numbers_are_written_for_people() -> None:
    assert [size(each) for each in (0, 1, 999, 1234, 5_600_000)] == [
        "0 bytes",
        "1 byte",
        "999 bytes",
        "1.23 KB",
        "5.6 MB",
    ]
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    then = ("2026-11-23T11:59:59+00:00", "2026-11-23T10:30:00+00:00", "2026-11-20T00:00:00+00:00")
    assert [age(each, now) for each in then] == ["1 second", "1 hour", "3 days"]
    assert (age(None, now), time(None)) == ("-", "-")
    assert time("2026-11-23T13:00:00.5+01:00") == "2026-11-23 12:00:00"


def test_plots_begin_with_the_oldest_run_and_show_small_values() -> None:
    def run(rows: int, kind: str = "ingest") -> RunSummary:
        return RunSummary(run_id="r", kind=kind, started="", outcome="succeeded", rows=rows)

    plots = plots_of([run(1000), run(1), run(0), run(5, "infer")])
    rows = next(each for each in plots if each.title == "Rows")
    assert [bar.height for bar in rows.bars] == [0.0, 2.0, 100.0]
    assert plots_of([run(5, "infer")]) == []


def test_unfinished_tasks_of_a_stream_are_found_in_its_dag(
    written: WrittenState, instances: Instances
) -> None:
    def add(task_id: str, state: str, index: int = -1, of: str = written.uri, **more: Any) -> None:
        instances.add(TaskKey("d", "r", task_id, index), checkpoint=of, state=state, **more)

    add("ingest", "running")
    add("mapped", "awaiting_input", index=1, asks=True)
    add("mapped", "awaiting_input", index=2, asks=True, of="file:///other")
    add("arrived", "deferred", operator="CloudFilesSensor")
    add("subclass", "success")
    add("ask", "deferred", of="", operator="HITLOperator", asks=True)
    add("comes later", "scheduled", of="")
    instances.add(TaskKey("d", "old", "ingest"), checkpoint=written.uri, state="failed")
    instances.add(TaskKey("other", "r", "ingest"), checkpoint=written.uri, state="running")
    other = TaskKey("d", "of another stream", "ask")
    instances.add(other, state="deferred", operator="HITLOperator", asks=True)
    found = tasks.unfinished_of(_task(written))
    assert [(each.key.task_id, each.is_at_work, each.is_asking) for each in found] == [
        ("ingest", True, False),
        ("mapped", False, True),
        ("ask", False, True),
    ]
    assert found[1].key.map_index == 1


def test_an_error_has_its_page_and_its_links_lead_to_pages_that_are_here() -> None:
    content = rendered(docs.section("cf401"), PAGE, "/cloudfiles")
    text = page("docs.html", root="/cloudfiles", name=PAGE, content=content)
    assert '<h3 id="cf401">CF401</h3>' in text
    assert '<a href="/cloudfiles/docs/how-to/operate-on-files">operate on files</a>' in text
    hostile = "<script>x</script> [a](javascript:alert(1)) [b](//evil) ![c](d.png) <http://e.f>"
    text = rendered(f"# A `b`\n{hostile} [g](#a-b) [h](recover.md#i)", "how-to/j", "/cloudfiles")
    assert re.findall('href="([^"]*)"', text) == ["#a-b", "/cloudfiles/docs/how-to/recover#i"]
    assert not {tag for tag, *_ in SeenPage.of(text.replace("#a-b", "/dags/")).elements} & {
        "script",
        "img",
    }
    text = rendered("<!-- x -->\n| a |\n| --- |\n| `b.c` |\n", "how-to/j", "/cloudfiles")
    assert "<td><code>b.<wbr>c</code></td>" in text
    assert "--" not in text
    with pytest.raises(OptionError, match="No error has the code"):
        docs.section("CF.01")
