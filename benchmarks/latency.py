"""Small files in a store far away: an S3 emulator behind a proxy that answers late."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from benchmarks import data
from benchmarks.cases import Bench, Record, measured
from benchmarks.s3 import Emulator
from tests.support.emulators.processes import free_port, listens

ONE_AT_A_TIME = 300
"""Files that are read one after another: enough to know how long each takes."""


def cases(bench: Bench) -> Iterator[Record]:
    """Ingest from the slow store; beside it, get files one after another."""
    count = bench.arguments.latency_files
    source = data.json_files(bench.arguments.data, 2 * count, 2)
    title = f"{count:,} files in S3, {bench.arguments.latency_milliseconds} ms"
    with Emulator(bench.work / "s3") as emulator:
        paths = sorted(source.glob("*/*.json"))
        emulator.put((path.relative_to(source).as_posix(), path.read_bytes()) for path in paths)
        with _proxy(emulator, bench.arguments.latency_milliseconds) as (access, figures):
            for _ in range(bench.arguments.repeat):
                with bench.folder() as folder:
                    task = bench.task(emulator.uri, folder, s3=access)
                    figures()
                    record = measured("latency", title, "ingest", task)
                    found = data.row_count(task["target"], is_delta=True)
                    if found != 2 * count:
                        sys.exit(f"{title}: {found} rows, not {2 * count}")
                    yield {**record, "rows": found, "proxy": figures()}
                    task["files"] = min(ONE_AT_A_TIME, count)
                    yield measured("latency", title, "one-at-a-time", task)


@contextmanager
def _proxy(emulator: Emulator, milliseconds: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Run the proxy; gives how the store is reached through it, and what gives its figures."""
    port = free_port()
    upstream = urlsplit(emulator.access["endpoint_urls"][""]).port
    command = [sys.executable, "-m", "benchmarks.latency_proxy"]
    command += [str(upstream), str(port), str(milliseconds)]
    address = f"http://127.0.0.1:{port}"

    def figures() -> Any:
        with urllib.request.urlopen(f"{address}/_figures", timeout=10) as answer:
            return json.loads(answer.read(int(answer.headers["Content-Length"])))

    with subprocess.Popen(command) as process:
        try:
            while not listens(port):
                if process.poll() is not None:
                    sys.exit("The proxy has ended")
            yield {**emulator.access, "endpoint_urls": {"": address}}, figures
        finally:
            process.terminate()
