"""When is which process struck, and was it really there?

A strike counts when the process lived as the signal was sent, and is gone, or stopped, afterwards.
"""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from torture.processes import Child, below, command, is_killed, strike
from torture.schedule import Run, Strike

_SUPERVISOR = "airflow_cloudfiles.engine.job.supervisor"
_PHASES = (
    ("Batch ", "committing batches"),
    ("Connected to", "query runs"),
    ("Spark", "Spark starts"),
    (" listed, ", "files are recorded"),
    (" received", "files are recorded"),
    ("Listing ", "listing"),
    ("Inferred", "schema is inferred"),
)
"""What a run is doing, by the newest line of its log that says so."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A signal.

    Attributes:
        run: Kind of the run.
        target: Kind of the process.
        how: `kill`, `stop`, or `stop and kill`.
        moment: The crash point, or `at random`.
        doing: What the run was doing.
        is_hit: Whether the process lived, and the signal did what it does.
    """

    run: str
    target: str
    how: str
    moment: str
    doing: str
    is_hit: bool


class Striker:
    """Follows one run and strikes its processes.

    Args:
        run: What was started.
        child: Its first process.
        order: File with its crash order.
    """

    def __init__(self, run: Run, child: Child, order: Path) -> None:
        self.run, self.child, self._order = run, child, order
        self._waiting = list(run.strikes)
        self._stopped: list[tuple[int, float, Strike]] = []
        self._hits: list[Hit] = []
        self._crashed = False
        self._dice = random.Random(repr(run))

    def step(self) -> bool:
        """Do what is due; returns whether the run has ended."""
        now = time.monotonic()
        for each in list(self._waiting):
            if now - self.child.began >= each.after and self._strike(each):
                self._waiting.remove(each)
        for item in list(self._stopped):
            pid, until, each = item
            if now >= until:
                self._stopped.remove(item)
                self._end_stop(pid, each)
        has_ended = self.child.has_ended() and not self._stopped
        if has_ended and not self._crashed:
            self._crashed = True
            self._note_crash()
        return has_ended

    def hits(self) -> list[Hit]:
        """What has hit, and what has not."""
        missed = [
            Hit(self.run.kind, each.target, "kill", "at random", "ended", is_hit=False)
            for each in self._waiting
        ]
        return self._hits + missed

    def give_up(self) -> None:
        """Let go on what is stopped."""
        for pid, _, _ in self._stopped:
            strike(pid, signal.SIGCONT)

    def _strike(self, each: Strike) -> bool:
        """Strike, if the target is there; returns whether it was."""
        if self.child.has_ended():
            return False
        pid = self._target(each)
        if pid is None:
            return False
        doing = self._doing()
        number = signal.SIGKILL if each.stopped is None else signal.SIGSTOP
        if not strike(pid, number):
            return False
        if each.stopped is not None:
            self._stopped.append((pid, time.monotonic() + each.stopped, each))
            if not each.is_killed_stopped:
                self._add(each, "stop", doing, is_hit=True)
            return True
        self._add(each, "kill", doing, is_hit=self._is_gone(pid))
        return True

    def _end_stop(self, pid: int, each: Strike) -> None:
        if each.is_killed_stopped:
            doing, was_there = self._doing(), strike(pid, signal.SIGKILL)
            self._add(each, "stop and kill", doing, is_hit=was_there and self._is_gone(pid))
        else:
            strike(pid, signal.SIGCONT)

    def _is_gone(self, pid: int) -> bool:
        return self.child.wait(20) == -signal.SIGKILL if pid == self.child.pid else is_killed(pid)

    def _add(self, each: Strike, how: str, doing: str, *, is_hit: bool) -> None:
        self._hits.append(Hit(self.run.kind, each.target, how, "at random", doing, is_hit))

    def _note_crash(self) -> None:
        run = self.run
        if not run.crash:
            return
        point = run.crash.partition(":")[0]
        if run.kind == "discover":
            is_hit = self.child.status == -signal.SIGKILL and not self._hits
            self._hits.append(Hit(run.kind, "discovery", "kill", point, point, is_hit))
            return
        taken = list(self._order.parent.glob(f"{self._order.name}.taken-*"))
        for each in taken:
            each.unlink()
            pid = int(each.name.rpartition("-")[2])
            target = "driver, JVM and all" if run.kind == "spark" else "driver without Spark"
            self._hits.append(Hit(run.kind, target, "kill", point, point, is_killed(pid)))
        if not taken:
            self._order.unlink(missing_ok=True)
            self._hits.append(Hit(run.kind, "-", "kill", point, "not passed", is_hit=False))

    def _target(self, each: Strike) -> int | None:
        if each.target in {"discovery", "client"}:
            return self.child.pid
        found = below(self.child.pid)
        supervisors = [p.pid for p in found if _SUPERVISOR in command(p.pid)]
        javas = [p.pid for p in found if "java" in _program(p.pid)]
        drivers = [p.pid for p in found if p.parent in supervisors]
        known = {*supervisors, *javas, *drivers}
        pythons = [p.pid for p in found if p.pid not in known]
        of = {"supervisor": supervisors, "jvm": javas, "driver": drivers, "python": pythons}
        chosen = of.get(each.target) or []
        return self._dice.choice(chosen) if chosen else None

    def _doing(self) -> str:
        try:
            lines = self.child.log.read_text(errors="replace").splitlines()
        except OSError:
            return "starting"
        for line in reversed(lines):
            for mark, phase in _PHASES:
                if mark in line:
                    return phase
        return "starting"


def _program(pid: int) -> str:
    return command(pid).partition(" ")[0].rpartition("/")[2]
