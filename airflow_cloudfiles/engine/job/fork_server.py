"""How do the Python processes of a local run start without importing everything again?

Spark starts seven kinds of Python process in one run, one after another, and each imports PySpark,
Arrow and this package. The fork server is one process that has imported them: what Spark starts in
place of Python (`fork_launcher`) has it fork. It belongs to one run: its standard input is held
open by the driver, and when that ends, the server kills what it has forked and ends too.

What is forked takes over three streams, the environment, the folder and the arguments of the
process that asked. It keeps the hash seed, `sys.path` (behind `PYTHONPATH`) and all modules of the
server. So the server has them from the Python that Spark would have started, and it forks before
any thread is started: of a thread, a fork has only what it happened to hold.

What of PySpark's protocol is relied on: docs/decisions/0068-fork-server.md.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from airflow_cloudfiles.engine.job.fork_launcher import FORKED, NUMBER_BYTES, REFUSED
from airflow_cloudfiles.engine.spark.preload import DAEMON, WORKERS, has_one_thread, preload

_REQUEST_SECONDS = 10.0
"""How long a launcher may take to send its request."""
_OWNER = 0
_STREAMS = 3
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """What a launcher asks for.

    Attributes:
        arguments: Those of Python.
        environment: All variables.
        folder: The working directory.
        streams: Standard input, output and error, as file descriptors.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    streams: list[int]


class _Server:
    """Forks on request; one thread, which waits for everything at once.

    Args:
        listener: Where launchers connect.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._running: set[int] = set()
        self._launchers: dict[int, socket.socket] = {}
        self._ended, self._wakeup = socket.socketpair()
        for end in (self._ended, self._wakeup):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)

    def serve(self) -> Request | None:
        """Fork until the owner has gone.

        Returns:
            In a forked process, what it is to run; in the server, `None` at its end.
        """
        while True:
            launchers = self._launchers.values()
            waiting: list[Any] = [_OWNER, self._listener, self._ended, *launchers]
            ready = select.select(waiting, [], [])[0]
            if self._ended in ready:
                self._reap()
            if _OWNER in ready and not os.read(_OWNER, 4096):
                for pid in self._running:
                    _signal(pid, signal.SIGKILL)
                return None
            for pid in [pid for pid, each in self._launchers.items() if each in ready]:
                # Spark has killed the launcher, and means the process.
                self._launchers.pop(pid).close()
                _signal(pid, signal.SIGTERM)
            if self._listener in ready and (request := self._answer()) is not None:
                return request

    def _answer(self) -> Request | None:
        """Answer one launcher; returns the request in the process that was forked for it."""
        connection, _ = self._listener.accept()
        streams: list[int] = []
        pid = -1
        try:
            request = _received(connection)
            streams = request.streams
            if not is_known(request.arguments):
                connection.sendall(REFUSED)
            elif (pid := os.fork()) == 0:
                self._let_go(connection)
                return request
            else:
                self._running.add(pid)
                self._launchers[pid] = connection
                connection.sendall(FORKED + pid.to_bytes(NUMBER_BYTES, "big"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"The fork server cannot answer: {error}", file=sys.stderr)  # noqa: T201
        finally:
            if pid != 0:
                for each in streams:
                    os.close(each)
        if pid < 0:
            connection.close()
        return None

    def _let_go(self, connection: socket.socket) -> None:
        """In a forked process: close what is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        mine = (connection, self._listener, self._ended, self._wakeup)
        for each in (*mine, *self._launchers.values()):
            each.close()

    def _reap(self) -> None:
        """Let the launchers know how their processes have ended."""
        with contextlib.suppress(BlockingIOError):
            while self._ended.recv(4096):
                continue
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._running.discard(pid)
            launcher = self._launchers.pop(pid, None)
            if launcher is not None:
                with launcher, contextlib.suppress(OSError):
                    launcher.sendall(status.to_bytes(NUMBER_BYTES, "big"))


def is_known(arguments: list[str]) -> bool:
    """Whether a command of Python is one that Spark runs for a Python data source."""
    match arguments:
        case ["-m", module] if module in WORKERS:
            return True
        case ["-m", module, workers] if module == DAEMON and workers in WORKERS:
            return True
    return False


def run(request: Request) -> int:
    """Become, in a forked process, what was asked for.

    Returns:
        Its exit code, where it does not end by itself.
    """
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
    for stream in request.streams:
        os.close(stream)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.folder)
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    _, module, *arguments = request.arguments
    sys.argv = [module, *arguments]
    if module == DAEMON:
        importlib.import_module(DAEMON).manager()
        return 0
    sys.modules.pop(module, None)  # it runs again, as the main module
    runpy.run_module(module, run_name="__main__")
    return 0


def main() -> int:
    """Preload, then fork until standard input ends."""
    preload()
    if not has_one_thread():
        print("The fork server ends: a library has started threads.", file=sys.stderr)  # noqa: T201
        return 1
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        request = _Server(listener).serve()
    return 0 if request is None else run(request)


def _received(connection: socket.socket) -> Request:
    """Read what a launcher asks for.

    Raises:
        ValueError: It is not a request.
        OSError: The launcher has gone, or says nothing.
    """
    connection.settimeout(_REQUEST_SECONDS)
    message, streams, _, _ = socket.recv_fds(connection, _MOST_BYTES, _STREAMS)
    try:
        end = NUMBER_BYTES + int.from_bytes(message[:NUMBER_BYTES], "big")
        while len(message) < end and (more := connection.recv(end - len(message))):
            message += more
        asked = json.loads(message[NUMBER_BYTES:])
        request = Request(asked["arguments"], asked["environment"], asked["folder"], streams)
    except BaseException:
        for each in streams:
            os.close(each)
        raise
    connection.settimeout(None)
    return request


def _signal(pid: int, number: signal.Signals) -> None:
    """Signal a forked process; with its own children, when it leads a group of processes."""
    with contextlib.suppress(ProcessLookupError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main())
