"""Errors keep their class, message and evidence on their way through Java."""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.batches.task_process import marking_errors
from airflow_cloudfiles.engine.errors import CloudFilesError, UnknownFieldException


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


CODES = {
    "CF000": "CloudFilesError",
    "CF100": "OptionError",
    "CF101": "UnknownOptionError",
    "CF102": "UnsupportedOptionError",
    "CF200": "SourceError",
    "CF201": "SourceNotFoundError",
    "CF202": "NotificationServicesError",
    "CF203": "SourceAccessError",
    "CF204": "ListingError",
    "CF205": "QueueError",
    "CF206": "QueueAccessError",
    "CF207": "TableStreamError",
    "CF208": "TableRowsChangedError",
    "CF209": "VersionsGoneError",
    "CF210": "InventoryError",
    "CF211": "MassDeletionError",
    "CF300": "StateError",
    "CF301": "StateUnreachableError",
    "CF302": "StateLockedError",
    "CF303": "StateConflictError",
    "CF304": "StateMovedError",
    "CF305": "IncompatibleStateError",
    "CF306": "CorruptedStateError",
    "CF307": "LedgerError",
    "CF308": "LedgerAccessError",
    "CF400": "ReadError",
    "CF401": "FileUnreadableError",
    "CF402": "FileUnreachableError",
    "CF403": "FileChangedError",
    "CF404": "FileMissingError",
    "CF405": "CorruptRecordError",
    "CF500": "SchemaError",
    "CF501": "UnknownFieldException",
    "CF502": "SchemaInferenceError",
    "CF503": "SampleGoneError",
    "CF504": "SchemaHintError",
    "CF505": "IncompatibleSchemaError",
    "CF506": "StaleSchemaError",
    "CF507": "TableEvolvedError",
    "CF508": "BlockedSchemaChangeError",
    "CF509": "SchemaProposedError",
    "CF510": "SchemaRefusedError",
    "CF600": "SinkError",
    "CF601": "TargetNotDeltaError",
    "CF602": "TargetCorruptedError",
    "CF603": "UnsupportedTableError",
    "CF604": "TargetUnreachableError",
    "CF605": "TargetAccessError",
    "CF606": "TargetConflictError",
    "CF607": "DataFileLostError",
    "CF608": "TargetChangedError",
    "CF609": "LostBatchesError",
    "CF610": "SchemaMismatchError",
    "CF611": "ExpectationError",
    "CF612": "FilesQuarantinedError",
    "CF700": "RunError",
    "CF701": "JavaNotFoundError",
    "CF702": "RunFailedError",
    "CF703": "SparkServerError",
    "CF704": "SparkUnreachableError",
    "CF705": "TransformError",
    "CF706": "SparkVersionError",
}
"""Never changed, and no code is ever given to another class: messages in the field have them."""


def test_every_error_has_a_code_of_its_own_for_good() -> None:
    assert {kind.code: kind.__name__ for kind in _all()} == CODES
    assert len(_all()) == len(CODES), "each once"
    for kind in _all()[1:]:
        assert re.fullmatch(r"CF\d{3}", kind.code)
        branch = next((each for each in kind.__mro__ if each.__base__ is CloudFilesError), kind)
        assert branch.code[:3] == kind.code[:3], f"{kind.__name__} is of another branch"


def test_a_code_is_in_a_record_in_a_traceback_and_at_the_end_of_what_a_person_is_told() -> None:
    error = errors.StateLockedError("Another run is at work. Wait.")
    assert errors.to_record(error)["code"] == "CF302"
    told = errors.with_code(error)
    assert told.startswith("Another run is at work. Wait. [CF302] More: cloudfiles docs CF302")
    assert (error.message, str(error)) == ("Another run is at work. Wait.",) * 2
    for each in (error, pickle.loads(pickle.dumps(error)), errors.from_text(_trace(error))):
        assert each is not None
        lines = traceback.format_exception(each)
        assert lines[-1] == "[CF302] More: cloudfiles docs CF302\n"
        assert "".join(lines).count("CF302") == 2


def test_the_section_of_a_code_is_beside_the_documentation() -> None:
    told = errors.beside("https://code.example/acme/blob/HEAD/docs/index.md")
    assert told == "https://code.example/acme/blob/HEAD/docs/how-to/troubleshooting.md"
    site = errors.beside("https://docs.example/index.html")
    assert site == "https://docs.example/how-to/troubleshooting.html"
    assert errors.beside("") == ""


def test_an_address_in_the_metadata_is_told_behind_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "airflow_provider_cloudfiles-9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: airflow-provider-cloudfiles\nVersion: 9\n"
        "Project-URL: Source, https://code.example\n"
        "Project-URL: Documentation, https://code.example/docs/index.md\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    errors._address.cache_clear()
    try:
        assert errors.section_of("CF302") == (
            "[CF302] More: cloudfiles docs CF302, "
            "https://code.example/docs/how-to/troubleshooting.md#cf302"
        )
    finally:
        errors._address.cache_clear()


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
