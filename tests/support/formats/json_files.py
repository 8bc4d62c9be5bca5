"""A file in memory, as the stream would hand it to a reader of documents, and options."""

from __future__ import annotations

import io
from typing import IO

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions


class MemoryFile:
    """One file whose bytes are at hand; only what readers of JSON documents ask for."""

    def __init__(self, data: bytes, uri: str = "file:///f.json") -> None:
        self.uri = uri
        self.entry = FileEntry(path="f.json", size=len(data), modification_time_us=0)
        self._data = data

    def text_stream(self, encoding: str = "utf-8") -> IO[bytes]:
        """The file in UTF-8."""
        data = self._data
        return io.BytesIO(data if encoding == "utf-8" else data.decode(encoding).encode())


def typed_options(typed: bool) -> CloudFilesOptions:
    """Options of a source of JSON whose inference looks for types, or does not."""
    given = {"cloudFiles.format": "json", "cloudFiles.inferColumnTypes": str(typed).lower()}
    return CloudFilesOptions.parse(given, path="/landing")
