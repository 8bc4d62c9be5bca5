"""An S3 emulator for benchmarks: SeaweedFS, fast enough to measure clients with."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config

from tests.support.emulators.aws import seaweed_server

BUCKET = "landing"
THREADS = 16


class Emulator:
    """A running emulator with one bucket.

    Args:
        folder: Where it keeps its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        data = folder / "seaweed"
        data.mkdir(parents=True)
        self._server, url = seaweed_server(data)
        self.access: dict[str, Any] = {
            "access_key_id": "any",
            "secret_access_key": "any",
            "region": "us-east-1",
            "endpoint_urls": {"": url},
            "path_style": True,
        }
        self.uri = f"s3://{BUCKET}/in"

    def __enter__(self) -> Self:
        """Start it and make the bucket."""
        self._server.start()
        self._client = boto3.client(
            "s3",
            endpoint_url=self.access["endpoint_urls"][""],
            aws_access_key_id="any",
            aws_secret_access_key="any",
            region_name="us-east-1",
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
