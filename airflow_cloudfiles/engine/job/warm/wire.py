"""What do a run and a warm Spark say to each other?

A Unix socket in a private folder. A request is what a launcher of Python sends (`fork_launcher`):
its length and JSON, with file descriptors where it needs some. Its `kind` says what it is for:

- none: fork a Python process that Spark has asked for;
- `run`: fork a driver. Answered at once; a line with its exit code follows at its end. When whoever
  asked ends, the driver does;
- `spark`: start the JVM unless it runs; answered when it listens, with its port and its token;
- `status`, `retire` (take no more runs), `stop`: answered with the status.

Both ends ask the kernel whose process the other one is.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cloudfiles.engine.job.fork_launcher import NUMBER_BYTES
from airflow_cloudfiles.engine.job.warm.instances import Instance

RUN, SPARK, STATUS, RETIRE, STOP = "run", "spark", "status", "retire", "stop"
WARM = "warm"
"""What `CLOUDFILES_LAUNCHED` is for a driver that a warm Spark has forked."""
FOLDER = "CLOUDFILES_WARM_SOCKET"
"""Environment variable of such a driver: the folder of the warm Spark."""
ANSWER_SECONDS = 20.0
"""How long a warm Spark may take to answer before it counts as hung."""
_CREDENTIALS = struct.Struct("3i")


class ForeignPeerError(OSError):
    """The process at the other end is another user's."""


def peer(connection: socket.socket) -> int:
    """The process at the other end of a connection.

    Raises:
        ForeignPeerError: It is another user's.
    """
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(content)
    if user != os.getuid():
        raise ForeignPeerError(f"process {pid} is of user {user}, not of {os.getuid()}")
    return int(pid)


def connected(instance: Instance) -> socket.socket:
    """A connection to a warm Spark.

    Raises:
        OSError: Nobody listens there, or another user does.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(str(instance.socket))
        peer(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def send(
    connection: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send a request, or an answer."""
    body = json.dumps(request).encode()
    message = len(body).to_bytes(NUMBER_BYTES, "big") + body
    sent = socket.send_fds(connection, [message], descriptors) if descriptors else 0
    connection.sendall(message[sent:])


def receive(connection: socket.socket) -> dict[str, Any]:
    """Receive an answer.

    Raises:
        EOFError: The connection ended before it was whole.
        OSError: None came in time.
    """
    size = int.from_bytes(_exactly(connection, NUMBER_BYTES), "big")
    answer: dict[str, Any] = json.loads(_exactly(connection, size))
    return answer


def ask(instance: Instance, kind: str, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """Ask for something, and wait for the answer.

    Raises:
        EOFError: It ended before it answered.
        OSError: It is not there, or does not answer in time.
    """
    with connected(instance) as connection:
        connection.settimeout(seconds)
        send(connection, {"kind": kind})
        return receive(connection)


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        more = connection.recv(size - len(content))
        if not more:
            raise EOFError("the connection ended")
        content += more
    return content
