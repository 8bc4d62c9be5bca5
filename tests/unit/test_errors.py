"""Errors keep their class, message and evidence on their way through Java."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.errors import CloudFilesError, UnknownFieldException


def _all(root: type[CloudFilesError] = CloudFilesError) -> list[type[CloudFilesError]]:
    return sorted(errors._tree(root).values(), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", _all(), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_and_a_java_stack_trace(kind: type[CloudFilesError]) -> None:
    error = kind("x.json: it happened; do this")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message) == (kind, error.message)
    text = (
        "[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in read\n'
        f"airflow_cloudfiles.engine.errors.{kind.__name__}: {error.message}\n SQLSTATE: 38000"
    )
    found = errors.from_text(text)
    assert (type(found), str(found)) == (kind, error.message)


def test_every_class_of_the_tree_is_drawn_in_the_docstring() -> None:
    drawn = errors.__doc__ or ""
    assert [kind.__name__ for kind in _all() if kind.__name__ not in drawn] == []


@pytest.mark.parametrize("retry", [True, False])
def test_an_unknown_field_error_tells_fields_file_and_whether_to_retry(retry: bool) -> None:
    fields = {"währung": "EUR", "n": {"x": [1, "}, "]}}
    error = UnknownFieldException.of(fields, file='file:///a "b".json', retry=retry)
    assert error.message.startswith(
        "[UNKNOWN_FIELD_EXCEPTION.NEW_FIELDS_IN_RECORD_WITH_FILE_PATH] "
        "Encountered unknown fields during parsing: "
    )  # B66
    again = errors.from_name(type(error).__name__, error.message)
    assert isinstance(again, UnknownFieldException)
    assert (again.fields, again.file, again.is_retryable) == (fields, 'file:///a "b".json', retry)
    assert "\n" not in error.message


def test_a_text_without_our_errors_holds_none() -> None:
    assert errors.from_text("java.lang.OutOfMemoryError: Java heap space") is None
    assert type(errors.from_name("ValueError", "x")) is CloudFilesError


def test_a_worker_that_died_is_explained():
    found = errors.from_text(
        "Job aborted due to stage failure ... org.apache.spark.SparkException: "
        "Python worker exited unexpectedly (crashed). Consider setting ..."
    )
    assert isinstance(found, errors.RunFailedError)
    assert "ORC" in str(found)
    assert found.is_retryable


def test_the_reference_says_of_every_error_whether_a_retry_helps(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (yes|no|depends) \| (.+?) \| (.*?) ?\|$", page, re.MULTILINE)
    told = {name: word for name, word, *_ in rows}
    real = {kind.__name__: "yes" if kind.is_retryable else "no" for kind in _all()}
    real["UnknownFieldException"] = "depends"
    assert told == real
    assert len(rows) == len(told), "each once"
