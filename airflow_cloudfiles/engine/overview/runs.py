"""How did the newest runs of a stream go?

From their reports, of which a state keeps thousands: one listing, and a request for each report
that is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.error_sections import section_of
from airflow_cloudfiles.engine.errors import IncompatibleStateError
from airflow_cloudfiles.engine.state.run_history import REPORTS_PREFIX, decode_report
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

MOST_RUNS: Final = 60
"""How many runs are shown at once."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run, as its report has it.

    Attributes:
        run_id: Its id.
        kind: `ingest`, `infer` or `promote`.
        started: When it began: ISO 8601, UTC.
        outcome: `succeeded`, `failed`, or `waiting` for a query that goes on without its driver.
        files: Files that it has committed.
        bytes: Their size.
        rows: Rows that it has committed.
        rescued_rows: Those of them with rescued data.
        corrupt_records: Records that could not be read.
        schema_version: The version that it read with; `None` where it had none.
        target_version: The newest version of the table then; `None` where there was none.
        seconds: How long it took; `None` where it does not say.
        error: The class of what it failed for; empty where it did not.
        code: Of that class, which has its section in the documentation; empty as that.
        message: What it failed for, in words that say what to do.
        warnings: For people.
    """

    run_id: str
    kind: str
    started: str
    outcome: str
    files: int = 0
    bytes: int = 0
    rows: int = 0
    rescued_rows: int = 0
    corrupt_records: int = 0
    schema_version: int | None = None
    target_version: int | None = None
    seconds: float | None = None
    error: str = ""
    code: str = ""
    message: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def section(self) -> str:
        """The code of the error and where its section is; empty where the report has no code."""
        return section_of(self.code) if self.code else ""


@dataclass(frozen=True, slots=True)
class Runs:
    """The newest runs.

    Attributes:
        newest: The newest first.
        kept: How many reports the state keeps.
    """

    newest: tuple[RunSummary, ...]
    kept: int


def newest_runs(state: ObjectStore, most: int = MOST_RUNS) -> Runs:
    """Read the newest reports of a state.

    Args:
        state: The checkpoint location.
        most: How many at most.

    Returns:
        The runs; a report that cannot be read is left out, and the log says so.
    """
    found = sorted(
        state.list(f"{REPORTS_PREFIX}/"),
        key=lambda each: (each.modification_time_us, each.path),
        reverse=True,
    )
    runs = at_once(state, [partial(_read, state, each.path) for each in found[:most]])
    newest = sorted((each for each in runs if each), key=lambda each: each.started, reverse=True)
    return Runs(tuple(newest), len(found))


def _read(state: ObjectStore, key: str) -> RunSummary | None:
    try:
        return _summary(decode_report(state.get(key), name=key))
    except ObjectNotFoundError:  # it has expired meanwhile
        return None
    except (ValueError, TypeError, IncompatibleStateError) as failure:
        _log.warning("The report %s cannot be read: %s", key, failure)
        return None


def _summary(report: Mapping[str, Any]) -> RunSummary:
    """What is shown of a report; a table as the source has no files."""
    error = report.get("error") or {}
    seconds = (report.get("durations") or {}).get("total_seconds")
    counts = {
        name: int(report.get(name) or 0)
        for name in ("files", "bytes", "rows", "rescued_rows", "corrupt_records")
    }
    return RunSummary(
        run_id=str(report.get("run_id", "")),
        kind=str(report.get("kind", "")),
        started=str(report.get("started", "")),
        outcome=str(report.get("outcome", "")),
        schema_version=_number(report.get("schema_version")),
        target_version=_number(report.get("target_version")),
        seconds=None if seconds is None else float(seconds),
        error=str(error.get("class", "")),
        code=str(error.get("code", "")),
        message=str(error.get("message", "")),
        warnings=tuple(str(each) for each in report.get("warnings") or ()),
        **counts,
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
