"""Where marked credentials of a real Airflow's connection could be, and what looks for them."""

from __future__ import annotations

import contextlib
import gzip
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.airflow_stats import CAN_BE_CONFIGURED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from demo.airflow_home import AirflowHome
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


def objects_of(aws: Aws, bucket: str) -> dict[str, bytes]:
    """Every object of a bucket."""
    s3, name = aws.client("s3"), bucket.removeprefix("s3://")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=name)
    keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
    return {key: s3.get_object(Bucket=name, Key=key)["Body"].read() for key in keys}


def open_to_others(shared: Path) -> list[str]:
    """What of ours is open to others, in temporary folders and in a cache that a user has named."""
    ours = [path for path in shared.iterdir() if "cloudfiles" in path.name]
    ours += (shared / "cache").iterdir()
    assert ours
    return [path.name for path in ours if path.stat().st_mode & 0o077]


def stop_warm_spark(airflow: AirflowHome) -> None:
    """End the warm Spark of an Airflow's tasks."""
    stop = [sys.executable, "-m", "airflow_cloudfiles.cli", "spark", "stop"]
    done = subprocess.run(stop, env=airflow.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
