"""Notify people when nothing has arrived in a stream for longer than it should.

The sensor and the ingestion look at the state when they have looked for files, and call callbacks:
once for each silence. Who was notified is noted in the state of the stream, because Airflow's store
of a task's state is that of one task instance, and there is none before Airflow 3.3.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.engine.intake.silence import last_arrival, note_notified, was_notified
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.hooks.observability.metrics import emit_gauges
from airflow_cloudfiles.hooks.observability.run_events import call_each, callbacks_of
from airflow_cloudfiles.hooks.stream_task import StreamTask
from airflow_cloudfiles.hooks.task import own_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_cloudfiles.engine.intake.silence import LastArrival
    from airflow_cloudfiles.hooks.arguments import StreamArguments
    from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
    from airflow_cloudfiles.hooks.keywords import Callback


class WatchedTask(StreamTask):
    """Base of the tasks that tell when nothing has arrived for too long.

    Args:
        expected_every: How long it may be that nothing arrives, since the newest file was found,
            whatever run or sensor has found it. After that `on_silence` is called; without it, the
            task fails, unless it has ingested something.
        on_silence: What is called, once for each silence: a callable, a notifier, or a list of
            these. It gets the context with `silence`.
        kwargs: The arguments of `StreamTask`.
    """

    def __init__(
        self,
        *,
        expected_every: timedelta | None = None,
        on_silence: Callback | Collection[Callback] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.expected_every = expected_every
        self.on_silence = callbacks_of("on_silence", on_silence)
        if expected_every is None:
            if self.on_silence:
                raise OptionError("on_silence needs expected_every: how long a silence may be.")
            return
        given: object = expected_every
        if not isinstance(given, timedelta) or given <= timedelta(0):
            raise OptionError(
                "expected_every must be a timedelta of more than no time, "
                f"got {expected_every!r:.80}."
            )
        source_of(self.format).require_files(
            "expected_every is for streams of files, and the source is a Delta table, of which "
            "no arrivals are recorded. Remove it."
        )

    def look_for_silence(
        self, hook: CloudFilesHook, context: Mapping[str, Any], *, has_rows: bool = False
    ) -> float | None:
        """Look how long nothing has arrived, and tell if that is too long.

        Args:
            hook: Of the task.
            context: Airflow's.
            has_rows: Whether the task has ingested something, which others wait for; then it does
                not fail.

        Returns:
            When it will be too long, in seconds since 1970; `None` if it is by now, or nobody
            wants to know.

        Raises:
            AirflowFailException: It is too long, and there is no callback.
        """
        if self.expected_every is None:
            return None
        stream = self.stream_arguments()
        try:
            state = open_store(hook.locate(stream).checkpoint_location, hook.access)
            arrival = last_arrival(state)
            if arrival is None:
                return None
            seconds = arrival.seconds()
            gauges = {"seconds_since_last_arrival": round(seconds, 3)}
            emit_gauges(context.get("ti"), state.uri, gauges)
            if seconds <= self.expected_every.total_seconds():
                return (arrival.at + self.expected_every).timestamp()
            message = _message(arrival, stream, self.expected_every)
            who = _name(context)
            if self.on_silence and not was_notified(state, who, arrival):
                self.log.warning("%s", message)
                silence = {
                    "source": stream.source,
                    "checkpoint_location": stream.checkpoint_location,
                    "last_arrival": arrival.at.isoformat() if arrival.entry >= 0 else None,
                    "since": arrival.at.isoformat(),
                    "seconds": seconds,
                    "expected_seconds": self.expected_every.total_seconds(),
                    "message": message,
                }
                call_each(self.on_silence, context, self.log, silence=silence)
                # Behind the calls: who dies between notifies twice rather than never.
                note_notified(state, who, arrival)
        except (CloudFilesError, OSError):
            self.log.exception("How long nothing has arrived could not be found out.")
            return None
        if not self.on_silence and not has_rows:
            raise AirflowFailException(message)
        if not self.on_silence:
            self.log.error("%s", message)
        return None


def _message(arrival: LastArrival, stream: StreamArguments, expected: timedelta) -> str:
    """Describe the silence in a sentence."""
    since = arrival.at.astimezone(UTC).isoformat(timespec="seconds")
    silent = timedelta(seconds=round(arrival.seconds()))
    first = "" if arrival.entry >= 0 else ", when the stream was begun"
    return (
        f"Nothing has arrived in {stream.source} since {since}{first}: for {silent}, and "
        f"expected_every is {expected}. See whether files are still sent there."
    )


def _name(context: Mapping[str, Any]) -> str:
    """Name the task, whatever its run; each mapped task has its own name."""
    ti = context["ti"]
    return ".".join([str(ti.dag_id), *own_names(ti)])


def soonest(*times: float | None) -> float | None:
    """Return the first of some times, in seconds since 1970; `None` where there is none."""
    return min((each for each in times if each is not None), default=None)


def is_past(time: float | None) -> bool:
    """Tell whether a time in seconds since 1970 is over; `None` never is."""
    return time is not None and datetime.now(tz=UTC).timestamp() >= time
