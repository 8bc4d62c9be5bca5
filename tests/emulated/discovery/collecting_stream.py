"""A real process in which a stream discovers by the event log of its bucket.

`python collecting_stream.py SOURCE STATE LOG HIDDEN_SECONDS`
"""

from __future__ import annotations

import sys
from contextlib import closing

from airflow_cloudfiles.engine.clouds.aws.queue import SqsQueue
from airflow_cloudfiles.engine.clouds.gcp.queue import PubSubQueue
from airflow_cloudfiles.engine.discovery.queues import draining, notifications
from airflow_cloudfiles.engine.extensions.event_log import collector
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions


def main(source: str, state: str, log: str, hidden_seconds: str) -> None:
    """Discover once; credentials are in the environment."""
    SqsQueue.wait_seconds = 0  # an emulator is one server: it is never empty by chance
    PubSubQueue.wait_seconds = 2.0
    collector.FRESH_SECONDS = -1000.0  # each discovery drains the queue
    notifications.NotificationDiscovery.__init__.__kwdefaults__["hidden_seconds"] = int(
        hidden_seconds
    )
    notifications.NotificationDiscovery.__init__.__kwdefaults__["renewal_seconds"] = (
        int(hidden_seconds) / 4 or draining.RENEWAL_SECONDS
    )
    options = DiscoveryOptions(use_managed_file_events=True, file_events_location=log)
    opened = Intake.open(source=source, format="json", checkpoint_location=state, discovery=options)
    with closing(opened) as intake:
        intake.discover()


if __name__ == "__main__":
    main(*sys.argv[1:])
