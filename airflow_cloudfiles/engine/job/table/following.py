"""How does a run wait for its query? It says how far it is, and stops cleanly at a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import RunFailedError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

PROGRESS_SECONDS = 10


def follow(query: StreamingQuery, say: Callable[[], None]) -> None:
    """Wait for the end of a query; a termination signal stops it.

    Args:
        query: What runs.
        say: Called every few seconds.

    Raises:
        RunFailedError: A signal has stopped it.
        CloudFilesError: What it failed with.
    """
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        # Not here: the handler interrupts this thread in the middle of a call to the JVM.
        threading.Thread(target=query.stop, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    try:
        while not query.awaitTermination(PROGRESS_SECONDS):
            say()
    finally:
        if stopped:
            raise RunFailedError(
                f"The run was stopped by signal {stopped[0]}. What was committed stays; run again "
                "for the rest."
            )
