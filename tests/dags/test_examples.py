"""Every example DAG imports, and says what it promises."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.airflow

EXAMPLES = sorted((Path(__file__).parents[2] / "dags_examples").glob("*.py"))


def _imported(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_imports_and_its_dag_has_its_name(path: Path) -> None:
    module = _imported(path)
    dags = {task.dag for task in vars(module).values() if isinstance(task, BaseOperator)}
    assert [dag.dag_id for dag in dags] == [path.stem]
    assert all(dag.doc_md for dag in dags)


def test_the_flights_example_waits_infers_and_ingests_in_this_order() -> None:
    module = _imported(next(path for path in EXAMPLES if "flights" in path.stem))
    assert module.arrived.downstream_task_ids == {"infer_schema", "ingest"}
    assert module.infer_schema.downstream_task_ids == {"ingest"}
    assert module.ingest.retries == 3
    assert module.ingest.target == module.arrived.target
