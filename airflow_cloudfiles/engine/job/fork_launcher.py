"""What does Spark start in place of Python, where Python processes are forked?

`python -IS fork_launcher.py SOCKET PYTHON ARGUMENTS ...` asks the fork server that listens at
SOCKET for a process that runs ARGUMENTS with the standard streams, the environment and the folder
of this one. It passes signals on to that process, and ends as that process does. Where there is no
server, or the server does not know the arguments, it becomes PYTHON with the same arguments.

Spark waits for it, so it imports nothing but the standard library, and little of that.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

FORKED = b"F"
"""Answer of the server: a process id follows, and its status when it has ended."""
REFUSED = b"R"
"""Answer of the server: it does not run this."""
NUMBER_BYTES = 4
"""Lengths, process ids and statuses are big-endian numbers of so many bytes."""
_VERSION = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
"""With this, Spark asks once a session for the version of Python: that of this process, too."""
_STREAMS = (0, 1, 2)
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments: list[str]) -> int:  # noqa: RET503 - or it never returns
    """Ask for the process and wait for its end; or become it.

    Returns:
        Its exit code.
    """
    path, python, *command = arguments
    if command == _VERSION:
        print(f"{sys.version_info[0]}.{sys.version_info[1]}")  # noqa: T201 - the answer
        return 0
    reason = "it does not run this"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            folder = os.getcwd()  # noqa: PTH109 - pathlib would take longer than all else here
            request = {"arguments": command, "environment": dict(os.environ), "folder": folder}
            body = json.dumps(request).encode()
            message = len(body).to_bytes(NUMBER_BYTES, "big") + body
            sent = socket.send_fds(connection, [message], _STREAMS)
            connection.sendall(message[sent:])
            if connection.recv(1) == FORKED:
                return _wait(connection)
    except OSError as error:
        reason = str(error)
    shown = " ".join(command[:3])
    print(f"Python starts without the fork server ({reason}): {shown}", file=sys.stderr)  # noqa: T201
    os.execv(python, [python, *command])  # noqa: S606 - no shell takes part


def _wait(connection: socket.socket) -> int:
    """Wait for the end of the forked process, without holding its streams open."""
    pid = int.from_bytes(connection.recv(NUMBER_BYTES, socket.MSG_WAITALL), "big")

    def pass_on(number: int, _frame: object) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    status = connection.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    if len(status) < NUMBER_BYTES:
        return 1  # the server was killed
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
