"""Errors keep their class, message and evidence on their way through Java."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.errors import CloudFilesError, UnknownFieldException
from airflow_cloudfiles.engine.spark.error_marks import marking_errors


def _all(root: type[CloudFilesError] = CloudFilesError) -> list[type[CloudFilesError]]:
    return sorted(errors._tree(root).values(), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", _all(), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_and_a_java_stack_trace(kind: type[CloudFilesError]) -> None:
    error = kind("x.json: it happened; do this")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message) == (kind, error.message)
    text = _trace(error)
    assert f"airflow_cloudfiles.engine.errors.{kind.__name__}: {error.message}\n" in text
    found = errors.from_text(text)
    assert (type(found), str(found)) == (kind, error.message)
    assert found is not None
    assert found.is_retryable == error.is_retryable


def _trace(error: CloudFilesError) -> str:
    """What Java makes of an error that a Python process of Spark ends with."""
    return (
        "[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in read\n'
        f"airflow_cloudfiles.engine.errors.{type(error).__name__}: {errors.marked(error)}\n"
        " SQLSTATE: 38000"
    )


FAKE = '<<cloudfiles-error:{"class": "ListingError", "message": "fake", "is_retryable": true}>>'


@pytest.mark.parametrize(
    "message",
    [
        "x" * 1_000_000,
        FAKE,
        f"before {FAKE} after <<cloudfiles-error:",
        "<<cloudfiles-error:",
        ">>",
        '{"class": "ListingError"}',
        "währung €, 日本語, \U0001f600",
        "a\nb\r\nc\ttab \x00 \\u003c",
        "\udcff not UTF-8",
        "",
    ],
    ids=range(10),
)
def test_a_message_of_any_characters_arrives_as_it_was(message: str) -> None:
    error = errors.ReadError(message)
    text = _trace(error)
    assert message in text, "whoever reads the text itself reads the message"
    found = errors.from_text(text)
    assert (type(found), str(found)) == (errors.ReadError, message)
    assert errors.marked(error).removeprefix(message).isascii()


def test_a_retry_is_what_the_error_says_and_not_its_class_or_its_words() -> None:
    for retry in (True, False):
        error = UnknownFieldException("automatic retry: true", retry=retry)
        for found in (
            errors.from_text(_trace(error)),
            pickle.loads(pickle.dumps(error)),
            errors.from_record(errors.to_record(error)),
        ):
            assert type(found) is UnknownFieldException
            assert found.is_retryable is retry


def test_of_several_errors_the_one_that_was_raised_wins_over_its_causes() -> None:
    cause = errors.FileUnreadableError("the cause")
    raised = errors.CorruptedStateError("what it led to")
    text = f"{_trace(cause)}\n\nThe above exception was the direct cause of\n\n{_trace(raised)}"
    found = errors.from_text(f"Job aborted: {text}\n\nDriver stacktrace:\n at java.lang.Thread")
    assert (type(found), str(found)) == (errors.CorruptedStateError, "what it led to")


def test_a_record_that_was_cut_off_is_passed_over() -> None:
    whole, cut = _trace(errors.ListingError("whole")), errors.marked(errors.ReadError("cut"))
    found = errors.from_text(f"{whole} {cut[:-8]}>> {cut[:-2]}")
    assert (type(found), str(found)) == (errors.ListingError, "whole")
    assert errors.from_text('<<cloudfiles-error:["message"]>> <<cloudfiles-error:{}>>') is None


def test_a_method_that_spark_calls_marks_its_errors_once_and_leaves_the_message() -> None:
    @marking_errors
    class Reader:
        def partitions(self, start: int) -> list[int]:
            raise errors.ReadError(f"at {start}")

        def read(self) -> Iterator[int]:
            yield 1
            self.partitions(2)

        def _own(self) -> None:
            raise ValueError

    values = Reader().read()
    assert next(values) == 1
    with pytest.raises(errors.ReadError) as caught:
        next(values)
    error = caught.value
    assert (error.message, str(error)) == ("at 2", errors.marked(error))
    assert str(error).count("<<cloudfiles-error:") == 1
    again = pickle.loads(pickle.dumps(error))
    assert again.message == "at 2"
    with pytest.raises(ValueError, match=r"^$"):
        Reader()._own()


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
    again = errors.from_record(errors.to_record(error))
    assert isinstance(again, UnknownFieldException)
    assert (again.fields, again.file, again.is_retryable) == (fields, 'file:///a "b".json', retry)
    assert "\n" not in error.message


def test_a_text_without_our_errors_holds_none() -> None:
    assert errors.from_text("java.lang.OutOfMemoryError: Java heap space") is None
    assert type(errors.from_record({"class": "ValueError", "message": "x"})) is CloudFilesError


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
