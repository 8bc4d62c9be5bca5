"""Measure a process with everything it starts: wall, CPU, peak memory."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

_PR_SET_CHILD_SUBREAPER = 36
SAMPLE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run cost."""

    wall_seconds: float
    cpu_seconds: float
    peak_memory_mb: float
    figures: dict[str, Any]


def contender(task: dict[str, Any], module: str = "benchmarks.contender") -> Measured:
    """Run a module of contenders once and measure it from outside.

    This process adopts what the contender leaves behind (a JVM, Python workers), to end it before
    the next one starts.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours = {child.pid for child in psutil.Process().children(recursive=True)}
    clock = time.monotonic()
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "CLOUDFILES_LOG_LEVEL": "WARNING"}
    process = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(task)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    peak = _Peak(process.pid)
    peak.start()
    out, err = process.communicate()
    wall = time.monotonic() - clock
    peak.stop()
    _reap(ours)
    lines = [line for line in out.splitlines() if line.startswith("FIGURES ")]
    if process.returncode or not lines:
        sys.exit(f"{task['engine']} failed ({process.returncode}):\n{err[-4000:]}")
    figures = json.loads(lines[-1].removeprefix("FIGURES "))
    return Measured(wall, figures["cpu_seconds"], peak.megabytes, figures)


def _reap(ours: set[int]) -> None:
    """End and wait for every adopted process; a server that was there before stays."""
    for orphan in psutil.Process().children(recursive=True):
        if orphan.pid not in ours:
            with suppress(psutil.Error):
                orphan.terminate()
            with suppress(ChildProcessError):
                os.waitpid(orphan.pid, 0)


class _Peak(threading.Thread):
    """Samples the proportional set size of a process tree (shared pages counted once)."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self.megabytes = 0.0

    def run(self) -> None:
        """Sample until stopped."""
        while not self._ended.wait(SAMPLE_SECONDS):
            total = 0
            with suppress(psutil.Error):
                for process in [self._root, *self._root.children(recursive=True)]:
                    with suppress(psutil.Error):
                        total += process.memory_full_info().pss
            self.megabytes = max(self.megabytes, total / 2**20)

    def stop(self) -> None:
        """End the sampling."""
        self._ended.set()
        self.join()
