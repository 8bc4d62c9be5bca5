"""A state that is written entry by entry, with the package's own logs, as its processes do it."""

from __future__ import annotations

from typing import Any

from airflow_cloudfiles.engine.files import FileEntry, ReadLimit
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.state.file_log import FileBatch, FoundBy, log_of
from airflow_cloudfiles.engine.state.metadata import open_metadata
from airflow_cloudfiles.engine.state.plan_log import Plan, PlanLog
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord, position
from airflow_cloudfiles.engine.storage import open_store


class WrittenState:
    """The state of a stream.

    Args:
        uri: Of the checkpoint location.
        source: What the state knows the source by.

    Attributes:
        uri: The same.
        state: Its store.
        files: Its file log.
        plans: Its plan log.
    """

    def __init__(self, uri: str, source: str = "s3://lake/orders") -> None:
        self.uri = uri
        self.state = open_store(uri)
        self.files = log_of(self.state, open_metadata(self.state, source, "json"))
        self.plans = PlanLog(self.state)

    def discover(self, *paths: str, found_by: FoundBy = "listing", time_us: int = 5) -> int:
        """Append an entry; the size of a file is the length of its path."""
        files = [FileEntry(path, len(path), time_us, f"etag-{time_us}") for path in paths]
        return self.append(*files, found_by=found_by)

    def append(self, *files: FileEntry, found_by: FoundBy = "listing") -> int:
        """Append an entry with some versions of files."""
        number = self.files.latest() + 1
        assert self.files.append(number, FileBatch(files, found_by))
        return number

    def plan(self, max_files: int | None = None) -> Plan | None:
        """Plan a micro-batch behind the newest; `None` when nothing is left."""
        latest = self.plans.latest()
        start = latest.end if latest else position(self.state).end
        end = self.plans.plan(self.files, start, ReadLimit(max_files=max_files), self.files.head())
        return None if end == start else self.plans.latest()

    def commit(
        self,
        run_id: str | None = "run",
        *,
        is_noted: bool = True,
        is_counted: bool = True,
        **counts: int,
    ) -> int:
        """Commit the batch behind the newest committed one, as a job does.

        Args:
            run_id: The run.
            is_noted: Whether the note is written; a job may be killed when it has written the
                record.
            is_counted: Whether record and note say what was counted; those of earlier checkouts
                do not, nor those of queries whose rows pass Spark.
            counts: What was counted, besides the usual.
        """
        batch = position(self.state).batch + 1
        plan = self.plans.at(batch)
        usual = {
            "files": plan.files,
            "rows": 10 * plan.files,
            "rescued_rows": 1,
            "corrupt_files": 0,
        }
        done = run_history.BatchDone(
            batch_id=batch,
            table_version=batch + 10,
            is_new=True,
            schema_version=2,
            counts={**usual, **counts} if is_counted else {},
            run_id=run_id,
        )
        SinkLog(self.state).add(
            SinkRecord(
                batch=batch,
                table_id="t",
                version=done.table_version,
                end=plan.end,
                run_id=run_id,
                schema_version=done.schema_version,
                counts=done.counts,
            )
        )
        if is_noted:
            run_history.note(self.uri, done)
        return batch

    def commit_in_spark(self, batch: int, plan: int | None = None) -> None:
        """Write what Spark writes for a committed batch of a plain query."""
        end = self.plans.at(batch if plan is None else plan).end.to_json()
        lines = [
            "v1",
            '{"batchWatermarkMs":0}',
            f'{{"entry":{end["entry"]},"index":{end["index"]}}}',
        ]
        self.state.put(f"offsets/{batch}", "\n".join(lines).encode())
        self.state.put(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')

    def content(self) -> dict[str, Any]:
        """Every object of the state, with its time."""
        return {
            each.path: (each.modification_time_us, self.state.get(each.path))
            for each in self.state.list()
        }
