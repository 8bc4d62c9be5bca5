"""A stream whose state, or source, is brought to another place."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import StateMovedError
from airflow_cloudfiles.engine.files import START, ReadLimit
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing_zone import LandingZone
from tests.support.memory_ledger import MemoryLedger

_PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
_SCRIPT = Path(__file__).parents[1] / "unit" / "transfer" / "transferrer.py"


class Stream:
    """A landing folder and a state with two committed batches of it.

    Args:
        folder: Where both are.
        state: URI of the state; `None` for one in the folder.
    """

    def __init__(self, folder: Path, state: str | None = None) -> None:
        self.zone = LandingZone(folder / "in")
        self.state = state or str(folder / "state")
        for name in ("2026/a.json", "2026/b.json"):
            self.zone.write(name)
            self.ingest(self.state)

    def open(self, state: str, source: str | None = None, **options: bool) -> Intake:
        """Open the intake, with an index of its own."""
        intake = Intake.open(
            source=source or self.zone.uri,
            format="json",
            checkpoint_location=state,
            discovery=DiscoveryOptions(**options),
        )
        intake._ledger = MemoryLedger()
        return intake

    def ingest(self, state: str, source: str | None = None, **options: bool) -> tuple[str, ...]:
        """Discover, plan and commit, as a job does; gives the paths."""
        intake = self.open(state, source, **options)
        intake.discover()
        last = intake.plans.latest()
        start = last.end if last else START
        end = intake.plans.plan(intake.files, start, ReadLimit(), intake.head())
        paths = tuple(file.path for file in intake.files.slice(start, end))
        if end != start:
            batch = intake.plans.latest().number
            record = SinkRecord(batch=batch, table_id="t", version=batch, end=end)
            SinkLog(intake.state).add(record)
        return paths

    def recorded(self, state: str, source: str | None = None) -> list[str]:
        """All paths that the state has recorded to be ingested."""
        intake = self.open(state, source)
        return [file.path for file in intake.files.slice(START, intake.head())]

    def works(self, state: str, source: str | None = None) -> bool:
        """Whether a run can use a location as this stream's state."""
        if not any(True for _ in open_store(state).list("_source/files/")):
            return False  # it would begin a state, as anywhere
        try:
            self.open(state, source).discover()
        except StateMovedError:
            return False
        return True

    def copied(self, to: Path) -> LandingZone:
        """Copy the landing folder, as clouds do: with new times."""
        shutil.copytree(self.zone.folder, to, copy_function=shutil.copyfile)
        return LandingZone(to)


def killed(point: str, *arguments: object) -> None:
    """Run the script until it is killed at a point."""
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": _PACKAGE_FOLDER, CRASH_AT: point},
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
