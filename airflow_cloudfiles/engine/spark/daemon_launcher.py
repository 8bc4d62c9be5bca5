"""What Spark starts in place of Python, where a process waits to be its daemon.

`python -IS daemon_launcher.py SOCKET PYTHON ARGUMENTS ...` hands its standard streams, its
environment, its folder and ARGUMENTS to the process that listens at SOCKET, which becomes what
they say (`forked_python`). Then it becomes a shell, a tenth of its size, that waits for the end of
that process. Where nobody listens, or not for these arguments, it becomes PYTHON with them.

Spark waits for it, so it imports nothing but the standard library, and little of that.
"""

from __future__ import annotations

import json
import os
import socket
import sys

TAKEN = b"T"
"""Answer of the process: it has become what was asked for; the connection ends when it does."""
REFUSED = b"R"
"""Answer of the process: it does not run this."""
NUMBER_BYTES = 4
"""The length of a request is a big-endian number of so many bytes."""
_VERSION = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
"""With this, Spark asks once a session for the version of Python: that of this process, too."""
_STREAMS = (0, 1, 2)
_SHELL = "/bin/sh"
_WAIT = "read -r _; exit 1"  # as the daemon ends, whatever ends it


def main(arguments: list[str]) -> int:  # noqa: RET503 - or it never returns
    """Hand over and wait for the end; or become Python.

    Returns:
        The exit code.
    """
    path, python, *command = arguments
    if command == _VERSION:
        print(f"{sys.version_info[0]}.{sys.version_info[1]}")  # noqa: T201 - the answer
        return 0
    reason, answer = "it does not run this", b""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            answer = _answer(connection, path, command)
            if answer != REFUSED:
                reason = "it has ended"
        except OSError as error:
            reason = str(error)
        if answer == TAKEN:
            _wait(connection)
    shown = " ".join(command[:3])
    print(f"Python is not forked ({reason}): {shown}", file=sys.stderr)  # noqa: T201
    os.execv(python, [python, *command])  # noqa: S606 - no shell takes part


def _answer(connection: socket.socket, path: str, command: list[str]) -> bytes:
    """Send a request, with the streams of this process; what is said to it."""
    connection.connect(path)
    folder = os.getcwd()  # noqa: PTH109 - pathlib would take longer than all else here
    request = {"arguments": command, "environment": dict(os.environ), "folder": folder}
    body = json.dumps(request).encode()
    message = len(body).to_bytes(NUMBER_BYTES, "big") + body
    sent = socket.send_fds(connection, [message], _STREAMS)
    connection.sendall(message[sent:])
    return connection.recv(1)


def _wait(connection: socket.socket) -> None:
    """Become what waits for the end of that process, and does not hold its streams open."""
    os.dup2(connection.fileno(), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(_SHELL, ["daemon_launcher", "-c", _WAIT])  # noqa: S606 - it runs a fixed text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
