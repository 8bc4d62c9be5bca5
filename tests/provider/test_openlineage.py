"""Airflow's OpenLineage provider gets datasets, schema and counts from the operators."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.utils.state import TaskInstanceState
from openlineage.client.naming import dataset as naming
from openlineage.client.serde import Serde

from airflow_cloudfiles import UnknownFieldException
from airflow_cloudfiles.hooks.observability.lineage import dataset_name
from airflow_cloudfiles.operators.cloud_files import (
    CloudFilesInferSchemaOperator,
    CloudFilesIngestOperator,
)

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import BaseOperator

pytestmark = pytest.mark.airflow

RUN_ID = "manual__2026-11-21T00:00:00+00:00"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def stream(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "in").mkdir()
    return {
        "source": str(tmp_path / "in"),
        "format": "json",
        "checkpoint_location": str(tmp_path / "state"),
        "target": str(tmp_path / "table"),
        "master": "local[1]",
        "dag": None,
    }


def _ti(try_number: int = 1) -> Any:
    return SimpleNamespace(
        dag_id="d", run_id=RUN_ID, task_id="t", map_index=-1, try_number=try_number
    )


def _execute(task: Any, try_number: int = 1) -> Any:
    return task.execute({"ti": _ti(try_number), "outlet_events": OutletEventAccessors()})


def _told(task: BaseOperator, state: TaskInstanceState) -> dict[str, Any]:
    """What the provider puts into an event of a task, as JSON."""
    found = ExtractorManager().extract_metadata(
        SimpleNamespace(run_id=RUN_ID), task, state, task_instance=_ti()
    )
    return {
        "inputs": [json.loads(Serde.to_json(each)) for each in found.inputs],
        "outputs": [json.loads(Serde.to_json(each)) for each in found.outputs],
    }


def _facet(dataset: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    """The fields of a facet that are its own."""
    return {key: value for key, value in dataset[kind][name].items() if not key.startswith("_")}


def test_names_are_those_of_the_clients_own_rules() -> None:
    for location, rule in {
        "s3://landing/orders/eu": naming.S3("landing", "orders/eu"),
        "gs://landing/orders": naming.GCS("landing", "orders"),
        "abfss://lake@acme.dfs.core.windows.net/orders": naming.ABFSS("lake", "acme", "orders"),
        "/data/orders": naming.LocalFileSystem("/data/orders"),
    }.items():
        assert dataset_name(location) == (rule.get_namespace(), rule.get_name())


def test_a_task_that_starts_has_named_its_datasets(stream: dict[str, Any]) -> None:
    task = CloudFilesIngestOperator(task_id="t", **stream)
    told = _told(task, TaskInstanceState.RUNNING)
    (source,), (target,) = told["inputs"], told["outputs"]
    assert (source["namespace"], source["name"]) == ("file", stream["source"])
    assert (target["namespace"], target["name"]) == ("file", stream["target"])
    assert not source.get("inputFacets")
    assert not target.get("outputFacets")
    storage = _facet(target, "facets", "storage")
    assert storage == {"storageLayer": "delta", "fileFormat": "parquet"}


def test_lineage_that_cannot_be_made_fails_nothing(
    stream: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    task = CloudFilesIngestOperator(task_id="t", **stream)
    task.source = None  # type: ignore[assignment]
    with caplog.at_level(logging.WARNING):
        assert task.get_openlineage_facets_on_complete(_ti()) is None
    assert "OpenLineage gets no datasets of this task" in caplog.text


@pytest.mark.spark
def test_a_run_tells_its_counts_and_its_schema_also_when_it_fails(
    stream: dict[str, Any], tmp_path: Path
) -> None:
    landing = tmp_path / "in"
    (landing / "1.json").write_text('{"id": 1, "a b": {"c": [1]}}\n{"id": 2}\n')
    size = (landing / "1.json").stat().st_size
    options = {"cloudFiles.inferColumnTypes": "true", "cloudFiles.maxFilesPerTrigger": 1}
    infer = CloudFilesInferSchemaOperator(task_id="i", options=options, **stream)
    _execute(infer)
    told = _told(infer, TaskInstanceState.SUCCESS)
    (source,) = told["inputs"]
    assert told["outputs"] == []
    assert _facet(source, "inputFacets", "inputStatistics") == {"fileCount": 1, "size": size}
    columns = {each["name"]: each["type"] for each in source["facets"]["schema"]["fields"]}
    assert columns["a b"] == "STRUCT<c: ARRAY<BIGINT>>"

    ingest = CloudFilesIngestOperator(task_id="t", options=options, **stream)
    report = _execute(ingest)
    told = _told(ingest, TaskInstanceState.SUCCESS)
    (source,), (target,) = told["inputs"], told["outputs"]
    assert _facet(source, "inputFacets", "inputStatistics") == {"fileCount": 1, "size": size}
    assert _facet(target, "outputFacets", "outputStatistics") == {"rowCount": 2}
    version = _facet(target, "facets", "version")
    assert version == {"datasetVersion": str(report["target_version"])}
    columns = {each["name"]: each["type"] for each in target["facets"]["schema"]["fields"]}
    assert columns == {
        "a b": "STRUCT<c: ARRAY<BIGINT>>", "id": "BIGINT", "_rescued_data": "STRING",
    }  # fmt: skip

    (landing / "2.json").write_text('{"id": 3}\n')
    (landing / "3.json").write_text('{"id": 4, "new": 1}\n')
    ingest = CloudFilesIngestOperator(task_id="t", options=options, **stream)
    with pytest.raises(UnknownFieldException):
        _execute(ingest, try_number=2)
    told = _told(ingest, TaskInstanceState.FAILED)
    (source,), (target,) = told["inputs"], told["outputs"]
    assert _facet(source, "inputFacets", "inputStatistics")["fileCount"] == 1
    assert _facet(target, "outputFacets", "outputStatistics") == {"rowCount": 1}
