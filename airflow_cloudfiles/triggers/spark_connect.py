"""Wait for a query on a Spark Connect server, without a worker that waits.

The trigger asks the server whether the query goes on. What has become of it, and what it has
committed, the task finds out in its worker: an event may be lost, repeated or late, and more than
one trigger may wait. It stops the query only when Airflow says that a user has ended the task; a
triggerer that is restarted, or gives the trigger to another one, stops nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_cloudfiles.engine.errors import CloudFilesError, SparkUnreachableError
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery, QueryState
from airflow_cloudfiles.hooks.spark import SparkArguments, server_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airflow_cloudfiles.engine.job.spark_command import SparkConnect

UNREACHABLE_SECONDS = 120.0
"""For how long a server may be out of reach before the task is resumed, and meets the error."""
_DEFERRED = "deferred"
_log = logging.getLogger(__name__)


class SparkConnectQueryTrigger(BaseTrigger):
    """Fire when a query on a Spark Connect server has ended.

    `CloudFilesIngestOperator(deferrable=True)` waits with it. Its arguments hold no token: the
    triggerer looks the connection up itself. It needs the client of Spark Connect
    (`airflow-provider-cloudfiles[connect]`).

    Args:
        query: Which query: the fields of a `LeftQuery`.
        spark_conn_id: Connection of type *Spark Connect*.
        spark_remote: Or the server's address, without a token.
        poke_interval: Seconds between two questions, and before the first one.
        is_own: Whether the query is the task's: only then is it stopped when the task is killed.
    """

    def __init__(
        self,
        *,
        query: Mapping[str, str],
        spark_conn_id: str | None = None,
        spark_remote: str | None = None,
        poke_interval: float = 60.0,
        is_own: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's
        self.query = dict(query)
        self.spark_conn_id = spark_conn_id
        self.spark_remote = spark_remote
        self.poke_interval = poke_interval
        self.is_own = is_own

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Describe how the triggerer makes this trigger again."""
        return (
            f"{__name__}.{type(self).__name__}",
            {
                "query": self.query,
                "spark_conn_id": self.spark_conn_id,
                "spark_remote": self.spark_remote,
                "poke_interval": self.poke_interval,
                "is_own": self.is_own,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask every `poke_interval` seconds, and fire once.

        What cannot be found out resumes the task, which meets the same error in its worker: at
        once, or for a server out of reach, when that has lasted.
        """
        reached = time.monotonic()
        while True:
            await asyncio.sleep(self.poke_interval)
            try:
                found = await asyncio.to_thread(self._state)
            except SparkUnreachableError as failure:
                _log.warning("%s", failure)
                if time.monotonic() - reached < UNREACHABLE_SECONDS:
                    continue
                found = QueryState.UNKNOWN
            except Exception as failure:  # noqa: BLE001 - the worker handles it, whatever it is
                _log.warning("The state of the query cannot be found out: %s", failure)
                found = QueryState.UNKNOWN
            reached = time.monotonic()
            if found is not QueryState.ACTIVE:
                yield TriggerEvent({"query": found.value})  # type: ignore[no-untyped-call]
                return

    async def on_kill(self) -> None:
        """Stop the query: a user has marked or cleared the task (Airflow 3.3)."""
        if not self.is_own:
            _log.info("The query is another run's, and goes on")
            return
        if await asyncio.to_thread(self._is_deferred):
            _log.info("The task is still deferred: another triggerer has it, and the query goes on")
            return
        try:
            await asyncio.to_thread(self._stop)
        except CloudFilesError as failure:
            _log.warning("The query could not be stopped, and ends by itself: %s", failure)
        else:
            _log.info("The query was stopped")

    def _state(self) -> QueryState:
        return left_query.state_of(self._server(), LeftQuery(**self.query))

    def _stop(self) -> None:
        left_query.stop(self._server(), LeftQuery(**self.query))

    def _server(self) -> SparkConnect:
        return server_of(SparkArguments(conn_id=self.spark_conn_id, remote=self.spark_remote))

    def _is_deferred(self) -> bool:
        """Tell whether the task is still deferred; if that is unknown, Airflow's call counts.

        A triggerer whose heartbeat is late loses its triggers to another one, and then calls this,
        too.
        """
        task = self.task_instance
        if task is None:
            return False
        try:
            from airflow.sdk.execution_time.task_runner import (  # noqa: PLC0415 - not at parse time
                RuntimeTaskInstance,
            )

            states = RuntimeTaskInstance.get_task_states(
                dag_id=task.dag_id,
                task_ids=[task.task_id],
                run_ids=[task.run_id],
                map_index=task.map_index,
            )
            found = list(states.get(task.run_id, {}).values())
        except Exception as failure:  # noqa: BLE001 - see above
            _log.warning("The state of the task cannot be found out: %s", failure)
            return False
        return _DEFERRED in found
