"""What can go wrong, and does trying again help?

One tree. Every error is a `CloudFilesError` whose message says what happened, to which
object, and what to do about it; `is_retryable` says whether running the same thing again can
succeed without anybody changing anything.

```
CloudFilesError                              is_retryable = False
├── OptionError (ValueError)                 an option's value is bad, or contradicts another
│   ├── UnknownOptionError                   no such option; names the nearest valid ones
│   └── UnsupportedOptionError               documented, but not in this version or on this platform
├── SourceError                              the place the files are read from
│   ├── SourceNotFoundError                  it does not exist, or is not a folder
│   ├── NotificationServicesError            its queue cannot be set up, or removed
│   ├── SourceAccessError                    this identity may not list it, or not so
│   ├── ListingError                         it could not be listed                       retryable
│   ├── QueueError                           its notifications could not be read          retryable
│   ├── QueueAccessError                     their queue is not there, or not for us
│   └── TableStreamError                     a Delta table that a stream cannot go on reading
│       ├── TableRowsChangedError            its rows were deleted or updated
│       └── VersionsGoneError                versions that were not read are gone from its log
├── StateError                               the checkpoint location and its logs
│   ├── StateUnreachableError                its storage does not answer                  retryable
│   ├── StateLockedError                     another run holds it                         retryable
│   ├── StateConflictError                   it belongs to another source
│   ├── StateMovedError                      it is at another location now
│   ├── IncompatibleStateError               written by a newer version
│   ├── CorruptedStateError                  what is there cannot be read
│   └── LedgerError                          the local index cannot be used               retryable
│       └── LedgerAccessError                nor can any be made where it has to be
├── ReadError                                one file's content
│   ├── FileMissingError                     deleted between discovery and reading
│   ├── FileUnreadableError                  permission, bad compression, I/O
│   │   └── FileUnreachableError             its storage does not answer                retryable
│   ├── FileChangedError                     overwritten while it was being read          retryable
│   └── CorruptRecordError                   mode FAILFAST met a record that is not valid
├── SchemaError                              the shape of the data
│   ├── UnknownFieldException                a field the schema lacks      depends on the mode
│   ├── SchemaInferenceError                 nothing to infer from
│   │   └── SampleGoneError                  every file of the sample was deleted meanwhile
│   ├── SchemaHintError                      a hint that cannot be parsed or applied
│   └── IncompatibleSchemaError              a schema that cannot serve this stream
│       ├── StaleSchemaError                 the log has a newer one by now               retryable
│       ├── TableEvolvedError                the Delta table that is read has another     retryable
│       └── BlockedSchemaChangeError         its change has to be allowed first
├── SinkError                                the target table
│   ├── TargetNotDeltaError                  something else is there already
│   ├── TargetCorruptedError                 the table's log is damaged
│   ├── UnsupportedTableError                the table has a feature that is not read
│   ├── TargetUnreachableError               its storage does not answer                  retryable
│   ├── TargetAccessError                    its storage refused us
│   ├── TargetConflictError                  another writer came between              retryable
│   ├── DataFileLostError                    a file vanished before its commit           retryable
│   ├── TargetChangedError                   it changed while a batch was written        retryable
│   ├── LostBatchesError                     it lacks batches that it had
│   ├── SchemaMismatchError                  Delta's schema enforcement
│   └── ExpectationError                     a batch is not as it was expected to be
│       └── FilesQuarantinedError            its files are put aside; it goes on without  retryable
└── RunError                                 starting and supervising Spark
    ├── JavaNotFoundError                    no Java 17 or newer
    ├── RunFailedError                       Spark ended without a report                 retryable
    ├── SparkServerError                     a Spark Connect server refuses, or lacks what it needs
    └── SparkUnreachableError                it does not answer, or was restarted         retryable
```

Errors cross from an executor to the driver to the Airflow worker. Each is built from its message
alone, so it can be pickled; a report has its `to_record`. Through the JVM only text passes: where
an error leaves a Python process of Spark, `marked` puts the record behind the message, and
`from_text` reads it back out of whatever Java wraps around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import cast

from airflow_cloudfiles.engine.shortened import few_members, more


class CloudFilesError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        message: What happened, to which object, and what to do: one paragraph.
    """

    is_retryable: bool = False
    """Whether the same call can succeed when repeated unchanged."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class OptionError(CloudFilesError, ValueError):
    """An option has a value that is not valid, or contradicts another option."""


class UnknownOptionError(OptionError):
    """An option that does not exist; the message names the nearest that do."""


class UnsupportedOptionError(OptionError):
    """An option that is documented, but that this version or platform does not offer."""


class SourceError(CloudFilesError):
    """The place the files are read from cannot serve."""


class SourceNotFoundError(SourceError):
    """The source does not exist or is not a folder."""


class NotificationServicesError(SourceError):
    """What notifications need cannot be set up or removed, or belong to another stream."""


class SourceAccessError(SourceError):
    """The source is refused to this identity, or the request for it is not valid."""


class ListingError(SourceError):
    """The source could not be listed completely; what was found before stays recorded."""

    is_retryable = True


class QueueError(SourceError):
    """The queue of notifications did not answer; what was not recorded is still in it."""

    is_retryable = True


class QueueAccessError(SourceError):
    """The queue of notifications does not exist, or this identity may not read it."""


class TableStreamError(SourceError):
    """A stream cannot go on reading its Delta table."""


class TableRowsChangedError(TableStreamError):
    """Rows of the Delta table that a stream reads were deleted or updated."""


class VersionsGoneError(TableStreamError):
    """Versions that a stream has not read are gone from the log of its Delta table."""


class StateError(CloudFilesError):
    """The checkpoint location, or a log below it, cannot serve."""


class StateUnreachableError(StateError):
    """The storage of the checkpoint location does not answer, or fails for the moment."""

    is_retryable = True


class StateLockedError(StateError):
    """Another run is working on the same checkpoint location now."""

    is_retryable = True


class StateConflictError(StateError):
    """The location belongs to another source, format or stream."""


class StateMovedError(StateError):
    """The state was moved to another location, or is not whole at this one yet."""


class IncompatibleStateError(StateError):
    """The location was written by a newer version of this package."""


class CorruptedStateError(StateError):
    """Something below the location is not what this package writes."""


class LedgerError(StateError):
    """The local index of the file log cannot be used; it is only a cache and gets rebuilt."""

    is_retryable = True


class LedgerAccessError(LedgerError):
    """No index can be made on this machine: its folder is not one that this user may write in."""

    is_retryable = False


class ReadError(CloudFilesError):
    """The content of one file cannot be read."""


class FileMissingError(ReadError):
    """A discovered file was gone when it was to be read."""


class FileUnreadableError(ReadError):
    """A discovered file is there but its bytes cannot be had."""


class FileUnreachableError(FileUnreadableError):
    """The storage of a discovered file does not answer, or broke off."""

    is_retryable = True


class FileChangedError(ReadError):
    """A file was overwritten or deleted while it was being read."""

    is_retryable = True


class CorruptRecordError(ReadError):
    """A record is not valid in its format and the mode is `FAILFAST`."""


class SchemaError(CloudFilesError):
    """The shape of the data cannot be resolved."""


class SchemaInferenceError(SchemaError):
    """There is nothing to infer a schema from, or it cannot be inferred."""


class SampleGoneError(SchemaInferenceError):
    """Every file of a sample was deleted since it was found."""


class SchemaHintError(SchemaError):
    """A schema hint cannot be parsed or does not fit the schema."""


class IncompatibleSchemaError(SchemaError):
    """A schema that this stream cannot be read with."""


class StaleSchemaError(IncompatibleSchemaError):
    """The schema log has got a newer version since the stream was defined."""

    is_retryable = True


class TableEvolvedError(IncompatibleSchemaError):
    """The Delta table that a stream reads has another schema; the next start reads with that."""

    is_retryable = True


class BlockedSchemaChangeError(IncompatibleSchemaError):
    """A column of the Delta table that a stream reads was renamed, dropped or retyped.

    Somebody has to decide how downstream gets it, and then to allow it.
    """


UNKNOWN_FIELD_CLASS = "UNKNOWN_FIELD_EXCEPTION.NEW_FIELDS_IN_RECORD_WITH_FILE_PATH"


class UnknownFieldException(SchemaError):  # noqa: N818 - Auto Loader's name, which users match on
    """A record has fields that the schema of the stream does not have.

    In `addNewColumns` the schema log already holds the evolved schema when this is raised, so
    running again succeeds (`is_retryable` is true); in `failOnNewColumns` it does not.

    The text follows Databricks' error class `UNKNOWN_FIELD_EXCEPTION` (B66).
    """

    def __init__(self, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.is_retryable = retry

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


class SinkError(CloudFilesError):
    """The target table cannot take the rows."""


class TargetNotDeltaError(SinkError):
    """The target holds something that is not a Delta table."""


class TargetCorruptedError(SinkError):
    """The log of the target table is damaged, so what it holds is unknown."""


class UnsupportedTableError(SinkError):
    """The Delta table needs something of its readers that this version does not support."""


class TargetUnreachableError(SinkError):
    """The place of the table does not answer, or fails for the moment."""

    is_retryable = True


class TargetAccessError(SinkError):
    """The place of the table refuses this identity, or the request is not valid."""


class TargetConflictError(SinkError):
    """Another writer has committed to the table since an overwrite of it began."""

    is_retryable = True


class DataFileLostError(SinkError):
    """A data file vanished, or changed, between its writing and its commit."""

    is_retryable = True


class TargetChangedError(SinkError):
    """The table was replaced, or its columns or partitions changed, before a batch was committed.

    Its data files are for the table as it was; running again writes them anew.
    """

    is_retryable = True


class LostBatchesError(SinkError):
    """The table lacks micro-batches that were committed to it."""


class SchemaMismatchError(SinkError):
    """Delta's schema enforcement refuses the rows."""


class ExpectationError(SinkError):
    """A micro-batch does not meet an expectation (`expect.*`), and was not committed."""

    blamed: str = ""
    """Which files of which batch are to be put aside for that (`intake.batch_files`)."""


class FilesQuarantinedError(ExpectationError):
    """A micro-batch was not committed, and its files that are to blame are quarantined now."""

    is_retryable = True


class RunError(CloudFilesError):
    """Spark could not be started, or did not finish."""


class JavaNotFoundError(RunError):
    """No Java 17 or newer was found."""


class RunFailedError(RunError):
    """The Spark process ended without telling why in its report."""

    is_retryable = True


class SparkServerError(RunError):
    """A Spark Connect server cannot run jobs of this package as it is, or refuses this client."""


class SparkUnreachableError(RunError):
    """A Spark Connect server does not answer, or has lost the session of the run."""

    is_retryable = True


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
    """Every class of the tree by name; classes that others derive from it are not of the tree."""
    found = {root.__name__: root}
    for child in root.__subclasses__():
        if child.__module__ == __name__:
            found.update(_tree(child))
    return found


def to_record(error: CloudFilesError) -> dict[str, object]:
    """An error as plain values: `class`, `message`, `is_retryable`; `blamed` where it has that."""
    blamed = getattr(error, "blamed", "")
    return {
        "class": type(error).__name__,
        "message": error.message,
        "is_retryable": error.is_retryable,
        **({"blamed": blamed} if blamed else {}),
    }


def from_record(record: Mapping[str, object]) -> CloudFilesError:
    """Rebuild an error from its record; the base class when the name is not one of the tree."""
    kind = _tree(CloudFilesError).get(str(record.get("class")), CloudFilesError)
    error = kind(str(record.get("message")))
    is_retryable = record.get("is_retryable")
    if isinstance(is_retryable, bool) and is_retryable != error.is_retryable:
        error.is_retryable = is_retryable
    if isinstance(error, ExpectationError):
        error.blamed = str(record.get("blamed", ""))
    return error


_BEGIN, _END = "<<cloudfiles-error:", ">>"
"""Around a record in a text. What is between them has neither `<` nor `>`, and is ASCII."""
_MARKER = re.compile(f"{re.escape(_BEGIN)}([^<>]*){re.escape(_END)}")


def marked(error: CloudFilesError) -> str:
    """The message of an error, and on a line behind it its record for `from_text`."""
    record = json.dumps(to_record(error), ensure_ascii=True)
    record = record.replace("<", "\\u003c").replace(">", "\\u003e")
    return f"{error.message}\n{_BEGIN}{record}{_END}"


_WORKER_DIED = "Python worker exited unexpectedly (crashed)"
"""What Spark reports of a process that the system ended: it cannot know why."""


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
        "A Python worker of Spark died while it read files, and left no error. Either its machine "
        "ran out of memory: give executors more (spark.executor.memoryOverhead), or read fewer "
        "files at once (cloudFiles.maxFilesPerTrigger). Or the format is ORC and a file is damaged "
        "so that its library ends the process: with cloudFiles.maxFilesPerTrigger=1 the next file "
        "to ingest is the damaged one; replace it. The batch is in the table as a whole or "
        "not at all: run again."
    )
