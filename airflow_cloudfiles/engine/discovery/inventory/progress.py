"""How far has a report been read?

One small JSON file in the state, `_source/inventory.json`, written after each data file whose files
are recorded. It is a hint, as that of listings is: lost or damaged, a report is read again, and
nothing is recorded twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_cloudfiles.engine.errors import IncompatibleStateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

_log = logging.getLogger(__name__)

KEY: Final = "_source/inventory.json"
VERSION: Final = 1

FoundBy = Literal["listing", "backfill"]


@dataclass(frozen=True, slots=True)
class FileRead:
    """A data file whose files are recorded.

    Attributes:
        rows: How many rows it has.
        files: How many files below the source it names.
        first: The first of their paths.
        last: The last of them.
        has_recent: Whether it names files that came later than `Report.settled_us`.
    """

    rows: int
    files: int
    first: str = ""
    last: str = ""
    has_recent: bool = False


@dataclass(frozen=True, slots=True)
class ReportProgress:
    """How far one report has been read.

    Attributes:
        report: `Report.id`; empty when none has been read.
        filter: Which files were input (`FileFilter.fingerprint`).
        found_by: What its files are recorded as.
        read: The data files that were read, by their places in the manifest.
        is_done: Whether all of it was read, and what has to follow was done or noted.
    """

    report: str = ""
    filter: str = ""
    found_by: FoundBy = "listing"
    read: Mapping[int, FileRead] = field(default_factory=dict)
    is_done: bool = False

    @property
    def is_unfinished(self) -> bool:
        """Whether a report is being read."""
        return bool(self.report) and not self.is_done

    def after(self, number: int, read: FileRead) -> ReportProgress:
        """The same, with one more data file."""
        return replace(self, read={**self.read, number: read})


def load_progress(state: ObjectStore) -> ReportProgress:
    """Read what is remembered; nothing, when there is no file or it cannot be understood."""
    try:
        with reaching_state(state):
            content = state.get(KEY)
    except ObjectNotFoundError:
        return ReportProgress()
    name = printable_path(state.child_uri(KEY))
    try:
        return _decode(fields_of(unseal(content), name=name, understood=VERSION))
    except (IncompatibleStateError, ValueError, TypeError, KeyError, AttributeError) as failure:
        _log.warning("%s cannot be read (%s). The report is read from its start.", name, failure)
        return ReportProgress()


def save_progress(state: ObjectStore, progress: ReportProgress) -> None:
    """Write what is to be remembered.

    Raises:
        StateError: It cannot be written.
    """
    with reaching_state(state):
        state.put(KEY, seal({FIELD: VERSION, **asdict(progress)}))


def _decode(value: dict[str, Any]) -> ReportProgress:
    found_by = value["found_by"]
    if found_by not in {"listing", "backfill"}:
        raise ValueError(f"found_by is {found_by!r}")
    return ReportProgress(
        report=str(value["report"]),
        filter=str(value["filter"]),
        found_by=found_by,
        read={int(number): _file_read(each) for number, each in value["read"].items()},
        is_done=bool(value["is_done"]),
    )


def _file_read(value: dict[str, Any]) -> FileRead:
    return FileRead(
        rows=int(value["rows"]),
        files=int(value["files"]),
        first=str(value["first"]),
        last=str(value["last"]),
        has_recent=bool(value["has_recent"]),
    )
