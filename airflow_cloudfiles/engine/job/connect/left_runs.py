"""What does a run that has left its query on a server write down for who comes back?

1. `_source/left_runs/<run id>.json` is for the run itself: what it had found, where it began, and
   which query goes on. It is written before the driver ends, and deleted when the run has ended.
2. `_source/left_query.json` is for all others: the query of the stream that was left last. Whether
   it still goes on, the server says, never this file.

Neither says what is committed: that is in the records of the sink.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery
from airflow_cloudfiles.engine.state.run_history import LEFT_RUNS_PREFIX
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal

QUERY_KEY = "_source/left_query.json"
_VERSION = 1
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRun:
    """A run whose driver has left.

    Attributes:
        run_id: Its name.
        before: The last batch that was committed when it began; -1 for none.
        last_entry: Last entry of the file log that it ingests.
        started: When it began, in ISO form.
        query: The query that goes on; `None` when what remains needs another one.
        after_batch: The last batch that was committed when the query started.
        query_started: When that was.
        next_line: Number of the first batch that the log does not have.
        discovered: What its discovery did; `None` where it made none.
        report: What else of its report is known.
        durations: How long its parts took, in seconds.
    """

    run_id: str
    before: int
    last_entry: int
    started: str
    query: LeftQuery | None = None
    after_batch: int = -1
    query_started: str = ""
    next_line: int = 0
    discovered: Mapping[str, Any] | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    durations: Mapping[str, float] = field(default_factory=dict)

    @property
    def end(self) -> Offset:
        """Where in the file log the run ends."""
        return Offset(self.last_entry + 1, 0)

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {"version": _VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Read what `to_json` has written."""
        fields = {name: value for name, value in stored.items() if name != "version"}
        query = fields.pop("query")
        return cls(**fields, query=None if query is None else LeftQuery.from_json(query))


def read_run(state: ObjectStore, run_id: str) -> LeftRun | None:
    """Read what a run has left; `None` when it has left nothing."""
    return _read(state, _key(run_id))


def write_run(state: ObjectStore, run: LeftRun) -> None:
    """Write what a run leaves, for itself; its query for the others, too."""
    content = seal(run.to_json())
    with reaching_state(state):
        state.put(_key(run.run_id), content)
        if run.query is not None:
            state.put(QUERY_KEY, content)


def delete_run(state: ObjectStore, run_id: str) -> None:
    """Delete what a run has left: it has ended, in whatever way."""
    with reaching_state(state):
        state.delete(_key(run_id))
    newest = newest_query(state)
    if newest is not None and newest.run_id == run_id:
        forget_query(state)


def newest_query(state: ObjectStore) -> LeftRun | None:
    """Read which query of the stream was left last; `None` when there is none."""
    return _read(state, QUERY_KEY)


def forget_query(state: ObjectStore) -> None:
    """Delete the note of a query that does not go on any more."""
    with reaching_state(state):
        state.delete(QUERY_KEY)


def _key(run_id: str) -> str:
    return f"{LEFT_RUNS_PREFIX}/{run_id}.json"


def _read(state: ObjectStore, key: str) -> LeftRun | None:
    """Read a note; one of another version is none: it only saves work."""
    try:
        with reaching_state(state):
            stored = unseal(state.get(key))
        if stored.get("version") != _VERSION:
            _log.warning(
                "%s has format version %s, and is left aside: this version of "
                "airflow-provider-cloudfiles understands %s.",
                state.child_uri(key),
                stored.get("version"),
                _VERSION,
            )
            return None
        return LeftRun.from_json(stored)
    except ObjectNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _log.warning("%s cannot be understood and is left aside: %s", key, error)
        return None
