"""Which commands does a schedule's stream run, and what is in its files?"""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torture.places import Place
from torture.schedule import ARCHIVES, COPIED, Landed, Landing, Schedule


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a stream has what.

    Attributes:
        source: Where files land.
        state: Its checkpoint location.
        target: Its table.
        format: Of its files; archives have such files.
        options: All of it.
    """

    source: str
    state: str
    target: str
    format: str
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
    source, state = f"{place.root}/{landing_folder(schedule)}", f"{place.root}/state"
    return Stream(source, state, target, "parquet" if schedule.registers else "json", options)


def landing_folder(schedule: Schedule) -> str:
    """Where the files of a schedule land, below its place."""
    return "table/_landing" if schedule.registers else "in"


def content(landing: Landing) -> tuple[Landed, bytes]:
    """What is in a file: each record says which version of which file it is of."""
    ids = [f"{landing.key}#{landing.version}.{row}" for row in range(landing.rows)]
    columns = {name: f"{name} of {landing.key}" for name in landing.columns}
    marks = [f"mark {landing.key}#{landing.version}.{n}." for n in range(landing.broken)]
    records = [{"id": each, "key": landing.key, **columns} for each in ids]
    landed = Landed(landing.key, landing.version, ids, columns, marks)
    if landing.key.endswith(".parquet"):
        return landed, _parquet(records, ["id", "key", *columns], landing.key)
    lines = [json.dumps(each) for each in records]
    for number, mark in enumerate(marks):
        lines.insert(number * 2, f'{{"id": {json.dumps(mark)}, "key" broken')
    if not landing.key.endswith(ARCHIVES):
        return landed, _text(lines)
    members = {f"{number}.json": _text(lines[number::2]) for number in range(2)}
    return landed, _archive(members, landing.key)


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _parquet(records: list[dict[str, str]], columns: list[str], key: str) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - it starts threads, and others are forked
    import pyarrow.parquet as pq  # noqa: PLC0415 - the same

    to = io.BytesIO()
    table = pa.Table.from_pylist(records, pa.schema([(name, pa.string()) for name in columns]))
    pq.write_table(table, to, compression="brotli" if key.endswith(COPIED) else "snappy")
    return to.getvalue()


def _archive(members: dict[str, bytes], key: str) -> bytes:
    to = io.BytesIO()
    if key.endswith(".zip"):
        with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return to.getvalue()
    with tarfile.open(fileobj=to, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return to.getvalue()


def work(kind: str, stream: Stream) -> Callable[[], int]:
    """What a forked process does: a command, with the arguments of a shell."""
    if kind in {"discover", "full"}:
        arguments = ["discover", *_common(stream)]
        arguments += [] if stream.source.startswith(stream.target) else ["--exclude", stream.target]
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
        *("--source", stream.source, "--format", stream.format),
        *("--checkpoint-location", stream.state, *options),
    ]
