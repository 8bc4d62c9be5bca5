"""Read the files of a planned micro-batch once more, and commit them.

As a run does, with the same readers and writers, in processes of this machine. The schema is the
newest version of the schema log; a field that it lacks adds a version in the modes that do, and the
batch is read once more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.batches.file_source import split_up, write_split
from airflow_cloudfiles.engine.batches.local import LocalProcesses, cores
from airflow_cloudfiles.engine.batches.run import TaskFailed
from airflow_cloudfiles.engine.batches.table_writer import former_rows
from airflow_cloudfiles.engine.delta.merge.rule import MergeRule
from airflow_cloudfiles.engine.delta.opening import open_table
from airflow_cloudfiles.engine.delta.read.columns import schema_of
from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    FileMissingError,
    FileUnreachableError,
    OptionError,
    SchemaInferenceError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.intake.opening import locate
from airflow_cloudfiles.engine.job.target import check_target, new_writer
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream import definition
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.batches.table_writer import TableWriter, TaskWritten
    from airflow_cloudfiles.engine.delta.commit import BatchId, Committed
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.reading.splits import BatchContext
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.state.plan_log import Plan, PlanLog
    from airflow_cloudfiles.engine.storage import ObjectStore

SCHEMA_TRIES = 100
"""How many schema changes one batch may meet."""
LOOKS = 16
"""Files that are looked for side by side."""
NAMED = 20
"""How many missing files an error names."""
_log = logging.getLogger(__name__)


class BatchReader:
    """Reads planned batches of a stream and commits them to its table.

    Args:
        spec: The stream, as a run has it.
        state: Its state.
        files: Its file log.
        plans: Its plan log.

    Attributes:
        source: The folder the files land in.
        name: What the state knows the source by.
        state: The state.
    """

    def __init__(self, spec: JobSpec, state: ObjectStore, files: FileLog, plans: PlanLog) -> None:
        self._spec = spec
        self.state = state
        self._files = files
        self._plans = plans
        self._options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
        merge = MergeRule.of(spec.table_options)
        if merge is not None and merge.order_by is None:
            raise OptionError(
                "Batches of a merge without mergeOrderBy cannot be replayed: they would replace "
                "rows that later batches have merged. Give --option mergeOrderBy=COLUMN."
            )
        place = locate(spec.source, state)
        self.name = place.name
        self.source = open_store(place.root)

    def plan_id(self, batch: int) -> str:
        """The id of a batch's plan."""
        return self._plans.id_of(batch)

    def files(self, batch: int) -> list[FileEntry]:
        """The files of a batch."""
        plan = self._plans.at(batch)
        return list(self._files.slice(plan.start, plan.end))

    def require_files(self, batches: Sequence[int]) -> None:
        """Refuse batches of which files are gone, unless missing files are to be ignored.

        Raises:
            FileMissingError: Names them.
            FileUnreachableError: The source does not answer.
        """
        if self._options.ignore_missing_files:
            return
        gone: list[str] = []
        with ThreadPoolExecutor(LOOKS, thread_name_prefix="cloudfiles-head") as pool:
            for batch in batches:
                files = self.files(batch)
                try:
                    there = pool.map(partial(_is_there, self.source), files)
                    gone += [
                        f"{self.source.child_uri(file.path)} (batch {batch})"
                        for file, is_there in zip(files, there, strict=True)
                        if not is_there
                    ]
                except OSError as error:
                    raise FileUnreachableError(
                        f"{self.source.uri} does not answer: {error}. Run again."
                    ) from error
        if gone:
            more = f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
            raise FileMissingError(
                f"{counted(len(gone), 'file')} of the batches {plural(len(gone), 'is', 'are')} "
                f"gone from the source: {', '.join(gone[:NAMED])}{more}. Put what is missing back, "
                "or replay the rest with --option ignoreMissingFiles=true."
            )

    def ingest(self, batch: BatchId) -> tuple[Committed, int]:
        """Read a batch and commit it, with the rows it has.

        Raises:
            UnknownFieldException: A field that the schema lacks, in the modes that fail on it.
            ReadError: A file cannot be read.
            SinkError: The table does not take it.
        """
        written, writer = self._written_at_last(self._plans.at(batch.number))
        former = former_rows(self.state, batch.number)
        committed = writer.make_visible(batch, written, None, former)
        return committed, sum(each.counts.get("rows", 0) for each in written)

    def _written_at_last(self, plan: Plan) -> tuple[list[TaskWritten], TableWriter]:
        """Write a batch, again after each change of the schema."""
        for _ in range(SCHEMA_TRIES):
            try:
                return self._written(plan)
            except UnknownFieldException as error:
                if not error.is_retryable:
                    raise
                _log.info("%s", error)
        return self._written(plan)

    def _written(self, plan: Plan) -> tuple[list[TaskWritten], TableWriter]:
        """Write a batch as the newest schema says, and with what it was written."""
        resolved = self._resolved()
        context = self._context(plan, resolved)
        schema = resolved.full_schema(context.options)
        check_target(self._spec, to_arrow(schema))
        writer = new_writer(self._spec, written="files", schema=schema)
        files = list(self._files.slice(plan.start, plan.end))
        splits = split_up(self.source, files, context, cores())
        try:
            with LocalProcesses(cores()) as processes:
                task = partial(write_split, writer)
                return processes.carry(task, splits, plan.number), writer
        except TaskFailed as failed:
            raise failed.failure from failed

    def _resolved(self) -> definition.ResolvedSchema:
        """The newest schema: of the log, or where a query gave it, of the table."""
        location = str(self._spec.schema_location or self._spec.checkpoint_location)
        latest = SchemaLog(open_store(location), self.name).latest()
        if latest is not None:
            return definition.resolve_schema(self._options)
        table = open_table(str(self._spec.target))
        if table is None:
            raise SchemaInferenceError(
                f"There is no schema in {location}, and no table to take it from. Name the "
                "stream's schema location; or, if its query gave the schema, create the empty "
                f"table {self._spec.target} with it."
            )
        return definition.given_schema(schema_of(table), self._options)

    def _context(self, plan: Plan, resolved: definition.ResolvedSchema) -> BatchContext:
        return definition.batch_context(
            self._options,
            resolved,
            self,
            start=plan.start,
            end=plan.end,
        )


def _is_there(store: ObjectStore, file: FileEntry) -> bool:
    return store.head(file.path) is not None


def check_plan(plans: PlanLog, batch: int, noted: str) -> None:
    """Refuse a plan that is not the one which was committed under a number.

    Raises:
        CorruptedStateError: It is another.
    """
    if noted and plans.id_of(batch) != noted:
        raise CorruptedStateError(
            f"The plan of batch {batch} is not the one that was committed under this number. "
            "Restore the checkpoint location as a whole from a backup."
        )
