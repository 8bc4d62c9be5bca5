"""The callbacks of the page on what happens in Airflow say what the page shows."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.observability.run_events import call_each, lost_files, rescued_data
from tests.docs.pages import ROOT, python_blocks

pytestmark = pytest.mark.airflow

PAGE = ROOT / "docs/how-to/know-what-happens-in-airflow.md"


def _names() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    for block in python_blocks():
        if block.page == PAGE:
            exec(compile(block.code, block.name, "exec"), names)
    return names


def test_the_message_of_a_schema_change_is_rendered() -> None:
    task = _names()["ingest"]
    [mail] = task.on_schema_change
    change = {"changes": ["b string added"], "files": {"s3://lake/2.json": ["b"]}}
    sent = copy.copy(mail)
    sent.render_template_fields({"dag": task.dag, "schema_change": change})
    assert sent.subject == "orders: b string added"
    assert sent.html_content == "New in s3://lake/2.json."


def test_rescued_rows_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    task = _names()["ingest"]
    stream = StreamArguments(source="/in", format="json", checkpoint_location="/state")
    found = rescued_data(CloudFilesHook(), stream, {"rescued_rows": 2, "rows": 9})
    call_each(task.on_rescued, {}, logging.getLogger(), rescued=found)
    assert capsys.readouterr().out == "2 of 9 rows, in _rescued_data\n"


def test_silence_and_lost_files_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    names = _names()
    silence = {"message": "Nothing has arrived"}
    call_each([names["page"]], {}, logging.getLogger(), silence=silence)
    lost = lost_files({"missing_files": 2, "missing": ["s3://lake/1.json"]})
    call_each([names["say_what_is_lost"]], {}, logging.getLogger(), lost_files=lost)
    assert capsys.readouterr().out == "Nothing has arrived\n2 lost, such as s3://lake/1.json\n"
