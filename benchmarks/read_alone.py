"""What does reading cost without Spark: this engine's reader alone, files to Arrow, one process."""

from __future__ import annotations

from contextlib import closing

from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.splits import Split, pack
from airflow_cloudfiles.engine.stream.definition import batch_context, resolve_schema
from airflow_cloudfiles.engine.stream.schema_change import TaskReader


def splits(spec: JobSpec) -> list[Split]:
    """Find the files of a run and infer their schema, unless that is done; plan them for two."""
    options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
    resolved = resolve_schema(options)
    opened = Intake.open(
        source=spec.source, format=spec.format, checkpoint_location=spec.checkpoint_location
    )
    with closing(opened) as intake:
        intake.discover()
        context = batch_context(
            options,
            resolved,
            intake,
            start=START,
            end=intake.head(),
        )
        files = list(intake.files.slice(START, intake.head()))
    groups = pack(files, parallelism=2, can_cut=options.format_options.can_split())
    return [Split(context, group) for group in groups]


def read(planned: list[Split]) -> int:
    """Read all of it, one after another; gives the number of rows."""
    return sum(batch.num_rows for split in planned for batch in TaskReader(split).read())
