"""Wait until files have arrived that are not ingested yet."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.observability.metrics import age_of, emit_gauges
from airflow_cloudfiles.hooks.silence import WatchedTask
from airflow_cloudfiles.hooks.task import task_errors
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from airflow.providers.common.compat.sdk import Context

    from airflow_cloudfiles.hooks.arguments import StreamArguments
    from airflow_cloudfiles.hooks.keywords import SensorKeywords

_GRACE_SECONDS = 300.0
"""How long the last check of a trigger may take."""


class CloudFilesSensor(WatchedTask, BaseSensorOperator):
    """Wait until a folder holds files that its stream has not ingested.

    Each poke looks for new files, by listing or in the queue of notifications, and appends them to
    the stream's file log; a message is acknowledged after that. It succeeds as soon as anything is
    outstanding, also files that an earlier run found and did not ingest. It starts no Spark, and a
    file it found is found once, however often it is poked. Poked, rescheduled or deferred, it
    returns the same.

    With `format="delta"` it waits until the table has a version that its stream has not read. That
    is one listing of the end of its log, and records nothing. It is always poked by a worker.

    Args:
        deferrable: Whether the triggerer waits between two pokes, which frees the worker slot and
            costs no process. Default is Airflow's `[operators] default_deferrable`.
        kwargs: The arguments of `WatchedTask`, and Airflow's own of a sensor (`poke_interval`,
            `timeout`, `mode`, …). `soft_fail` skips when nothing arrived in time; an error still
            fails. The triggerer resumes a deferred sensor for a silence.

    Returns:
        XCom: `{"version", "checkpoint_location", "first_entry", "last_entry", "files", "bytes",
        "sample"}`: a reference to the batch, small however many files it has. Of a table:
        `{"version", "checkpoint_location", "next_version", "last_version"}`.
    """

    reads_tables = True

    ui_color = "#d9ecf7"

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Unpack[SensorKeywords]) -> None:
        super().__init__(**kwargs)
        self._silent_at: float | None = None
        if self.expected_every is not None and not self.on_silence and self.soft_fail:
            raise OptionError(
                "expected_every fails the task where there is no on_silence, and soft_fail would "
                "skip it instead. Give on_silence, or remove one of them."
            )
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable

    def poke(self, context: Context) -> PokeReturnValue:
        """Discover once; done when anything is outstanding."""
        # soft_fail makes Airflow skip what fails for good; ours skips quiet times, never an error
        hook, stream = CloudFilesHook(self.conn_id), self.stream_arguments()
        with task_errors(ends_retries=not self.soft_fail):
            batch, waits = hook.look(stream)
        if waits.get("settling"):
            self.log.info("%s.", waits["settling"])
        if waits:
            _emit_waiting(hook, stream, context, waits)
        self._silent_at = self.look_for_silence(hook, context, has_rows=batch is not None)
        if batch is None:
            self.log.info("Nothing to ingest below %s.", self.source)
            return PokeReturnValue(is_done=False)
        if "last_version" in batch:
            self.log.info("The table has versions up to %s to ingest.", batch["last_version"])
        else:
            files, size = counted(batch["files"], "file"), counted(batch["bytes"], "byte")
            self.log.info("%s (%s) to ingest.", files, size)
        return PokeReturnValue(is_done=True, xcom_value=batch)

    def execute(self, context: Context) -> Any:
        """Wait in the way that was asked for, and return the reference to the batch."""
        if not (self.deferrable and source_of(self.format).records_arrivals):
            return super().execute(context)
        return self._batch_or_defer(context, time.time() + self.timeout)

    def execute_complete(
        self,
        context: Context,
        event: Mapping[str, Any] | None = None,
        deadline: float | None = None,
    ) -> Any:
        """Poke again after the event; keep waiting if another run was faster.

        Args:
            context: Airflow's.
            event: The trigger's. What there is to ingest, the worker discovers itself.
            deadline: When the sensor times out, in seconds since 1970. `dag.test()` loses it, but
                not what the event has.
        """
        if deadline is None and event is not None:
            deadline = time.time() if event.get("is_over") else event.get("ends_at")
        return self._batch_or_defer(context, deadline or time.time() + self.timeout)

    def _batch_or_defer(self, context: Context, deadline: float) -> Any:
        """Poke in this worker; hand over to the trigger when nothing is there."""
        found = self._poke_judged(context)
        if not found.is_done:
            self._wait_until(deadline)
        self.log.info("Success criteria met. Exiting.")
        return found.xcom_value

    def _wait_until(self, deadline: float) -> NoReturn:
        """Leave the worker, or give up."""
        left = deadline - time.time()
        if left <= 0:
            message = f"No files to ingest below {self.source} in {self.timeout} seconds."
            if self.soft_fail:
                raise AirflowSkipException(message)
            raise AirflowSensorTimeout(message)
        self.defer(
            trigger=CloudFilesTrigger(
                **self.stream_arguments().as_keywords(),
                conn_id=self.conn_id,
                poke_interval=self.poke_interval,
                ends_at=deadline,
                wakes_at=self._silent_at,
            ),
            method_name="execute_complete",
            kwargs={"deadline": deadline},
            # Airflow's own timeout is for a trigger that hangs: the task's log calls it an error.
            timeout=timedelta(seconds=left + _GRACE_SECONDS),
        )

    def _poke_judged(self, context: Context) -> PokeReturnValue:
        """Poke; an error means what it means to Airflow's own loop of pokes."""
        try:
            return self.poke(context)
        except AirflowSkipException:
            raise
        except Exception as error:
            if self.never_fail:
                raise AirflowSkipException(f"Skipped instead of failed: {error}") from error
            if self.silent_fail and not isinstance(error, AirflowFailException):
                self.log.exception(
                    "Checking %s for new files failed; the sensor keeps waiting.", self.source
                )
                return PokeReturnValue(is_done=False)
            raise


def _emit_waiting(
    hook: CloudFilesHook, stream: StreamArguments, context: Context, waits: Mapping[str, Any]
) -> None:
    """Emit what a poke has found to be ingested."""
    values = {
        "waiting_files": waits["files"],
        "waiting_bytes": waits["bytes"],
        "oldest_waiting_seconds": age_of(waits["oldest"]),
    }
    emit_gauges(context.get("ti"), hook.locate(stream).checkpoint_location, values)
