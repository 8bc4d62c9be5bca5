"""What has a warm Spark forked, and when does each of it end?

A driver ends when whoever asked for it does, and a Python process of Spark when its launcher does:
first asked to, then killed, with its group. Of a daemon that Spark has started for one session,
the launcher lives on for as long as the JVM: it ends with the runs that were there at its start,
one of which it was for. What is killed without a chance to do so itself, takes
its own children along: each process asks the kernel for that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_cloudfiles.engine.job.fork_server import signal_group

GRACE_SECONDS = 10.0
"""How long what is asked to end may take until it is killed."""


@dataclass(slots=True)
class Forked:
    """One process.

    Attributes:
        connection: To whoever asked for it; `None` when that has gone.
        is_run: Whether it is a driver.
        only_for: Drivers, one of which it is for; `None` when it is for any run.
        kill_at: When it is killed (monotonic); `None` while it may live.
    """

    connection: socket.socket | None
    is_run: bool
    only_for: set[int] | None = None
    kill_at: float | None = None


class Forks:
    """All processes that were forked and have not ended."""

    def __init__(self) -> None:
        self._all: dict[int, Forked] = {}
        self.runs_ended = 0

    def __contains__(self, pid: int) -> bool:
        return pid in self._all

    @property
    def runs(self) -> int:
        """How many drivers there are."""
        return sum(each.is_run for each in self._all.values())

    def add(
        self, pid: int, connection: socket.socket, *, is_run: bool, is_of_a_session: bool = False
    ) -> None:
        """Take note of a new one.

        Args:
            pid: The process.
            connection: To whoever has asked for it.
            is_run: Whether it is a driver.
            is_of_a_session: Whether it is of no use when one of the runs of now has ended.
        """
        runs = {each for each, forked in self._all.items() if forked.is_run}
        self._all[pid] = Forked(connection, is_run, runs if is_of_a_session and runs else None)

    def connections(self) -> dict[socket.socket, int]:
        """Who waits for the end of which."""
        return {each.connection: pid for pid, each in self._all.items() if each.connection}

    def leave(self, pid: int) -> None:
        """Whoever asked for it has gone: ask it to end."""
        forked = self._all[pid]
        if forked.connection is not None:
            forked.connection.close()
            forked.connection = None
        forked.kill_at = time.monotonic() + GRACE_SECONDS
        signal_group(pid, signal.SIGTERM)

    def ended(self, pid: int, code: int) -> bool:
        """It has ended: tell who waits, and end what is left of its group.

        Returns:
            Whether it was a driver.
        """
        forked = self._all.pop(pid, None)
        if forked is None:
            return False
        self.runs_ended += forked.is_run
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if forked.connection is not None:
            with forked.connection as connection, contextlib.suppress(OSError):
                connection.sendall(b"%d\n" % (code if code >= 0 else 128 - code))
        if forked.is_run:
            self._end_what_was_for(pid)
        return forked.is_run

    def _end_what_was_for(self, run: int) -> None:
        for pid, each in self._all.items():
            if each.only_for is not None:
                each.only_for.discard(run)
                if not each.only_for and each.kill_at is None:
                    self.leave(pid)

    def kill_late(self) -> None:
        """Kill what was asked to end and did not."""
        now = time.monotonic()
        for pid, each in self._all.items():
            if each.kill_at is not None and each.kill_at <= now:
                signal_group(pid, signal.SIGKILL)

    def next_kill(self) -> float | None:
        """When one is to be killed next (monotonic)."""
        return min((each.kill_at for each in self._all.values() if each.kill_at), default=None)

    def end_python_of_spark(self) -> None:
        """Kill what the JVM has asked for, when that has ended."""
        for pid, each in self._all.items():
            if not each.is_run:
                signal_group(pid, signal.SIGKILL)

    def end_all(self, others: Iterable[int] = ()) -> None:
        """Kill everything, and wait for it.

        Args:
            others: Processes below this one, which may lead groups of their own.
        """
        for pid in (*self._all, *others):
            signal_group(pid, signal.SIGKILL)
        for pid in list(self._all):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        for each in self._all.values():
            if each.connection is not None:
                each.connection.close()
        self._all.clear()

    def let_go(self) -> None:
        """In a forked process: close what is not its own."""
        for each in self._all.values():
            if each.connection is not None:
                each.connection.close()
        self._all.clear()
