"""Read and write an entry of the schema log, and say which file had which column first.

The bytes of a version, read and written without Spark: `log` turns them into types for the
stream, `history` shows them to people. An entry's body is JSON:

- `source`: the source that the log belongs to;
- `reason`: why the version was written, for people: `change`, `by`, and what belongs to the change;
- `pin`: there when the stream is to stay at this version; `newFields` says what a field does that
  it lacks (`rescue` or `fail`);
- `stayRescued`: there when somebody has decided that some fields stay in the rescued data: their
  paths;
- `options`: the options that it was inferred with, to be compared with those of a later start;
- `dataSchemaJson` and `partitionSchemaJson`: the columns, in Spark's schema JSON.

A log holds the versions of one source. Where a source was relocated, `_schemas/sources.json` has
its names: versions that were written under one of them are those of the others, too.

Noted while files are read one after the other, for people: the schema log has, for each column,
the first file that had it.
"""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateConflictError
from airflow_cloudfiles.engine.schema.diff import paths_of
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.storage import ObjectStore


PREFIX = "_schemas"
FORMAT_VERSION = 1

NewFields = Literal["rescue", "fail"]
NEW_FIELDS: tuple[NewFields, ...] = get_args(NewFields)


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """One version as it is stored.

    Attributes:
        version: Its number, from 0.
        created: When it was written: ISO 8601, UTC.
        source: URI of the source.
        reason: Why, for people.
        pin: What a new field does while the stream is to stay at this version; `None` when the
            schema may evolve.
        data_schema: Columns found in the records, in Spark's schema JSON.
        partition_schema: Columns found in the paths, in Spark's schema JSON.
        options: The options that the columns were inferred with; `None` when it does not say, and
            before it is written: `append_entry` takes those of the version before then.
        stay_rescued: Paths of fields that stay in the rescued data; `None`, before it is written,
            for those of the version before.
    """

    version: int
    created: str
    source: str
    reason: Mapping[str, Any]
    pin: NewFields | None
    data_schema: Mapping[str, Any]
    partition_schema: Mapping[str, Any]
    options: Mapping[str, Any] | None = None
    stay_rescued: tuple[str, ...] | None = None

    def to_body(self) -> bytes:
        """Encode the body of the log's entry."""
        body = {"source": self.source, "reason": dict(self.reason)}
        if self.pin is not None:
            body["pin"] = {"newFields": self.pin}
        if self.stay_rescued:
            body["stayRescued"] = list(self.stay_rescued)
        if self.options is not None:
            body["options"] = dict(self.options)
        body |= {"dataSchemaJson": self.data_schema, "partitionSchemaJson": self.partition_schema}
        return (json.dumps(body, indent=1, ensure_ascii=True) + "\n").encode("ascii")


def open_log(store: ObjectStore) -> NumberedLog:
    """Open the schema log below a location."""
    return NumberedLog(store, PREFIX, format_version=FORMAT_VERSION, width=0)


def read_entry(log: NumberedLog, version: int) -> SchemaEntry:
    """Read one version.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
        CorruptedStateError: There is no such version, or it is damaged.
    """
    entry = log.read(version)
    try:
        body = json.loads(entry.body)
        pin = body["pin"]["newFields"] if "pin" in body else None
        if pin is not None and pin not in NEW_FIELDS:
            raise ValueError(f"it is pinned with newFields={pin!r}")  # noqa: TRY301 - reported below
        return SchemaEntry(
            version,
            str(entry.header.get("created")),
            _of(str, body["source"]),
            _of(dict, body["reason"]),
            pin,
            _struct(body["dataSchemaJson"]),
            _struct(body["partitionSchemaJson"]),
            _of(dict, body["options"]) if "options" in body else None,
            tuple(_of(str, each) for each in _of(list, body.get("stayRescued", []))),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as failure:
        raise not_a_version(log.name(version), failure) from failure


def not_a_version(name: str, failure: Exception) -> CorruptedStateError:
    """Build the error for an entry of the log that is not valid."""
    return CorruptedStateError(
        f"{name} is not a schema version: {failure}. Restore the schema location from a backup, or "
        "start the stream with a new one."
    )


def append_entry(log: NumberedLog, entry: SchemaEntry) -> bool:
    """Write a version, unless another writer has its number.

    Returns:
        Whether the number is this version's now.

    Raises:
        StateConflictError: The version before it is pinned, and this one would evolve or unpin it
            without saying so.
    """
    is_asked = entry.reason.get("change") in {"pinned", "unpinned", "rolledBack"}
    if entry.version and not is_asked:
        before = read_entry(log, entry.version - 1)
        if entry.options is None:
            entry = dataclasses.replace(entry, options=before.options)
        if entry.stay_rescued is None:
            entry = dataclasses.replace(entry, stay_rescued=before.stay_rescued)
        if before.pin is not None:
            raise StateConflictError(
                f"The schema is pinned ({log.name(before.version)}), so no version is added to it. "
                "To let it evolve again: cloudfiles schema unpin."
            )
    return log.append(entry.version, {}, entry.to_body())


def author() -> str:
    """Name the author of a version: the Airflow task where there is one, else user and host."""
    dag, task = os.environ.get("AIRFLOW_CTX_DAG_ID"), os.environ.get("AIRFLOW_CTX_TASK_ID")
    if dag and task:
        run = os.environ.get("AIRFLOW_CTX_DAG_RUN_ID")
        return f"{dag}.{task}" + (f" ({run})" if run else "")
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not {kind.__name__}")
    return value


def _struct(value: Any) -> Any:
    """Check that a value is a struct of Spark's schema JSON, all through."""
    if _of(dict, value).get("type") != "struct":
        raise ValueError("it has no schema that is a struct")
    for field in _of(list, value["fields"]):
        _of(str, field["name"])
        _kind(field["type"])
    return value


def _kind(value: Any) -> None:
    """Check that a value is a type of Spark's schema JSON."""
    if isinstance(value, str):
        return
    if _of(dict, value).get("type") == "struct":
        _struct(value)
    elif value.get("type") == "array":
        _kind(value["elementType"])
    elif value.get("type") == "map":
        _kind(value["keyType"])
        _kind(value["valueType"])
    else:
        raise ValueError(f"{value.get('type')!r} is not a type")


MOST_SECONDS = 1.0
"""Noting is for people, and ends when it has taken so long: thousands of columns in many files."""


class Provenance:
    """Notes for each path of a schema the first file that had it.

    Attributes:
        files: By path (`a`, `a.b`, `a.element.b`), the URI of the file.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._known: StructType | None = None
        self._seconds = 0.0

    def note(self, result: Callable[[], StructType], file_uri: str) -> bool:
        """Note what is new since the last call.

        Args:
            result: Gives the schema of all files so far.
            file_uri: The file that was read last.

        Returns:
            Whether the schema is another one, or may be: past `MOST_SECONDS` it is not looked at.
        """
        if self._seconds > MOST_SECONDS:
            return True
        began = time.monotonic()
        schema = result()
        is_new = schema != self._known
        if is_new:
            for path in paths_of(schema.jsonValue()):
                self.files.setdefault(path, file_uri)
            self._known = schema
        self._seconds += time.monotonic() - began
        return is_new

    def by_file(self, after: StructType, before: StructType | None = None) -> dict[str, list[str]]:
        """Map files to the paths they had first, of those that a schema has and another lacks."""
        old = () if before is None else paths_of(before.jsonValue())
        found: dict[str, list[str]] = {}
        for path in paths_of(after.jsonValue()):
            if path not in old and path in self.files:
                found.setdefault(self.files[path], []).append(path)
        return found


KEY = "_schemas/sources.json"
NAMES_VERSION = 1


def names_of(store: ObjectStore) -> set[str]:
    """Read the names that are of one source; none where it has had one name only.

    Raises:
        CorruptedStateError: They cannot be read.
        IncompatibleStateError: A newer version of this package wrote them.
    """
    try:
        with reaching_state(store):
            value = unseal(store.get(KEY))
        names = fields_of(value, name=store.child_uri(KEY), understood=NAMES_VERSION)["sources"]
    except ObjectNotFoundError:
        return set()
    except (ValueError, TypeError, KeyError) as failure:
        raise _damaged(store) from failure
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise _damaged(store)
    return set(names)


def add_name(store: ObjectStore, *names: str) -> None:
    """Note that these are names of the source of the log; again it changes nothing."""
    before = names_of(store)
    if before.issuperset(names):
        return
    value = {FIELD: NAMES_VERSION, "sources": sorted(before.union(names))}
    with reaching_state(store):
        store.put(KEY, seal(value))


def _damaged(store: ObjectStore) -> CorruptedStateError:
    return CorruptedStateError(
        f"{store.child_uri(KEY)} cannot be read: it has the names that the source of this schema "
        "log has had. Repeat cloudfiles state relocate after removing it, or restore it."
    )
