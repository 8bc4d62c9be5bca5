"""Run `cloudfiles doctor`, which says whether a stream would work here, and what is missing.

Looks at this machine first (Python, Java, Spark, the extras, disk space), then at the locations
that are given. A location is listed, and where a stream writes, an object is made and removed
again, since a right to write shows in no other way.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from airflow_cloudfiles.commands.outcome import (
    ColoredLine,
    Commands,
    Outcome,
    Parser,
    Tone,
    add_command,
)
from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, install
from airflow_cloudfiles.engine.storage.vendors import VENDORS

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

Verdict = Literal["ok", "note", "problem"]

SKEW_SECONDS: Final = 60.0
"""A clock that differs by more is a problem: retention and `maxFileAge` go by clocks."""
FREE_BYTES: Final = 2 * 2**30
"""Less free space is noted: blocks of Spark and the index of files lie on local disks."""
_EXTRAS: Final = {
    "airflow": ("apache-airflow",),
    "spark": ("pyspark", "pyarrow"),
    "connect": ("pyspark-client", "pyarrow"),
    "delta": ("deltalake", "pyarrow"),
    "iceberg": ("pyiceberg",),
    **{each.name: each.clients for each in VENDORS},
}
"""By extra of this package: the distributions that show whether it is installed."""
_TONES: Final[Mapping[Verdict, Tone]] = {"problem": "problem", "note": "caution"}
_SPARKS: Final = ("spark", "connect")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: What was looked at.
        verdict: `problem` where a stream would not work, `note` where it may matter.
        found: What was found, and for a problem what to do.
    """

    check: str
    verdict: Verdict
    found: str


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    text = "check whether a stream would work here: Java, Spark, extras, locations, clocks"
    found = add_command(commands, "doctor", _run, help=text, parents=[shared])
    for name, what in (
        ("--source", "where the files land: it is listed"),
        ("--checkpoint-location", "the state of a stream: an object is written and removed there"),
        ("--target", "the folder of the table: an object is written and removed there"),
    ):
        found.add_argument(name, metavar="URI", help=what)


def _run(given: argparse.Namespace) -> Outcome:
    findings = [*_machine(), *_extras(), *_locations(given)]
    problems = sum(each.verdict == "problem" for each in findings)
    width = max(len(each.check) for each in findings)
    code = 1 if problems else 0
    if given.json:
        return Outcome([asdict(each) for each in findings], "", code)
    lines: list[str | ColoredLine] = [_shown(each, width) for each in findings]
    lines.append(counted(problems, "problem") if problems else "No problems")
    return Outcome(None, "", code, lines)


def _shown(found: Finding, width: int) -> str | ColoredLine:
    text = f"{found.verdict:<8} {found.check:<{width}}  {found.found}"
    tone = _TONES.get(found.verdict)
    return ColoredLine(text, tone) if tone else text


# This machine ------------------------------------------------------------------------------------


def _machine() -> Iterator[Finding]:
    yield Finding("Python", "ok", f"{platform.python_version()} on {platform.platform()}")
    yield _java()
    folders = {"temporary folder": Path(tempfile.gettempdir()), "cache of the index": _cache()}
    for check, folder in folders.items():
        yield _space(check, folder)


def _java() -> Finding:
    from airflow_cloudfiles.engine.job.java import find_java  # noqa: PLC0415 - starts processes

    try:
        return Finding("Java", "ok", find_java())
    except CloudFilesError as failure:
        # A client of Spark Connect, or a task that only discovers, works without.
        needs_java = _version("pyspark") is not None
        return Finding("Java", "problem" if needs_java else "note", failure.message)


def _cache() -> Path:
    from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder  # noqa: PLC0415 - RocksDB

    return cache_folder()


def _space(check: str, folder: Path) -> Finding:
    """Check whether a local folder can be written to, and has free space."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if problem := _unwritable(there):
        return Finding(check, "problem", problem)
    free = shutil.disk_usage(there).free
    text = f"{folder}: {free / 2**30:.1f} GB free"
    if free < FREE_BYTES:
        return Finding(check, "note", f"{text}, which is little. A run that fills a disk fails.")
    return Finding(check, "ok", text)


def _unwritable(folder: Path) -> str | None:
    """Say why nothing can be written to a local folder; return `None` if it can."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".cloudfiles-doctor-"):
            return None
    except OSError as failure:
        reason = failure.strerror or str(failure)
        return f"{folder} cannot be written: {reason}. Give this user the right to, or use another."


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _extras() -> Iterator[Finding]:
    """Check which extras are installed; one Spark is needed, and two are one too many."""
    sparks = [name for name in _SPARKS if _version(_EXTRAS[name][0])]
    for extra, distributions in _EXTRAS.items():
        found = {each: _version(each) for each in distributions}
        missing = [each for each, version in found.items() if version is None]
        there = ", ".join(f"{each} {version}" for each, version in found.items() if version)
        if extra in _SPARKS and sparks and extra not in sparks:
            continue
        if not missing:
            yield Finding(f"extra {extra}", "ok", there)
            continue
        what = f"{', '.join(missing)} not installed{f' (but {there})' if there else ''}"
        yield Finding(f"extra {extra}", "note", f"{what}. {install(extra)}")
    if len(sparks) == len(_SPARKS):
        text = (
            "pyspark and pyspark-client overwrite each other's files. Uninstall both, install one."
        )
        yield Finding("Spark", "problem", text)


# Locations ---------------------------------------------------------------------------------------


def _locations(given: argparse.Namespace) -> Iterator[Finding]:
    """Check each location that is given."""
    checks: Sequence[tuple[str, str | None, Callable[[ObjectStore], Iterator[Finding]]]] = (
        ("source", given.source, _source),
        ("checkpoint", given.checkpoint_location, partial(_checkpoint, source=given.source)),
        ("target", given.target, _target),
    )
    from airflow_cloudfiles.engine.intake.opening import locate  # noqa: PLC0415
    from airflow_cloudfiles.engine.storage import open_store  # noqa: PLC0415 - clients of clouds

    for name, location, check in checks:
        if location is None:
            continue
        try:
            root = locate(location, None).root if name == "source" else location
            store = open_store(root)
            for found in check(store):
                yield Finding(f"{name}: {found.check}", found.verdict, found.found)
        except CloudFilesError as failure:
            yield Finding(name, "problem", failure.message)
        except OSError as failure:
            yield Finding(name, "problem", f"{printable_path(location)}: {failure}")


def _source(store: ObjectStore) -> Iterator[Finding]:
    if getattr(store, "is_tree", False) and not store.is_folder():
        text = f"{printable_path(store.uri)} is no folder. Create it, or correct the location."
        yield Finding("list", "problem", text)
        return
    first = next(iter(store.list(ordered=False)), None)
    if first is None:
        yield Finding("list", "note", f"{printable_path(store.uri)} can be listed, and is empty")
    else:
        yield Finding("list", "ok", f"such as {printable_path(store.child_uri(first.path))}")
    yield _clock(store)


def _checkpoint(store: ObjectStore, source: str | None) -> Iterator[Finding]:
    from airflow_cloudfiles.engine.intake.opening import locate  # noqa: PLC0415
    from airflow_cloudfiles.engine.state.metadata import read_metadata  # noqa: PLC0415

    yield _writes(store)
    yield _clock(store)
    owner = read_metadata(store)
    if owner is None:
        text = f"{printable_path(store.uri)} is new: the first run takes it for its source"
        yield Finding("stream", "ok", text)
        return
    yield _is_whole(store)
    text = f"of the source {printable_path(owner.source)}, format {owner.format}"
    if source is None or locate(source, store).name == owner.source:
        yield Finding("stream", "ok", text)
        return
    if not owner.is_bound:
        taken = f"{text}, of which no file is recorded: the first run takes it for its source"
        yield Finding("stream", "ok", taken)
        return
    advice = "Give every source a checkpoint location of its own."
    yield Finding("stream", "problem", f"{text}, not of {printable_path(source)}. {advice}")


def _is_whole(store: ObjectStore) -> Finding:
    """Read all of a state."""
    from airflow_cloudfiles.engine.extensions.overview.verify import verify_state  # noqa: PLC0415

    damages = verify_state(store.uri).damages
    if not damages:
        return Finding("state", "ok", "it is whole")
    first = damages[0]
    text = f"{counted(len(damages), 'damage')}. {first.name}: {first.problem}"
    return Finding("state", "problem", f"{text} All of them: cloudfiles verify")


def _target(store: ObjectStore) -> Iterator[Finding]:
    yield _writes(store)
    has_log = next(iter(store.list("_delta_log/")), None) is not None
    text = "a Delta table" if has_log else "no table yet: the first run creates it"
    yield Finding("table", "ok", text)


def _writes(store: ObjectStore) -> Finding:
    """Check whether an object can be created at a location, only once, and be removed."""
    from airflow_cloudfiles.engine.storage.small_objects import (  # noqa: PLC0415
        SCRATCH,
        require_conditional_put,
    )

    if folder := _local_folder(store):
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not there.is_dir():
            return Finding("write", "problem", f"{there} is a file. Give a folder.")
        if problem := _unwritable(there):
            return Finding("write", "problem", problem)
        return Finding("write", "ok", f"{there} can be written")
    require_conditional_put(store, folder=SCRATCH)
    text = "an object was written, kept against a second writer, and removed"
    return Finding("write", "ok", f"{printable_path(store.uri)}: {text}")


def _clock(store: ObjectStore) -> Finding:
    """Measure how far the clock of a store is from this machine's."""
    if not getattr(store, "tells_time", True):
        return Finding("clock", "ok", "not known: the server has no request for it")
    before = time.time()
    skew = store.clock_us() / 1e6 - (before + time.time()) / 2
    if abs(skew) <= SKEW_SECONDS:
        return Finding("clock", "ok", f"{skew:+.1f} s from this machine's")
    text = f"{skew:+.0f} s from this machine's. Let this machine set its clock by the network."
    return Finding("clock", "problem", text)


def _local_folder(store: ObjectStore) -> Path | None:
    """Return the folder of a location on a local disk."""
    from airflow_cloudfiles.engine.storage.uri import local_path  # noqa: PLC0415

    return Path(local_path(store.uri)) if store.uri.startswith("file:") else None
