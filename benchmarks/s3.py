"""Servers of S3 for benchmarks.

`Emulator` is SeaweedFS, fast enough to measure clients with. `Gateway` is Versity's, which serves
folders of a disk: a million objects are there as soon as their files are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config

from tests.support.emulators.aws import seaweed_server
from tests.support.emulators.other_servers import HOME, versity_server

BUCKET = "landing"
THREADS = 16
_ACCESS = {
    "access_key_id": "test",
    "secret_access_key": "test-secret",
    "region": "us-east-1",
    "path_style": True,
}


class Emulator:
    """A running emulator with one bucket.

    Args:
        folder: Where it keeps its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        data = folder / "seaweed"
        data.mkdir(parents=True)
        self._server, url = seaweed_server(data)
        self.access: dict[str, Any] = {**_ACCESS, "endpoint_urls": {"": url}}
        self.uri = f"s3://{BUCKET}/in"

    def __enter__(self) -> Self:
        """Start it and make the bucket."""
        self._server.start()
        self._client = boto3.client(
            "s3",
            endpoint_url=self.access["endpoint_urls"][""],
            aws_access_key_id=self.access["access_key_id"],
            aws_secret_access_key=self.access["secret_access_key"],
            region_name=self.access["region"],
            config=Config(max_pool_connections=THREADS, s3={"addressing_style": "path"}),
        )
        self._client.create_bucket(Bucket=BUCKET)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self._server.stop()

    def put(self, objects: Iterable[tuple[str, bytes]]) -> None:
        """Put objects, by name and content, below the source."""

        def one(named: tuple[str, bytes]) -> None:
            key, content = named
            self._client.put_object(Bucket=BUCKET, Key=f"in/{key}", Body=content)

        with ThreadPoolExecutor(min(THREADS, 4 * (os.cpu_count() or 1))) as pool:
            list(pool.map(one, objects))


class Gateway:
    """A running gateway; each folder in one is a bucket.

    Args:
        folder: What it serves.
    """

    def __init__(self, folder: Path) -> None:
        if not (HOME / "bin" / "versitygw").exists():
            sys.exit("Versity's gateway is not built: run `make other-servers`, or give --no-s3.")
        log = folder.with_name(f"{folder.name}-gateway.log")
        self._server, endpoint = versity_server(folder, log)
        self.access: dict[str, Any] = {**_ACCESS, "endpoint_urls": {"": endpoint}}

    def __enter__(self) -> Self:
        """Start it."""
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._server.stop()
