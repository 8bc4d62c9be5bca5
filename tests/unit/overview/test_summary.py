"""A stream summed up for a person: a table in a notebook, lines elsewhere."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.extensions.overview import summary
from airflow_cloudfiles.engine.extensions.overview.summary import StreamSummary, stream_summary
from airflow_cloudfiles.engine.state.run_history import encode_report
from airflow_cloudfiles.engine.storage import open_store
from tests.support.ingested import Ingested

if TYPE_CHECKING:
    from pathlib import Path


class Cells(HTMLParser):
    """The cells of a table, in order, and every tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag in {"td", "th"}:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    found = Ingested(tmp_path, **{"cloudFiles.schemaHints": "n INT"})
    found.add("one", n=1)
    found.add("two", n="many")
    (found.source / "cut.json").write_text('{"a": "x"')
    return found


def lines(found: StreamSummary) -> dict[str, str]:
    return dict(found.lines())


def test_a_job_s_stream_says_what_was_ingested_and_what_waits(stream: Ingested) -> None:
    stream.run()
    stream.add("three", "four")
    stream.discover()
    found = stream_summary(str(stream.state))
    said = lines(found)
    assert said["files"] == "5 in 3 micro-batches"
    assert said["waits"] == "2 files, 0 kB"
    assert (said["rows"], said["rescued"], said["corrupt"]) == ("3", "2 rows", "1 record")
    assert said["table"] == f"file://{stream.target}"
    assert said["schema"] == "version 0, 2 columns"
    assert said["status"] == "ok"
    assert said["newest batch"].startswith("2, committed 20")
    assert "rows          3\nrescued       2 rows" in str(found)
    assert airflow_cloudfiles.stream_summary is stream_summary


def test_the_newest_run_and_its_failure_are_said(stream: Ingested) -> None:
    stream.run()
    report = {
        "run_id": "night",
        "kind": "ingest",
        "started": "2026-11-29T08:15:00.5+00:00",
        "outcome": "failed",
        "rows": 0,
        "error": {"class": "FileUnreadableError", "message": "a.json is cut off.", "code": ""},
    }
    open_store(str(stream.state)).put("_reports/night.json", encode_report(report))
    said = lines(stream_summary(str(stream.state)))
    assert said["newest run"] == "2026-11-29 08:15:00 UTC failed: 0 rows"
    assert said["status"] == "failed: FileUnreadableError: a.json is cut off."


def test_rows_are_those_of_the_table_where_nobody_has_counted_them(stream: Ingested) -> None:
    stream.run()
    state = open_store(str(stream.state))
    for entry in state.list("_source/batches/"):
        state.delete(entry.path)
    said = lines(stream_summary(str(stream.state)))
    assert (said["rows"], said["rescued"]) == ("3", "2 rows")
    assert "corrupt" not in said


def test_of_many_batches_the_newest_are_counted(
    stream: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.run()
    monkeypatch.setattr(summary, "MOST_BATCHES", 2)
    assert lines(stream_summary(str(stream.state)))["rows"] == "2, of the newest 2 batches"


def test_what_files_and_errors_say_is_text_in_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "<script>alert(1)"
    folder.mkdir()
    stream = Ingested(folder)
    stream.add("one")
    stream.run()
    report = {
        "run_id": "r",
        "kind": "ingest",
        "started": "<b>now",
        "outcome": "<i>failed",
        "error": {"class": "E", "message": "a <img src=x onerror=alert(1)> \x1b[31m&amp;"},
    }
    open_store(str(stream.state)).put("_reports/r.json", encode_report(report))
    found = stream_summary(str(stream.state))
    page = Cells(found._repr_html_())
    assert page.tags == {"table", "tbody", "tr", "th", "td"}
    assert page.cells[::2] == [head for head, _ in found.lines()]
    said = dict(zip(page.cells[::2], page.cells[1::2], strict=True))
    assert "<img src=x onerror=alert(1)>" in said["status"]
    assert "&amp;" in said["status"]
    assert "\x1b" not in found._repr_html_() + str(found)
    assert said["newest run"].startswith("<b>now")
    assert "script" in said["stream"]


def test_a_location_without_a_state_says_so(tmp_path: Path) -> None:
    found = stream_summary(str(tmp_path / "none"))
    assert set(lines(found)) == {"stream", "status"}
    assert "There is no state" in lines(found)["status"]
    assert not (tmp_path / "none").exists()


def test_nothing_is_written(stream: Ingested) -> None:
    stream.run()
    before = _contents(stream.state)
    stream_summary(str(stream.state))
    assert _contents(stream.state) == before


def _contents(folder: Path) -> str:
    found = {str(each): each.read_bytes().hex() for each in folder.rglob("*") if each.is_file()}
    return json.dumps(found, sort_keys=True)
