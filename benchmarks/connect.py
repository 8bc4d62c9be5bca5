"""Small runs on a Spark Connect server, beside Spark's own stream on the same server.

Each client is a process of its own with a session of its own. The server is started as
docs/how-to/spark-connect.md says, and is warm: each engine has run once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks import data
from benchmarks.cases import Bench, measured
from tests.support.connect_server import ConnectServer

if TYPE_CHECKING:
    from benchmarks.cases import Record

RUNS = 12


def cases(bench: Bench) -> Iterator[Record]:
    """Runs of 20 files in turn, with the Python processes of the server after each."""
    source = data.json_files(bench.arguments.data, 1000, 50)
    title = "20 files of 50 rows on a Spark Connect server"
    with ConnectServer(bench.work / "server", python=sys.executable) as server:
        os.environ["SPARK_REMOTE"] = server.remote
        try:
            for number in range(RUNS + 1):
                for engine in ("connect", "spark"):
                    with bench.folder() as folder:
                        task: dict[str, Any] = bench.task(source, folder, remote=True)
                        task["spark_conf"] = {}
                        record = measured("connect", title, engine, task)
                        rows = data.row_count(task["target"], is_delta=engine == "connect")
                    if rows != data.rows_of(source):
                        sys.exit(f"{engine} has {rows} rows in its target")
                    if number:
                        yield {**record, "servers_pythons": len(server.pythons())}
        finally:
            del os.environ["SPARK_REMOTE"]
