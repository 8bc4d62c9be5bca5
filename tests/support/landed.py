"""A stream without Spark: discover, plan, read, as its tasks do, in this process."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.files import START, FileEntry, Offset
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.fetch import packed
from airflow_cloudfiles.engine.reading.split_reader import SplitCounts
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream import definition
from airflow_cloudfiles.engine.stream.schema_change import TaskReader, evolve_ahead


class Stream:
    """One source and its state; each `run` reads what has not been read.

    Attributes:
        schema: Given by the user; `None` where it is inferred.
        rows: What the table would hold.
        counts: Of each split of the last run.
    """

    def __init__(
        self,
        source: Path,
        state: Path,
        format_name: str,
        *,
        schema: StructType | None = None,
        **options: object,
    ) -> None:
        self.given = {
            "cloudFiles.format": format_name,
            "cloudFiles.schemaLocation": str(state),
            "checkpointLocation": str(state),
            **options,
        }
        self.source = source
        self.schema = schema
        self.rows: list[dict[str, Any]] = []
        self.counts: list[SplitCounts] = []
        self._at: Offset = START

    @property
    def options(self) -> CloudFilesOptions:
        """The options as they are now."""
        return CloudFilesOptions.parse(
            self.given, path=str(self.source), has_schema=self.schema is not None
        )

    def run(self, parallelism: int = 2) -> list[dict[str, Any]]:
        """Read what is outstanding; nothing of it is kept when that fails.

        Returns:
            The rows of this run.
        """
        context, files = self._planned()
        can_cut = context.options.format_options.can_split()
        store = open_store(context.source_uri)
        splits = packed(store, files, parallelism=parallelism, can_cut=can_cut)
        readers = [TaskReader(Split(context, ranges)) for ranges in splits]
        found = [row for each in readers for batch in each.read() for row in batch.to_pylist()]
        self.counts = [each.counts for each in readers]
        self._at = context.end
        self.rows += found
        return found

    def tasks(self) -> list[TaskReader]:
        """What reads the outstanding files, one task a file; they stay outstanding."""
        context, files = self._planned()
        return [TaskReader(Split(context, (FileRange(file),))) for file in files]

    def _planned(self) -> tuple[BatchContext, list[FileEntry]]:
        options = self.options
        resolved = (
            definition.resolve_schema(options)
            if self.schema is None
            else definition.given_schema(self.schema, options)
        )
        intake = Intake.open(
            source=options.path,
            format=options.format,
            checkpoint_location=str(options.checkpoint_location),
            discovery=options.discovery,
        )
        with closing(intake):
            intake.discover()
            resolved = evolve_ahead(options, intake, resolved) or resolved
            context = definition.batch_context(
                options,
                resolved,
                intake,
                start=self._at,
                end=intake.head(),
            )
            return context, list(intake.files.slice(context.start, context.end))
