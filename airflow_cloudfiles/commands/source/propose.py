"""Run `cloudfiles propose`, which writes a file of streams for what is in a bucket or a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from airflow_cloudfiles.commands.outcome import Commands, Outcome, Parser, add_command
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.proposal.proposed import (
    Limits,
    Places,
    as_json,
    as_yaml,
    write_file,
)
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.vendors import import_with_extra


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "propose streams for the tables in a bucket, a prefix or a folder, as YAML"
    found = add_command(commands, "propose", _propose, help=help_text, parents=[shared])
    found.add_argument("source", metavar="URI", help="what is looked at; nothing is written to it")
    found.add_location("--state-root", "the folder for the states of the streams", required=True)
    found.add_location("--target-root", "the folder for their tables", required=True)
    found.add_argument(
        "--output", metavar="FILE", help="write the YAML there and not to standard output"
    )
    found.add_flag("--force", "overwrite the file of --output")
    limits = Limits()
    numbers = {
        "--most-files": (limits.files, "list at most N files"),
        "--most-tables": (limits.tables, "read of at most N tables, those with most files"),
        "--most-bytes": (limits.bytes, "read at most N bytes"),
        "--sample-files": (limits.sampled, "read the beginning of N files of each table"),
    }
    for flag, (default, text) in numbers.items():
        found.add_argument(
            flag, type=_positive, default=default, metavar="N", help=f"{text} ({default:,})"
        )
    found.add_argument(
        "--runs-per-hour",
        type=_rate,
        default=1.0,
        metavar="N",
        help="how often the streams would run, for what finding files would cost (1)",
    )


def _positive(text: str) -> int:
    """Read a number of at least 1, such as 1,000,000."""
    found = int(text.replace(",", ""))
    if found < 1:
        raise ValueError(text)
    return found


def _rate(text: str) -> float:
    """Read how often something is in an hour."""
    found = float(text)
    if not 0 < found <= 3600:  # noqa: PLR2004 - once a second
        raise ValueError(text)
    return found


def _propose(given: argparse.Namespace) -> Outcome:
    if given.output is not None:
        _check_output(given.output, given.source, force=given.force)
    # Types of columns are those of PySpark, which few commands need.
    import_with_extra("pyspark.sql.types", "spark", needed_for="the types of proposed columns")
    found = extension("propose")(
        given.source,
        Places(state_root=given.state_root, target_root=given.target_root, conn_id=given.conn_id),
        Limits(
            files=given.most_files,
            tables=given.most_tables,
            sampled=given.sample_files,
            bytes=given.most_bytes,
        ),
        runs_an_hour=given.runs_per_hour,
    )
    text, value = as_yaml(found), as_json(found)
    if given.output is not None:
        write_file(text, given.output, force=given.force)
        doubts = len(found.doubts) + sum(len(each.doubts) for each in found.streams)
        text = (
            f"{given.output} has {counted(len(found.streams), 'stream')} and "
            f"{counted(doubts, 'doubt')}. Read it before a DAG does."
        )
    return Outcome(value, text, code=0 if found.streams else 1)


def _check_output(path: str, source: str, *, force: bool) -> None:
    """Refuse an output file before anything is looked at."""
    file = Path(path).absolute()
    if open_store(source).key_of(str(file)) is not None:
        raise OptionError(f"--output {path} is in the source, where it would be ingested.")
    if file.exists() and not force:
        raise OptionError(
            f"{path} is there already. Give another name, or --force to overwrite it."
        )
