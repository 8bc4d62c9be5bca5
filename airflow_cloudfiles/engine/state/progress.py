"""What did each micro-batch do?

A note a batch, written beside the state when the sink has committed it (`_source/batches/<b>`).
The run's report is their sum. Notes inform; nothing is decided by them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any

from airflow_cloudfiles.engine.counted import sentence
from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state.packs import Packs
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore, open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import aside, at_once
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.sealed import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of

PREFIX = "_source/batches"
DISCOVERY = "_source/discovery.json"
NOTE_VERSION = 1
"""Of both kinds of notes."""
MOST_MISSING = 100
"""Files that were gone, which a note names."""
_SHOWN = {
    "files": "{file}",
    "rows": "{row}",
    "rescued_rows": "rescued",
    "corrupt_records": "corrupt",
    "inserted_rows": "inserted",
    "updated_rows": "updated",
    "deleted_rows": "deleted",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDone:
    """A committed micro-batch.

    Attributes:
        batch_id: Its number.
        table_version: Version of the table that holds it.
        is_new: False when an earlier, killed run had committed it already.
        schema_version: Version of the schema it was read with; -1 for a given schema.
        counts: rows, rescued_rows, corrupt_records, dropped_records, files, bytes, missing_files,
            changed_files, superseded_files, corrupt_files; of a merge besides inserted_rows,
            updated_rows, deleted_rows, superseded_rows; and `no_value_in.<column>`, the rows, where
            an expected column (`expect.requiredColumns`) has no value in any of them.
        run_id: The run that committed it; `None` in notes of versions that did not write it.
        missing: URIs of files of the batch that were gone and skipped; of `MOST_MISSING` at most.
    """

    batch_id: int
    table_version: int
    is_new: bool
    schema_version: int | None
    counts: dict[str, int] = field(default_factory=dict)
    run_id: str | None = None
    missing: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The batch in one line of a log."""
        counts = (
            sentence(self.counts[key], what)
            for key, what in _SHOWN.items()
            if key in self.counts and (key != "corrupt_records" or self.counts[key])
        )
        before = "" if self.is_new else " (was there already)"
        version = f"table version {self.table_version}{before}"
        return f"Batch {self.batch_id}: {', '.join(counts)}; {version}"


_FIELDS = frozenset(each.name for each in fields(BatchDone))


def note(state: str, done: BatchDone) -> None:
    """Write the note of a batch; a batch committed again overwrites its note."""
    said = asdict(done)
    if not done.missing:  # as of most batches
        del said["missing"]
    else:
        said["missing"] = [printable_path(uri) for uri in done.missing]
    body = seal({FIELD: NOTE_VERSION, **said})
    store = open_store(state)
    with reaching_state(store):
        store.put(f"{PREFIX}/{done.batch_id}", body)


def notes(state: str, batch_ids: Iterable[int]) -> list[BatchDone]:
    """Read the notes of some batches; one that was never written is left out."""
    store = open_store(state)
    found = at_once(store, [partial(note_of, store, batch_id) for batch_id in batch_ids])
    return [done for done in found if done is not None]


def note_of(store: ObjectStore, batch_id: int, packs: Packs | None = None) -> BatchDone | None:
    """Read the note of a batch; `None` when there is none. What it says beyond is passed over.

    One that is damaged says nothing, which is logged: a job has the counts in its record, too.

    Args:
        store: The state.
        batch_id: Number of the batch.
        packs: Where old notes are; `None`: it is among the newest.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
    """
    key = f"{PREFIX}/{batch_id}"
    name = printable_path(store.child_uri(key))
    try:
        content = _content(store, key, batch_id, packs)
        if content is None:
            return None
        loaded = fields_of(unseal(content), name=name, understood=NOTE_VERSION)
        return BatchDone(**{key: value for key, value in loaded.items() if key in _FIELDS})
    except (CorruptedStateError, ValueError, TypeError) as failure:
        _log.warning("%s cannot be read, and says nothing of its batch: %s", name, failure)
        return None


def _content(store: ObjectStore, key: str, batch_id: int, packs: Packs | None) -> bytes | None:
    try:
        return store.get(key)
    except ObjectNotFoundError:
        return None if packs is None else packs.read(batch_id)


def total(done: Iterable[BatchDone]) -> dict[str, int]:
    """The counts of some batches, added up."""
    found: dict[str, int] = {}
    for batch in done:
        for key, value in batch.counts.items():
            found[key] = found.get(key, 0) + value
    return found


def note_discovery(store: ObjectStore, found: Mapping[str, Any]) -> None:
    """Write what the newest discovery of a run did; that it cannot be written is no reason to fail.

    Args:
        store: The state.
        found: `Discovered.to_json()`.
    """
    content = seal({FIELD: NOTE_VERSION, "at": time.time(), **found})

    def write() -> None:
        try:
            store.put(DISCOVERY, content)
        except OSError as failure:
            _log.warning(
                "The progress of the discovery could not be written, which loses nothing: %s",
                failure,
            )

    aside(store, DISCOVERY, write)
