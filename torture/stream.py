"""Which commands does a schedule's stream run, and what is in its files?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torture.places import Place
from torture.schedule import Landed, Landing, Schedule


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a stream has what.

    Attributes:
        source: Where files land.
        state: Its checkpoint location.
        target: Its table.
        options: All of it.
    """

    source: str
    state: str
    target: str
    options: dict[str, str]


def of(schedule: Schedule, place: Place, folder: Path) -> Stream:
    """The stream of a schedule."""
    options = dict(schedule.options)
    if "badRecordsPath" in options:
        options["badRecordsPath"] = f"{place.root}/bad"
    if schedule.is_notified:
        options |= {"cloudFiles.useNotifications": "true", **place.queue}
    is_there = schedule.is_table_in_store or schedule.store == "local"
    target = f"{place.root}/table" if is_there else str(folder / "table")
    return Stream(f"{place.root}/in", f"{place.root}/state", target, options)


def content(landing: Landing) -> tuple[Landed, bytes]:
    """What is in a file: each record says which version of which file it is of."""
    ids = [f"{landing.key}#{landing.version}.{row}" for row in range(landing.rows)]
    columns = {name: f"{name} of {landing.key}" for name in landing.columns}
    marks = [f"mark {landing.key}#{landing.version}.{n}." for n in range(landing.broken)]
    lines = [json.dumps({"id": each, "key": landing.key, **columns}) for each in ids]
    for number, mark in enumerate(marks):
        lines.insert(number * 2, f'{{"id": {json.dumps(mark)}, "key" broken')
    landed = Landed(landing.key, landing.version, ids, columns, marks)
    return landed, "".join(f"{line}\n" for line in lines).encode()


def work(kind: str, stream: Stream) -> Callable[[], int]:
    """What a forked process does: a command, with the arguments of a shell."""
    if kind in {"discover", "full"}:
        arguments = ["discover", *_common(stream), "--exclude", stream.target]
        arguments += ["--full"] if kind == "full" else []
        return lambda: _main(arguments)
    if kind == "state":
        arguments = ["state", "files", "--checkpoint-location", stream.state, "--json", "--quiet"]
        return lambda: _main(arguments)
    arguments = ["ingest", *_common(stream), "--target", stream.target]
    if kind == "spark":
        program = str(Path(sys.prefix, "bin", "cloudfiles"))
        return lambda: os.execv(program, [program, *arguments, "--master", "local[1]"])
    return lambda: _main([*arguments, "--engine", "local"])


def _main(arguments: list[str]) -> int:
    from airflow_cloudfiles import cli  # noqa: PLC0415 - imported before the fork

    return cli.main(arguments)


def _common(stream: Stream) -> list[str]:
    options = [f"--option={key}={value}" for key, value in stream.options.items()]
    return [
        *("--source", stream.source, "--format", "json"),
        *("--checkpoint-location", stream.state, *options),
    ]
