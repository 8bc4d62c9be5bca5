"""Run the jobs of a stream: `ingest`, `infer`, `promote`, `replay` and `clean`.

A job is in a process of its own, whose log goes on to the log of the command as it comes.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.commands.outcome import (
    Commands,
    Outcome,
    Parser,
    add_command,
    as_text,
)
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, StateError, with_code
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.batch_function import BatchFunction
from airflow_cloudfiles.engine.job.launch import LocalPython, LocalSpark, SparkConnect, launch
from airflow_cloudfiles.engine.job.spark_command import DriverStart
from airflow_cloudfiles.engine.job.spec import JobKind, JobSpec
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.engine.spark.preload import is_banner
from airflow_cloudfiles.engine.state.metadata import existing_metadata, read_metadata
from airflow_cloudfiles.engine.state.run_history import newest_ingest
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import ENVIRONMENT, from_environment

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore


REMOTE = "SPARK_REMOTE"
"""Environment variable of Spark itself: the address of a Spark Connect server."""


def add_ingest(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "ingest what has arrived into a Delta table, each file once, with Spark"
    found = add_command(commands, "ingest", _ingest, help=help_text, parents=[shared])
    add_stream(found)
    found.add_argument(
        "--transform",
        metavar="MODULE:FUNCTION",
        help="a function from the DataFrame of each micro-batch to the one that is written; it is "
        "imported from the current folder too",
    )
    where = found.add_mutually_exclusive_group()
    where.add_argument(
        "--engine",
        choices=("spark", "local"),
        default="spark",
        help="what carries the tasks: Spark (the default), or processes of this machine without a "
        "JVM",
    )
    where.add_argument(
        "--master", metavar="LOCAL", help="a Spark of this command's own: local[*] or local[n]"
    )
    where.add_argument(
        "--spark-remote",
        metavar="URI",
        help=f"a Spark Connect server, sc://host:port; default is {REMOTE} of the environment, "
        "which may hold a token",
    )


def add_stream(found: Parser) -> None:
    """Add what says what is to be ingested, and where to."""
    for name, text in (
        ("source", "where the files land, or a Delta table"),
        ("format", "cloudFiles.format, or delta"),
        ("checkpoint-location", "the state of the stream"),
        ("target", "the folder of the Delta table, or iceberg://catalog/namespace/table"),
    ):
        metavar = "NAME" if name == "format" else "URI"
        found.add_argument(f"--{name}", required=True, metavar=metavar, help=text)
    found.add_schema_location()
    found.add_options("an option of the stream or of the sink")


def ingestion(given: argparse.Namespace, run_id: str) -> JobSpec:
    """Build the run that the arguments of `add_stream` describe.

    Raises:
        OptionError: A value cannot be used.
    """
    return JobSpec(
        kind="ingest",
        source=given.source,
        format=given.format,
        checkpoint_location=given.checkpoint_location,
        schema_location=given.schema_location,
        target=given.target,
        options=dict(given.option),
        run_id=run_id,
    )


def _transform(reference: str | None) -> dict[str, object] | None:
    """Describe the function that the driver imports, from the working directory, too."""
    if reference is None:
        return None
    found = BatchFunction.of(reference).to_json()
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    return found


def _ingest(given: argparse.Namespace) -> Outcome:
    spec = ingestion(given, f"ingest-{uuid.uuid4().hex}")
    spec = replace(spec, transform=_transform(given.transform))
    return run_job(spec, source_of(given.format).shown, _how(given))


def _how(given: argparse.Namespace) -> LocalPython | LocalSpark | SparkConnect:
    """Choose where to run: on a server, on a Spark that ends with the command, or here."""
    if given.engine == "local":
        return LocalPython()
    if given.spark_remote:
        server = SparkConnect(given.spark_remote)
        if server.has_secrets:
            raise OptionError(
                f"--spark-remote has a token, which everybody on this machine can read in the "
                f"command line. Put the address into the environment variable {REMOTE}."
            )
        return server
    if given.master:
        if not given.master.startswith("local"):
            raise OptionError(f"--master must be local[*] or local[n], got {given.master!r}.")
        return LocalSpark(master=given.master)
    remote = os.environ.get(REMOTE)
    return SparkConnect(remote) if remote else LocalSpark()


_FIELD = re.compile(r"((?:`(?:[^`]|``)*`|[^=`])+)(?:=(.+))?", re.DOTALL)
_SHOWN: Final[Mapping[JobKind, Sequence[str]]] = {
    "infer": (
        "schema_version",
        "created",
        "schema",
        "sampled_files",
        "sampled_bytes",
        "partition_columns",
        "hints",
        "changes",
        "warnings",
    ),
    "promote": (
        "columns",
        "rows",
        "values",
        "files_rewritten",
        "bytes_rewritten",
        "schema_version",
        "target_version",
        "warnings",
    ),
    "replay": ("is_done", "batches", "present", "files", "rows", "target_version", "warnings"),
    "clean": ("mode", "is_dry_run", "files", "bytes", "others", "is_complete", "warnings"),
}
"""What of a report is written for people."""
_log = logging.getLogger(__name__)


def _run(given: argparse.Namespace, kind: JobKind, **fields: Any) -> Outcome:
    """Run a job of a stream, with further fields of its `JobSpec`."""
    spec = JobSpec(
        kind=kind,
        checkpoint_location=given.checkpoint_location,
        run_id=f"{kind}-{uuid.uuid4().hex}",
        **fields,
    )
    return run_job(spec, _SHOWN[kind])


def add_infer(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "infer the schema of a stream and write it to its schema log, unless it has one"
    found = add_command(commands, "infer", _infer, help=help_text, parents=[shared])
    found.add_checkpoint_location()
    found.add_schema_location()
    found.add_location("--source", "where the files land; needed before the first run")
    found.add_argument(
        "--format", metavar="NAME", help="cloudFiles.format; needed before the first run"
    )
    found.add_options("an option of the stream, such as cloudFiles.inferColumnTypes=true")
    found.add_flag(
        "--again",
        "infer also where there is a schema: what differs is a new version, in which a column "
        "that the sample lacks is gone; needs the same options as the stream",
    )


def _infer(given: argparse.Namespace) -> Outcome:
    source, file_format = _stream(given)
    return _run(
        given,
        "infer",
        source=source,
        format=file_format,
        schema_location=given.schema_location,
        options=dict(given.option),
        infer_again=given.again,
    )


def _stream(given: argparse.Namespace) -> tuple[str, str]:
    """Source and format: as given, else as the state has them."""
    if given.source and given.format:
        return given.source, given.format
    state = open_store(given.checkpoint_location)
    known = read_metadata(state)
    if known is None:
        raise OptionError(
            f"There is no state in {printable_path(state.uri)} yet, so the source and the "
            "format are not known. Give --source and --format."
        )
    return given.source or known.source, given.format or known.format


def add_promote(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "turn fields of the rescued data of a table into columns, and fill them"
    found = add_command(commands, "promote", _promote, help=help_text, parents=[shared])
    found.add_checkpoint_location()
    found.add_location("--target", "the Delta table", required=True)
    found.add_argument(
        "--field",
        type=_field,
        action="append",
        required=True,
        dest="fields",
        metavar="PATH[=TYPE]",
        help="a dotted path, such as user.zip=STRING; without a type, the rescued values tell it; "
        "may be repeated",
    )
    found.add_schema_location()
    found.add_options("an option of the stream, such as cloudFiles.inferColumnTypes=true")


def _promote(given: argparse.Namespace) -> Outcome:
    stream = existing_metadata(open_store(given.checkpoint_location))
    return _run(
        given,
        "promote",
        source=stream.source,
        format=stream.format,
        schema_location=given.schema_location,
        target=given.target,
        options=dict(given.option),
        promote=dict(given.fields),
    )


def _field(text: str) -> tuple[str, str | None]:
    """Read a path with or without a type."""
    found = _FIELD.fullmatch(text)
    if found is None:
        msg = f"{text!r} is not written PATH or PATH=TYPE"
        raise argparse.ArgumentTypeError(msg)
    return found[1], found[2]


def add_replay(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = (
        "ingest batches again that a table has lost, or accept their loss; single files: "
        "cloudfiles file replay"
    )
    found = add_command(commands, "replay", _replay, help=help_text, parents=[shared])
    found.add_checkpoint_location()
    found.add_location("--target", "the Delta table", required=True)
    found.add_argument(
        "--from-batch",
        type=int,
        required=True,
        metavar="N",
        help="the first batch that is missing; those after it that the table has are left alone",
    )
    found.add_flag(
        "--accept-loss",
        "give the missing batches up: nothing is ingested, and the stream goes on without",
    )
    found.add_flag("--dry-run", "only tell which batches are missing, and check")
    found.add_flag(
        "--as-read",
        "for a query of your own: it writes what it reads, without transformations",
    )
    found.add_txn_app_id()
    found.add_schema_location()
    found.add_options("an option of the stream, instead of those of its newest run")


def _replay(given: argparse.Namespace) -> Outcome:
    state = open_store(given.checkpoint_location)
    stream = read_metadata(state)
    if stream is None and not given.accept_loss:
        raise StateError(
            f"There is no state of a cloudFiles source in {printable_path(state.uri)}, so there "
            "are no plans to replay. Name the checkpoint location of the stream, or give the "
            "batches up with --accept-loss. Of a stream from a Delta table, the LostBatchesError "
            "of its runs says how to read the versions again."
        )
    run = _newest_run(state)
    return _run(
        given,
        "replay",
        source=stream.source if stream else given.checkpoint_location,
        format=stream.format if stream else "json",
        schema_location=given.schema_location or run.get("schema_location"),
        target=given.target,
        options=dict(given.option) or run.get("options") or {},
        spark_conf=run.get("spark_conf") or {},
        replay={
            "from_batch": given.from_batch,
            "accept_loss": given.accept_loss,
            "dry_run": given.dry_run,
            "as_read": given.as_read,
            "app_id": given.txn_app_id,
        },
    )


def _newest_run(state: ObjectStore) -> dict[str, Any]:
    """Read what the newest run of the stream was given; return nothing when there was none."""
    found = newest_ingest(state)
    if found is None:
        return {}
    _log.info("Options are those of run %s", found[1].get("run_id"))
    return found[1]


def add_clean(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "remove or move files of the source that are committed and due (cleanSource)"
    found = add_command(commands, "clean", _clean, help=help_text, parents=[shared])
    found.add_checkpoint_location()
    found.add_location(
        "--target",
        "the table that must have the batches; default is the one that the state names",
    )
    found.add_flag("--dry-run", "only tell what would be removed or moved")
    found.add_flag(
        "--trust-checkpoint",
        "for a query of your own that writes no table: what Spark has committed is taken to "
        "be where it belongs",
    )
    found.add_txn_app_id()
    found.add_options("an option of the stream, besides or instead of those of its newest run")


def _clean(given: argparse.Namespace) -> Outcome:
    state = open_store(given.checkpoint_location)
    stream = existing_metadata(state)
    run = _newest_run(state)
    options = {key.lower(): (key, value) for key, value in (run.get("options") or {}).items()}
    options |= {key.lower(): (key, value) for key, value in given.option}
    return _run(
        given,
        "clean",
        source=stream.source,
        format=stream.format,
        schema_location=run.get("schema_location"),
        target=given.target or run.get("target"),
        options=dict(options.values()),
        clean={
            "dry_run": given.dry_run,
            "trust_checkpoint": given.trust_checkpoint,
            "app_id": given.txn_app_id,
        },
    )


_ERROR = " ERROR airflow_cloudfiles.engine.job.run: "
"""Begins the error that ends a job, in its log."""


def run_job(spec: JobSpec, shown: Sequence[str], how: DriverStart | None = None) -> Outcome:
    """Run a job to its end.

    Args:
        spec: What to do.
        shown: What of its report is written for people, as far as it has it; programs get all.
        how: Where it runs; `None` for a process without Spark.

    Raises:
        CloudFilesError: What it failed with; not in the log, since the command writes it itself.
    """
    lines = _LogLines()
    # Whoever is asked for credentials (`--conn-id`) is in this process: the job's asks through it.
    access = from_environment() if ENVIRONMENT in os.environ else None
    run = launch(spec, how or LocalPython(), on_log=lines.add, access=access)
    try:
        report = run.wait()
    except CloudFilesError as failure:
        lines.end(with_code(failure))
        raise
    lines.end()
    return Outcome(report, as_text({name: report[name] for name in shown if name in report}))


class _LogLines:
    """What the process logs, but for the error it ends with: the command writes that itself."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def add(self, line: str) -> None:
        """Pass a line on, or hold it back from the error on."""
        if self._held or _ERROR in line:
            self._held.append(line)
        elif is_banner(line):
            _log.debug("%s", line)
        else:
            _log.info("%s", line)

    def end(self, error: str = "") -> None:
        """Pass on what was held back, such as a traceback, without the error itself."""
        held = "\n".join(self._held)
        for line in (held.partition(error)[2] if error and error in held else held).splitlines():
            if line:
                _log.info("%s", line)
