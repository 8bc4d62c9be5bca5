"""Keep what was read of each file of a micro-batch.

An object a batch, `_source/file_results/<b>`, written after its tasks have read the files and
before the table has it: so a batch that the table has, has one, wherever a run was killed. A batch
that is read again replaces it. Nothing is decided by it, and it may be deleted.

It stays small. Of a file of which all records are rows it has a number; of others what is rescued
or corrupt, and of the first `MOST_ERRORS` of them the first error, of at most `MOST_CHARACTERS`.
Of what is behind the first `MOST_FILES` files of a batch it says nothing. Old ones are packed, as
the notes of batches are (`compaction`).

The bytes are those of an entry of a numbered log. The body has a line for each run of files that
are neighbors in the file log, and one for each file that is not clean:

    [entry, first index, "rows of each, separated by blanks; 3x20 for 20 files of 3 rows"]
    [entry, index, rescued rows, corrupt records, dropped records, "missing", error or null]

where an error is `[line, byte, "field", "reason"]`.
"""

from __future__ import annotations

import json
import logging
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import FileCounts, RecordError, printable_path
from airflow_cloudfiles.engine.state.packs import Packs, decode_entry, encode_entry
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.outage import reaching_state

PREFIX: Final = "_source/file_results"
FORMAT_VERSION: Final = 1
MOST_FILES: Final = 100_000
"""Files of one batch of which something is kept."""
MOST_ERRORS: Final = 1_000
"""Files of one batch of which the first error is kept."""
MOST_CHARACTERS: Final = 250
"""Of a reason, and of the name of a field."""
_SUMS: Final = ("rows", "rescued_rows", "corrupt_records")
_log = logging.getLogger(__name__)

Place = tuple[int, int]
"""The entry of the file log that records a file, and the index there."""
Counted = int | FileCounts
"""What was read of a file: of a clean one, how many rows."""


@dataclass(frozen=True, slots=True)
class FileResults:
    """What was read of the files of a batch.

    Attributes:
        sums: `rows`, `rescued_rows` and `corrupt_records` of all of its files.
        runs: Of each entry of the file log, the first indexes of its runs and their rows.
        others: What was read of the files that are not clean.
    """

    sums: Mapping[str, int]
    runs: Mapping[int, tuple[list[int], list[list[int]]]] = field(default_factory=dict)
    others: Mapping[Place, FileCounts] = field(default_factory=dict)

    def of(self, entry: int, index: int) -> FileCounts | None:
        """Give what was read of a file; `None` where nothing is kept of it."""
        firsts, runs = self.runs.get(entry, ((), ()))
        at = bisect_right(firsts, index) - 1
        if at < 0 or index >= firsts[at] + len(runs[at]):
            return None
        rows = runs[at][index - firsts[at]]
        other = self.others.get((entry, index))
        return FileCounts(rows) if other is None else other + FileCounts(rows)

    def belongs_to(self, counts: Mapping[str, int]) -> bool:
        """Tell whether they are of the batch which the table has, by its counts.

        They are not if another run, which had lost its lock, has written them since; nor if the
        batch was committed by somebody who did not count all of that. A replay has no counts.
        """
        return not counts or all(counts.get(name) == sum_ for name, sum_ in self.sums.items())


def left_out(found: Iterable[Mapping[Place, Counted]]) -> set[Place]:
    """Give the files that tasks have not read: they were gone, or overwritten in turn.

    Args:
        found: What each task has read.
    """
    return {
        place
        for each in found
        for place, counts in each.items()
        if isinstance(counts, FileCounts) and counts.skipped in {"missing", "superseded"}
    }


def write_results(state: ObjectStore, batch: int, found: Mapping[Place, Counted]) -> None:
    """Write what was read of the files of a batch, in place of what is there.

    Raises:
        StateError: The state cannot be written.
    """
    content = encode_results(found)
    with reaching_state(state):
        state.put(f"{PREFIX}/{batch}", content)


def read_results(state: ObjectStore, batch: int, packs: Packs) -> FileResults | None:
    """Read what was read of the files of a batch; `None` where it is not there, or damaged.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
    """
    key = f"{PREFIX}/{batch}"
    name = printable_path(state.child_uri(key))
    try:
        try:
            content: bytes | None = state.get(key)
        except ObjectNotFoundError:
            content = packs.read(batch)
        return None if content is None else decode_results(content, name=name)
    except (CorruptedStateError, KeyError, TypeError, ValueError) as failure:
        _log.warning("%s cannot be read, and says nothing of its files: %s", name, failure)
        return None


def joined(parts: Iterable[Mapping[Place, Counted]]) -> dict[Place, Counted]:
    """Add up what several tasks have read of the files of a batch."""
    found: dict[Place, Counted] = {}
    for part in parts:
        for place, counts in part.items():
            known = found.get(place)
            found[place] = counts if known is None else _sum(known, counts)
    return found


def _sum(one: Counted, other: Counted) -> Counted:
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    return _full(one) + _full(other)


def _full(counts: Counted) -> FileCounts:
    return FileCounts(counts) if isinstance(counts, int) else counts


def encode_results(found: Mapping[Place, Counted]) -> bytes:
    """Build the bytes of the object."""
    places = sorted(found)
    kept = places[:MOST_FILES]
    others = {place: each for place in kept if isinstance(each := found[place], FileCounts)}
    full = [each for each in found.values() if isinstance(each, FileCounts)]
    sums: dict[str, int] = {name: sum(getattr(each, name) for each in full) for name in _SUMS}
    sums["rows"] += sum(each for each in found.values() if isinstance(each, int))
    header: dict[str, Any] = {
        "id": uuid.uuid4().hex,
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "files": len(places),
        **sums,
    }
    lines = [
        [entry, first, _in_short(_rows(found[entry, at]) for at in range(first, stop))]
        for entry, first, stop in _runs(kept)
    ]
    lines += [
        [*place, *_of_other(counts, has_error=number < MOST_ERRORS)]
        for number, (place, counts) in enumerate(others.items())
    ]
    body = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    return encode_entry(header, body.encode("ascii"), format_version=FORMAT_VERSION)


def _rows(counts: Counted) -> int:
    return counts if isinstance(counts, int) else counts.rows


def _runs(places: Iterable[Place]) -> Iterator[tuple[int, int, int]]:
    """Find runs of neighbors: the entry, the first index, and the one behind the last."""
    begin: Place | None = None
    before = (-1, -1)
    for place in places:
        if begin is not None and place != (before[0], before[1] + 1):
            yield begin[0], begin[1], before[1] + 1
            begin = None
        begin, before = begin or place, place
    if begin is not None:
        yield begin[0], begin[1], before[1] + 1


def _in_short(rows: Iterable[int]) -> str:
    """Write numbers, those that repeat as `3x20`."""
    found = []
    for number, group in groupby(rows):
        count = sum(1 for _ in group)
        found.append(f"{number}x{count}" if count > 1 else str(number))
    return " ".join(found)


def _at_length(text: str) -> list[int]:
    """Read what `_in_short` wrote.

    Raises:
        ValueError: It is something else, or of more files than any batch keeps.
    """
    found: list[int] = []
    for each in text.split():
        number, _, count = each.partition("x")
        times = int(count or 1)
        if times > MOST_FILES or len(found) + times > MOST_FILES:
            msg = f"more than {MOST_FILES} files"
            raise ValueError(msg)
        found += [int(number)] * times
    return found


def _of_other(counts: FileCounts, *, has_error: bool) -> list[Any]:
    error = counts.error if has_error else None
    shown = None
    if error is not None:
        texts = (_short(error.field), _short(error.reason))
        shown = [error.line, error.byte, *texts]
    numbers = counts.rescued_rows, counts.corrupt_records, counts.dropped_records
    return [*numbers, counts.skipped, shown]


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def decode_results(content: bytes, *, name: str) -> FileResults:
    """Read what `encode_results` wrote.

    Raises:
        CorruptedStateError: It is damaged.
        IncompatibleStateError: A newer version of this package wrote it.
        ValueError: It is something else.
    """
    header, body = decode_entry(content, name=name, format_version=FORMAT_VERSION)
    runs: dict[int, tuple[list[int], list[list[int]]]] = {}
    others: dict[Place, FileCounts] = {}
    for line in body.splitlines():
        match json.loads(line):
            case [int(entry), int(first), str(rows)]:
                firsts, numbers = runs.setdefault(entry, ([], []))
                firsts.append(first)
                numbers.append(_at_length(rows))
            case [int(entry), int(at), int(rescued), int(corrupt), int(dropped), str(why), error]:
                counts = FileCounts(0, rescued, corrupt, dropped, why, _error(error))
                others[entry, at] = counts
            case value:
                msg = f"not a result of a file: {value!r:.200}"
                raise ValueError(msg)
    sums = {each: int(header[each]) for each in _SUMS}
    return FileResults(sums, runs, others)


def _error(value: object) -> RecordError | None:
    match value:
        case None:
            return None
        case [int() | None as line, int() | None as byte, str(field_name), str(reason)]:
            return RecordError(reason, field_name, line, byte)
    msg = f"not an error of a record: {value!r:.200}"
    raise ValueError(msg)
