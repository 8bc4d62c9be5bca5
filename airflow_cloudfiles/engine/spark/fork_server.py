"""Fork the Python processes of plain queries from one that has imported everything.

For a query, Spark starts several kinds of Python process, one after another: one that looks at the
source, one that plans, one that is asked for the partitions, and those of tasks. Each imports
PySpark, Arrow and this package. `register` has a process do that once, while the JVM goes on; what
Spark then starts in place of Python (`daemon_launcher`) has it fork. It serves all sessions of a
process and ends with it. Only where Spark runs in this process's machine, on Linux, and where
nobody has said which Python Spark is to start.

What of PySpark's protocol is relied on besides that of `forked_python`: Spark starts
`-m pyspark.<module>` for what it needs no daemon for, and kills the launcher to end it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import importlib
import logging
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from airflow_cloudfiles.engine.spark.forked_python import (
    Request,
    end_as_it_is,
    name_process,
    next_request,
    write_launcher,
)
from airflow_cloudfiles.engine.spark.preload import (
    ALLOCATOR,
    DAEMON,
    FORKABLE,
    has_one_thread,
    preload,
)

NAME = "spark-python"
"""Of the process (`/proc/<pid>/comm`), and of what it forks."""
QUERIES = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "airflow_cloudfiles.engine.spark.load_and_start",
)
"""What processes of queries import besides what tasks of runs do."""
_OWNER = 0
_started: list[subprocess.Popen[bytes]] = []
_log = logging.getLogger(__name__)


@functools.cache
def launcher() -> str | None:
    """Start the process, once; it imports everything in the background.

    Returns:
        What Spark is to start in place of Python; launchers wait until the process is ready.
        `None`, with a line in the log, where Spark starts Python by itself.
    """
    if not sys.platform.startswith("linux"):
        return None
    folder = Path(tempfile.mkdtemp(prefix="cloudfiles-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = folder / "python-server"
    try:
        found = write_launcher(folder, address)
        ours, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            _started.append(
                subprocess.Popen(
                    [sys.executable, "-m", __name__, str(listener.fileno())],
                    stdin=theirs.fileno(),
                    pass_fds=[listener.fileno()],
                    env={**ALLOCATOR, **os.environ, **FORKABLE},
                    start_new_session=True,  # Ctrl-C is for its owner
                )
            )
        ours.detach()  # it is open until this process ends, whatever ends it
    except OSError as error:
        _log.info("Spark's Python processes are not forked: %s", error)
        return None
    return str(found)


def main(number: int) -> None:
    """Be the process, to the end of its owner.

    Args:
        number: The file descriptor of the socket that launchers connect to.
    """
    name_process(NAME)
    with socket.socket(fileno=os.dup(_OWNER)) as owner, socket.socket(fileno=number) as listener:
        preload(QUERIES)
        if not has_one_thread():
            print("Python is not forked: a library has started threads.", file=sys.stderr)  # noqa: T201
            return
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is forked
        while (request := next_request(listener, owner, _is_known)) is not None:
            if os.fork() == 0:
                owner.close()
                listener.close()
                _become(request)
            request.close_streams()
            request.connection.close()


def _is_known(arguments: Sequence[str]) -> bool:
    return len(arguments) > 1 and arguments[0] == "-m" and arguments[1].startswith("pyspark.")


def _become(request: Request) -> None:
    """Be what was asked for, in a forked process."""
    with end_as_it_is():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _end_with(request.connection)
        request.take()
        module = sys.argv[0]
        if module == DAEMON:
            importlib.import_module(DAEMON).manager()
        else:
            sys.modules.pop(module, None)  # it runs again, as the main module
            try:
                runpy.run_module(module, run_name="__main__")
            finally:
                _finish()


def _finish() -> None:
    """Do what the interpreter does at its end: locks are freed aside."""
    for each in threading.enumerate():
        if each is not threading.current_thread() and not each.daemon:
            each.join()
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does in what it forks


def _end_with(connection: socket.socket) -> None:
    """Have the kernel end this process, and its group, when its launcher is killed.

    Spark does that to what it needs no more. The connection is readable then, which is a signal
    that ends a process unless it has asked for it.
    """
    with contextlib.suppress(PermissionError):
        os.setpgid(0, 0)
    fcntl.fcntl(connection, fcntl.F_SETOWN, -os.getpid())
    flags = fcntl.fcntl(connection, fcntl.F_GETFL)
    fcntl.fcntl(connection, fcntl.F_SETFL, flags | os.O_ASYNC)


if __name__ == "__main__":
    main(int(sys.argv[1]))
