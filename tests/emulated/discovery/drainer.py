"""A real process that drains a queue: `python drainer.py SOURCE STATE QUEUE_URL HIDDEN_SECONDS`."""

from __future__ import annotations

import sys

from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.queues.base import open_queue
from airflow_cloudfiles.engine.discovery.queues.notifications import NotificationDiscovery
from airflow_cloudfiles.engine.intake.recorder import LedgerRecorder
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.memory_ledger import MemoryLedger


def main(source_uri: str, state: str, queue_url: str, hidden_seconds: str) -> None:
    """Drain once; credentials are in the environment."""
    source = open_store(source_uri)
    options = DiscoveryOptions(use_notifications=True, queue_url=queue_url, fetch_parallelism=2)
    queue = open_queue(source_uri, options)
    queue.wait_seconds = 0  # an emulator is one server: it is never empty by chance
    discovery = NotificationDiscovery(
        queue,
        source,
        FileFilter(source_uri, None, options),
        options,
        hidden_seconds=int(hidden_seconds),
    )
    discovery.run(LedgerRecorder(MemoryLedger(), FileLog(open_store(state))))


if __name__ == "__main__":
    main(*sys.argv[1:])
