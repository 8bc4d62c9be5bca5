"""Which file had which column first?

Noted while files are read one after the other, for people: the schema log has, for each column,
the first file that had it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.schema.diff import paths_of

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_SECONDS = 1.0
"""Noting is for people, and ends when it has taken so long: thousands of columns in many files."""


class Provenance:
    """Notes for each path of a schema the first file that had it.

    Attributes:
        files: By path (`a`, `a.b`, `a.element.b`), the URI of the file.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self._known = StructType([])
        self._seconds = 0.0

    def note(self, result: Callable[[], StructType], file_uri: str) -> None:
        """Note what is new since the last call.

        Args:
            result: Gives the schema of all files so far.
            file_uri: The file that was read last.
        """
        if self._seconds > MOST_SECONDS:
            return
        began = time.monotonic()
        schema = result()
        if schema != self._known:
            for path in paths_of(schema.jsonValue()):
                self.files.setdefault(path, file_uri)
            self._known = schema
        self._seconds += time.monotonic() - began

    def by_file(self, after: StructType, before: StructType | None = None) -> dict[str, list[str]]:
        """For each file the paths it had first, of those that a schema has and another lacks."""
        old = paths_of((before or StructType([])).jsonValue())
        found: dict[str, list[str]] = {}
        for path in paths_of(after.jsonValue()):
            if path not in old and path in self.files:
                found.setdefault(self.files[path], []).append(path)
        return found
