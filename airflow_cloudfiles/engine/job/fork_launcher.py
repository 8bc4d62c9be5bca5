"""What does Spark start in place of Python, where Python processes are forked?

`python -IS fork_launcher.py SOCKET PYTHON ARGUMENTS ...` asks the fork server that listens at
SOCKET for a process that runs ARGUMENTS with the standard streams, the environment and the folder
of this one. Then it becomes a shell, a tenth of its size, that waits for the exit code on the same
connection, and ends with it. When Spark ends the shell, by whatever signal, the server sees the end
of the connection and ends the process. Where there is no server, or the server does not know the
arguments, it becomes PYTHON with the same arguments.

Spark waits for it, so it imports nothing but the standard library, and little of that.
"""

from __future__ import annotations

import json
import os
import socket
import sys

FORKED = b"F"
"""Answer of the server: a line with the exit code follows when the process has ended."""
REFUSED = b"R"
"""Answer of the server: it does not run this."""
NUMBER_BYTES = 4
"""The length of a request is a big-endian number of so many bytes."""
_VERSION = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
"""With this, Spark asks once a session for the version of Python: that of this process, too."""
_STREAMS = (0, 1, 2)
_SHELL = "/bin/sh"
_WAIT = 'read -r code; exit "${code:-1}"'  # 1: the server was killed


def main(arguments: list[str]) -> int:  # noqa: RET503 - or it never returns
    """Ask for the process and wait for its end; or become it.

    Returns:
        Its exit code.
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
        if answer == FORKED:
            _wait(connection)
    shown = " ".join(command[:3])
    print(f"Python starts without the fork server ({reason}): {shown}", file=sys.stderr)  # noqa: T201
    os.execv(python, [python, *command])  # noqa: S606 - no shell takes part


def _answer(connection: socket.socket, path: str, command: list[str]) -> bytes:
    """Send a request, with the streams of this process; what the server says to it."""
    connection.connect(path)
    folder = os.getcwd()  # noqa: PTH109 - pathlib would take longer than all else here
    request = {"arguments": command, "environment": dict(os.environ), "folder": folder}
    body = json.dumps(request).encode()
    message = len(body).to_bytes(NUMBER_BYTES, "big") + body
    sent = socket.send_fds(connection, [message], _STREAMS)
    connection.sendall(message[sent:])
    return connection.recv(1)


def _wait(connection: socket.socket) -> None:
    """Become what waits for the end of the forked process, and does not hold its streams open."""
    os.dup2(connection.fileno(), 0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(_SHELL, ["fork_launcher", "-c", _WAIT])  # noqa: S606 - it runs a fixed text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
