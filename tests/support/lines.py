"""Reads files as a format of lines does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_cloudfiles.engine.reading import fetch as fetching
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.storage import ObjectStore


def fetch(
    store: ObjectStore, part: FileRange, counts: FetchCounts, **options: Any
) -> Iterator[bytes]:
    """Blocks of complete lines of a part of a file."""
    return fetching.fetch(
        store, part, counts, lambda file: file.blocks(part.start, part.end), **options
    )
