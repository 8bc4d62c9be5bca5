"""A function over micro-batches reaches the driver as a reference or as source, and is checked."""

from __future__ import annotations

import json
import os
import random
import re
import traceback
from functools import partial
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import OptionError, TransformError, UnsupportedOptionError
from airflow_cloudfiles.engine.job.batch_function import (
    MOST_CHARACTERS,
    BatchFunction,
    as_argument,
    python_path,
    with_function,
)
from airflow_cloudfiles.engine.job.launch import SparkConnect, launch
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.storage import open_store

OUTSIDE = 3


def shown(batch: OUTSIDE, *, least: int = 1) -> Any:  # type: ignore[valid-type]
    import json as of_json

    def inner(value):
        return of_json.dumps([value, least])

    return inner(batch)


def uses_outside(batch):
    return batch, OUTSIDE


def uses_outside_in_a_default(batch, least=OUTSIDE):
    return batch, least


def raises(batch):
    raise ValueError(batch)


async def waits(batch):
    return batch


def takes_nothing():
    return None


class Callable:
    def __call__(self, batch):
        return batch


def of(given: Any, **arguments: Any) -> BatchFunction:
    """What the driver makes of what it is handed."""
    handed = json.dumps(BatchFunction.of(given, arguments).to_json())
    return BatchFunction.from_json(json.loads(handed))


def test_a_function_is_compiled_from_its_source_without_its_annotations() -> None:
    found = of(shown, least=7)
    assert found.load()(1, **found.arguments) == "[1, 7]"
    assert found.name == "shown"


def test_a_traceback_names_the_line_of_the_users_file() -> None:
    with pytest.raises(ValueError, match="batch 1") as failure:
        of(raises).load()("batch 1")
    last = traceback.extract_tb(failure.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == (__file__, raises.__code__.co_firstlineno + 1)


def test_a_reference_is_imported() -> None:
    assert of("os.path:join").load() is os.path.join


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (uses_outside, "uses OUTSIDE from outside of it"),
        (uses_outside_in_a_default, "uses OUTSIDE from outside of it"),
        (lambda batch: batch, "written with def"),
        (partial(shown, least=2), "written with def"),
        (Callable(), "written with def"),
        (waits, "is async"),
        (takes_nothing, "must take the DataFrame"),
        ("os.path.join", "package.module:function"),
        ("os:path:join", "package.module:function"),
        ("os:__import__('os')", "package.module:function"),
    ],
)
def test_what_cannot_work_is_refused_before_a_run(given: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        BatchFunction.of(given)


def test_variables_around_a_function_are_refused() -> None:
    least = 3

    def clean(batch):
        return batch, least

    with pytest.raises(OptionError, match="uses least from outside of it"):
        BatchFunction.of(clean)


def test_arguments_are_values_of_json() -> None:
    with pytest.raises(OptionError, match="must be values of JSON"):
        BatchFunction.of(shown, {"least": {1, 2}})


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("no_such_module:clean", "cannot be loaded: ModuleNotFoundError"),
        ("os:no_such_function", "cannot be loaded: AttributeError"),
        ("os:sep", "is no function but str"),
    ],
)
def test_what_cannot_be_loaded_is_named(reference: str, says: str) -> None:
    with pytest.raises(TransformError, match=says) as failure:
        of(reference).load()
    assert not failure.value.is_retryable


def _spec(**more: Any) -> JobSpec:
    given: dict[str, Any] = {
        "kind": "ingest",
        "source": "/in",
        "format": "json",
        "checkpoint_location": "memory://functions",
        "target": "/table",
        "run_id": "r",
    }
    return JobSpec(**{**given, **more})


@pytest.mark.parametrize("given", [shown, "os.path:join"])
def test_the_state_gets_the_name_of_a_function_and_no_code(tmp_path: Any, given: Any) -> None:
    spec = _spec(
        checkpoint_location=str(tmp_path), transform=BatchFunction.of(given, {"least": 1}).to_json()
    )
    state = open_store(str(tmp_path))
    state.put(spec.spec_key, spec.sealed())
    stored = JobSpec.stored(state, "r")
    assert stored.transform == {"name": BatchFunction.of(given).name}
    with pytest.raises(TransformError, match="did not reach the driver"):
        BatchFunction.from_json(stored.transform)
    assert JobSpec.from_json(spec.to_json()) == spec
    assert "transform" not in json.loads(_spec().to_json())


def test_a_server_is_refused() -> None:
    spec = _spec(transform=BatchFunction.of(shown).to_json())
    with pytest.raises(UnsupportedOptionError, match="transform"):
        launch(spec, SparkConnect("sc://localhost"), on_log=print)


@pytest.mark.parametrize("given", [shown, "os.path:join"])
def test_a_driver_elsewhere_gets_the_function_as_an_argument(tmp_path: Any, given: Any) -> None:
    function = BatchFunction.of(given, {"least": 1}).to_json()
    sent = _spec(checkpoint_location=str(tmp_path), transform=function)
    state = open_store(str(tmp_path))
    state.put(sent.spec_key, sent.sealed())
    word = as_argument(function)
    assert re.fullmatch(r"[\w=-]+", word), "nothing for a shell to take apart"
    assert with_function(JobSpec.stored(state, "r"), word) == sent
    other = as_argument({**function, "name": "other"})
    for wrong, says in ((other, "submitted with other"), (word[:-8], "as it was sent")):
        with pytest.raises(TransformError, match=says):
            with_function(JobSpec.stored(state, "r"), wrong)


def test_a_function_that_no_command_line_holds_is_refused() -> None:
    long = BatchFunction.of(shown).to_json()
    long["source"] = random.Random(1).randbytes(MOST_CHARACTERS).hex()
    with pytest.raises(OptionError, match=r"100,000\. Put it into a module"):
        as_argument(long)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"kind": "replay"}, "means nothing to replay"),
        ({"options": {"expect.maxCorruptShare": "0.1"}}, r"expect\.maxCorruptShare does not go"),
    ],
)
def test_runs_that_have_no_use_for_a_function_are_refused(more: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        _spec(transform={"name": "clean", "reference": "a:clean"}, **more)


def test_the_driver_imports_from_where_this_process_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/first")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = python_path().split(os.pathsep)
    assert found[0] == "/first"
    assert str(tmp_path) in found
    assert not [each for each in found if each.endswith("site-packages")]
