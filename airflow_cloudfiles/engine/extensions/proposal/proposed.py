"""Hold what is proposed, what was asked for, and how much may be looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from airflow_cloudfiles.engine.extensions.proposal.growth import DiscoveryCost, Growth

NOT_SEEN: Final = (
    "A listing cannot tell whether files are overwritten: a file that comes again under its name "
    "is not read again unless cloudFiles.onOverwrite or cloudFiles.allowOverwrites says so."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is looked at.

    Attributes:
        files: At most so many are listed.
        tables: Of at most so many is read, those with most files.
        sampled: At most so many files of a table are read.
        bytes: At most so many are read in all.
    """

    files: int = 100_000
    tables: int = 100
    sampled: int = 3
    bytes: int = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the streams would keep what they have.

    Attributes:
        state_root: The folder for their states.
        target_root: The folder for their tables.
        conn_id: Airflow's connection that reaches them; `None` for the environment's own way.
    """

    state_root: str
    target_root: str
    conn_id: str | None = None


@dataclass(slots=True, kw_only=True)
class ProposedStream:
    """A stream that is proposed.

    Attributes:
        name: Its name.
        source: Its folder, or a pattern.
        format: Of its files.
        options: Its options.
        files: So many were listed.
        bytes: Of these.
        encoding: Of texts, and how sure that is.
        columns: Names and types.
        partitions: Names of keys in the paths.
        growth: How names grow.
        cost: What it would ask of a store in a month; `None` where that has no price.
        doubts: What is not certain, in sentences.
    """

    name: str
    source: str
    format: str
    options: dict[str, str]
    files: int
    bytes: int
    encoding: str
    columns: list[tuple[str, str]]
    partitions: list[str]
    growth: Growth
    cost: DiscoveryCost | None
    doubts: list[str]


@dataclass(slots=True)
class StreamsProposal:
    """What is proposed for a folder.

    Attributes:
        source: The folder.
        places: Where the streams would keep what they have.
        streams: Those with most files first.
        doubts: About the folder, and about what no stream would read.
        files: So many were listed.
        tables: So many were found.
        requests: That were made, by kind.
        bytes: That were read.
    """

    source: str
    places: Places
    streams: list[ProposedStream] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    files: int = 0
    tables: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
