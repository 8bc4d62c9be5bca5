"""`cloudfiles ingest`: land the files that arrived in a Delta table, each exactly once."""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from dataclasses import replace
from pathlib import Path

from airflow_cloudfiles.commands.running.job import run_job
from airflow_cloudfiles.commands.running.outcome import Commands, Outcome, Parser, add_command
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.batch_function import BatchFunction
from airflow_cloudfiles.engine.job.launch import LocalPython, LocalSpark, SparkConnect
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.source import source_of

REMOTE = "SPARK_REMOTE"
"""Environment variable of Spark itself: the address of a Spark Connect server."""


def add_to(commands: Commands, shared: Parser) -> None:
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
