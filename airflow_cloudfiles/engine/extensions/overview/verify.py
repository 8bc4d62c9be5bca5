"""Read all of a state, and say what of it is not as it was written.

Every object that has a checksum is held against it; the logs are read from their first entry to
their last, out of packs too; plans must follow each other and end within the file log. Files of the
source that the table has as data files must be as they were registered. Nothing is changed, and no
lock is taken: a run may be at work.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.extensions.registration.registered import RegisteredFiles
from airflow_cloudfiles.engine.files import START, Offset, printable_path
from airflow_cloudfiles.engine.intake.ledger import snapshots
from airflow_cloudfiles.engine.schema.log_entry import open_log, read_entry
from airflow_cloudfiles.engine.state.file_log import log_of
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.state.packs import decode_entry, decode_pack, parse_name
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import position
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.storage.small_objects import unseal

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

_ANY_VERSION: Final = 999_999_999
"""Whether a version is understood, its own reader says."""
_ENTRIES: Final = re.compile(
    r"_source/(replays|sink/\d+)/\d{20}|_source/(cleaned|archived|changed/packed)"
    r"|_source/file_results/\d+|_schemas/proposed/\d+"
)
_PACKS: Final = re.compile(r"_source/.+/(packs/[^/]+\.[ab])")
_SEALED: Final = re.compile(
    r"_source/(listing|events|inventory|head|summary|left_query|snapshots/[^/]+/complete)\.json"
    r"|_source/(batches/\d+|silence/[^/]+|left_runs/[^/]+|waiting/[^/]+\.json)"
    r"|_source/changed/[^/]+\.(json|reported)|_(runs|reports)/[^/]+\.json|_schemas/sources\.json"
)
_NOT_NEEDED: Final = re.compile(
    r"/_source/(listing|events|inventory|head|summary)\.json$|/_source/(cleaned|archived)$"
    r"|/_source/(batches|file_results|silence|changed|snapshots)/|/_(runs|reports)/[^/]+$"
)
"""What may be deleted (docs/concepts/state.md), of runs that have ended."""
_NOT_WHOLE: Final = (CloudFilesError, ValueError, TypeError, KeyError)
_AT_ONCE: Final = 64
_PROGRESS_SECONDS: Final = 5.0
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """Something of a state that is not as it was written.

    Attributes:
        name: URI of the object, printable, or the location of a log.
        problem: What is wrong with it, and what to do.
    """

    name: str
    problem: str


@dataclass(slots=True)
class VerifiedState:
    """What was read of a state.

    Attributes:
        source: What the stream reads, printable.
        objects: How many objects have a checksum and were read, beside the entries of the logs.
        entries: Entries of the file log.
        files: Files in them.
        batches: Planned micro-batches.
        schema_versions: Versions of the schema.
        damages: What is wrong; empty for a state that is whole.
    """

    source: str = ""
    objects: int = 0
    entries: int = 0
    files: int = 0
    batches: int = 0
    schema_versions: int = 0
    damages: list[Damage] = field(default_factory=list)


def verify_state(
    checkpoint_location: str, access: Access | None = None, *, schema_location: str | None = None
) -> VerifiedState:
    """Read all of a state.

    Its cost grows with all that the stream has ever recorded: about 120 bytes a file.

    Args:
        checkpoint_location: Path or URI.
        access: How its cloud is reached; `None` for the environment's own chain.
        schema_location: Where the schema log is, if elsewhere.

    Raises:
        StateError: There is no state, or the store cannot be reached; nothing is said then.
    """
    return _Verification(open_store(checkpoint_location, access), schema_location, access).all()


class _Verification:
    """Reads one state, and notes what is wrong with it."""

    def __init__(
        self, state: ObjectStore, schema_location: str | None, access: Access | None
    ) -> None:
        self._state = state
        self._schemas = open_store(schema_location, access) if schema_location else state
        self._said = time.monotonic()
        self._found = VerifiedState()

    def all(self) -> VerifiedState:
        """Read everything."""
        metadata = existing_metadata(self._state)
        self._found.source = printable_path(metadata.source)
        self._objects()
        self._schema_versions()
        head = self._files(log_of(self._state, metadata))
        end = self._plans()
        if head is not None and end is not None and end > head:
            self._note(
                f"{self._state.uri}/_source/plans",
                f"The plans end at {end.to_json()}, behind the file log, which ends at "
                f"{head.to_json()}. Restore the checkpoint location as a whole from a backup.",
            )
        self._read(self._state.uri, lambda: position(self._state))
        self._registered_files(metadata.source)
        return self._found

    def _registered_files(self, source: str) -> None:
        """Look whether the files of the source that its table has are as they were."""
        registered = self._read(self._state.uri, lambda: RegisteredFiles(self._state, source))
        for name, problem in registered.changed() if registered else ():
            self._note(name, problem)

    def _objects(self) -> None:
        """Read all that is no entry of the file log or the plan log."""
        checks: list[tuple[str, Callable[[], None]]] = []
        for each in self._state.list(""):
            check = _check_of(each.path)
            if check is not None:
                name = self._state.child_uri(each.path)
                checks.append((name, partial(_checked, self._state, each.path, name, check)))
        for key, item in snapshots.files_of_all(self._state).items():
            whole = partial(snapshots.require_whole, self._state, key, item)
            checks.append((self._state.child_uri(key), whole))
        self._found.objects = len(checks)
        self._each("Objects", checks)

    def _schema_versions(self) -> None:
        log = open_log(self._schemas)
        versions = self._read(self._schemas.uri, log.numbers) or []
        self._found.schema_versions = len(versions)
        checks = [(log.name(each), partial(read_entry, log, each)) for each in versions]
        self._each("Versions of the schema", checks)

    def _files(self, log: FileLog) -> Offset | None:
        """Read the file log; gives its end, if that is known."""
        name = f"{self._state.uri}/_source/files"
        latest = self._read(name, log.latest)
        if latest is None:
            return None
        self._read(name, log.meet_packs)
        self._found.entries = latest + 1
        checks = [(f"{name}/{each:020}", partial(log.count, each)) for each in range(latest + 1)]
        self._found.files = sum(each or 0 for each in self._each("Entries", checks))
        return Offset(latest + 1, 0)

    def _plans(self) -> Offset | None:
        """Read the plan log; gives where it ends, if that is known."""
        log, name = PlanLog(self._state), f"{self._state.uri}/_source/plans"
        latest = self._read(name, log.latest)
        if latest is None:
            return None
        self._read(name, log.meet_packs)
        self._found.batches = latest.number + 1
        checks = [
            (f"{name}/{each:020}", partial(log.with_time, each)) for each in range(latest.number)
        ]
        end: Offset | None = START
        for read in [*self._each("Plans", checks), (latest, "")]:
            plan = read[0] if read else None
            if plan is not None and end is not None and plan.start != end:
                self._note(
                    f"{name}/{plan.number:020}",
                    f"It begins at {plan.start.to_json()}, and the plan before it ends at "
                    f"{end.to_json()}. Restore the checkpoint location from a backup.",
                )
            end = plan.end if plan is not None else None
        return end

    def _each(self, what: str, checks: Sequence[tuple[str, Callable[[], _T]]]) -> list[_T | None]:
        """Make checks, some at once where the store is far away; says how far it is."""
        found: list[_T | None] = []
        for start in range(0, len(checks), _AT_ONCE):
            some = checks[start : start + _AT_ONCE]
            found += at_once(self._state, [partial(self._read, *each) for each in some])
            if time.monotonic() - self._said > _PROGRESS_SECONDS:
                self._said = time.monotonic()
                _log.info("%s: %s of %s are read", what, f"{len(found):,}", f"{len(checks):,}")
        return found

    def _read(self, name: str, read: Callable[[], _T]) -> _T | None:
        """Call what reads something, and note what is wrong with it."""
        try:
            return read()
        except ObjectNotFoundError:
            return None  # a run has removed it meanwhile
        except _NOT_WHOLE as failure:
            if isinstance(failure, CloudFilesError) and failure.is_retryable:
                raise  # the store does not answer, which says nothing of what it has
            self._note(name, str(failure))
            return None

    def _note(self, name: str, problem: str) -> None:
        name = printable_path(name)
        text = problem.removeprefix(f"{name} ").removeprefix("cannot be read: ")
        if _NOT_NEEDED.search(name):
            text = f"{text.rstrip('.')}. Nothing needs it: it may be deleted."
        self._found.damages.append(Damage(name, text))


_Check = Callable[[bytes, str], object]


def _check_of(key: str) -> _Check | None:
    """Choose what reads an object; `None` for what has no checksum, or belongs to a log."""
    if _SEALED.fullmatch(key):
        return lambda content, _: unseal(content)
    if _ENTRIES.fullmatch(key):
        return lambda content, name: decode_entry(content, name=name, format_version=_ANY_VERSION)
    packed = _PACKS.fullmatch(key)
    pack = None if packed is None else parse_name(packed[1])
    if pack is None:
        return None
    return lambda content, name: decode_pack(content, pack[0], name=name)


def _checked(state: ObjectStore, key: str, name: str, check: _Check) -> None:
    check(state.get(key), name)
