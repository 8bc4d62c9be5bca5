"""A process that reads a report: `python inventory_discoverer.py SOURCE STATE REPORTS BATCH_FILES`.

How the cloud is reached is in its environment. Batches are small, so that it can be killed in the
midst of a data file.
"""

from __future__ import annotations

import sys

from airflow_cloudfiles.engine.extensions.inventory import reading
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import open_store
from tests.support.memory_ledger import MemoryLedger


def main(source: str, state: str, reports: str, batch_files: str) -> None:
    """Discover once."""
    reading.BATCH_FILES = int(batch_files)  # type: ignore[misc]
    intake = Intake(
        source=open_store(source),
        state=open_store(state),
        format="json",
        discovery=DiscoveryOptions(inventory=reports),
        ledger=MemoryLedger(),
    )
    intake.discover()


if __name__ == "__main__":
    main(*sys.argv[1:])
