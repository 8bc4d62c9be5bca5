"""Say where a query keeps its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore


class StreamPlaces(Protocol):
    """Where a stream reads, and keeps its state; an open intake is one."""

    @property
    def source(self) -> ObjectStore:
        """The folder the files land in."""

    @property
    def name(self) -> str:
        """What the state knows the source by."""

    @property
    def state(self) -> ObjectStore:
        """The checkpoint location."""


@dataclass(frozen=True, slots=True)
class QueryLocations:
    """Where a query keeps its state.

    Attributes:
        checkpoint: The checkpoint location.
        target: Where its rows go, if that is a path.
        mirror: Directory where Spark keeps its part of a state in an object store.
    """

    checkpoint: str
    target: str | None = None
    mirror: str | None = None
