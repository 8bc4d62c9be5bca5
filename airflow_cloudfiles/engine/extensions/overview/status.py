"""Judge in one word, and one sentence, how a stream is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Final, Literal, ParamSpec

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    SchemaProposedError,
    SchemaRefusedError,
    StateError,
    with_code,
)
from airflow_cloudfiles.engine.extensions.overview.runs import (
    IngestionSummary,
    RunSummary,
    StreamOverview,
    ingestion_summary,
    newest_runs,
    stream_overview,
)
from airflow_cloudfiles.engine.messages import counted, short_time
from airflow_cloudfiles.engine.schema.proposals import SchemaProposals
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_cloudfiles.engine.schema.proposals import Proposal
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

StreamHealth = Literal["ok", "new", "behind", "undecided", "failed", "unreadable"]
"""`new` before the first run; `undecided` where a schema change waits for somebody."""
_TROUBLES: Final = frozenset({"behind", "undecided", "failed", "unreadable"})
_ASKS: Final = frozenset({SchemaProposedError.__name__, SchemaRefusedError.__name__})
_MOST_RUNS: Final = 20
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """How a stream is.

    Attributes:
        standing: One word.
        sentence: What is to know or to do, for people.
        overview: Its files; `None` of a stream from a table, and where it cannot be read.
        newest: Its newest ingestion; `None` before the first.
        as_of: When it was so: ISO 8601, UTC; `None` for now.
    """

    standing: StreamHealth
    sentence: str
    overview: StreamOverview | None = None
    newest: RunSummary | None = None
    as_of: str | None = None

    @property
    def is_trouble(self) -> bool:
        """Whether somebody has to look."""
        return self.standing in _TROUBLES


def _or_unreadable(look: Callable[_P, StreamStatus]) -> Callable[_P, StreamStatus]:
    """Have a function that reads a state say why it cannot be read."""

    @wraps(look)
    def status(*args: _P.args, **kwargs: _P.kwargs) -> StreamStatus:
        try:
            return look(*args, **kwargs)
        except CloudFilesError as failure:
            return StreamStatus(standing="unreadable", sentence=with_code(failure))
        except OSError as failure:
            sentence = f"The storage could not be read: {failure}"
            return StreamStatus(standing="unreadable", sentence=sentence)

    return status


@_or_unreadable
def stream_status(
    checkpoint_location: str,
    access: Access | None = None,
    *,
    schema_location: str | None = None,
    behind: timedelta | None = None,
) -> StreamStatus:
    """Look how a stream is; nothing is changed, and nothing raised.

    The summary of its newest ingestion says it, where that has succeeded, nothing was left and
    nothing was recorded since: two requests. Else the state is read.

    Args:
        checkpoint_location: Path or URI of its state.
        access: How its cloud is reached; `None` for the environment's own chain.
        schema_location: Where its schema log is, if elsewhere.
        behind: How long a file may wait for its ingestion; `None` for any time.
    """
    state = open_store(checkpoint_location, access)
    found, head = side_by_side(state, lambda: ingestion_summary(state), FileLog(state).head)
    if found is not None and _is_all(found, head.entry):
        return _judged([found.newest], found.overview, behind)
    return _in_full(state, SchemaProposals(schema_location or state.uri, access=access), behind)


@_or_unreadable
def summarized_status(
    checkpoint_location: str,
    access: Access | None = None,
    *,
    schema_location: str | None = None,
    behind: timedelta | None = None,
) -> StreamStatus:
    """Say how a stream was when its newest ingestion ended; nothing is raised.

    One request, where there is a summary. Else the state is read, as `stream_status` does. The
    arguments are the same.
    """
    state = open_store(checkpoint_location, access)
    found = ingestion_summary(state)
    if found is None:
        proposals = SchemaProposals(schema_location or state.uri, access=access)
        as_of = datetime.now(UTC).isoformat()
        return replace(_in_full(state, proposals, behind), as_of=as_of)
    newest = found.newest
    waits = newest.message if newest.error in _ASKS else ""
    return replace(_judged([newest], found.overview, behind, waits), as_of=found.ended)


def _is_all(found: IngestionSummary, head: int) -> bool:
    """Tell whether a summary says all that there is to know of a stream."""
    overview = found.overview
    if found.newest.outcome != "succeeded" or overview is None:
        return False
    return overview.outstanding_files == 0 and overview.is_counted and overview.entries == head


def _in_full(
    state: ObjectStore, proposals: SchemaProposals, behind: timedelta | None
) -> StreamStatus:
    newest = newest_runs(state, _MOST_RUNS).newest
    try:
        overview = stream_overview(state)
    except StateError:
        if all(each.kind != "ingest" for each in newest):
            raise
        overview = None  # a stream from a table records no files
    return judge(newest, overview, proposals.waiting(), behind=behind)


def judge(
    newest: Sequence[RunSummary],
    overview: StreamOverview | None,
    proposal: Proposal | None,
    *,
    behind: timedelta | None = None,
) -> StreamStatus:
    """Judge how a stream is by what was read of it.

    Args:
        newest: Its newest runs, the newest first. Only those count that ingested, or failed before
            they could.
        overview: Its files, if they are known.
        proposal: The change of its schema that waits, or was refused.
        behind: How long a file may wait for its ingestion; `None` for any time.
    """
    ingestions = [each for each in newest if each.kind == "ingest"]
    waits = ""
    if proposal is not None and proposal.refused_by is None:
        waits = f"Proposal {proposal.number} of a schema change waits for a decision"
    elif proposal is not None and ingestions and ingestions[0].error:
        waits = f"{proposal.refused_by} has refused proposal {proposal.number}"
    command = ": cloudfiles schema proposed" if waits else ""
    return _judged(ingestions, overview, behind, f"{waits}{command}")


def _judged(
    ingestions: Sequence[RunSummary],
    overview: StreamOverview | None,
    behind: timedelta | None,
    waits: str = "",
) -> StreamStatus:
    """Judge a stream; `waits` says which change of the schema does, if one does."""
    last = ingestions[0] if ingestions else None
    before = ingestions[1] if ingestions[1:] else None
    standing: StreamHealth = "ok"
    sentence = ""
    if waits:
        standing, sentence = "undecided", waits
    elif last is not None and last.asked:
        sentence = "A change of the schema was decided, and the next run goes on with it"
    elif last is not None and last.error:
        standing, sentence = "failed", f"{last.error}: {last.message} {last.section}".rstrip()
    elif behind is not None and overview is not None and _waits(overview) > behind:
        waiting = counted(overview.outstanding_files, "file")
        since = short_time(overview.oldest_outstanding or "")
        standing, sentence = "behind", f"{waiting} not ingested since {since} UTC"
    elif last is None and (overview is None or overview.last_batch < 0):
        standing, sentence = "new", "No run has ingested yet"
    elif last and before is not None and before.is_healed:
        sentence = f"Healed itself at {short_time(last.started)} UTC: {before.healed_by}"
    return StreamStatus(standing=standing, sentence=sentence, overview=overview, newest=last)


def _waits(overview: StreamOverview) -> timedelta:
    if overview.oldest_outstanding is None:
        return timedelta(0)
    return datetime.now(UTC) - datetime.fromisoformat(overview.oldest_outstanding)
