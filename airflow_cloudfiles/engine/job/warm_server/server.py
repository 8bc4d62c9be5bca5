"""How does a warm Spark come up, apart from the run that starts it?

`python -m airflow_cloudfiles.engine.job.warm_server.server FOLDER LOCK READY SECONDS`.
It leaves the process, the session and the streams of the run that starts it, so that it lives on
when that ends or is killed. It says that it is ready by a byte on READY, when it has imported
everything and listens.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import shlex
import signal
import socket
import sys
import time
from pathlib import Path

from airflow_cloudfiles.engine.job.warm.instances import Instance

NAME = "fork-server"
READY = b"1"
_PRELOADED = (
    "grpc",
    "pyspark.sql.connect.client",
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.streaming.query",
    "pyspark.sql.connect.streaming.readwriter",
    "airflow_cloudfiles.engine.inference.infer",
    "airflow_cloudfiles.engine.job.__main__",
    "airflow_cloudfiles.engine.job.run",
    "airflow_cloudfiles.engine.job.warm.driver",
    "airflow_cloudfiles.engine.ledger.rocksdb",
    "airflow_cloudfiles.engine.spark.connect",
    "airflow_cloudfiles.engine.spark.register",
)
"""What a driver imports, beside what Spark's Python processes do."""


def main(arguments: list[str]) -> int:
    """Become a process of nobody's, serve, and end."""
    folder, lock, ready, seconds = arguments
    if os.fork():
        os._exit(0)
    for descriptor in (int(lock), int(ready)):
        os.set_inheritable(descriptor, False)
    logging.basicConfig(
        level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    return _serve(Instance(Path(folder)), int(lock), int(ready), float(seconds))


def _serve(instance: Instance, lock: int, ready: int, seconds: float) -> int:
    """Import everything, listen, say so, and serve."""
    from airflow_cloudfiles.engine.job.warm_server.service import Service  # noqa: PLC0415
    from airflow_cloudfiles.engine.spark.preload import has_one_thread, preload  # noqa: PLC0415

    settings = json.loads(instance.settings.read_text(encoding="utf-8"))
    os.umask(settings["umask"])
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    for name in _PRELOADED:
        importlib.import_module(name)
    preload()
    if not has_one_thread():
        print("The warm Spark ends: a library has started threads.", file=sys.stderr)  # noqa: T201
        return 1
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(instance.socket))
    instance.socket.chmod(0o600)
    listener.listen()
    instance.write_record(
        pid=os.getpid(),
        started=time.time(),
        master=settings["master"],
        software=settings["software"],
    )
    os.write(ready, READY)
    os.close(ready)
    fork = Service(instance, listener, settings, _launcher(instance), seconds).serve()
    if fork is None:
        return 0
    os.close(lock)
    from airflow_cloudfiles.engine.job.warm_server import forked  # noqa: PLC0415

    return forked.become(fork)


def _launcher(instance: Instance) -> str:
    """What the JVM starts in place of Python."""
    script = Path(__file__).parents[1] / "fork_launcher.py"
    command = [sys.executable, "-IS", str(script), str(instance.socket), sys.executable]
    launcher = instance.folder / "python"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    launcher.chmod(0o700)
    return str(launcher)


if __name__ == "__main__":
    from airflow_cloudfiles.engine.job.fork_server import finish

    finish(lambda: main(sys.argv[1:]))
