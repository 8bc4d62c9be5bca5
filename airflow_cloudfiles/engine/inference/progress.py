"""How far is the inference, and how long will it take?

A line in the log every few seconds, for a log that is read later; on a terminal one line
that is rewritten. What takes no time is not reported.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from airflow_cloudfiles.engine.counted import counted
from airflow_cloudfiles.engine.files import FileEntry

LOG_SECONDS = 5.0
TERMINAL_SECONDS = 0.5
_log = logging.getLogger(__name__)


class Progress:
    """The progress of reading a sample; a context in which it is reported.

    Args:
        sample: The files.
    """

    def __init__(self, sample: Sequence[FileEntry]) -> None:
        self._all_files = len(sample)
        self._all_bytes = sum(file.size for file in sample)
        self._files = self._bytes = 0
        self._lock = threading.Lock()
        self._began = self._logged = self._shown = time.monotonic()
        self._terminal = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        if self._terminal is not None and self._width:
            self._terminal.write("\r" + " " * self._width + "\r")
            self._terminal.flush()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def add(self, files: int, size: int) -> None:
        """Count what was read, and report it when it is time to; from any thread."""
        with self._lock:
            self._files += files
            self._bytes += size
            now = time.monotonic()
            if now - self._logged >= LOG_SECONDS:
                self._logged = now
                _log.info("%s", str(self))  # as it is now, whenever it is written
            if self._terminal is not None and now - self._shown >= TERMINAL_SECONDS:
                self._shown = now
                line = str(self)
                self._terminal.write("\r" + line.ljust(self._width))
                self._terminal.flush()
                self._width = len(line)

    def __str__(self) -> str:
        """How far it is, for people."""
        speed = self._bytes / max(self.seconds, 1e-9)
        left = f", about {_duration((self._all_bytes - self._bytes) / speed)} left" if speed else ""
        return (
            f"Inferring the schema: {self._files:,} of {counted(self._all_files, 'file')}, "
            f"{_size(self._bytes)} of {_size(self._all_bytes)}, {_size(speed)}/s{left}"
        )


def _size(size: float) -> str:
    if size < 10**6:
        return f"{size / 10**3:.0f} kB"
    return f"{size / 10**6:.0f} MB" if size < 10**9 else f"{size / 10**9:.1f} GB"


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 120:  # noqa: PLR2004 - two minutes
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"  # noqa: PLR2004
