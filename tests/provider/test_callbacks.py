"""Callbacks for what a run has met: what they may be, what they get, and what they cannot break."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import BaseNotifier
from airflow.sdk import DAG

from airflow_cloudfiles.engine.errors import TableEvolvedError, UnknownFieldException
from airflow_cloudfiles.engine.schema.log_entry import SchemaEntry, append_entry, open_log
from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.observability.run_events import (
    call_each,
    callbacks_of,
    is_schema_change,
    rescued_data,
    schema_change,
)
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from tests.support.written_state import WrittenState

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.providers.common.compat.sdk import Context

pytestmark = pytest.mark.airflow

FILE = "s3://lake/in/2.json"


class Chat(BaseNotifier):
    """A notifier as providers have them."""

    template_fields = ("text", "blocks")

    def __init__(self, text: str, blocks: list[dict[str, str]] | None = None) -> None:
        super().__init__()
        self.text, self.blocks, self.sent = text, blocks or [], list[Any]()

    def notify(self, context: Context) -> None:
        """Send what was rendered."""
        self.sent.append((self.text, self.blocks, sorted(context)))


class OnlyAsync(BaseNotifier):
    """A notifier for the triggerer alone."""

    async def async_notify(self, context: Context) -> None:
        """Send it from the triggerer."""


def _failure() -> UnknownFieldException:
    return UnknownFieldException.of({"b": 1}, file=FILE, retry=True)


def _stream(state: str) -> StreamArguments:
    return StreamArguments(source="s3://lake/in", format="json", checkpoint_location=state)


def _struct(*columns: str) -> dict[str, Any]:
    fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in columns]
    return {"type": "struct", "fields": fields}


@pytest.fixture
def state(tmp_path: Path) -> str:
    """A schema log with two versions."""
    written = WrittenState(f"file://{tmp_path}/state")
    reason = {"change": "addNewColumns", "fields": ["b"], "brought": {FILE: ["b", "b.c"]}}
    for version, columns, why in ((0, "a", {"change": "inferred"}), (1, "ab", reason)):
        entry = SchemaEntry(version, "", "s3://lake/in", why, None, _struct(*columns), _struct())
        assert append_entry(open_log(written.state), entry)
    return written.uri


def test_a_callback_is_one_or_several() -> None:
    chat = Chat("")
    assert callbacks_of("on_rescued", None) == []
    assert callbacks_of("on_rescued", print) == [print]
    assert callbacks_of("on_rescued", chat) == [chat]
    assert callbacks_of("on_rescued", (chat, print)) == [chat, print]


@pytest.mark.parametrize("given", ["print", ["print"], {"a": print}, 7])
def test_what_cannot_be_called_fails_when_the_dag_is_parsed(given: Any) -> None:
    stream = {"source": "/in", "format": "json", "checkpoint_location": "/s", "target": "/t"}
    for name in ("on_schema_change", "on_rescued"):
        with pytest.raises(ValueError, match=f"{name} must be a callable, a notifier or a list"):
            CloudFilesIngestOperator(task_id="t", **stream, **{name: given})


def test_a_notifier_is_rendered_anew_for_each_call() -> None:
    chat = Chat("{{ schema_change.fields | join(', ') }}", [{"of": "{{ schema_change.n }}"}])
    context = {"ti": None}
    for number in (1, 2):
        met = {"fields": ["a", "b"], "n": number}
        call_each([chat, chat], context, logging.getLogger(), schema_change=met)
    keys = ["blocks", "schema_change", "text", "ti"]
    assert chat.sent[::2] == [("a, b", [{"of": "1"}], keys), ("a, b", [{"of": "2"}], keys)]
    assert context == {"ti": None}


def test_one_that_fails_is_an_error_of_the_log_and_the_next_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(context: Any) -> None:
        raise ValueError(context["rescued"])

    chat = Chat("{{ rescued }}")
    wrong = Chat("{{ rescued ")
    call_each([fail, wrong, OnlyAsync(), chat], {}, logging.getLogger("task"), rescued=3)
    assert [text for text, *_ in chat.sent] == ["3"]
    failed = [each for each in caplog.records if each.name == "task"]
    assert [each.levelname for each in failed] == ["ERROR"] * 3
    for name, each in zip(("fail", "Chat", "OnlyAsync"), failed, strict=True):
        assert f"{name} failed; the task goes on" in each.getMessage()


def test_a_change_is_told_with_its_version_its_files_and_in_words(state: str) -> None:
    change = schema_change(CloudFilesHook(), _stream(state), failure=_failure())
    assert change.pop("message") == str(_failure())
    assert change == {
        "schema_version": 1,
        "fields": ["b"],
        "files": {FILE: ["b", "b.c"]},
        "changes": ["b bigint added"],
    }
    first = schema_change(CloudFilesHook(), _stream(state), version=0)
    assert (first["schema_version"], first["message"]) == (0, "")


def test_a_schema_log_that_cannot_be_read_leaves_what_the_error_says(tmp_path: Path) -> None:
    stream = _stream(f"file://{tmp_path}/nothing")
    change = schema_change(CloudFilesHook(), stream, failure=_failure())
    assert (change["fields"], change["files"]) == (["b"], {FILE: ["b"]})
    assert change["schema_version"] is None


def test_a_change_of_a_table_that_is_the_source_is_told_in_its_words() -> None:
    failure = TableEvolvedError("the table has a new column")
    change = schema_change(CloudFilesHook(), _stream("/state"), failure=failure)
    assert (change["message"], change["fields"]) == ("the table has a new column", [])


def test_a_field_that_fails_the_stream_for_good_is_no_change() -> None:
    assert is_schema_change(_failure())
    assert is_schema_change(TableEvolvedError(""))
    assert not is_schema_change(UnknownFieldException.of({"b": 1}, file=FILE, retry=False))
    assert not is_schema_change(OSError())
    assert not is_schema_change(None)


def test_rescued_data_is_told_with_its_column() -> None:
    report = {"rescued_rows": 2, "rows": 9, "durations": {}}
    found = rescued_data(CloudFilesHook(), _stream("/state"), report)
    assert (found["column"], found["rescued_rows"], found["rows"]) == ("_rescued_data", 2, 9)
    assert "durations" not in found
    options = {"cloudFiles.inferColumnTypes": "true", "RESCUEDDATACOLUMN": "_rest"}
    stream = StreamArguments(source="/in", format="json", checkpoint_location="/s", options=options)
    assert rescued_data(CloudFilesHook(), stream, report)["column"] == "_rest"


def test_a_mapped_task_may_have_callbacks() -> None:
    from tests.support.dag_serialization import DagSerialization

    chat = Chat("text")
    with DAG("mapped", schedule=None) as dag:
        mapped = CloudFilesIngestOperator.partial(
            task_id="t", format="json", source="/in", target="/t",
            on_schema_change=[chat, print], on_rescued=chat,
        ).expand(checkpoint_location=["/a", "/b"])  # fmt: skip
    json.dumps(DagSerialization.to_dict(dag))
    assert mapped.partial_kwargs["on_rescued"] is chat
