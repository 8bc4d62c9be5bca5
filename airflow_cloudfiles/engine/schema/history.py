"""Show how a stream's schema came about, and put it right.

`SchemaHistory` shows the schema log of a stream to people, and writes to it for them: rolling
back, pinning and unpinning each append a version. Nothing is rewritten, and what is in the table
stays there. A stream that is defined already goes on with its version until it ends; one defined
later reads with the new one.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import OptionError, StateConflictError, StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.names import column_of, quoted
from airflow_cloudfiles.engine.schema.diff import SchemaChange, diff_json, paths_of
from airflow_cloudfiles.engine.schema.log_entry import (
    NEW_FIELDS,
    NewFields,
    SchemaEntry,
    append_entry,
    author,
    open_log,
    read_entry,
)
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cloudfiles.engine.storage.access import Access

__all__ = ["ColumnOrigin", "SchemaEntry", "SchemaHistory"]

TRIES = 20
"""How often a number is tried for that other writers take."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Where a column, or a field inside one, comes from.

    Attributes:
        path: Which one: `a`, `a.b`, `a.element.b`, `a.value.b`.
        type: Its type, as Spark writes it.
        version: The version that added it.
        created: When that was written: ISO 8601, UTC.
        by: The author; `None` when it is not recorded.
        file: A file that has it; `None` when the version does not say, and for partition columns.
        retyped_in: Versions that gave it another type since.
    """

    path: str
    type: str
    version: int
    created: str
    by: str | None
    file: str | None
    retyped_in: tuple[int, ...] = ()


class SchemaHistory:
    """The schema log of one stream, for people.

    Args:
        location: Path or URI of `cloudFiles.schemaLocation`, or of the checkpoint location that
            serves as one: the folder that has `_schemas/`.
        access: How its cloud is reached; `None` for the environment's own chain.

    Raises:
        OptionError: It is no location.
    """

    def __init__(self, location: str, *, access: Access | None = None) -> None:
        store = open_store(location, access)
        self.uri = store.uri
        self._log = open_log(store)
        self._read: dict[int, SchemaEntry] = {}

    def versions(self) -> list[SchemaEntry]:
        """Give every version, oldest first; none when nothing was inferred yet."""
        return [self._entry(number) for number in self._log.numbers()]

    def show(self, version: int | None = None) -> SchemaEntry:
        """Give one version: the newest, unless one is named.

        Raises:
            StateError: There is no version, or none of that number.
        """
        numbers = self._log.numbers()
        if not numbers:
            raise StateError(
                f"There is no schema in {printable_path(self.uri)}: none has been inferred there "
                "yet. Name the folder that contains _schemas/."
            )
        number = numbers[-1] if version is None else version
        if number not in numbers:
            raise StateError(
                f"There is no schema version {number} in {printable_path(self.uri)}; there are "
                f"{numbers[0]} to {numbers[-1]}."
            )
        return self._entry(number)

    def diff(self, old: int | None = None, new: int | None = None) -> list[SchemaChange]:
        """Compare two versions.

        Args:
            old: A version; the one before `new`, unless it is named.
            new: A version; the newest, unless it is named.

        Raises:
            StateError: There is no such version.
        """
        after = self.show(new)
        if old is None and after.version == 0:
            return diff_json({"type": "struct", "fields": []}, _columns_of(after))
        before = self.show(after.version - 1 if old is None else old)
        return diff_json(_columns_of(before), _columns_of(after))

    def blame(self, version: int | None = None) -> list[ColumnOrigin]:
        """Find which version, and which file, had each column of a version first.

        A column that was gone for a while counts from when it came back, unless a rollback brought
        it back.

        Args:
            version: A version; the newest, unless it is named.

        Raises:
            StateError: There is no such version.
        """
        last = self.show(version).version
        known: dict[int, dict[str, ColumnOrigin]] = {}
        origins: dict[str, ColumnOrigin] = {}
        for number in (each for each in self._log.numbers() if each <= last):
            entry = self._entry(number)
            to = entry.reason.get("to")
            returned = known.get(to, {}) if isinstance(to, int) else {}
            origins = known[number] = _originated(entry, {**returned, **origins})
        return list(origins.values())

    def rollback(
        self, to: int, *, pin: NewFields | None = None, note: str | None = None
    ) -> SchemaEntry:
        """Append a version with the columns of an older one.

        What is in the table stays. Columns that are gone from the schema are null in new rows of
        the table; should a file have them again, they evolve again, unless the schema is pinned: it
        stays pinned when it was.

        Args:
            to: The version whose columns to take.
            pin: Stay at them until `unpin`: what a new field does from then on, see `pin`.
            note: Why, for readers of the log.

        Raises:
            StateError: There is no such version.
            StateConflictError: Other writers won every race.
        """
        return self._append("rolledBack", self.show(to), pin, note)

    def pin(
        self,
        version: int | None = None,
        *,
        new_fields: NewFields = "rescue",
        note: str | None = None,
    ) -> SchemaEntry:
        """Let the stream stay at a version, in the modes that add columns.

        Args:
            version: The version to stay at; the newest, unless one is named. Another than the
                newest is rolled back to.
            new_fields: What a field does that the version lacks: it goes to the rescued data
                column (`rescue`), or fails the stream (`fail`). No type is widened.
            note: Why, for readers of the log.

        Raises:
            OptionError: `new_fields` is neither.
            StateError: There is no such version.
            StateConflictError: Other writers won every race.
        """
        return self._append("pinned", self.show(version), new_fields, note)

    def unpin(self, *, note: str | None = None) -> SchemaEntry:
        """Let the schema evolve again, from where it is.

        Raises:
            StateError: It is not pinned.
            StateConflictError: Other writers won every race.
        """
        latest = self.show()
        if latest.pin is None:
            raise StateError(f"The schema in {printable_path(self.uri)} is not pinned.")
        return self._append("unpinned", latest, None, note)

    def _append(
        self, change: str, like: SchemaEntry, pin: NewFields | None, note: str | None
    ) -> SchemaEntry:
        """Append a version with the columns of another one."""
        if pin is not None and pin not in NEW_FIELDS:
            raise OptionError(f"new_fields must be {' or '.join(NEW_FIELDS)}, got {pin!r}.")
        reason: dict[str, Any] = {"change": change, "to": like.version, "by": author()}
        if note:
            reason["note"] = note
        for _ in range(TRIES):
            latest = self.show()
            stays = latest.pin if change == "rolledBack" else None
            entry = dataclasses.replace(
                like, version=latest.version + 1, reason=reason, pin=pin or stays
            )
            if append_entry(self._log, entry):
                _log.info("Schema version %s: %s", entry.version, change)
                return self._entry(entry.version)
        raise StateConflictError(
            f"Other writers added versions to {printable_path(self.uri)} {TRIES} times, each time "
            "before this one. Stop the stream and run again."
        )

    def _entry(self, number: int) -> SchemaEntry:
        """Read a version; versions never change."""
        if number not in self._read:
            self._read[number] = read_entry(self._log, number)
        return self._read[number]


def _columns_of(entry: SchemaEntry) -> Mapping[str, Any]:
    """List all columns of a version, those of the records before those of the paths."""
    fields = [*entry.data_schema["fields"], *entry.partition_schema["fields"]]
    return {"type": "struct", "fields": fields}


def _originated(entry: SchemaEntry, before: dict[str, ColumnOrigin]) -> dict[str, ColumnOrigin]:
    """Find the origins of a version's columns, given those of the versions before it."""
    files = _files(entry.reason)
    found: dict[str, ColumnOrigin] = {}
    for path, kind in paths_of(_columns_of(entry)).items():
        known = before.get(path)
        if known is None:
            by = entry.reason.get("by")
            # Versions of 0.1 did not quote names.
            file = files.get(path) or files.get(path.replace("`", ""))
            file = file or files.get(quoted(column_of(path)) + ".")
            found[path] = ColumnOrigin(path, kind, entry.version, entry.created, by, file)
        # A change inside is reported with what is inside.
        elif known.type != kind and not kind.startswith(("struct<", "array<", "map<")):
            retyped = (*known.retyped_in, entry.version)
            found[path] = dataclasses.replace(known, type=kind, retyped_in=retyped)
        else:
            found[path] = dataclasses.replace(known, type=kind)
    return found


def _files(reason: Mapping[str, Any]) -> dict[str, str]:
    """Map each path to the file that had it first, as far as a version records it.

    What is behind the name of a top-level column and a point holds for all that is inside it: older
    versions named the new top-level fields and one file that had them.
    """
    found = {
        f"{quoted(name)}{inside}": str(reason["file"])
        for name in reason.get("fields", ())
        for inside in ("", ".")
        if "file" in reason
    }
    for file, paths in reason.get("brought", {}).items():
        found |= dict.fromkeys(paths, file)
    return found
