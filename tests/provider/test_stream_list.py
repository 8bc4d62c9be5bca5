"""The list of streams: which there are, what is asked of their states, and what its page shows.

With a real Airflow and a browser, at 1,000 streams: `test_streams_at_size.py`.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import Column, MetaData, Table, create_engine, insert
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from airflow_cloudfiles.engine.extensions.overview.runs import RunSummary, StreamOverview
from airflow_cloudfiles.engine.extensions.overview.status import StreamStatus
from airflow_cloudfiles.engine.state.run_history import write_report
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.plugins import stream_list, tasks
from airflow_cloudfiles.plugins.app import list_parts
from airflow_cloudfiles.plugins.stream_list import (
    ROWS,
    TROUBLE,
    ListedStream,
    ListQuery,
    StateKey,
    Statuses,
    page_of,
)
from airflow_cloudfiles.plugins.tasks import RenderedTask, TaskKey
from tests.support.counted_calls import counted_calls
from tests.support.seen_page import HOSTILE, SeenPage
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.airflow

INGEST, SENSOR = "CloudFilesIngestOperator", "CloudFilesSensor"


class Database:
    """The two tables of Airflow's database that say which streams there are."""

    def __init__(self) -> None:
        self._engine = create_engine("sqlite://", poolclass=StaticPool)
        models = (TaskInstance, RenderedTaskInstanceFields)
        self._tables = [
            Table(
                each.__tablename__,
                MetaData(),  # without what it refers to
                *(Column(column.name, column.type) for column in each.__table__.columns),
            )
            for each in models
        ]
        for table in self._tables:
            table.create(self._engine)

    def session(self) -> Session:
        return Session(self._engine)

    def dispose(self) -> None:
        self._engine.dispose()

    def add(
        self, *key: Any, hour: int | None = 1, operator: str = INGEST, label: str | None = None,
        state: str | None = "success", **fields: object,
    ) -> None:  # fmt: skip
        """Add a task instance with its rendered fields."""
        named = dict(zip(("dag_id", "run_id", "task_id", "map_index"), key, strict=True))
        begun = hour and datetime(2026, 11, 24, hour, tzinfo=UTC)
        made = {"max_tries": 0, "pool": "p", "span_status": "n", "try_number": 1}
        instance = {**named, **made, "operator": operator, "start_date": begun, "state": state}
        rendered = {"source": "/in", "format": "json", "checkpoint_location": "/state", **fields}
        with self._engine.begin() as connection:
            values = {**instance, "rendered_map_index": label}
            connection.execute(insert(self._tables[0]).values(values))
            values = {**named, "rendered_fields": rendered}
            connection.execute(insert(self._tables[1]).values(values))


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    made = Database()
    monkeypatch.setattr(tasks, "create_session", made.session)
    yield made
    made.dispose()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Statuses:
    """What the process of this test knows."""
    made = Statuses()
    monkeypatch.setattr(stream_list, "_statuses", made)
    return made


def _listed(**how: Any) -> list[ListedStream]:
    rows, looks = stream_list.located(tasks.newest_of_each_task(None))
    stream_list.ask(looks)
    return stream_list.read_rows(rows, **{"seconds": PATIENCE_SECONDS, **how})


def _summary(location: str, *, waiting: int = 0, rows: int = 1, **more: Any) -> None:
    """The summary that a run leaves."""
    found = "2026-11-24T00:00:00+00:00"
    report: dict[str, Any] = {"run_id": "r", "kind": "ingest", "outcome": "succeeded", "rows": rows}
    report |= {"started": "2026-11-24T01:00:00+00:00", "ended": "2026-11-24T01:01:00+00:00"}
    report["metrics"] = {
        "numFilesOutstanding": str(waiting),
        "numBytesOutstanding": "10",
        "isBacklogComputationComplete": "true",
    }
    report["oldest_outstanding"] = found if waiting else None
    report["position"] = {"last_batch": 1, "entries": 2, "newest_found": found}
    write_report(open_store(location), "_reports/r.json", {**report, **more})


def test_each_instance_of_a_mapped_task_is_a_task_with_a_name_of_its_own(
    database: Database,
) -> None:
    database.add("d", "one", "t", -1, hour=1)
    database.add("d", "two", "t", -1, hour=2)
    database.add("d", "three", "t", -1, hour=None)
    for index in range(3):
        database.add("mapped", "one", "t", index, hour=1)
    database.add("mapped", "two", "t", 0, hour=3, label="orders")
    database.add("mapped", "two", "t", 1, hour=4)
    database.add("hidden", "one", "t", -1)
    database.add("d", "two", "other", -1, operator="Other")
    found = tasks.newest_of_each_task(["d", "mapped"])
    assert [each.key for each in found] == [
        TaskKey("d", "two", "t"),
        TaskKey("mapped", "two", "t", 0),
        TaskKey("mapped", "two", "t", 1),
    ]
    assert [each.name for each in found] == ["d/t", "mapped/t[orders]", "mapped/t[1]"]


def test_the_tasks_of_one_state_are_one_row(
    database: Database, known: Statuses, tmp_path: Path
) -> None:
    state = str(tmp_path / "state")
    _summary(state)
    database.add("d", "r", "arrived", -1, operator=SENSOR, checkpoint_location=state)
    database.add("d", "r", "ingest", -1, checkpoint_location=state, target="/table")
    database.add("d", "r", "none", -1, checkpoint_location=None)
    rows = {row.main.name: row for row in _listed()}
    row = rows["d/ingest"]
    assert [each.key.task_id for each in row.tasks] == ["arrived", "ingest"]
    assert (row.target, row.standing) == ("/table", "ok")


def test_a_thousand_streams_cost_a_thousand_requests_and_none_when_asked_again(
    database: Database, known: Statuses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, waiting in (("well", 0), ("behind", 1)):
        _summary(str(tmp_path / name), waiting=waiting)
    for number in range(1000):
        location = str(tmp_path / f"{number}")
        shutil.copytree(tmp_path / ("behind" if number % 2 else "well"), location)
        database.add("d", "r", "t", number, checkpoint_location=location, label=f"s{number}")
    calls = counted_calls(monkeypatch)
    rows = _listed()
    assert Counter(row.standing for row in rows) == {"ok": 500, "behind": 500}
    assert calls == {"get": 1000}
    _listed()
    assert calls == {"get": 1000}, "what was read just now is not read again"


def test_what_cannot_be_located_says_so_in_its_row(
    database: Database, known: Statuses, tmp_path: Path
) -> None:
    database.add("d", "r", "relative", -1, checkpoint_location="state")
    database.add("d", "r", "no_state", -1, checkpoint_location=str(tmp_path / "none"))
    found = {row.main.name: row for row in _listed()}
    assert {row.standing for row in found.values()} == {"unreadable"}
    assert "is relative" in found["d/relative"].sentence
    assert "There is no state in" in found["d/no_state"].sentence


def test_a_task_that_has_failed_is_trouble_whatever_its_state_says(
    database: Database, known: Statuses, tmp_path: Path
) -> None:
    """The driver of a killed run leaves no summary."""
    _summary(str(tmp_path))
    database.add("d", "r", "t", -1, checkpoint_location=str(tmp_path), state="failed")
    (row,) = _listed()
    assert (row.standing, row.is_trouble) == ("failed", True)
    assert row.sentence == "The task d/t has failed: its log says why."


def _key(number: int, place: str = "s3://b") -> StateKey:
    return StateKey(f"{place}/{number}")


def _well() -> StreamStatus:
    return StreamStatus(standing="ok", sentence="")


def test_no_more_is_asked_at_once_than_may_be() -> None:
    found, lock, most, at_work = Statuses(), threading.Lock(), [0], [0]
    barrier = threading.Semaphore(0)

    def look() -> StreamStatus:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        barrier.acquire(timeout=PATIENCE_SECONDS)
        with lock:
            at_work[0] -= 1
        return _well()

    keys = [_key(number) for number in range(300)]
    found.ask(dict.fromkeys(keys, look))
    found.wait([_key(0)], 0.2)
    assert most[0] == 4, "of a place that has not answered yet"
    barrier.release(100)  # each answer allows one more
    until(lambda: at_work[0] == 32)
    barrier.release(300)
    found.wait(keys, PATIENCE_SECONDS)
    assert most[0] == 32
    assert {found.of(key) for key in keys} == {_well()}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_list, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(stream_list, "FRESH_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
def test_a_state_that_does_not_answer_says_so_and_hurts_no_other() -> None:
    found, goes = Statuses(), threading.Event()

    def silent() -> StreamStatus:
        goes.wait(PATIENCE_SECONDS)
        return _well()

    dead = [_key(number, "s3://dead") for number in range(100)]
    alive = [_key(number) for number in range(100)]
    looks: dict[StateKey, Callable[[], StreamStatus]] = dict.fromkeys(dead, silent)
    try:
        found.ask(looks | {**dict.fromkeys(alive, _well), _key(100): silent})
        found.wait(alive, PATIENCE_SECONDS)
        assert {found.of(key) for key in alive} == {_well()}
        found.wait([*dead, _key(100)], PATIENCE_SECONDS)  # until they are silent for too long
        for key in (dead[0], _key(100)):
            status = found.of(key)
            assert status is not None
            assert (status.standing, "has not answered" in status.sentence) == ("unreadable", True)
        last = found.of(dead[-1])
        assert last is not None
        assert last.sentence == "It was not read yet: others in s3://dead do not answer."
        found.ask(dict.fromkeys([*alive, _key(200)], _well))  # the same bucket goes on
        found.wait([_key(200)], PATIENCE_SECONDS)
        assert found.of(_key(200)) == _well()
    finally:
        goes.set()
    found.ask(looks)
    until(lambda: all(found.of(key) == _well() for key in dead))


@pytest.mark.usefixtures("impatient")
def test_what_was_known_is_shown_until_it_is_read_again() -> None:
    found, goes, key = Statuses(), threading.Event(), _key(1)
    before = StreamStatus(standing="ok", sentence="", as_of="2026-11-24T00:00:00+00:00")
    found.ask({key: lambda: before})
    found.wait([key], PATIENCE_SECONDS)

    def fails() -> StreamStatus:
        goes.wait(PATIENCE_SECONDS)
        raise KeyError("damaged")

    found.ask({key: fails})
    found.wait([key], PATIENCE_SECONDS)
    assert found.of(key) == before
    goes.set()
    until(lambda: found.of(key) != before)
    status = found.of(key)
    assert status is not None
    assert (status.standing, status.sentence) == ("unreadable", "KeyError: 'damaged'")
    assert status.as_of == before.as_of


def _row(number: int, standing: str = "ok", **more: Any) -> ListedStream:
    """A row as it is after its state was read."""
    dag_id, state = more.pop("dag_id", "d"), more.pop("state", "success")
    key = TaskKey(dag_id, "r", "t", number)
    task = RenderedTask(key, {}, state, INGEST, 1, f"{number:03}")
    overview = StreamOverview(
        last_batch=0,
        entries=1,
        newest_found=f"2026-11-24T00:00:{number % 60:02}+00:00",
        outstanding_files=number,
        outstanding_bytes=number,
        oldest_outstanding=None,
        is_counted=True,
    )
    run = RunSummary(run_id="r", kind="ingest", started="2026-11-24T00:00:00Z", outcome="succeeded")
    status = StreamStatus(
        standing="ok", sentence=more.get("sentence", ""), overview=overview, newest=run
    )
    given = {"source": f"s3://lake/in/{number}", "format": "json", "target": None, **more}
    return ListedStream(task, [task], standing=standing, status=status, **given)


def _shown(rows: list[ListedStream], **asked: Any) -> list[int]:
    return [row.main.key.map_index for row in page_of(rows, ListQuery(**asked)).rows]


def test_trouble_comes_first_and_a_page_has_fifty() -> None:
    rows = [_row(number) for number in range(120)]
    rows[70], rows[110] = _row(70, "behind"), _row(110, "failed")
    first = page_of(rows, ListQuery())
    assert [row.main.key.map_index for row in first.rows] == [110, 70, *range(48)]
    assert (first.total, first.pages, first.first) == (120, 3, 1)
    assert _shown(rows, page=3) == [each for each in range(99, 120) if each != 110]
    assert page_of(rows, ListQuery(page=99)).page == 3
    assert len(first.rows) == ROWS


def test_rows_are_searched_filtered_counted_and_sorted() -> None:
    rows = [_row(1), _row(2, "failed", state="failed"), _row(3, dag_id="e", target="s3://T/Ables")]
    assert _shown(rows, q="in/2") == [2]
    assert _shown(rows, q="ABLES") == [3]
    assert _shown(rows, q="e/t[003]") == [3]
    assert _shown(rows, dag="e") == [3]
    assert _shown(rows, state="failed") == [2]
    assert _shown(rows, status=TROUBLE) == _shown(rows, status="failed") == [2]
    assert _shown(rows, sort="waiting") == [3, 2, 1]
    assert _shown(rows, sort="-waiting") == [1, 2, 3]
    assert _shown(rows, sort="name") == [1, 2, 3]
    assert _shown(rows, sort="no such column") == _shown(rows) == [2, 1, 3]
    counts = page_of(rows, ListQuery(dag="d", status="ok")).counts
    assert (counts[""], counts[TROUBLE], counts["ok"]) == (2, 1, 1)
    nothing = page_of(rows, ListQuery(q="nowhere"))
    assert (nothing.rows, nothing.total, nothing.first, nothing.pages) == ([], 0, 0, 1)


def test_addresses_keep_what_was_asked() -> None:
    asked = ListQuery(q="a&b", status="failed", page=3)
    assert asked.address(page=4) == "?q=a%26b&status=failed&page=4"
    assert asked.address(status="") == "?q=a%26b"
    assert asked.sorted_by("run") == "?q=a%26b&status=failed&sort=run"
    assert ListQuery(sort="run").sorted_by("run") == "?sort=-run"
    assert ListQuery().address() == "?"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_every_value_of_the_list_is_escaped(hostile: str, known: Statuses) -> None:
    row = _row(1, "failed", source=hostile, target=hostile, sentence=hostile, dag_id=hostile)
    text = "".join(list_parts([row], ListQuery(), "/cloudfiles"))
    text += "".join(list_parts([row], ListQuery(hostile, hostile, hostile), "/cloudfiles"))
    seen = SeenPage.of(text)
    assert not {tag for tag, *_ in seen.elements} & {"script", "img", "iframe", "object"}
    assert not [each for each in text if not each.isprintable() and each != "\n"]
    assert "alert" in seen.text
    assert "{{ 7 * 7 }}" in seen.text or "{{" not in hostile


def test_the_page_begins_before_any_state_has_answered(
    database: Database, known: Statuses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes = threading.Event()

    def look(*_: object, **__: object) -> StreamStatus:
        goes.wait(PATIENCE_SECONDS)
        return _well()

    monkeypatch.setattr(stream_list, "summarized_status", look)
    database.add("d", "r", "t", -1, checkpoint_location=str(tmp_path))
    rows, looks = stream_list.located(tasks.newest_of_each_task(None))
    stream_list.ask(looks)
    first, second = list_parts(rows, ListQuery(), "/cloudfiles"), None
    shell = next(first)
    assert "Reading the states of 1 stream" in shell
    assert 'name="q"' in shell
    goes.set()
    second = next(first)
    assert "d/t" in second
    assert "</html>" in second
    assert next(first, None) is None


def test_rows_do_not_wait_long_for_a_state(
    database: Database, known: Statuses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes = threading.Event()
    monkeypatch.setattr(stream_list, "summarized_status", lambda *_, **__: goes.wait() and _well())
    database.add("d", "r", "t", -1, checkpoint_location=str(tmp_path))
    try:
        (row,) = _listed(seconds=0.0)
        assert (row.standing, row.status) == ("unread", None)
        text = "".join(list_parts([row], ListQuery(), "/cloudfiles"))
        assert "1 stream was not read yet" in text
    finally:
        goes.set()


def test_a_file_is_behind_after_an_hour(
    database: Database, known: Statuses, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    for name, since in (("late", timedelta(hours=2)), ("new", timedelta(minutes=5))):
        state = str(tmp_path / name)
        _summary(state, waiting=1, oldest_outstanding=(now - since).isoformat())
        database.add("d", "r", name, -1, checkpoint_location=state)
    assert {row.main.name: row.standing for row in _listed()} == {"d/late": "behind", "d/new": "ok"}
