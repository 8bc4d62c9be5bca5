"""A real process that discovers: `python discoverer.py SOURCE STATE ROUNDS FILES_PER_ENTRY`.

A fifth argument is `cloudFiles.fileIdentity`.
"""

from __future__ import annotations

import sys

from airflow_cloudfiles.engine.files import START, FileIdentity, ReadLimit
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state import file_log


def main(
    source: str, state: str, rounds: str, files_per_entry: str, identity: FileIdentity = "path"
) -> None:
    """Discover some rounds, and plan what is there."""
    file_log.MAX_ENTRY_FILES = int(files_per_entry)
    intake = Intake.open(
        source=source,
        format="json",
        checkpoint_location=state,
        discovery=DiscoveryOptions(file_identity=identity),
    )
    print("ready", flush=True)  # noqa: T201 - tells the test that it runs
    for _ in range(int(rounds)):
        intake.discover()
    last = intake.plans.latest()
    start = START if last is None else last.end
    intake.plans.plan(intake.files, start, ReadLimit(max_files=4), intake.head())
    intake.close()


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
