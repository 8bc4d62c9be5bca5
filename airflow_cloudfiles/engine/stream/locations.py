"""Where does a query keep its state?"""

from __future__ import annotations

from dataclasses import dataclass


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
