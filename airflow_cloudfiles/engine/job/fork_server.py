"""How do the Python processes of a local run start without importing everything again?

Spark starts seven kinds of Python process in one run, one after another, and each imports PySpark,
Arrow and this package. The fork server is one process that has imported them: what Spark starts in
place of Python (`fork_launcher`) has it fork. It belongs to one run: its standard input is a socket
that the driver holds open. The driver sends the socket there that launchers connect to; when it
ends, the server kills what it has forked and ends too.

What is forked takes over three streams, the environment, the folder and the arguments of the
process that asked. It keeps the hash seed, `sys.path` (behind `PYTHONPATH`) and all modules of the
server. So the server has them from the Python that Spark would have started, and it forks before
any thread is started: of a thread, a fork has only what it happened to hold.

What is forked does not take its interpreter apart at its end. That would write to each object it
has, and so copy all the memory that it shares, when all of a run end at once.

What of PySpark's protocol is relied on: docs/decisions/0068-fork-server.md.
"""

from __future__ import annotations

import atexit
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
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from airflow_cloudfiles.engine.job.fork_launcher import FORKED, NUMBER_BYTES, REFUSED
from airflow_cloudfiles.engine.spark.preload import (
    DAEMON,
    WORKERS,
    has_one_thread,
    hide_pandas,
    preload,
)

LISTEN, LISTEN_FOR_ICEBERG = b"L", b"I"
"""What the driver sends with the socket that launchers connect to; the second where the processes
write to a table of an Iceberg catalog."""
NAME = "fork-server"
"""Of its process, and of what it forks (`/proc/<pid>/comm`): the command line is the driver's."""
_REQUEST_SECONDS = 10.0
"""How long a launcher may take to send its request."""
_OWNER = 0
_STREAMS = 3
_MOST_BYTES = 1 << 16
_INFERENCE = "airflow_cloudfiles.engine.inference.workers"
"""What the driver itself has forked (`inference.workers.WORKER`)."""


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
                    signal_group(pid, signal.SIGKILL)
                return None
            for pid in [pid for pid, each in self._launchers.items() if each in ready]:
                # Spark has killed the launcher, and means the process.
                self._launchers.pop(pid).close()
                signal_group(pid, signal.SIGTERM)
            if self._listener in ready and (request := self._answer()) is not None:
                return request

    def _answer(self) -> Request | None:
        """Answer one launcher; returns the request in the process that was forked for it."""
        connection, _ = self._listener.accept()
        streams: list[int] = []
        pid = -1
        try:
            asked, streams = received(connection)
            request = request_of(asked, streams)
            if not is_known(request.arguments):
                connection.sendall(REFUSED)
            elif (pid := os.fork()) == 0:
                self._let_go(connection)
                return request
            else:
                self._running.add(pid)
                self._launchers[pid] = connection
                connection.sendall(FORKED)
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
                code = os.waitstatus_to_exitcode(status)
                with launcher, contextlib.suppress(OSError):
                    launcher.sendall(b"%d\n" % (code if code >= 0 else 128 - code))


def is_known(arguments: list[str]) -> bool:
    """Whether a command is one that Spark runs for a Python data source, or one of inference."""
    match arguments:
        case ["-m", module] if module in WORKERS or module == _INFERENCE:
            return True
        case ["-m", module, workers] if module == DAEMON and workers in WORKERS:
            return True
    return False


def take_over(request: Request) -> None:
    """Take the streams, the environment and the folder of whoever asked, in a forked process."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
    for stream in request.streams:
        os.close(stream)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    os.chdir(request.folder)


def run(request: Request) -> int:
    """Become, in a forked process, what was asked for.

    Returns:
        Its exit code, where it does not end by itself.
    """
    take_over(request)
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    _, module, *arguments = request.arguments
    sys.argv = [module, *arguments]
    if module == DAEMON:
        importlib.import_module(DAEMON).manager()
        return 0
    sys.modules.pop(module, None)  # it runs again, as the main module
    runpy.run_module(module, run_name="__main__")
    return 0


def become(control: socket.socket) -> NoReturn:
    """Be the server, in this process, to its end.

    Args:
        control: What the driver sends on, and closes when it ends.
    """
    os.dup2(control.fileno(), _OWNER)
    control.close()
    finish(main)


def main() -> int:
    """Wait to be asked, preload, then fork until standard input ends.

    Returns:
        The exit code.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    with socket.socket(fileno=os.dup(_OWNER)) as control:
        asked, listeners, _, _ = socket.recv_fds(control, len(LISTEN), 1)
    if not asked:
        return 0
    hide_pandas()
    preload(for_iceberg=asked == LISTEN_FOR_ICEBERG)
    if not has_one_thread():
        print("The fork server ends: a library has started threads.", file=sys.stderr)  # noqa: T201
        return 1
    with socket.socket(fileno=listeners[0]) as listener:
        request = _Server(listener).serve()
    return 0 if request is None else run(request)


def finish(work: Callable[[], int]) -> NoReturn:
    """Do the work of this process and end it, leaving its memory as it is."""
    code = 1
    try:
        code = work()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does in what it forks
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Read what a launcher asks for.

    Returns:
        What it has sent; and its streams, as file descriptors of this process.

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
        asked: dict[str, Any] = json.loads(message[NUMBER_BYTES:])
    except BaseException:
        for each in streams:
            os.close(each)
        raise
    connection.settimeout(None)
    return asked, streams


def request_of(asked: Mapping[str, Any], streams: Sequence[int]) -> Request:
    """The request in what a launcher has sent.

    Raises:
        KeyError: It lacks a part.
    """
    return Request(asked["arguments"], asked["environment"], asked["folder"], list(streams))


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal a forked process; with its own children, when it leads a group of processes."""
    with contextlib.suppress(ProcessLookupError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)


if __name__ == "__main__":
    finish(main)
