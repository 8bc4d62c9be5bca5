"""Have the daemon that Spark starts in a local run forked from the driver.

Spark's workers are forks of one daemon, a Python process that it starts. Started anew, it imports
PySpark, Arrow and this package once more. So the driver forks a process from itself when it has
imported everything and done nothing (`fork_early`): that shares what the driver has imported, and
waits. When the run needs Spark, it imports the rest, while the JVM starts. What Spark then starts
in place of Python (`daemon_launcher`) hands it its streams, its environment and its arguments, and
it becomes the daemon. Where that is not possible, and for a second daemon, Python is started anew.

A process that forks has no thread: of a thread, a fork has only what it happened to hold.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import logging
import os
import select
import shlex
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.spark.daemon_launcher import (
    NUMBER_BYTES,
    REFUSED,
    TAKEN,
)
from airflow_cloudfiles.engine.spark.preload import (
    DAEMON,
    FORKED_DAEMON,
    has_one_thread,
    is_on,
    preload,
)

PYTHON = "spark.pyspark.python"
NAME = "spark-daemon"
"""Of the process (`/proc/<pid>/comm`) and its forks: the command line is the driver's."""
_FOR_FILES, _FOR_ICEBERG = b"L", b"I"
"""What the driver sends with the socket to listen on; the second where the target is Iceberg's."""
_REQUEST_SECONDS = 10.0
_STREAMS = 3
_MOST_BYTES = 1 << 16
_log = logging.getLogger(__name__)


class ForkedDaemon:
    """A process that waits to become Spark's daemon, and ends with this one.

    Args:
        control: Its other end is held by that process.
        pid: Its process id.
    """

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control = control
        self._pid = pid

    def listen(self, folder: Path, *, for_iceberg: bool = False) -> Path:
        """Have it import the rest and wait for the launcher, which waits for it.

        Args:
            folder: Private to this user, for its socket and the launcher.
            for_iceberg: Whether tasks write to a table of an Iceberg catalog.

        Returns:
            The launcher: what Spark is to start in place of Python.

        Raises:
            OSError: There is no socket in this folder, or the process has ended.
        """
        address = folder / "daemon"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            word = _FOR_ICEBERG if for_iceberg else _FOR_FILES
            socket.send_fds(self._control, [word], [listener.fileno()])
        return write_launcher(folder, address)

    def close(self) -> None:
        """End it, with the workers that it has forked; harmless when it has ended."""
        if self._control.fileno() < 0:
            return
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)  # as a daemon, it leads its workers
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def write_launcher(folder: Path, address: Path) -> Path:
    """Write what Spark is to start in place of Python.

    Args:
        folder: Private to this user.
        address: The socket at which a process listens.

    Raises:
        OSError: No program can be run there (`noexec`), or nothing can be written.
    """
    launcher = folder / "python"
    script = Path(__file__).with_name("daemon_launcher.py")
    command = [sys.executable, "-IS", str(script), str(address), sys.executable]
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    launcher.chmod(0o700)
    if not os.access(launcher, os.X_OK):
        raise OSError(errno.EACCES, "programs cannot be run there", str(launcher))
    return launcher


def fork_early() -> ForkedDaemon | None:
    """Fork the process from this one, which has imported what a driver needs, and idles.

    Call it before anything is logged, opened or read: the daemon, and all that it forks, has what
    this process has.

    Returns:
        It; `None` where a process like this one cannot fork.
    """
    if not sys.platform.startswith("linux") or not has_one_thread():
        return None
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _become_daemon(theirs)
    theirs.close()
    return ForkedDaemon(ours, pid)


def start(
    folder: Path, conf: Mapping[str, str], daemon: ForkedDaemon | None, *, for_iceberg: bool = False
) -> ForkedDaemon | None:
    """Have the Spark of this process use a forked daemon.

    Args:
        folder: As for `ForkedDaemon.listen`.
        conf: The Spark configuration of the run.
        daemon: One that idles, if there is one. It is closed when it is not used.
        for_iceberg: As for `ForkedDaemon.listen`.

    Returns:
        The daemon; `None`, with a line in the log, where Spark starts Python by itself.
    """
    reason = _reason_against(conf, daemon)
    if daemon is not None and not reason:
        try:
            os.environ["PYSPARK_PYTHON"] = str(daemon.listen(folder, for_iceberg=for_iceberg))
        except OSError as error:
            reason = str(error)
        else:
            return daemon
    if daemon is not None:
        daemon.close()
    _log.info("Spark's Python is not forked: %s", reason)
    return None


def _reason_against(conf: Mapping[str, str], daemon: ForkedDaemon | None) -> str:
    """Say why no forked daemon is to be used; empty where one is."""
    if not is_on(conf, FORKED_DAEMON):
        return f"{FORKED_DAEMON} is false"
    if daemon is None:
        return "a process with threads, or on another system than Linux, cannot fork"
    chosen = {PYTHON: conf.get(PYTHON), "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON")}
    for name, python in chosen.items():
        if python is not None and python != sys.executable:
            return f"{name} is {python}"
    return ""


def _become_daemon(control: socket.socket) -> None:
    """Wait for the launcher, then be what it was started for, to the end of that."""
    with end_as_it_is():
        name_process(NAME)
        asked, listeners, _, _ = socket.recv_fds(control, len(_FOR_FILES), 1)
        if asked:
            preload(for_iceberg=asked == _FOR_ICEBERG)
            with socket.socket(fileno=listeners[0]) as listener:
                found = next_request(listener, control, _is_daemon)
            if found is not None:
                control.close()
                found.take()
                importlib.import_module(DAEMON).manager()
                found.connection.close()


def _is_daemon(arguments: Sequence[str]) -> bool:
    """Tell whether this process may become the daemon; it has no thread then."""
    return list(arguments[:2]) == ["-m", DAEMON] and has_one_thread()


def name_process(name: str) -> None:
    """Show this process by a name, and what it forks; the command line is its parent's."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")


@contextlib.contextmanager
def end_as_it_is() -> Iterator[None]:
    """End this process behind a block, as the interpreter does, but leave its memory as it is.

    Taking the interpreter apart would write to each object, and so copy what is shared.
    """
    code = 1
    try:
        yield
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


@dataclass(frozen=True, slots=True)
class Request:
    """What a launcher asks for.

    Attributes:
        connection: To the launcher, which ends when this does.
        asked: Arguments of Python, environment and working directory.
        streams: Standard input, output and error, as file descriptors of this process.
    """

    connection: socket.socket
    asked: Mapping[str, Any]
    streams: Sequence[int]

    def take(self) -> None:
        """Take over the streams, the environment, the folder and the arguments."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
        self.close_streams()
        os.environ.clear()
        os.environ.update(self.asked["environment"])
        time.tzset()
        os.chdir(self.asked["folder"])
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [each for each in paths if each]
        sys.argv = self.asked["arguments"][1:]

    def close_streams(self) -> None:
        """Close the streams, as file descriptors of this process."""
        for stream in self.streams:
            os.close(stream)


def next_request(
    listener: socket.socket, control: socket.socket, is_known: Callable[[Sequence[str]], bool]
) -> Request | None:
    """Wait for a launcher that asks for something that is known; refuse others.

    Args:
        listener: Where launchers connect.
        control: It ends with the owner of this process.
        is_known: Whether arguments of Python are something to become.

    Returns:
        The request, whose launcher knows that it is met; `None` when the owner has ended.
    """
    while control not in select.select([listener, control], [], [])[0]:
        connection, _ = listener.accept()
        try:
            asked, streams = _received(connection)
        except (OSError, ValueError, KeyError) as error:
            print(f"The daemon is not asked for: {error}", file=sys.stderr)  # noqa: T201
            connection.close()
            continue
        request = Request(connection, asked, streams)
        if is_known(asked["arguments"]):
            connection.sendall(TAKEN)
            return request
        with connection:
            connection.sendall(REFUSED)
        request.close_streams()
    return None


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Read what a launcher asks for, and its streams, as file descriptors of this process.

    Raises:
        ValueError: It is not a request.
        OSError: The launcher has gone, or says nothing.
    """
    connection.settimeout(_REQUEST_SECONDS)
    message, streams, _, _ = socket.recv_fds(connection, _MOST_BYTES, _STREAMS)
    end = NUMBER_BYTES + int.from_bytes(message[:NUMBER_BYTES], "big")
    while len(message) < end and (more := connection.recv(end - len(message))):
        message += more
    asked: dict[str, Any] = json.loads(message[NUMBER_BYTES:])
    connection.settimeout(None)
    return asked, list(streams)
