"""Write a proposal as a file of streams, with its doubts as comments, and as JSON.

Names of files are untrusted: PyYAML writes them as values, and in comments no character of them
ends a line.
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.proposal.proposed import (
    NOT_SEEN,
    ProposedStream,
    StreamsProposal,
)
from airflow_cloudfiles.engine.extensions.streams_file import read_streams
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, printable, size_text
from airflow_cloudfiles.engine.storage.vendors import import_with_extra

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
