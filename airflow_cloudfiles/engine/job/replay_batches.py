"""How are the files of a planned micro-batch read and committed without Spark?

As its tasks do, with the same readers and writers, in processes of this machine. The schema is the
newest version of the schema log; a field that it lacks adds a version in the modes that do, and the
batch is read once more.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.counted import counted, plural
from airflow_cloudfiles.engine.delta.commit import check_target, commit_batch
from airflow_cloudfiles.engine.delta.merge.commit import merge_batch
from airflow_cloudfiles.engine.delta.merge.rule import MergeRule
from airflow_cloudfiles.engine.delta.opening import open_table
from airflow_cloudfiles.engine.delta.schema import schema_of
from airflow_cloudfiles.engine.delta.widening import widening_rule
from airflow_cloudfiles.engine.delta.write.creation import NewTable
from airflow_cloudfiles.engine.delta.write.evolve import Evolution
from airflow_cloudfiles.engine.delta.write.former_rows import (
    refuse_former,
    replaced_by,
    replacing,
)
from airflow_cloudfiles.engine.delta.write.rows import TableWrite
from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    FileMissingError,
    FileUnreachableError,
    OptionError,
    SchemaInferenceError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.intake.source_path import locate
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.fetch import packed
from airflow_cloudfiles.engine.reading.splits import BatchContext, Split
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.spark.tables.delta_writer import write_splits
from airflow_cloudfiles.engine.spark.tables.stream_writer import TaskWritten, lead_of
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream import definition
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.delta.commit import BatchId, Committed
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.job.spec import JobSpec
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
    """

    def __init__(self, spec: JobSpec, state: ObjectStore, files: FileLog, plans: PlanLog) -> None:
        self._spec = spec
        self._state = state
        self._files = files
        self._plans = plans
        self._options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
        self._evolution = Evolution(
            merge_schema=spec.merge_schema,
            widening=widening_rule(spec.table_options, default=False),
        )
        self._merge = MergeRule.of(spec.table_options)
        if self._merge is not None and self._merge.order_by is None:
            raise OptionError(
                "Batches of a merge without mergeOrderBy cannot be replayed: they would replace "
                "rows that later batches have merged. Give --option mergeOrderBy=COLUMN."
            )
        self._place = locate(spec.source, state)
        self._source = open_store(self._place.root)

    def plan_id(self, batch: int) -> str:
        """The id of a batch's plan."""
        return self._plans.id_of(batch)

    def files(self, batch: int) -> list[FileEntry]:
        """The files of a batch."""
        plan = self._plan(batch)
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
                    there = pool.map(partial(_is_there, self._source), files)
                    gone += [
                        f"{self._source.child_uri(file.path)} (batch {batch})"
                        for file, is_there in zip(files, there, strict=True)
                        if not is_there
                    ]
                except OSError as error:
                    raise FileUnreachableError(
                        f"{self._source.uri} does not answer: {error}. Run again."
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
        written, schema = self._written_at_last(self._plan(batch.number))
        lead = lead_of(written)
        layout = None if lead is None else lead.layout
        former, target = replaced_by(self._state, batch.number), str(self._spec.target)
        if self._merge:
            refuse_former(former, target, "its stream merges")
            commit = partial(merge_batch, rule=self._merge)
        else:
            commit = partial(commit_batch, layout=layout, append=replacing(former))
        committed = commit(
            target,
            batch=batch,
            files=[file for each in written for file in each.files],
            schema=schema,
            merge_schema=self._evolution.merge_schema,
            widening=self._evolution.widening,
            new=NewTable.of(self._spec.table_options),
        )
        return committed, sum(each.counts.get("rows", 0) for each in written)

    def _plan(self, batch: int) -> Plan:
        return self._plans.at(batch)

    def _written_at_last(self, plan: Plan) -> tuple[list[TaskWritten], pa.Schema]:
        """Write a batch, again after each change of the schema."""
        for _ in range(SCHEMA_TRIES):
            try:
                return self._written(plan)
            except UnknownFieldException as error:
                if not error.is_retryable:
                    raise
                _log.info("%s", error)
        return self._written(plan)

    def _written(self, plan: Plan) -> tuple[list[TaskWritten], pa.Schema]:
        resolved = self._resolved()
        context = self._context(plan, resolved)
        files = list(self._files.slice(plan.start, plan.end))
        workers = os.cpu_count() or 1
        can_cut = context.options.format_options.can_split()
        ranges = packed(self._source, files, parallelism=workers, can_cut=can_cut)
        splits = [Split(context, each) for each in ranges]
        schema = to_arrow(resolved.full_schema(context.options))
        table = check_target(
            str(self._spec.target),
            schema,
            merge_schema=self._evolution.merge_schema,
            widening=self._evolution.widening,
            new=NewTable.of(self._spec.table_options),
        )
        how = TableWrite(
            table,
            self._evolution,
            target_bytes=self._spec.table_options.target_file_size,
            is_staged=self._merge is not None,
        )
        write = partial(write_splits, str(self._spec.target), how=how)
        workers = min(workers, len(splits))
        if workers <= 1:
            return [write([split]) for split in splits], schema
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
            return list(pool.map(write, [[split] for split in splits])), schema

    def _resolved(self) -> definition.ResolvedSchema:
        """The newest schema: of the log, or where a query gave it, of the table."""
        location = str(self._spec.schema_location or self._spec.checkpoint_location)
        latest = SchemaLog(open_store(location), self._place.name).latest()
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
            source=self._source,
            name=self._place.name,
            state=self._state,
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
