"""Hold what is proposed, and write it as a file of streams, or as JSON.

With how names of files grow, and what finding new ones would cost. Doubts are comments of the file.
Names of files are untrusted: PyYAML writes them as values, and in comments no character of them
ends a line.
"""

from __future__ import annotations

import os
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.overview.cost import KINDS, Load, estimated
from airflow_cloudfiles.engine.extensions.streams_file import read_streams
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted, printable, size_text
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.storage.vendors import import_with_extra

_FEWEST: Final = 3
_MOSTLY: Final = 0.95
_HOURS_A_MONTH: Final = 720
_HOUR_US: Final = 3600 * 10**6
_TEXTS: Final = {
    "last": "New files come last in the order of names: useIncrementalListing=auto finds them at "
    "the end, without listing everything each time.",
    "last in their folders": "New files come last in their folders, but not in the order of all "
    "names: useIncrementalListing=auto looks where the source has grown before.",
    "anywhere": "New files come anywhere in the order of names: useIncrementalListing=auto finds "
    "some of them only with a full listing, which is one of eight.",
    "unknown": "The times of the files do not show in which order they came.",
}


@dataclass(frozen=True, slots=True)
class Growth:
    """How the names of files grow.

    Attributes:
        kind: `last`, `last in their folders`, `anywhere` or `unknown`.
        files_an_hour: How many came, on average; `None` where it is not known.
    """

    kind: str
    files_an_hour: float | None

    @property
    def text(self) -> str:
        """What that means for a listing, in a sentence."""
        return _TEXTS[self.kind]


def growth_of(files: Sequence[FileEntry]) -> Growth:
    """Compare the order of names with the order of times."""
    times = sorted({file.modification_time_us for file in files})
    if len(times) < _FEWEST:
        return Growth("unknown", None)
    hours = (times[-1] - times[0]) / _HOUR_US
    rate = len(files) / hours if hours > 1 else None
    by_time = sorted(files, key=lambda file: (file.modification_time_us, os.fsencode(file.path)))
    if _share_last(by_time, per_folder=False) >= _MOSTLY:
        return Growth("last", rate)
    folders = {file.path.rpartition("/")[0] for file in files}
    if len(folders) > 1 and _share_last(by_time, per_folder=True) >= _MOSTLY:
        return Growth("last in their folders", rate)
    return Growth("anywhere", rate)


def _share_last(by_time: Sequence[FileEntry], *, per_folder: bool) -> float:
    """Compute which share of files had the greatest name when they came."""
    last: dict[str, bytes] = {}
    count = 0
    for file in by_time:
        folder = file.path.rpartition("/")[0] if per_folder else ""
        name = os.fsencode(file.path)
        count += name > last.get(folder, b"")
        last[folder] = max(name, last.get(folder, b""))
    return count / len(by_time)


@dataclass(frozen=True, slots=True)
class DiscoveryCost:
    """What the runs of a stream would ask of a store in a month.

    Attributes:
        requests: By kind.
        new_files: So many of a run were supposed.
    """

    requests: Mapping[str, int]
    new_files: int


def monthly_cost(
    source: str,
    options: CloudFilesOptions,
    files: Sequence[FileEntry],
    growth: Growth,
    runs_an_hour: float,
) -> DiscoveryCost | None:
    """Estimate the requests of a month; `None` where requests have no price, as on a disk.

    Args:
        source: Of the stream.
        options: Its options.
        files: That it has.
        growth: How they come.
        runs_an_hour: How often it would run.
    """
    size = sum(file.size for file in files) // max(1, len(files))
    new = max(1, round((growth.files_an_hour or 0) / runs_an_hour))
    try:
        each = estimated(source, options, Load(len(files), new, size))["new"]
    except OptionError:
        return None
    month: Counter[str] = Counter()
    for kind in KINDS:
        month[kind] = round(each[kind] * runs_an_hour * _HOURS_A_MONTH)
    return DiscoveryCost(month, new)


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


_WIDTH: Final = 100
_MOST_COLUMNS: Final = 50
_MOST_COMMENT: Final = 2000


def as_yaml(found: StreamsProposal) -> str:
    """Write a proposal as a file of streams, and read it back.

    Raises:
        OptionError: The text is no file of streams.
    """
    yaml = import_with_extra("yaml", "airflow", needed_for="a file of streams")
    parts = [*_comments(_summary(found), ""), *_comments(_marked(found.doubts), "")]
    parts.append("streams: {}\n" if not found.streams else "streams:\n")
    for stream in found.streams:
        parts += _comments(_facts(stream), "  ")
        parts += _comments(_marked(stream.doubts), "  ")
        text = yaml.safe_dump(
            {stream.name: _arguments(found, stream)},
            sort_keys=False,
            allow_unicode=True,
            width=_WIDTH,
        )
        parts.append(textwrap.indent(text, "  "))
    whole = "".join(parts)
    _check(whole)
    return whole


def _check(text: str) -> None:
    """Read a file of streams as a DAG would."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "streams.yaml"
        path.write_text(text, encoding="utf-8")
        read_streams(path)


def as_json(found: StreamsProposal) -> dict[str, Any]:
    """Make a JSON object of a proposal."""
    return {
        "source": printable_path(found.source),
        "files": found.files,
        "tables": found.tables,
        "requests": dict(sorted(found.requests.items())),
        "bytes": found.bytes,
        "doubts": [printable(printable_path(each)) for each in found.doubts],
        "streams": {
            stream.name: {
                **_arguments(found, stream),
                "files": stream.files,
                "bytes": stream.bytes,
                "encoding": stream.encoding or None,
                "columns": [
                    {"name": name, "type": kind} for name, kind in stream.columns[:_MOST_COLUMNS]
                ],
                "columns_count": len(stream.columns),
                "partitions": stream.partitions,
                "growth": stream.growth.kind,
                "requests_a_month": None if stream.cost is None else dict(stream.cost.requests),
                "doubts": [printable(printable_path(each)) for each in stream.doubts],
            }
            for stream in found.streams
        },
    }


def _arguments(found: StreamsProposal, stream: ProposedStream) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "source": stream.source,
        "format": stream.format,
        "checkpoint_location": f"{found.places.state_root.rstrip('/')}/{stream.name}",
        "target": f"{found.places.target_root.rstrip('/')}/{stream.name}",
    }
    if found.places.conn_id is not None:
        arguments["conn_id"] = found.places.conn_id
    if stream.options:
        arguments["options"] = dict(stream.options)
    return arguments


def write_file(text: str, path: str, *, force: bool) -> None:
    """Write a file of streams.

    Args:
        text: Its content.
        path: Of the file.
        force: Whether a file that is there is overwritten.

    Raises:
        OptionError: There is one.
    """
    try:
        with Path(path).open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise OptionError(
            f"{path} is there already. Give another name, or --force to overwrite it."
        ) from error


def _summary(found: StreamsProposal) -> Iterator[str]:
    asked = ", ".join(f"{kind} {count:,}" for kind, count in sorted(found.requests.items()))
    yield (
        f"Proposed for {printable_path(found.source)}: {counted(found.files, 'file')}, "
        f"{counted(found.tables, 'table')}. Looking took {sum(found.requests.values()):,} requests "
        f"({asked}) and {size_text(found.bytes)}."
    )
    yield NOT_SEEN


def _marked(doubts: list[str]) -> Iterator[str]:
    return (f"DOUBT: {each}" for each in doubts)


def _facts(stream: ProposedStream) -> Iterator[str]:
    yield ""
    encoding = f", {stream.encoding}" if stream.encoding else ""
    yield f"{counted(stream.files, 'file')}, {size_text(stream.bytes)}, {stream.format}{encoding}."
    if stream.columns:
        shown = ", ".join(f"{name} {kind}" for name, kind in stream.columns[:_MOST_COLUMNS])
        more = len(stream.columns) - _MOST_COLUMNS
        yield f"Columns: {shown}{f' and {more:,} more' if more > 0 else ''}."
    if stream.partitions:
        yield f"Keys in the paths: {', '.join(stream.partitions)}."
    yield stream.growth.text
    if stream.cost is None:
        yield "Requests to this source have no price."
    else:
        asked = ", ".join(f"{kind} {n:,}" for kind, n in stream.cost.requests.items() if n)
        new = counted(stream.cost.new_files, "new file")
        yield f"Requests of a month, with {new} a run: {asked}."


def _comments(texts: Iterator[str], indent: str) -> list[str]:
    """Write sentences as comments; an empty one as an empty line."""
    lines = []
    for text in texts:
        if not text:
            lines.append("\n")
            continue
        safe = printable(printable_path(text))[:_MOST_COMMENT]
        wrapped = textwrap.wrap(safe, _WIDTH - len(indent) - 2, break_on_hyphens=False)
        lines += [f"{indent}# {line}\n" for line in wrapped]
    return lines
