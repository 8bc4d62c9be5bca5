"""Reach the engine from a task, with its connection and through few calls."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook

from airflow_cloudfiles.engine.discovery import services
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, from_record
from airflow_cloudfiles.engine.extensions.cluster.submitted_run import submit
from airflow_cloudfiles.engine.extensions.event_log import description as event_logs
from airflow_cloudfiles.engine.extensions.event_log.collector import LogCheck, check_log
from airflow_cloudfiles.engine.files import Offset, printable_path
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.results import Arrivals, Backlog
from airflow_cloudfiles.engine.intake.stream_logs import oldest
from airflow_cloudfiles.engine.job.connect.left_query import read_run
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalPython, Run, SparkSubmit, launch
from airflow_cloudfiles.engine.options.values import check_ends
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.engine.state.run_history import read_report
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.versions import FIELD
from airflow_cloudfiles.hooks.access import access_of
from airflow_cloudfiles.hooks.arguments import BATCH_VERSION, check_fields
from airflow_cloudfiles.hooks.spark import SparkArguments, submission

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.providers.common.compat.sdk import Connection

    from airflow_cloudfiles.engine.extensions.cluster.submitted_run import FollowedRun
    from airflow_cloudfiles.engine.storage.access import Access
    from airflow_cloudfiles.hooks.arguments import StreamArguments

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_NO_LISTING_OF_ITS_OWN = {"list_on_start": False, "backfill_interval_seconds": None}


def is_absolute(location: str) -> bool:
    """Tell whether a location is a URI or begins with a slash."""
    return _ABSOLUTE.match(location) is not None


class CloudFilesHook(BaseHook):
    """The engine as an Airflow task sees it.

    Args:
        conn_id: One connection for the source, the state, the schema log and the target of a
            stream: of a type of this package (`cloudfiles_aws`, `cloudfiles_azure`,
            `cloudfiles_gcp`, `cloudfiles_sftp`) or of the clouds' and SFTP's providers; a location
            elsewhere is reached with the environment's own credentials. Or one of type
            *File (path)*: relative locations are below its path.
            Without any, every location must be absolute, because a worker has no fixed working
            directory, and credentials are the environment's own.
    """

    conn_name_attr = "conn_id"
    hook_name = "Cloud Files"

    def __init__(self, conn_id: str | None = None) -> None:
        super().__init__()
        self.conn_id = conn_id

    @cached_property
    def access(self) -> Access | None:
        """How the connection's cloud is reached; it holds secrets.

        Raises:
            UnsupportedOptionError: The connection is of a kind, or says something, that is not
                offered.
        """
        return access_of(self._connection) if self._connection else None

    def locate(self, stream: StreamArguments) -> StreamArguments:
        """Validate a stream's options and make its locations absolute.

        Raises:
            OptionError: An option is not valid, or a location is relative to nothing.
        """
        return stream.validated().located(self.absolute)

    def absolute(self, location: str) -> str:
        """Make a location absolute.

        Raises:
            OptionError: It is relative to nothing.
        """
        if is_absolute(check_ends("A location", location)):
            return location
        base = self._base_path()
        if base is None:
            raise OptionError(
                f"The location {location!r} is relative, and a worker has no fixed working "
                "directory. Give an absolute path or URI, or conn_id of a File (path) connection."
            )
        return f"{base.rstrip('/')}/{location}"

    def discover(self, stream: StreamArguments) -> dict[str, Any] | None:
        """Record what has arrived and say what is still to be ingested.

        Messages are acknowledged when the file log has their files. Repeating it is harmless: a
        file is recorded once, whoever finds it.

        Of a Delta table as the source, nothing is recorded: its log has all versions.

        Returns:
            The reference to the outstanding batch that a sensor leaves in XCom; `None` when
            everything is ingested. Of a Delta table: `{"version", "checkpoint_location",
            "next_version", "last_version"}`, where `next_version` is `None` before the first run.
        """
        return self.look(stream)[0]

    def look(self, stream: StreamArguments) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Record what has arrived, and say what waits.

        Returns:
            What `discover` gives; and `files`, `bytes` and `oldest`, when the oldest of the files
            that wait was found, or `None`; `settling`, which files are not taken yet because they
            may still be written, in words. Nothing of these of a Delta table.
        """
        located = self.locate(stream)
        if not source_of(located.format).records_arrivals:
            return self._new_versions(located), {}
        with closing(self._intake(located)) as intake:
            found = intake.discover()
            end = intake.known_head()
            backlog = intake.outstanding(up_to=end)
            first = None if backlog.first_entry is None else Offset(backlog.first_entry, 0)
            since = None if first is None else oldest(intake.files, first, end)
        waits: dict[str, Any] = {
            "files": backlog.files,
            "bytes": backlog.bytes,
            "oldest": since,
            "settling": str(found.waiting) if found.waiting and found.waiting.files else "",
        }
        return _batch(located, backlog), waits

    def has_arrivals(self, stream: StreamArguments) -> bool:
        """Tell whether there is something to ingest; record and acknowledge nothing."""
        return bool(self.check(stream))

    def check(self, stream: StreamArguments) -> Arrivals:
        """Report what there is to ingest, as far as a trigger event needs it.

        Records nothing, and receives no message for good.
        """
        with closing(self._intake(self.locate(stream))) as intake:
            return intake.arrivals()

    def reconcile(self, stream: StreamArguments) -> dict[str, Any]:
        """Look for new files as always, then list everything, and say what only that has found.

        What is found is recorded and outstanding, for the next ingestion.

        Returns:
            `{"checkpoint_location", "listed", "files", "bytes", "sample", "outstanding_files"}`:
            how much was listed; how many files neither notifications nor an incremental listing
            had brought, the size and the first of what is new; how many files wait for ingestion.
        """
        located = self.locate(stream)
        with closing(self._intake(located, **_NO_LISTING_OF_ITS_OWN)) as intake:
            intake.discover()
            found = intake.discover(full=True)
            outstanding = intake.outstanding()
        return {
            "checkpoint_location": located.checkpoint_location,
            "listed": found.listed,
            "files": found.files - found.by.get("notification", 0),
            "bytes": found.bytes,
            "sample": [printable_path(path) for path in found.sample],
            "outstanding_files": outstanding.files,
        }

    def check_events(
        self, events_location: str, start: int | None, *, end: int | None = None
    ) -> LogCheck:
        """Drain the queue of an event log, unless that was done just now, and read what is new.

        Args:
            events_location: Path or URI of the log.
            start: The entry to read first; `None` gives the end of the log.
            end: The entry to read no more.
        """
        return check_log(self.absolute(events_location), start, self.access, end=end)

    def set_up_notifications(
        self, source: str, name: str, *, events_location: str | None = None, **details: Any
    ) -> services.NotificationServices:
        """Make the queue, and tell the bucket of it; running it again changes nothing.

        Args:
            source: URI of the source, as the stream has it.
            name: A name for this stream.
            events_location: Makes the event log there, whose queue this is: `source` is the bucket
                then, or the part of it whose streams read the log.
            details: As of `engine.discovery.services.set_up_notifications`: `tags`, `via`, `scope`,
                `dry_run`, …; of a log, `keep_seconds` and `keep_bytes`.

        Returns:
            What there is now; its `options` are those of the stream, or of each stream.
        """
        if events_location:
            return event_logs.set_up_event_log(
                events_location, source, name, access=self.access, **details
            )
        return services.set_up_notifications(source, name, access=self.access, **details)

    def list_notifications(
        self, source: str | None = None, **details: Any
    ) -> list[services.NotificationServices]:
        """Find what was set up for a source and what is below it, or for all."""
        return services.list_notifications(source, access=self.access, **details)

    def tear_down_notifications(
        self, source: str, name: str, *, events_location: str | None = None, **details: Any
    ) -> services.NotificationServices:
        """Remove what `set_up_notifications` made, and only that."""
        if events_location:
            return event_logs.tear_down_event_log(
                events_location, source, name, access=self.access, **details
            )
        return services.tear_down_notifications(source, name, access=self.access, **details)

    def launch(
        self,
        spec: JobSpec,
        spark: SparkArguments,
        *,
        on_log: Callable[[str], Any],
        earlier: Sequence[str] = (),
    ) -> FollowedRun:
        """Start a job on Spark; its driver reaches the cloud as this hook does.

        Args:
            spec: What to do.
            spark: Where: a Spark of the task's own, a cluster, or a Spark Connect server.
            on_log: Called with each line of the job's log as it comes.
            earlier: The ids of the runs of earlier tries, the newest first. Their driver is
                followed if it is at work in the cluster (`deploy_mode="cluster"`).
        """
        connection = self.get_connection(spark.conn_id) if spark.conn_id else None
        how = submission(spark, connection)
        if not isinstance(how, SparkSubmit):  # whose goes to its command, not into the state
            spec = replace(spec, spark_conf=dict(spark.conf))
        elif how.deploy_mode == "cluster":
            return submit(spec, how, on_log=on_log, access=self.access, earlier=earlier)
        return launch(spec, how, on_log=on_log, access=self.access)

    def left_query(self, stream: StreamArguments, run_id: str) -> dict[str, str] | None:
        """Say which query a run has left on a Spark Connect server; `None` if it has left none."""
        run = read_run(open_store(self.locate(stream).checkpoint_location, self.access), run_id)
        return asdict(run.query) if run is not None and run.query is not None else None

    def failure_of(self, stream: StreamArguments, run_id: str) -> CloudFilesError | None:
        """Say why a run failed; `None` if it did not, or has left no report."""
        state = open_store(self.locate(stream).checkpoint_location, self.access)
        report = read_report(state, run_id)
        return from_record(report["error"]) if report and "error" in report else None

    def promote(
        self,
        stream: StreamArguments,
        fields: Mapping[str, str | None] | Sequence[str],
        *,
        run_id: str,
        on_log: Callable[[str], Any],
    ) -> Run:
        """Start to turn fields of the rescued data into columns, in a process on this machine.

        Args:
            stream: The stream; its target is the table.
            fields: Dotted paths, each with a type in DDL or `None`; or a list of paths.
            run_id: Names the report.
            on_log: Called with each line of the process' log as it comes.
        """
        spec = self.locate(stream).job("promote", run_id=run_id, promote=check_fields(fields))
        return launch(spec, LocalPython(), on_log=on_log, access=self.access)

    def clean(
        self,
        stream: StreamArguments,
        *,
        run_id: str,
        on_log: Callable[[str], Any],
        **details: object,
    ) -> Run:
        """Start to clean the source of a stream, in a process on this machine.

        Args:
            stream: The stream; its options say what to do.
            run_id: Names the report.
            on_log: Called with each line of the process' log as it comes.
            details: `dry_run`, `trust_checkpoint`, `app_id`, as of `cloudfiles clean`.
        """
        spec = self.locate(stream).job("clean", run_id=run_id, clean=details)
        return launch(spec, LocalPython(), on_log=on_log, access=self.access)

    def _new_versions(self, located: StreamArguments) -> dict[str, object] | None:
        """Say which versions of a table are still to be ingested."""
        from airflow_cloudfiles.engine.tables.delta.stream.commits import backlog  # noqa: PLC0415

        state = open_store(located.checkpoint_location, self.access)
        found = backlog(state, located.source, open_store(located.source, self.access))
        if not found.has_work:
            return None
        return {
            FIELD: BATCH_VERSION,
            "checkpoint_location": located.checkpoint_location,
            "next_version": found.next_version,
            "last_version": found.newest,
        }

    def _intake(self, located: StreamArguments, **changes: Any) -> Intake:
        """Open the state of a stream."""
        return Intake.open(
            source=located.source,
            format=located.format,
            checkpoint_location=located.checkpoint_location,
            exclude=located.own_locations(),
            discovery=replace(located.discovery(), **changes),
            access=self.access,
        )

    @cached_property
    def _connection(self) -> Connection | None:
        return self.get_connection(self.conn_id) if self.conn_id else None

    def _base_path(self) -> str | None:
        """Return the folder that relative locations are below."""
        if self._connection is None or self.access is not None:
            return None
        return str(self._connection.extra_dejson.get("path") or "/")


def _batch(located: StreamArguments, backlog: Backlog) -> dict[str, Any] | None:
    """Build the reference to what is outstanding; `None` where nothing is."""
    if backlog.last_entry is None:
        return None
    return {
        FIELD: BATCH_VERSION,
        "checkpoint_location": located.checkpoint_location,
        "first_entry": backlog.first_entry,
        "last_entry": backlog.last_entry,
        "files": backlog.files,
        "bytes": backlog.bytes,
        "sample": [printable_path(path) for path in backlog.sample],
    }
