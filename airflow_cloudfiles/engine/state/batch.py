"""Describe a micro-batch to the table that it is committed to, of whatever kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.state.sink_log import SinkRecord


@dataclass(frozen=True, slots=True)
class BatchId:
    """Which micro-batch a commit is.

    Attributes:
        app_id: The stream.
        number: Number of its micro-batch.
        plan: Id of the plan log's entry, if there is one: the same number with another plan is
            another batch, of a state that was restored from an older backup.
        replay: Number of the decision to replay it after a loss. The table may still know its
            number from before; so it has an application id of its own.
        schema_version: Version of the schema that it was read with; `None` where that is unknown.
        counts: What its tasks have counted (`progress.BatchDone`).
        origin: The place of the state and its source (`earlier_life.origin`); empty for none.
    """

    app_id: str
    number: int
    plan: str | None = None
    replay: int | None = None
    schema_version: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict, compare=False)
    origin: str = field(default="", compare=False)

    @property
    def own_app_id(self) -> str:
        """Under which application id the table knows whether it has this very batch."""
        return self.app_id if self.replay is None else f"{self.app_id}.replay-{self.replay}"


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit amounted to: the table and its version, and whether this call made it.

    Attributes:
        version: A version of a Delta table, or a sequence number of an Iceberg table, that has the
            batch.
        is_new: Whether this call committed it.
        table_id: Id of the table.
        counts: What a merge, or the replacing of rows, has counted.
    """

    version: int
    is_new: bool
    table_id: str = ""
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A batch that a table has, as its commit noted it.

    Attributes:
        version: As of `Committed`.
        table_id: Of the table.
        plan: Id of its plan; empty or `None` where there is none.
        schema_version: Version of the schema that it was read with; `None` where that is unknown.
        counts: As in the note of a batch (`progress.BatchDone`).
    """

    version: int
    table_id: str
    plan: str | None
    schema_version: int | None
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a table must have before a batch is committed to it.

    Attributes:
        record: The batch.
        state: The checkpoint location that has the record, for messages.
        read_again: Says for messages how what was read from a batch on is read again; `None` where
            that is a replay.
    """

    record: SinkRecord
    state: str
    read_again: Callable[[int], str | None]
