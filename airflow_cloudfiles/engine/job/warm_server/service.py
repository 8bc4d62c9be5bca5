"""How does a warm Spark serve the runs of a machine, and when does it end?

One process with one thread. It has imported everything and forks what is asked for (`wire`): the
drivers of runs, and the Python processes of Spark. The JVM is its child, started when the first run
has work for it. It ends, and all below it with it,

1. when it was idle for as long as the last run asked for;
2. when it takes no more runs and the last one has ended: its memory, its age or the number of its
   runs has reached the bound, its JVM has ended, or somebody has asked it to retire;
3. at `stop`, and when it is killed: the kernel then kills its children, and theirs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cloudfiles.engine.counted import counted
from airflow_cloudfiles.engine.job.fork_launcher import FORKED, REFUSED
from airflow_cloudfiles.engine.job.fork_server import Request, is_known, received, request_of
from airflow_cloudfiles.engine.job.warm import wire
from airflow_cloudfiles.engine.job.warm.instances import Instance
from airflow_cloudfiles.engine.job.warm_server.connect_jvm import TOKEN, ConnectJvm
from airflow_cloudfiles.engine.job.warm_server.forks import Forks
from airflow_cloudfiles.engine.processes import descendants, memory_bytes
from airflow_cloudfiles.engine.spark.preload import DAEMON

_START_POLL_SECONDS = 0.05
_MEMORY_SECONDS = 10.0
"""How often memory is looked at while there are runs; and once after the last one."""
_SESSION, _NO_SESSION = "SPARK_JOB_ARTIFACT_UUID", "default"
"""Spark starts a daemon for each value of this variable, though nothing differs for us."""
_LOG_BYTES = 16 * 2**20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fork:
    """What a forked process is to become."""

    request: Request
    is_run: bool
    umask: int


class Service:
    """The loop of a warm Spark.

    Args:
        instance: Its folder.
        listener: Where runs and launchers connect.
        settings: Those of its plan.
        python: What the JVM starts in place of Python.
        keep_seconds: How long it stays idle, until a run says another time.
    """

    def __init__(
        self,
        instance: Instance,
        listener: socket.socket,
        settings: Mapping[str, Any],
        python: str,
        keep_seconds: float,
    ) -> None:
        self._instance = instance
        self._listener = listener
        self._settings = settings
        self._python = python
        self._keep_seconds = keep_seconds
        self._began = self._idle_since = time.monotonic()
        self._jvm: ConnectJvm | None = None
        self._is_second_jvm = False
        self._forks = Forks()
        self._waiting: list[socket.socket] = []
        self._retired = ""
        self._is_stopped = False
        self._memory, self._memory_at = 0, self._began
        self._ended, self._wakeup = socket.socketpair()
        for end in (self._ended, self._wakeup):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)

    def serve(self) -> Fork | None:
        """Serve to the end.

        Returns:
            In a forked process, what it is to become; in this one `None`, when all has ended.
        """
        while not self._is_over():
            for each in self._ready():
                fork = self._handled(each)
                if fork is not None:
                    return fork
            self._look_after_jvm()
            self._forks.kill_late()
            self._look_at_bounds()
        self._end()
        return None

    def _stop(self, *_: object) -> None:
        self._is_stopped = True

    def _is_over(self) -> bool:
        if self._is_stopped:
            return True
        if self._forks.runs:
            return False
        is_idle = time.monotonic() - self._idle_since >= self._keep_seconds
        return is_idle or bool(self._retired)

    def _ready(self) -> list[socket.socket]:
        """Wait for something to happen, and no longer than until something is to be done."""
        sources = {
            each.fileno(): each
            for each in (
                self._listener,
                self._ended,
                *self._forks.connections(),
                *self._waiting,
            )
        }
        poll = select.poll()
        for number in sources:
            poll.register(number, select.POLLIN)
        found = poll.poll(max(0.0, self._patience()) * 1000)
        return [sources[number] for number, _ in found]

    def _patience(self) -> float:
        now = time.monotonic()
        if self._waiting:
            return _START_POLL_SECONDS
        left: list[float] = []
        if not self._retired:
            left.append(self._settings["most_seconds"] - (now - self._began))
        if self._forks.runs:
            left.append(_MEMORY_SECONDS)
        else:
            left.append(self._idle_since + self._keep_seconds - now)
        kill = self._forks.next_kill()
        if kill is not None:
            left.append(kill - now)
        # A moment more, so that what is waited for is there; and not busy where it is late.
        return max(min(left), 0.0) + 0.01

    def _handled(self, source: socket.socket) -> Fork | None:
        if source is self._ended:
            self._reap()
        elif source is self._listener:
            return self._answered()
        elif source in self._waiting:  # it has nothing more to say, so it has gone
            self._waiting.remove(source)
            source.close()
        else:
            pid = self._forks.connections().get(source)
            if pid is not None:
                self._forks.leave(pid)
        return None

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._ended.recv(4096):
                continue
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                code = os.waitstatus_to_exitcode(status)
                if self._jvm is not None and pid == self._jvm.pid:
                    self._jvm.ended(code)
                    self._forks.end_python_of_spark()
                if self._forks.ended(pid, code):
                    self._idle_since = time.monotonic()

    def _answered(self) -> Fork | None:
        """Answer one request; returns what to become in a process that was forked for it."""
        connection, _ = self._listener.accept()
        try:
            wire.peer(connection)
            asked, streams = received(connection)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("A request is refused: %s", error)
            connection.close()
            return None
        kind = asked.get("kind")
        try:
            if kind in {None, wire.RUN}:
                return self._forked(connection, asked, streams)
            if kind == wire.SPARK:
                self._waiting.append(connection)
                return None
            if kind == wire.RETIRE:
                self._retire("a run has asked for it")
            self._is_stopped = self._is_stopped or kind == wire.STOP
            with connection:
                wire.send(connection, self._status())
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("A request cannot be answered: %s", error)
            connection.close()
        finally:
            for each in streams:
                with contextlib.suppress(OSError):
                    os.close(each)
        return None

    def _forked(
        self, connection: socket.socket, asked: dict[str, Any], streams: list[int]
    ) -> Fork | None:
        is_run = asked.get("kind") == wire.RUN
        request = request_of(asked, streams)
        if (is_run and self._retired) or not (is_run or is_known(request.arguments)):
            with connection:
                connection.sendall(REFUSED)
            return None
        fork = Fork(request, is_run, int(asked.get("umask", self._settings["umask"])))
        if is_run:
            self._keep_seconds = float(asked["keep_seconds"])
        else:
            request.environment.pop(TOKEN, None)
        pid = os.fork()
        if pid == 0:
            streams.clear()  # they are its own now
            self._let_go(connection)
            return fork
        session = request.environment.get(_SESSION, _NO_SESSION)
        is_of_a_session = session != _NO_SESSION and DAEMON in request.arguments
        self._forks.add(pid, connection, is_run=is_run, is_of_a_session=is_of_a_session)
        with contextlib.suppress(OSError):  # it has gone: seen as the end of the connection
            connection.sendall(FORKED)
        return None

    def _let_go(self, connection: socket.socket) -> None:
        """In a forked process: close what is this one's, and take signals as others do."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._forks.let_go()
        mine = (connection, self._listener, self._ended, self._wakeup, *self._waiting)
        for each in mine:
            with contextlib.suppress(OSError):  # nothing may lead this process back into the loop
                each.close()

    def _look_after_jvm(self) -> None:
        """Start it for who waits, and tell them when it listens, or has ended."""
        jvm = self._jvm
        if self._waiting and jvm is None:
            try:
                jvm = self._jvm = ConnectJvm(
                    self._instance.folder, self._settings, self._python, self._instance.log
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, the run gets it
                self._retire(f"Java cannot be started: {error}")
                self._tell({"error": f"Java cannot be started: {error}"})
                return
        if jvm is None:
            return
        if jvm.has_ended and jvm.could_not_serve and self._waiting and not self._is_second_jvm:
            _log.info("The JVM could not serve, so another one starts, on another port")
            jvm.end(keep_classes=False)
            self._jvm, self._is_second_jvm = None, True
            self._look_after_jvm()
        elif jvm.has_ended:
            self._retire("its JVM has ended")
            self._tell({"error": jvm.why()})
        elif self._waiting and jvm.is_ready():
            self._tell({"port": jvm.port, "token": jvm.token})

    def _tell(self, answer: Mapping[str, Any]) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            with each, contextlib.suppress(OSError):
                wire.send(each, answer)

    def _look_at_bounds(self) -> None:
        now = time.monotonic()
        if now - self._began >= self._settings["most_seconds"]:
            self._retire("it is old")
        if self._forks.runs_ended >= self._settings["most_runs"]:
            self._retire(f"it has served {counted(self._forks.runs_ended, 'run')}")
        last_run_ended = self._memory_at < self._idle_since and not self._forks.runs
        if last_run_ended or (self._forks.runs and now - self._memory_at >= _MEMORY_SECONDS):
            self._measure()
            if self._memory >= self._settings["most_bytes"]:
                self._retire(f"it takes {self._memory} bytes of memory")
            with contextlib.suppress(OSError):
                if self._instance.log.stat().st_size > _LOG_BYTES:
                    os.truncate(self._instance.log, 0)

    def _measure(self) -> None:
        me = os.getpid()
        self._memory = memory_bytes([me, *descendants(me)])
        self._memory_at = time.monotonic()

    def _retire(self, reason: str) -> None:
        """Take no more runs; the next one starts another."""
        if not self._retired:
            _log.info("Takes no more runs: %s", reason)
            self._retired = reason
            self._instance.remove_record()

    def _status(self) -> dict[str, Any]:
        self._measure()
        now, jvm = time.monotonic(), self._jvm
        below = descendants(os.getpid())
        return {
            "pid": os.getpid(),
            "jvm_pid": None if jvm is None or jvm.has_ended else jvm.pid,
            "master": self._settings["master"],
            "age_seconds": round(now - self._began, 1),
            "idle_seconds": 0.0 if self._forks.runs else round(now - self._idle_since, 1),
            "keep_warm_seconds": self._keep_seconds,
            "runs_in_progress": self._forks.runs,
            "runs_ended": self._forks.runs_ended,
            "processes": 1 + len(below),
            "memory_bytes": self._memory,
            "takes_runs": not self._retired and not self._is_stopped,
        }

    def _end(self) -> None:
        """End all that is below, and remove the folder."""
        self._instance.remove_record()
        self._listener.close()
        if self._jvm is not None:
            self._jvm.end(keep_classes=not self._is_stopped)
        self._forks.end_all(descendants(os.getpid()))
        self._instance.remove()
        _log.info("Ended")
