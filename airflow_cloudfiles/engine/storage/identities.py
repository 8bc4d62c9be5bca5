"""Ask for credentials that another process holds, and answer those who ask.

Some identities only a hook of a cloud's Airflow provider can log in with, and what it gets ends
within hours. So nobody is handed the credentials once: whoever needs them asks.

1. A task registers a *source*: a function that gives the credentials of now, for a purpose.
2. An access names it (`identity`). Clients in the process of the task call the function.
3. A driver on the same machine asks over a Unix socket, in a folder that only this user can enter,
   which is there as long as the run is. Its access names the socket. Nothing is written to a disk.

Clients keep what they get until shortly before it ends, and ask again then.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from airflow_cloudfiles.engine.errors import OptionError

Source = Callable[[str], Mapping[str, Any]]
"""Gives credentials for a purpose: a scope of Azure's, or an empty text."""

_MOST_SOURCES: Final = 256
_MOST_PATH: Final = 80
"""Bytes of a folder for a socket: the kernel takes 104 for the whole path on macOS."""
_ANSWER_SECONDS: Final = 120.0
"""A source may itself ask several services, and try each again."""
_SOCKET: Final = "identity"

_sources: dict[str, Source] = {}
_failures: dict[str, type[Exception]] = {
    "outage": ConnectionError,
    "refused": PermissionError,
    "option": OptionError,
}


def register(name: str, source: Source) -> str:
    """Register a source; the same name replaces what it named before.

    Returns:
        What an access names it by.
    """
    if len(_sources) >= _MOST_SOURCES:
        _sources.pop(next(iter(_sources)))
    _sources[name] = source
    return name


def is_known(name: str) -> bool:
    """Tell whether a source of this name is registered in this process."""
    return name in _sources


def ask(identity: str, purpose: str = "") -> dict[str, Any]:
    """Give the credentials of an identity as they are now.

    Raises:
        ConnectionError: What gives them does not answer, or is gone.
        PermissionError: It refuses.
        OptionError: The connection cannot be used.
    """
    if source := _sources.get(identity):
        return dict(source(purpose))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(identity)
            connection.sendall(json.dumps(purpose).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = json.loads(lines.readline())
    except (OSError, ValueError) as failure:
        raise ConnectionError(
            f"The task that gives this process its credentials does not answer ({failure}). Run "
            "again."
        ) from failure
    if "error" in answer:
        raise _failures[answer["kind"]](answer["error"])
    found: dict[str, Any] = answer["credentials"]
    return found


class ServedIdentity:
    """An identity that other processes of this machine can ask for, until it is closed.

    Args:
        identity: Who is asked in this process.

    Attributes:
        path: Of the socket, which is what their access names.
    """

    def __init__(self, identity: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="cloudfiles-")
        if len(os.fsencode(self._folder)) > _MOST_PATH:
            os.rmdir(self._folder)  # noqa: PTH106 - a text
            self._folder = tempfile.mkdtemp(prefix="cloudfiles-", dir="/tmp")
        self.path = f"{self._folder}/{_SOCKET}"
        self._server = _IdentityServer(self.path, identity)
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        """Answer no more; repeating it is harmless."""
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _IdentityServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, identity: str) -> None:
        self.identity = identity
        super().__init__(path, _Answer)


class _Answer(socketserver.StreamRequestHandler):
    server: _IdentityServer

    def handle(self) -> None:
        """Answer one question."""
        purpose = json.loads(self.rfile.readline() or b'""')
        try:
            answer: dict[str, Any] = {"credentials": ask(self.server.identity, purpose)}
        except Exception as failure:  # noqa: BLE001 - whoever asks is to know
            answer = {"error": str(failure), "kind": _kind(failure)}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


def _kind(failure: Exception) -> str:
    """Name what a failure is for whoever asks."""
    kinds = (name for name, cls in _failures.items() if isinstance(failure, cls))
    return next(kinds, "outage" if isinstance(failure, OSError) else "option")
