"""Runs on a warm Spark of this machine, and what there is of it."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.job.launch import LocalSpark, launch
from airflow_cloudfiles.engine.job.warm import listing
from airflow_cloudfiles.engine.job.warm.instances import FOLDER
from tests.support.connect_server import ConnectStream
from tests.support.landing import drop
from tests.support.waiting import PATIENCE_SECONDS, is_there, until

KEEP = timedelta(minutes=10)


@contextlib.contextmanager
def warm_home() -> Iterator[Path]:
    """A folder for the warm Sparks of some tests; none is left."""
    # Not below pytest's folder, which is too long for a socket.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="w-") as short:
        folder = Path(short, "w")
        folder.mkdir(mode=0o700)
        patch.setenv(FOLDER, str(folder))
        yield folder
        listing.stop_all()


class WarmStream(ConnectStream):
    """One stream, which is run again and again on a warm Spark."""

    def land(self, count: int) -> None:
        """Write as many new files of three records each."""
        first = len(list(self.source.iterdir()))
        for number in range(first, first + count):
            drop(self.source, f"{number:04}.json", [{"id": 3 * number + row} for row in range(3)])

    def warm(self, files: int = 0, *, keep: timedelta = KEEP, **more: Any) -> dict[str, Any]:
        """Write new files and run to the end."""
        self.land(files)
        how = LocalSpark(master="local[2]", keep_warm=keep)
        spec = self.spec(**more)
        return launch(spec, how, on_log=self.log.append, access=self.access).wait()

    def in_background(self, files: int) -> InBackground:
        """Start a run, and go on while it runs."""
        self.land(files)
        return InBackground(self)


class InBackground:
    """A run that a thread starts and waits for."""

    def __init__(self, stream: WarmStream) -> None:
        self.report: dict[str, Any] | None = None
        self.error: CloudFilesError | None = None
        self._thread = threading.Thread(target=self._run, args=(stream,), daemon=True)
        self._thread.start()

    def end(self) -> InBackground:
        """Wait for the end."""
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        return self

    def _run(self, stream: WarmStream) -> None:
        try:
            self.report = stream.warm()
        except CloudFilesError as error:
            self.error = error


def only() -> dict[str, Any]:
    """The status of the only warm Spark there is."""
    (found,) = listing.found()
    return found


def below(pid: int) -> list[psutil.Process]:
    """A warm Spark's process, and all below it."""
    supervisor = psutil.Process(pid)
    return [supervisor, *supervisor.children(recursive=True)]


def all_have_ended(processes: list[psutil.Process]) -> None:
    """Wait until some processes are gone."""
    until(lambda: not [each for each in processes if is_there(each)], more=lambda: str(processes))


def folders(root: Path) -> list[Path]:
    """The folders of warm Sparks."""
    return [each for each in root.iterdir() if each.is_dir()]
