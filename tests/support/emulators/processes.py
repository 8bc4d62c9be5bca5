"""How does a test start a server of its own, and get rid of it again?

Emulators listen on 127.0.0.1 and a free port, write to a log file, are waited for until they
answer, and end with everything they started. A missing program skips the test with the reason.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_PORTS = range(20_000, 32_000)  # below those that the kernel gives to outgoing connections
_given: set[int] = set()

refuse_for: str | None = None
"""The running test, when it is not marked `emulator`: it may start none."""


def require_marker() -> None:
    """Fail a test that starts an emulator and is not marked `emulator`."""
    if refuse_for is not None:
        pytest.fail(f"{refuse_for} starts an emulator: mark it `emulator`")


def free_port() -> int:
    """Find a port that nothing listens on and that no other call was given."""
    while True:
        port = random.choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port


def program(name: str) -> str:
    """Find a program beside this Python or on the path; skip the test when there is none.

    What cannot share our environment is in one below it (`scripts/emulators.sh`, and
    `scripts/other_servers.sh`).
    """
    ours = Path(sys.prefix)
    for folder in (ours / "bin", ours / "emulators" / "bin", ours / "servers" / "bin"):
        if (folder / name).exists():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: `make emulators` does it")
    return found


def answers(url: str) -> bool:
    """Whether an HTTP server answers at all: an error page is an answer."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError as failure:
        failure.close()
        return True
    except OSError:
        return False


def listens(port: int) -> bool:
    """Whether something takes connections on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """A program that serves until it is told to stop.

    Args:
        command: The program and its arguments.
        is_ready: Asked until it says yes.
        log: File for what the program prints; its end is in the error when it does not start.
        environment: Added to this process's own.
        seconds: How long it may take to start.
    """

    def __init__(
        self,
        command: Sequence[str],
        is_ready: Callable[[], bool],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        seconds: float = 300,
    ) -> None:
        self._command = list(command)
        self._is_ready = is_ready
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program, in a process group of its own, and wait until it is ready."""
        require_marker()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._log.parent,
                start_new_session=True,
            )
        deadline = time.monotonic() + self._seconds
        while not self._is_ready():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.stop()
                how = "ended" if ended else f"did not answer in {self._seconds} s"
                tail = self._log.read_text(errors="replace")[-2000:]
                pytest.fail(f"{self._command[0]} {how}:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the program and all it started; a second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        for signal_number, seconds in ((signal.SIGTERM, 2), (signal.SIGKILL, 30)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal_number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                break
        with contextlib.suppress(ProcessLookupError):  # what it left behind
            os.killpg(process.pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        """Number of the running process."""
        assert self._process is not None, "not started"
        return self._process.pid


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start a server for the length of a `with` block."""
    server.start()
    try:
        yield server
    finally:
        server.stop()
