"""Judge in one word, and one sentence, how a stream is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from airflow_cloudfiles.engine.errors import CloudFilesError, StateError, with_code
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.overview.runs import (
    RunSummary,
    StreamOverview,
    newest_runs,
    stream_overview,
)
from airflow_cloudfiles.engine.schema.decisions import SchemaProposals
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

Standing = Literal["ok", "new", "behind", "undecided", "failed", "unreadable"]
"""`new` before the first run; `undecided` where a schema change waits for somebody."""
_TROUBLES: Final = frozenset({"behind", "undecided", "failed", "unreadable"})
_MOST_RUNS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """How a stream is.

    Attributes:
        standing: One word.
        sentence: What is to know or to do, for people.
        overview: Its files; `None` of a stream from a table, and where it cannot be read.
        newest: Its newest ingestion; `None` before the first.
    """

    standing: Standing
    sentence: str
    overview: StreamOverview | None = None
    newest: RunSummary | None = None

    @property
    def is_trouble(self) -> bool:
        """Whether somebody has to look."""
        return self.standing in _TROUBLES


def stream_status(
    checkpoint_location: str,
    access: Access | None = None,
    *,
    schema_location: str | None = None,
    behind: timedelta | None = None,
) -> StreamStatus:
    """Look how a stream is; nothing is changed, and nothing raised.

    Args:
        checkpoint_location: Path or URI of its state.
        access: How its cloud is reached; `None` for the environment's own chain.
        schema_location: Where its schema log is, if elsewhere.
        behind: How long a file may wait for its ingestion; `None` for any time.
    """
    try:
        state = open_store(checkpoint_location, access)
        newest = _newest_ingestion(state)
        overview = _overview(state, is_of_table=newest is not None)
        proposals = SchemaProposals(schema_location or checkpoint_location, access=access)
        proposal = proposals.waiting()
    except CloudFilesError as failure:
        return StreamStatus(standing="unreadable", sentence=with_code(failure))
    except OSError as failure:
        sentence = f"The storage could not be read: {failure}"
        return StreamStatus(standing="unreadable", sentence=sentence)
    standing: Standing = "ok"
    sentence = ""
    if proposal is not None:
        what = f"Proposal {proposal.number} of a schema change waits for a decision"
        standing, sentence = "undecided", f"{what}: cloudfiles schema proposed"
    elif newest is not None and newest.error:
        standing, sentence = "failed", f"{newest.error}: {newest.message} {newest.section}".rstrip()
    elif behind is not None and overview is not None and _waits(overview) > behind:
        waiting = counted(overview.outstanding_files, "file")
        since = str(overview.oldest_outstanding)[:19].replace("T", " ")
        standing, sentence = "behind", f"{waiting} not ingested since {since} UTC"
    elif newest is None and (overview is None or overview.last_batch < 0):
        standing, sentence = "new", "No run has ingested yet"
    return StreamStatus(standing=standing, sentence=sentence, overview=overview, newest=newest)


def _newest_ingestion(state: ObjectStore) -> RunSummary | None:
    """Find the newest run that ingested, or failed before it could."""
    runs = newest_runs(state, _MOST_RUNS).newest
    return next((each for each in runs if each.kind == "ingest"), None)


def _overview(state: ObjectStore, *, is_of_table: bool) -> StreamOverview | None:
    """Look at the files of a stream; one from a table records none."""
    try:
        return stream_overview(state)
    except StateError:
        if is_of_table:
            return None
        raise


def _waits(overview: StreamOverview) -> timedelta:
    if overview.oldest_outstanding is None:
        return timedelta(0)
    return datetime.now(UTC) - datetime.fromisoformat(overview.oldest_outstanding)
