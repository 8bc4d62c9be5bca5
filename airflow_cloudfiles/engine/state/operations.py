"""Keep what was asked for single files, and from where on it holds.

An operation on files is an entry of the file log, so it has its place among the discoveries:
whoever reads the log up to there knows it, and nothing before it changes. What it excludes are
positions of the log, not paths. So a micro-batch that is read again has the files that it had, and
a file that comes back later is another record.

So that nobody has to read the whole log for the few operations in it, `_source/operations/<n>` is
written before entry `n` is: it says that entry `n` may be an operation. If another discoverer took
the number, or the process was killed in between, it means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

PREFIX: Final = "_source/operations"
FORMAT_VERSION: Final = 1

Action = Literal["replay", "skip", "quarantine", "release", "forget"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
"""What people ask for."""
MirrorAction = Literal["replace", "delete"]
MIRRORED: Final = frozenset(get_args(MirrorAction))
"""What a discovery records of a stream that follows its files (`cloudFiles.onOverwrite=replace`,
`cloudFiles.onDelete=delete`): newer versions of known files, and files that are gone."""
HOLDING: Final = frozenset({"skip", "quarantine"})
"""The actions after which a file is not ingested."""
INGESTING: Final = frozenset({"replay", "release", *MIRRORED})
"""The actions whose entries are ingested, as those of discoveries are. What a micro-batch ingests
of a file that is gone is the removal of its rows."""
FORGETTING: Final = frozenset({"forget", "delete"})
"""The actions after which a stream does not know the files any more."""
REPLACING: Final = frozenset({"replay", *MIRRORED})
"""The actions that remove the former rows of their files from the table."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on files.

    Attributes:
        action: What is done.
        reason: Why, for people.
        excluded: Positions of files, before its own entry, that no micro-batch has from then on.
        former: Other positions that it is about: of records that it follows and that stay as they
            are.
        path_column: Of those that remove rows (`REPLACING`): the column of the table, as a path of
            names, by which the former rows are found; empty where they stay.
        key: What whoever asked for it calls it, so that it is not done again; may be empty.
        number: The entry of the file log.
        created: When it was written (ISO 8601, UTC).
    """

    action: Action | MirrorAction
    reason: str = ""
    excluded: tuple[Offset, ...] = ()
    former: tuple[Offset, ...] = ()
    path_column: tuple[str, ...] = ()
    key: str = ""
    number: int = -1
    created: str = ""

    def to_header(self) -> dict[str, Any]:
        """Encode it for the header of an entry, beside `found_by`, which is the action."""
        return {
            "reason": self.reason,
            "excluded": [[each.entry, each.index] for each in self.excluded],
            "former": [[each.entry, each.index] for each in self.former],
            "path_column": list(self.path_column),
            "key": self.key,
        }


def read_operation(header: Mapping[str, Any], number: int) -> Operation | None:
    """Read the operation that an entry of the file log is; `None` where it is none.

    Raises:
        ValueError: The header is not what `to_header` wrote.
    """
    action: Any = header.get("found_by")
    if action not in ACTIONS and action not in MIRRORED:
        return None
    value = header.get("operation")
    match value:
        case {"reason": str(reason), "path_column": list(column), **rest}:
            return Operation(
                action=action,
                reason=reason,
                excluded=_positions(rest.get("excluded"), number),
                former=_positions(rest.get("former"), number),
                path_column=tuple(str(each) for each in column),
                key=str(rest.get("key", "")),
                number=number,
                created=str(header.get("created")),
            )
    msg = "its header does not describe an operation"
    raise ValueError(msg)


def _positions(value: object, before: int) -> tuple[Offset, ...]:
    """Read positions, which all lie before an entry."""
    found = []
    for each in value if isinstance(value, list) else [None]:
        match each:
            case [int(entry), int(index)] if 0 <= entry < before and index >= 0:
                found.append(Offset(entry, index))
            case _:
                msg = "its header names an invalid position"
                raise ValueError(msg)
    return tuple(found)


def announce(store: ObjectStore, number: int) -> None:
    """Note that an entry of the file log may be an operation; before it is appended.

    Repeating it is harmless.
    """
    NumberedLog(store, PREFIX, format_version=FORMAT_VERSION).append(number, {})


def announced(store: ObjectStore) -> list[int]:
    """Give the numbers of the entries that may be operations, in their order."""
    return NumberedLog(store, PREFIX, format_version=FORMAT_VERSION).numbers()


class Operations:
    """The operations of a file log, for its readers.

    Args:
        store: The checkpoint location.
        read: Gives the operation that an entry of the file log is; `None` where it is none, or is
            not there.
        has_any: Whether there may be some; it is looked then, when they are first asked for.
    """

    def __init__(
        self, store: ObjectStore, read: Callable[[int], Operation | None], *, has_any: bool = True
    ) -> None:
        self._store = store
        self._read = read
        self._numbers: list[int] | None = None if has_any else []
        self._known: dict[int, Operation | None] = {}

    def meet(self) -> None:
        """Look which there are by now."""
        self._numbers = announced(self._store)

    def after(self, entry: int = -1) -> list[Operation]:
        """Give the operations behind an entry, in their order."""
        if self._numbers is None:
            self.meet()
        wanted = [number for number in self._numbers or () if number > entry]
        missing = [number for number in wanted if number not in self._known]
        found = at_once(self._store, [partial(self._read, number) for number in missing])
        self._known.update(zip(missing, found, strict=True))
        read = (self._known[number] for number in wanted)
        return [each for each in read if each is not None]

    def mirrored(self, start: Offset, end: Offset) -> list[Operation]:
        """Give what a discovery has recorded of files that follow, between two positions.

        Args:
            start: Where a micro-batch begins.
            end: Where it ends.
        """
        last = end.entry if end.index else end.entry - 1
        there = self.after(start.entry - 1) if start < end else []
        return [each for each in there if each.number <= last and each.action in MIRRORED]

    def excluded(self, since: int = 0) -> dict[int, dict[int, Operation]]:
        """Give what is excluded, by entry and index: the operation that did it.

        Args:
            since: Only files of this entry or later ones.
        """
        return excluded_by(self.after(since))


def excluded_by(operations: Sequence[Operation]) -> dict[int, dict[int, Operation]]:
    """Give what operations exclude, by entry and index: the operation that did it."""
    return _by_position(operations, lambda each: each.excluded)


def latest_of(operations: Sequence[Operation]) -> dict[int, dict[int, Operation]]:
    """Give the newest operation about each position, by entry and index."""
    return _by_position(operations, lambda each: (*each.excluded, *each.former))


def _by_position(
    operations: Sequence[Operation], positions: Callable[[Operation], Sequence[Offset]]
) -> dict[int, dict[int, Operation]]:
    found: dict[int, dict[int, Operation]] = {}
    for each in operations:
        for position in positions(each):
            found.setdefault(position.entry, {})[position.index] = each
    return found
