"""The callbacks of the page on what happens in Airflow say what the page shows."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.observability.callbacks import call_each
from airflow_cloudfiles.hooks.observability.run_events import rescued_data
from tests.docs.pages import ROOT, python_blocks

pytestmark = pytest.mark.airflow

PAGE = ROOT / "docs/how-to/know-what-happens-in-airflow.md"


def _task() -> Any:
    names: dict[str, Any] = {"__name__": "page"}
    for block in python_blocks():
        if block.page == PAGE:
            exec(compile(block.code, block.name, "exec"), names)
    return names["ingest"]


def test_the_message_of_a_schema_change_is_rendered() -> None:
    task = _task()
    [mail] = task.on_schema_change
    change = {"changes": ["b string added"], "files": {"s3://lake/2.json": ["b"]}}
    sent = copy.copy(mail)
    sent.render_template_fields({"dag": task.dag, "schema_change": change})
    assert sent.subject == "orders: b string added"
    assert sent.html_content == "New in s3://lake/2.json."


def test_rescued_rows_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    task = _task()
    stream = StreamArguments(source="/in", format="json", checkpoint_location="/state")
    found = rescued_data(stream, {"rescued_rows": 2, "rows": 9})
    call_each(task.on_rescued, {}, logging.getLogger(), rescued=found)
    assert capsys.readouterr().out == "2 of 9 rows, in _rescued_data\n"
