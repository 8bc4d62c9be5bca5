"""What is in the table and in the schema log, read without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from deltalake import DeltaTable

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Landed:
    """What the stream has made of the files, on disk below one root.

    Attributes:
        root: The folder the example DAG works in.
    """

    root: Path

    @property
    def rows(self) -> int:
        """Rows of the table; 0 while there is none."""
        if not DeltaTable.is_deltatable(str(self._path)):
            return 0
        return int(self._table().to_pyarrow_dataset().count_rows())

    def columns(self) -> dict[str, str]:
        """The table's columns and their types."""
        return {
            field.name: str(getattr(field.type, "type", field.type))
            for field in self._table().schema().fields
        }

    def total(self, column: str) -> int:
        """The sum of a column, as a check that the right rows are there."""
        data = self._table().to_pyarrow_dataset().to_table(columns=[column])
        return int(pc.sum(data[column]).as_py())

    def rescued(self) -> list[dict[str, object]]:
        """The rows that hold something in `_rescued_data`."""
        keep = ~pc.field("_rescued_data").is_null()
        rows: list[dict[str, object]] = (
            self._table().to_pyarrow_dataset().to_table(filter=keep).to_pylist()
        )
        return rows

    def history(self) -> list[dict[str, object]]:
        """The table's versions, oldest first."""
        return [dict(version) for version in reversed(self._table().history())]

    def schema_log(self) -> list[tuple[int, dict[str, Any]]]:
        """The versions of the schema log: number and content."""
        folder = self.root / "checkpoint" / "_schemas"
        found = []
        for path in sorted(folder.glob("[0-9]*"), key=lambda each: int(each.name)):
            _, _, body = path.read_text(encoding="utf-8").split("\n", 2)  # version, header, content
            found.append((int(path.name), json.loads(body)))
        return found

    @property
    def _path(self) -> Path:
        return self.root / "table"

    def _table(self) -> DeltaTable:
        return DeltaTable(str(self._path))
