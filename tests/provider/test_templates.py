"""Templates change nothing that has none, and an option that has one is text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.hooks.arguments import options_of
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.operators.table import CloudFilesOptimizeTableOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger
from airflow_cloudfiles.triggers.file_events import CloudFilesEventsTrigger
from tests.support.dag_serialization import DagSerialization

pytestmark = pytest.mark.airflow

STREAM: dict[str, Any] = {
    "source": "/in",
    "format": "csv",
    "checkpoint_location": "/state",
    "target": "/table",
}
CONTEXT: dict[str, Any] = {"params": {"null": "0.00", "end": ";\n", "folder": "2026", "n": 7}}


def rendered(native: bool, **changes: Any) -> CloudFilesIngestOperator:
    with DAG("d", schedule=None, render_template_as_native_obj=native):
        task = CloudFilesIngestOperator(task_id="t", **{**STREAM, **changes})
    task.render_template_fields(CONTEXT)  # type: ignore[arg-type]
    return task


TEXTS = ["0.00", "007", "True", "None", "2026-01-01", ";\n", "\n", " ", "a\n\n", "[1]", "1e5", "{"]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_an_option_without_a_template_stays_as_it_is(native: bool, text: str) -> None:
    found = rendered(native, options={"nullValue": text}).stream_arguments()
    assert found.options == {"nullValue": text}


@pytest.mark.parametrize("native", [False, True])
def test_an_option_with_a_template_is_text_to_its_last_line_end(native: bool) -> None:
    options = {
        "nullValue": "{{ params.null }}",
        "lineSep": "{{ params.end }}",
        "comment": "{% if params.n %}#{% endif %}\n",
        "cloudFiles.maxFilesPerTrigger": "{{ params.n }}",
        "header": True,
    }
    found = rendered(native, options=options).stream_arguments()
    assert found.engine_options() == {
        "nullValue": "0.00",
        "lineSep": ";\n",
        "comment": "#\n",
        "cloudFiles.maxFilesPerTrigger": "7",
        "header": "true",
    }


def test_a_dag_may_have_marks_of_its_own() -> None:
    marks = {"variable_start_string": "<<", "variable_end_string": ">>"}
    with DAG("d", schedule=None, jinja_environment_kwargs=marks):
        options = {"nullValue": "<< params.null >>", "lineSep": ";\n"}
        given = {**STREAM, "source": "/<< params.folder >>", "options": options}
        task = CloudFilesIngestOperator(task_id="t", **given)
    task.render_template_fields(CONTEXT)  # type: ignore[arg-type]
    found = task.stream_arguments()
    assert (found.source, found.options) == ("/2026", {"nullValue": "0.00", "lineSep": ";\n"})


@pytest.mark.parametrize("native", [False, True])
def test_a_location_is_text_whatever_it_looks_like(native: bool) -> None:
    task = rendered(native, source="{{ params.folder }}", checkpoint_location="007")
    found = task.stream_arguments()
    assert (found.source, found.checkpoint_location) == ("2026", "007")
    with DAG("d", schedule=None, render_template_as_native_obj=native):
        table = CloudFilesOptimizeTableOperator(task_id="t", target="{{ params.folder }}")
    table.render_template_fields(CONTEXT)  # type: ignore[arg-type]
    assert table.target == "2026"


GIVEN = {"header": True, "nullValue": "0.00", "lineSep": ";\n"}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    "template", ["{{ params.x }}", "{{ params.x | tojson }}", "  {{ params.x }}\n"]
)
def test_a_template_may_give_all_options(native: bool, template: str) -> None:
    CONTEXT["params"]["x"] = GIVEN
    found = rendered(native, options=template).stream_arguments()
    assert found.engine_options() == {"header": "true", "nullValue": "0.00", "lineSep": ";\n"}
    CONTEXT["params"]["x"] = None
    assert rendered(native, options=template).stream_arguments().options == {}


@pytest.mark.parametrize("given", ["a", "['a']", "{1: 2}", ["a"], 7])
def test_what_are_no_options_is_refused(given: Any) -> None:
    with pytest.raises(OptionError, match="options must be a mapping from names"):
        options_of(given)


def test_what_a_template_gives_instead_of_options_fails_the_task_without_retries() -> None:
    CONTEXT["params"]["x"] = "nonsense"
    task = rendered(native=False, options="{{ params.x }}")
    with pytest.raises(AirflowFailException, match="options must be a mapping"):
        task.stream_arguments()
    with pytest.raises(OptionError, match="options must be a mapping"):
        CloudFilesIngestOperator(task_id="t", **STREAM, options="nonsense")
    task = CloudFilesIngestOperator(task_id="t", **STREAM, options='{"header": "true"}')
    assert task.stream_arguments().options == {"header": "true"}


@pytest.mark.parametrize("several", [["/a", "/b"], ("/a",), {"/a": 1}])
def test_several_sources_are_refused_when_the_dag_is_parsed(several: Any) -> None:
    for task in (CloudFilesIngestOperator, CloudFilesSensor):
        with pytest.raises(OptionError, match=r"source must be one path or URI.*pattern"):
            task(task_id="t", **{**STREAM, "source": several})
    with pytest.raises(OptionError, match="source must be one path or URI"):
        CloudFilesTrigger(**{**STREAM, "source": several}).serialize()


# ── triggers ────────────────────────────────────────────────────────────────────────────────────


def test_a_trigger_takes_what_an_operator_takes(tmp_path: Path) -> None:
    stream = {
        "source": Asset("landing", uri=f"file://{tmp_path}/in"),
        "format": "json",
        "checkpoint_location": tmp_path / "state",
        "target": Asset("table", uri=f"file://{tmp_path}/table"),
        "options": {
            "cloudFiles.maxFilesPerTrigger": 10,
            "cloudFiles.inferColumnTypes": True,
            "badRecordsPath": tmp_path / "bad",
        },
    }
    CloudFilesIngestOperator(task_id="t", **stream)
    trigger = CloudFilesTrigger(**stream)
    _, arguments = trigger.serialize()
    assert arguments["source"] == f"file://{tmp_path}/in"
    assert arguments["checkpoint_location"] == str(tmp_path / "state")
    assert json.loads(json.dumps(arguments)) == arguments
    asset = Asset("watched", watchers=[AssetWatcher(name="w", trigger=trigger)])
    with DAG("d", schedule=[asset]) as dag:
        pass
    DagSerialization.serialize_dag(dag)  # to the database
    assert CloudFilesTrigger(**arguments).stream == trigger.stream
    events = CloudFilesEventsTrigger(events_location=tmp_path / "log", source=stream["source"])
    assert events.serialize()[1]["source"] == f"file://{tmp_path}/in"


DAG_FILE = """
import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

FOLDER = os.environ["FOLDER"]
with DAG("waits", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
    CloudFilesSensor(
        task_id="arrived",
        source=f"{FOLDER}/in",
        format="json",
        checkpoint_location=f"{FOLDER}/state",
        deferrable=True,
        poke_interval=0.2,
        timeout=2,
        retries=0,
    )

if __name__ == "__main__":
    from airflow.utils.db import upgradedb

    upgradedb()
    print("ended", dag.test(logical_date=dag.start_date).state)
"""


@pytest.mark.slow
def test_a_deferred_sensor_times_out_in_a_test_of_its_dag(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "dags" / "waits.py"
    file.parent.mkdir()
    file.write_text(DAG_FILE)
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "FOLDER": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(file.parent),
        "CLOUDFILES_CACHE_DIR": str(tmp_path / "cache"),
    }
    ran = subprocess.run(
        [sys.executable, str(file)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "ended failed" in ran.stdout, ran.stderr[-3000:]
    assert "No files to ingest below" in ran.stdout + ran.stderr
