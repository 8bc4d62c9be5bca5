"""Tell what went wrong, whether trying again helps, and where the documentation says more.

One tree. Every error is a `CloudFilesError` whose message says what happened, to which
object, and what to do about it; `is_retryable` says whether running the same thing again can
succeed without anybody changing anything, and `code` names its class and its section in the
documentation (docs/how-to/troubleshooting.md). A new class takes the next code of its branch.

Errors cross from an executor to the driver to the Airflow worker. Each is built from its message
alone, so it can be pickled; a report has its `to_record`. Through the JVM only text passes: where
an error leaves a Python process of Spark, `marked` puts the record behind the message, and
`from_text` reads it back out of whatever Java wraps around it.

Every error has a section under its code in docs/how-to/troubleshooting.md. The page is in the wheel
(`cloudfiles docs` with the code), and online where the metadata of this package says where it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import ClassVar, Final, cast

from airflow_cloudfiles.engine.messages import few_members, more

PAGE: Final = "how-to/troubleshooting"
"""The page with a section for each code."""
_DISTRIBUTION: Final = "airflow-provider-cloudfiles"


def section_of(code: str) -> str:
    """Write a code and where its section is, for the end of a message.

    Args:
        code: Of an error.
    """
    address = _address()
    online = f", {address}#{code.lower()}" if address else ""
    return f"[{code}] More: cloudfiles docs {code}{online}"


@cache
def _address() -> str:
    """Build the address of the page, by the documentation of the metadata, or nothing."""
    from importlib import metadata  # noqa: PLC0415 - only a process that tells an error needs it

    try:
        urls = metadata.metadata(_DISTRIBUTION).get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a checkout, or the wheel alone on a cluster's path
        return ""
    named = dict(each.split(", ", 1) for each in urls)
    return beside(named.get("Documentation", ""))


def beside(documentation: str) -> str:
    """Build the address of the page, beside the first page of the documentation.

    Args:
        documentation: Address of that page, such as `https://code.example/blob/HEAD/docs/index.md`;
            empty where nobody has said one.
    """
    folder, _, name = documentation.rpartition("/")
    suffix = name.removeprefix("index")
    return f"{folder}/{PAGE}{suffix}" if folder else ""


class CloudFilesError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        message: What happened, to which object, and what to do: one paragraph.
        retry: Whether repeating helps, where the class does not say it.
    """

    is_retryable: bool = False
    """Whether the same call can succeed when repeated unchanged."""

    code: ClassVar[str] = "CF000"
    """Names the class for good, and its section in the documentation; it is never given again."""

    def __init__(self, message: str, *, retry: bool | None = None) -> None:
        super().__init__(message)
        self.message = message
        if retry is not None and retry != self.is_retryable:
            self.is_retryable = retry
        self.add_note(f"[{self.code}] More: cloudfiles docs {self.code}")

    def __init_subclass__(cls, *, code: str = "", **others: object) -> None:
        super().__init_subclass__(**others)
        cls.code = code or cls.code


class OptionError(CloudFilesError, ValueError, code="CF100"):
    """An option has a value that is not valid, or contradicts another option."""


class UnknownOptionError(OptionError, code="CF101"):
    """An option that does not exist; the message names the nearest that do."""


class UnsupportedOptionError(OptionError, code="CF102"):
    """An option that is documented, but that this version or platform does not offer."""


class SourceError(CloudFilesError, code="CF200"):
    """The place the files are read from cannot serve."""


class SourceNotFoundError(SourceError, code="CF201"):
    """The source does not exist or is not a folder."""


class NotificationServicesError(SourceError, code="CF202"):
    """What notifications need cannot be set up or removed, or belong to another stream."""


class SourceAccessError(SourceError, code="CF203"):
    """The source is refused to this identity, or the request for it is not valid."""


class ListingError(SourceError, code="CF204"):
    """The source could not be listed completely; what was found before stays recorded."""

    is_retryable = True


class QueueError(SourceError, code="CF205"):
    """The queue of notifications did not answer; what was not recorded is still in it."""

    is_retryable = True


class QueueAccessError(SourceError, code="CF206"):
    """The queue of notifications does not exist, or this identity may not read it."""


class TableStreamError(SourceError, code="CF207"):
    """A stream cannot go on reading its Delta table."""


class TableRowsChangedError(TableStreamError, code="CF208"):
    """Rows of the Delta table that a stream reads were deleted or updated."""


class VersionsGoneError(TableStreamError, code="CF209"):
    """Versions that a stream has not read are gone from the log of its Delta table."""


class InventoryError(SourceError, code="CF210"):
    """An inventory report is refused: too old, not whole, of another place, or not understood."""


class MassDeletionError(SourceError, code="CF211"):
    """More of the known files are gone at once than `cloudFiles.maxDeletedShare` allows."""


class StateError(CloudFilesError, code="CF300"):
    """The checkpoint location, or a log below it, cannot serve."""


class StateUnreachableError(StateError, code="CF301"):
    """The storage of the checkpoint location does not answer, or fails for the moment."""

    is_retryable = True


class StateLockedError(StateError, code="CF302"):
    """Another run is working on the same checkpoint location now."""

    is_retryable = True


class StateConflictError(StateError, code="CF303"):
    """The location belongs to another source, format or stream."""


class StateMovedError(StateError, code="CF304"):
    """The state was moved to another location, or is not whole at this one yet."""


class IncompatibleStateError(StateError, code="CF305"):
    """The location was written by a newer version of this package, or by a much older one."""


class CorruptedStateError(StateError, code="CF306"):
    """Something below the location is not what this package writes."""


class LedgerError(StateError, code="CF307"):
    """The local index of the file log cannot be used; it is only a cache and gets rebuilt."""

    is_retryable = True


class LedgerAccessError(LedgerError, code="CF308"):
    """No index can be made on this machine: its folder is not one that this user may write in."""

    is_retryable = False


class ReadError(CloudFilesError, code="CF400"):
    """The content of one file cannot be read."""


class FileMissingError(ReadError, code="CF404"):
    """A discovered file was gone when it was to be read."""


class FileUnreadableError(ReadError, code="CF401"):
    """A discovered file is there but its bytes cannot be had."""


class FileUnreachableError(FileUnreadableError, code="CF402"):
    """The storage of a discovered file does not answer, or broke off."""

    is_retryable = True


class FileChangedError(ReadError, code="CF403"):
    """A file was overwritten or deleted while it was being read."""

    is_retryable = True


class CorruptRecordError(ReadError, code="CF405"):
    """A record is not valid in its format and the mode is `FAILFAST`."""


class SchemaError(CloudFilesError, code="CF500"):
    """The shape of the data cannot be resolved."""


class SchemaInferenceError(SchemaError, code="CF502"):
    """There is nothing to infer a schema from, or it cannot be inferred."""


class SampleGoneError(SchemaInferenceError, code="CF503"):
    """Every file of a sample was deleted since it was found."""


class SchemaHintError(SchemaError, code="CF504"):
    """A schema hint cannot be parsed or does not fit the schema."""


class SchemaProposedError(SchemaError, code="CF509"):
    """A change of the schema waits for somebody to accept it, rescue its fields or refuse it."""


class SchemaRefusedError(SchemaError, code="CF510"):
    """Files ask for a change of the schema that somebody has refused."""


class IncompatibleSchemaError(SchemaError, code="CF505"):
    """A schema that this stream cannot be read with."""


class StaleSchemaError(IncompatibleSchemaError, code="CF506"):
    """The schema log has got a newer version since the stream was defined."""

    is_retryable = True


class TableEvolvedError(IncompatibleSchemaError, code="CF507"):
    """The Delta table that a stream reads has another schema; the next start reads with that."""

    is_retryable = True


class BlockedSchemaChangeError(IncompatibleSchemaError, code="CF508"):
    """A column of the Delta table that a stream reads was renamed, dropped or retyped.

    Somebody has to decide how downstream gets it, and then to allow it.
    """


UNKNOWN_FIELD_CLASS = "UNKNOWN_FIELD_EXCEPTION.NEW_FIELDS_IN_RECORD_WITH_FILE_PATH"


class UnknownFieldException(SchemaError, code="CF501"):  # noqa: N818 - Auto Loader's name
    """A record has fields that the schema of the stream does not have.

    In `addNewColumns` the schema log already holds the evolved schema when this is raised, so
    running again succeeds (`is_retryable` is true); in `failOnNewColumns` it does not.

    The text follows Databricks' error class `UNKNOWN_FIELD_EXCEPTION` (B66).
    """

    @classmethod
    def of(
        cls, fields: dict[str, object], *, file: str, retry: bool, remedy: str | None = None
    ) -> UnknownFieldException:
        """Build the error from its evidence.

        Args:
            fields: The new top-level fields with a sample value of each; the text has the first.
            file: URI of the file in which they were met.
            retry: Whether the schema log holds the evolved schema already.
            remedy: What to do; default is what helps after a retry was announced, or not.
        """
        what_to_do = remedy or (
            "The schema log holds the evolved schema; run the stream again."
            if retry
            else "Correct or remove the file."
        )
        found = few_members(fields)
        sample = json.dumps(found, ensure_ascii=True, separators=(",", ":"))
        return cls(
            f"[{UNKNOWN_FIELD_CLASS}] Encountered unknown fields during parsing: {sample}"
            f"{more(len(fields) - len(found))}, "
            f"which can be fixed by an automatic retry: {str(retry).lower()}. "
            f"File: {json.dumps(file)}. {what_to_do}",
            retry=retry,
        )

    @property
    def fields(self) -> dict[str, object]:
        """The first new fields with a sample value of each; empty when the text has none."""
        found = _json_after(self.message, "during parsing: ")
        return cast("dict[str, object]", found) if isinstance(found, dict) else {}

    @property
    def file(self) -> str | None:
        """URI of the file in which the fields were met."""
        found = _json_after(self.message, "File: ")
        return found if isinstance(found, str) else None


class SinkError(CloudFilesError, code="CF600"):
    """The target table cannot take the rows."""


class TargetNotDeltaError(SinkError, code="CF601"):
    """The target holds something that is not a Delta table."""


class TargetCorruptedError(SinkError, code="CF602"):
    """The log of the target table is damaged, so what it holds is unknown."""


class UnsupportedTableError(SinkError, code="CF603"):
    """The Delta table needs something of its readers that this version does not support."""


class TargetUnreachableError(SinkError, code="CF604"):
    """The place of the table does not answer, or fails for the moment."""

    is_retryable = True


class TargetAccessError(SinkError, code="CF605"):
    """The place of the table refuses this identity, or the request is not valid."""


class TargetConflictError(SinkError, code="CF606"):
    """Another writer has committed to the table since an overwrite of it began."""

    is_retryable = True


class DataFileLostError(SinkError, code="CF607"):
    """A data file vanished, or changed, between its writing and its commit."""

    is_retryable = True


class TargetChangedError(SinkError, code="CF608"):
    """The table was replaced, or its columns or partitions changed, before a batch was committed.

    Its data files are for the table as it was; running again writes them anew.
    """

    is_retryable = True


class LostBatchesError(SinkError, code="CF609"):
    """The table lacks micro-batches that were committed to it."""


class SchemaMismatchError(SinkError, code="CF610"):
    """Delta's schema enforcement refuses the rows."""


class ExpectationError(SinkError, code="CF611"):
    """A micro-batch does not meet an expectation (`expect.*`), and was not committed."""

    blamed: str = ""
    """Which files of which batch are to be put aside for that (`intake.stream_logs.name_files`)."""


class FilesQuarantinedError(ExpectationError, code="CF612"):
    """A micro-batch was not committed, and its files that are to blame are quarantined now."""

    is_retryable = True


class RunError(CloudFilesError, code="CF700"):
    """Spark could not be started, or did not finish."""


class JavaNotFoundError(RunError, code="CF701"):
    """No Java 17 or newer was found."""


class RunFailedError(RunError, code="CF702"):
    """The Spark process ended without telling why in its report."""

    is_retryable = True


class TransformError(RunError, code="CF705"):
    """The function that transforms micro-batches cannot be loaded, has failed, or gave no rows.

    What it raised itself may be different the next time (`is_retryable` is true); what it is, or
    what it returned, is not.
    """


class SparkVersionError(RunError, code="CF706"):
    """This Spark is too old for what is asked of it."""


class SparkServerError(RunError, code="CF703"):
    """A Spark Connect server cannot run jobs of this package as it is, or refuses this client."""


class SparkUnreachableError(RunError, code="CF704"):
    """A Spark Connect server does not answer, or has lost the session of the run."""

    is_retryable = True


def is_panic(error: BaseException) -> bool:
    """Tell whether a library in Rust has panicked (deltalake, rocksdict), with no `Exception`."""
    return type(error).__name__ == "PanicException"


def _json_after(text: str, marker: str) -> object | None:
    """Read the JSON value that follows a marker in a message."""
    _, found, rest = text.partition(marker)
    if not found:
        return None
    try:
        value: object = json.JSONDecoder().raw_decode(rest)[0]
    except ValueError:
        return None
    return value


def _tree(root: type[CloudFilesError]) -> dict[str, type[CloudFilesError]]:
    """Map every class of the tree by name, without classes that others derive from it."""
    found = {root.__name__: root}
    for child in root.__subclasses__():
        if child.__module__ == __name__:
            found.update(_tree(child))
    return found


def with_code(error: CloudFilesError) -> str:
    """Format what people see of an error: its message, its code, and where the page of that is."""
    return f"{error.message} {section_of(error.code)}"


def to_record(error: CloudFilesError) -> dict[str, object]:
    """Encode an error: its class, code, message, `is_retryable`, and `blamed` if any."""
    blamed = getattr(error, "blamed", "")
    return {
        "class": type(error).__name__,
        "code": error.code,
        "message": error.message,
        "is_retryable": error.is_retryable,
        **({"blamed": blamed} if blamed else {}),
    }


def from_record(record: Mapping[str, object]) -> CloudFilesError:
    """Rebuild an error from its record; the base class when the name is not one of the tree."""
    kind = _tree(CloudFilesError).get(str(record.get("class")), CloudFilesError)
    retry = record.get("is_retryable")
    error = kind(str(record.get("message")), retry=retry if isinstance(retry, bool) else None)
    if isinstance(error, ExpectationError):
        error.blamed = str(record.get("blamed", ""))
    return error


_BEGIN, _END = "<<cloudfiles-error:", ">>"
"""Around a record in a text. What is between them has neither `<` nor `>`, and is ASCII."""
_MARKER = re.compile(f"{re.escape(_BEGIN)}([^<>]*){re.escape(_END)}")


def marked(error: CloudFilesError) -> str:
    """Put behind the message of an error a line with its record for `from_text`."""
    record = json.dumps(to_record(error), ensure_ascii=True)
    record = record.replace("<", "\\u003c").replace(">", "\\u003e")
    return f"{error.message}\n{_BEGIN}{record}{_END}"


_WORKER_DIED = "Python worker exited unexpectedly (crashed)"
"""What Spark reports of a process that the system ended: it cannot know why."""


_NO_REASON = "A Python worker of Spark died"


def has_no_reason(error: CloudFilesError) -> bool:
    """Tell whether an error is that of a process which died without one."""
    return isinstance(error, RunFailedError) and error.message.startswith(_NO_REASON)


def from_text(text: str) -> CloudFilesError | None:
    """Find the last of our errors in a longer text, such as that of a `StreamingQueryException`.

    The last in a traceback is the one that was raised; those before it are its causes, and what a
    message quotes from a file comes before the record of its own error.

    Returns:
        The error, with its class, message and `is_retryable`; one of ours also where a Python
        worker has died without any; `None` when the text holds none of ours.
    """
    for written in reversed(_MARKER.findall(text)):
        try:
            record: object = json.loads(written)
        except ValueError:  # cut off, or quoted from a file
            continue
        if isinstance(record, dict) and isinstance(record.get("message"), str):
            return from_record(record)
    if _WORKER_DIED not in text:
        return None
    return RunFailedError(
        f"{_NO_REASON} while it read files, and left no error. Either its machine "
        "ran out of memory: give executors more (spark.executor.memoryOverhead), or read fewer "
        "files at once (cloudFiles.maxFilesPerTrigger). Or the format is ORC and a file is damaged "
        "so that its library ends the process: with cloudFiles.maxFilesPerTrigger=1 the next file "
        "to ingest is the damaged one; replace it. The batch is in the table as a whole or "
        "not at all: run again."
    )
