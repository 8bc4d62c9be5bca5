"""Measure a process with everything it starts: wall, CPU, peak memory.

The kernel adds up the CPU seconds of processes for whoever waits for their end. This process adopts
what a run leaves behind and waits for all of it. What that misses are children whose parent ignores
that they end, as PySpark's daemon does with its workers: of those, the seconds at the last sample
are added.

Memory is the proportional set size: processes that were forked from one another share pages, and a
sum of resident sizes would count them again and again.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_SIGCHLD_BIT = 1 << (signal.SIGCHLD - 1)
_TICKS = os.sysconf("SC_CLK_TCK")
_FORKED = "spark-daemon"
"""Name of Spark's Python daemon in a local run, and of its workers."""
SAMPLE_SECONDS = 0.2
LEFT_SECONDS = 15.0
"""How long what a run leaves behind may take to end by itself."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run cost.

    Attributes:
        wall_seconds: From before its process starts until that process has ended.
        cpu_seconds: Of all processes, those that end after it too.
        peak_memory_mb: Of all processes at once, as proportional set size.
        began: Seconds since 1970, to compare with what the run itself notes.
        ended: As `began`.
        figures: What the run has printed.
        cpu_by_kind: CPU seconds as far as samples saw them, by what a process is for.
        pythons: Python processes that it has started, as far as samples saw them.
    """

    wall_seconds: float
    cpu_seconds: float
    peak_memory_mb: float
    began: float
    ended: float
    figures: dict[str, Any]
    cpu_by_kind: dict[str, float]
    pythons: int


def contender(task: dict[str, Any], module: str = "benchmarks.contender") -> Measured:
    """Run a module of contenders once and measure it from outside."""
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    # As installed packages are: without kept bytecode, each process compiles its imports again.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        command = [sys.executable, "-m", module, json.dumps(task)]
        # Files and not pipes: a pipe ends when the last process that was left behind does.
        process, measured = _measure(command, out, err, env)
        for stream in (out, err):
            stream.seek(0)
        lines = [line for line in out if line.startswith("FIGURES ")]
        if process.returncode or not lines:
            sys.exit(f"{task['engine']} failed ({process.returncode}):\n{err.read()[-6000:]}")
    measured.figures.update(json.loads(lines[-1].removeprefix("FIGURES ")))
    return measured


def _measure(
    command: list[str], out: Any, err: Any, env: dict[str, str]
) -> tuple[subprocess.Popen[str], Measured]:
    """Run a command until everything it has started has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    tree = _Tree()
    before = _waited_for()
    began, clock = time.time(), time.monotonic()
    process = subprocess.Popen(command, stdout=out, stderr=err, text=True, env=env)
    tree.start()
    try:
        process.wait()
        wall, ended = time.monotonic() - clock, time.time()
    finally:
        tree.reap()
    cpu = _waited_for() - before + tree.unnoticed_seconds()
    peak = tree.peak_bytes / 2**20
    return process, Measured(
        wall, cpu, peak, began, ended, {}, tree.seconds_by_kind(), tree.pythons
    )


def tree_cpu() -> float:
    """CPU seconds of this process and everything below it, ended children included."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def _waited_for() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True, slots=True)
class _Process:
    """A line of the process table; `cpu_seconds` has those of children waited for, too."""

    pid: int
    name: str
    parent: int
    started: int
    cpu_seconds: float
    own_seconds: float


class _Tree(threading.Thread):
    """Watches all processes below this one, but for those that were there before."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._before = {process.pid for process in _below(set())}
        self._ended = threading.Event()
        self._waited_for: set[int] = set()
        self._forgotten: dict[tuple[int, int], float] = {}
        self._own: dict[tuple[int, int], tuple[str, float]] = {}
        self.peak_bytes = 0
        self._pythons: set[tuple[int, int]] = set()

    def run(self) -> None:
        """Sample until stopped."""
        while not self._ended.wait(SAMPLE_SECONDS):
            processes = _below(self._before)
            ignoring = {p for p in {process.parent for process in processes} if _ignores(p)}
            for process in processes:
                if process.parent in ignoring:
                    self._forgotten[process.pid, process.started] = process.cpu_seconds
            self._pythons |= {(p.pid, p.started) for p in processes if _is_python(p.pid)}
            kinds = _kinds(processes)
            for process in processes:
                kind = kinds.get(process.pid, "other")
                self._own[process.pid, process.started] = (kind, process.own_seconds)
            self.peak_bytes = max(self.peak_bytes, sum(_pss(p.pid) for p in processes))

    def reap(self) -> None:
        """Wait for everything that is left, end what does not end by itself, stop watching."""
        deadline = time.monotonic() + LEFT_SECONDS
        while left := _below(self._before):
            for process in left:
                if time.monotonic() > deadline:
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
                if process.parent == os.getpid():
                    with suppress(ChildProcessError):
                        self._waited_for.add(os.waitpid(process.pid, os.WNOHANG)[0])
            time.sleep(0.02)
        self._ended.set()
        self.join()

    def seconds_by_kind(self) -> dict[str, float]:
        """CPU seconds by what processes were for, at the last sample of each."""
        found: dict[str, float] = {}
        for kind, seconds in self._own.values():
            found[kind] = found.get(kind, 0.0) + seconds
        return found

    @property
    def pythons(self) -> int:
        """How many Python processes there were, but for the one that stands for the caller."""
        return max(0, len(self._pythons) - 1)

    def unnoticed_seconds(self) -> float:
        """CPU seconds of processes that nobody has waited for."""
        return sum(
            seconds for (pid, _), seconds in self._forgotten.items() if pid not in self._waited_for
        )


def _below(without: set[int]) -> list[_Process]:
    """All processes below this one, without some and those below them."""
    children: dict[int, list[_Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := _read(int(entry.name))) is not None:
            children.setdefault(process.parent, []).append(process)
    found: list[_Process] = []
    wave = [os.getpid()]
    while wave:
        new = [p for pid in wave for p in children.get(pid, ()) if p.pid not in without]
        found += new
        wave = [process.pid for process in new]
    return found


def _read(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name = text.partition("(")[2].rpartition(")")[0]
    fields = text.rpartition(")")[2].split()
    own, children = (sum(int(field) for field in part) for part in (fields[11:13], fields[13:15]))
    total = (own + children) / _TICKS
    return _Process(pid, name, int(fields[1]), int(fields[19]), total, own / _TICKS)


def _is_driver(pid: int) -> bool:
    """Whether a process runs the job, and is not what watches over it."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[1:3] == [b"-m", b"airflow_cloudfiles.engine.job"]
    return False


def _kinds(processes: list[_Process]) -> dict[int, str]:
    """What processes are for, as far as their names and their parents tell."""
    kinds: dict[int, str] = {}
    for process in processes:  # parents first
        above = kinds.get(process.parent, "")
        if process.name == "java":
            kinds[process.pid] = "JVM"
        elif process.name == _FORKED:
            kinds[process.pid] = "tasks" if above in {"daemon", "tasks"} else "daemon"
        else:
            kinds[process.pid] = "driver" if _is_driver(process.pid) else "other"
    return kinds


def _is_python(pid: int) -> bool:
    """Whether a process runs Python, whatever it calls itself."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/exe").resolve().name.startswith("python")
    return False


def _ignores(pid: int) -> bool:
    """Whether a process ignores the end of its children."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) & _SIGCHLD_BIT)
    return False


def _pss(pid: int) -> int:
    """Proportional set size in bytes; 0 of a process that has gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
