"""A real process that lists S3: `python discoverer.py SOURCE STATE PAGE_SIZE FILES_PER_ENTRY`.

Pages and entries are small, so that a listing of some hundred files is shared by threads.
"""

from __future__ import annotations

import sys

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.store import S3Store
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.state import file_log
from tests.support.memory_ledger import MemoryLedger


def main(source: str, state: str, page_size: str, files_per_entry: str) -> None:
    """Discover once."""
    file_log.MAX_ENTRY_FILES = int(files_per_entry)
    access = AwsAccess(path_style=True)
    intake = Intake(
        source=S3Store(source, access, page_size=int(page_size)),
        state=S3Store(state, access),
        format="json",
        ledger=MemoryLedger(),
    )
    intake.discover()


if __name__ == "__main__":
    main(*sys.argv[1:])
