"""A task retries when that helps, does not when it cannot, and names each try once."""

from __future__ import annotations

import pickle
import traceback
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

import airflow_cloudfiles
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    ListingError,
    SourceNotFoundError,
    UnknownFieldException,
    with_code,
)
from airflow_cloudfiles.hooks.task import (
    FALLBACK_RETRY_DELAY,
    HEALING_POLICY,
    run_id_of,
    task_errors,
)
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.operators.table import (
    CloudFilesOptimizeTableOperator,
    CloudFilesVacuumTableOperator,
)
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.definitions.mappedoperator import MappedOperator

pytestmark = pytest.mark.airflow

STREAM = {"source": "/in", "format": "json", "checkpoint_location": "/state"}


def _ingest(**kwargs: object) -> CloudFilesIngestOperator:
    return CloudFilesIngestOperator(task_id="ingest", target="/table", **STREAM, **kwargs)  # type: ignore[arg-type]


def _context(**parts: object) -> dict[str, object]:
    given = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 1}
    return {"ti": SimpleNamespace(**{**given, **parts})}


def test_a_task_retries_without_its_author_doing_anything() -> None:
    assert _ingest().retries == 3
    assert CloudFilesSensor(task_id="sensor", **STREAM).retries == 3  # type: ignore[arg-type]


def test_the_author_has_the_last_word_about_retries() -> None:
    assert _ingest(retries=0).retries == 0
    with DAG("d", schedule=None, default_args={"retries": 7}):
        assert _ingest().retries == 7


@pytest.mark.skipif(HEALING_POLICY is None, reason="retry policies exist from Airflow 3.3")
def test_a_schema_change_is_retried_at_once_and_other_errors_as_the_task_says() -> None:
    policy = _ingest().retry_policy
    healed = UnknownFieldException.of({"b": 1}, file="/in/b.json", retry=True)
    decision = policy.evaluate(healed, 1, 4)
    assert (decision.action.value, decision.retry_delay) == ("retry", timedelta(0))
    assert policy.evaluate(ListingError("slow"), 1, 4).action.value == "default"


@pytest.mark.skipif(HEALING_POLICY is not None, reason="from Airflow 3.3 a policy does it")
def test_without_retry_policies_a_schema_change_is_retried_soon() -> None:
    assert _ingest().retry_delay == FALLBACK_RETRY_DELAY
    assert _ingest(retry_delay=timedelta(1)).retry_delay == timedelta(1)


@pytest.mark.skipif(HEALING_POLICY is None, reason="retry policies exist from Airflow 3.3")
def test_the_author_has_the_last_word_about_the_policy() -> None:
    assert _ingest(retry_policy=None).retry_policy is None


def _mapped(**defaults: Any) -> MappedOperator:
    with DAG("d", schedule=None, default_args=defaults):
        return CloudFilesIngestOperator.partial(
            task_id="ingest", format="json", target="/table"
        ).expand(source=["/a", "/b"], checkpoint_location=["/state/a", "/state/b"])


@pytest.mark.skipif(HEALING_POLICY is None, reason="Airflow 3.3 reads defaults from signatures")
def test_a_mapped_task_retries_a_schema_change_at_once() -> None:
    mapped = _mapped()
    made = mapped.unmap({"source": "/a", "checkpoint_location": "/state/a"})
    for task in (mapped, made):  # the scheduler counts retries by the first, the worker runs both
        assert (task.retries, task.retry_policy) == (3, HEALING_POLICY)


@pytest.mark.skipif(HEALING_POLICY is None, reason="Airflow 3.3 reads defaults from signatures")
@pytest.mark.parametrize("task", [CloudFilesOptimizeTableOperator, CloudFilesVacuumTableOperator])
def test_a_mapped_task_without_a_stream_retries(task: type[BaseOperator]) -> None:
    with DAG("d", schedule=None):
        assert task.partial(task_id="t").expand(target=["/a", "/b"]).retries == 3


def test_the_author_has_the_last_word_about_a_mapped_task() -> None:
    mapped = _mapped(retries=1, retry_delay=timedelta(7))
    made = mapped.unmap({"source": "/a", "checkpoint_location": "/state/a"})
    for task in (mapped, made):
        assert (task.retries, task.retry_delay) == (1, timedelta(7))


def test_an_error_that_a_retry_heals_keeps_its_class() -> None:
    healed = UnknownFieldException.of({"b": 1}, file="/in/b.json", retry=True)
    with pytest.raises(airflow_cloudfiles.UnknownFieldException) as raised, task_errors():
        raise healed
    assert raised.value is healed
    shown = traceback.format_exception(raised.value)
    assert shown[-1].endswith("[CF501] More: cloudfiles docs CF501\n"), "Airflow shows no notes"
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.message, again.fields) == (healed.message, {"b": 1})


@pytest.mark.parametrize(
    "error",
    [
        SourceNotFoundError("There is no folder /in. Create it."),
        UnknownFieldException.of({"b": 1}, file="/in/b.json", retry=False),  # failOnNewColumns
    ],
)
def test_an_error_that_no_retry_heals_fails_for_good_with_its_message(
    error: CloudFilesError,
) -> None:
    with pytest.raises(AirflowFailException) as raised, task_errors():
        raise error
    assert str(raised.value) == with_code(error)
    assert raised.value.__cause__ is error


def test_where_a_retry_is_nobodys_business_every_error_keeps_its_class_and_says_its_code() -> None:
    error = SourceNotFoundError("There is no folder /in. Create it.")
    with pytest.raises(SourceNotFoundError) as raised, task_errors(ends_retries=False):
        raise error
    assert str(raised.value) == with_code(error)
    assert error.message == "There is no folder /in. Create it."


def test_each_try_of_each_task_instance_has_a_name_of_its_own() -> None:
    names = {
        run_id_of(_context(**parts))
        for parts in (
            {},
            {"try_number": 2},
            {"map_index": 0},
            {"run_id": "manual__2026-11-21T03:58:05+00:00"},
            {"run_id": "manual__2026-11-21T03-58-05-00-00"},
            {"run_id": "r" * 300},
            {"run_id": "r" * 301},
            {"dag_id": "_d"},
            {"run_id": "été"},
        )
    }
    assert len(names) == 9
    assert all(name.isascii() and len(name) <= 200 and name[0].isalnum() for name in names)
    assert not any(set(name) & set("/: +") for name in names)
