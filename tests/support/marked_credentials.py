"""Where marked credentials of a real Airflow's connection could be, and what looks for them."""

from __future__ import annotations

import contextlib
import gzip
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.storage import open_store
from tests.golden.in_state import format_of
from tests.support.airflow_stats import CAN_BE_CONFIGURED
from tests.support.aws_landing import objects

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.emulators.aws import Aws

METRICS = "metrics"
"""What a receiver of metrics was sent, in the folder that it is given."""


@contextmanager
def metrics_received(folder: Path) -> Iterator[dict[str, str]]:
    """Receive metrics with their tags, as OpenTelemetry's exporter sends them, into a file.

    Yields:
        What tells an Airflow to send them; nothing for one that has no such metrics in tasks.
    """
    lock = threading.Lock()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Keep what is sent, as the bytes of Protocol Buffers: texts are in it as they are."""
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            with lock, (folder / METRICS).open("ab") as file:
                file.write(content)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield (
                {
                    "AIRFLOW__METRICS__OTEL_ON": "True",
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
                    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                    # Tasks send theirs when they end.
                    "OTEL_METRIC_EXPORT_INTERVAL": "600000",
                }
                if CAN_BE_CONFIGURED
                else {}
            )
        finally:
            server.shutdown()
            thread.join()


def with_first_version(aws: Aws, state: str, source: str) -> None:
    """Let a stream have a schema, so that the next column is a change."""
    log = SchemaLog(open_store(state, aws.access), source)
    columns = parse_schema("a STRING")
    assert log.append(
        0, data_schema=columns, partition_schema=StructType(), reason={"change": "inferred"}
    )


def has_marker(content: bytes, markers: Sequence[str]) -> bool:
    """Whether one of some markers is in some bytes."""
    return any(each.encode() in content for each in markers)


def content_of(path: Path) -> bytes:
    """The bytes of a file; none of one that has just been removed."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def open_to_others(shared: Path) -> list[str]:
    """What of ours is open to others, in temporary folders and in a cache that a user has named."""
    ours = [path for path in shared.iterdir() if "cloudfiles" in path.name]
    ours += (shared / "cache").iterdir()
    assert ours
    return [path.name for path in ours if path.stat().st_mode & 0o077]


def nothing_has_a_marker(
    aws: Aws, root: Path, shared: Path, lake: str, markers: Sequence[str]
) -> None:
    """Look into all that was written: by Airflow, by tasks and runs, and into the lake."""
    if CAN_BE_CONFIGURED:
        sent, tag = content_of(root / METRICS), f"{lake[5:]}/state"
        assert all(each.encode() in sent for each in ("cloudfiles.rows", "is_deferred", tag))
    # With metrics and their tags, what OpenLineage is told, what callbacks note, and the folders of
    # the other streams.
    files = [path for path in (*root.rglob("*"), *shared.rglob("*")) if path.is_file()]
    assert {"airflow.db", "triggerer.log"} <= {path.name for path in files}
    assert any("is_deferred" in str(path) and path.suffix == ".log" for path in files)
    assert [path for path in files if has_marker(content_of(path), markers)] == []
    stored = objects(aws, lake)
    assert [key for key, content in stored.items() if has_marker(content, markers)] == []
    assert {"_runs", "_reports", "_schemas", "_source"} <= {
        key.split("/")[1] for key in stored if key.startswith("state/")
    }
    assert any(key.startswith("table/_delta_log/") for key in stored)
    keys = [key.removeprefix("state/") for key in stored if key.startswith("state/")]
    assert [key for key in keys if format_of(key) is None] == []
