"""A stream with rules for its rows, and where each of its rows is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from airflow_cloudfiles.engine.extensions.row_rules.quarantine import Quarantine, RowSelection
from tests.support.ingested import Ingested

ALL = RowSelection()


class Ruled(Ingested):
    """A stream of rows with an id and a number, with rules for them.

    Attributes:
        quarantine: The quarantine table.
    """

    def __init__(self, folder: Path, **options: str) -> None:
        hints = {"cloudFiles.schemaHints": "id STRING, b BIGINT"}
        super().__init__(folder, **{**hints, "cloudFiles.maxFilesPerTrigger": "100", **options})
        self.quarantine = folder / "table_quarantine"

    def rules(self, **given: str) -> None:
        """Give rules as `name="predicate"`, and their actions as `name__action`."""
        self.sink = {}
        for name, text in given.items():
            rule, _, ending = name.partition("__")
            option = f"expect.row.{rule}" + (".onviolation" if ending else "")
            self.sink[option] = text

    def drop(self, file: str, *rows: tuple[str, Any], **more: Any) -> None:
        """Land a file with rows of an id and a number."""
        lines = [json.dumps({"id": name, "b": number, **more}) for name, number in rows]
        (self.source / f"{file}.json").write_text("".join(f"{line}\n" for line in lines))

    def ids(self, table: Path | None = None) -> list[str]:
        """The ids of the rows of a table, the target unless given; none where there is no table."""
        path = table or self.target
        if not (path / "_delta_log").exists():
            return []
        found: list[str] = DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist()
        return sorted(found)

    def aside(self) -> list[str]:
        """The ids of the rows that were put aside."""
        return self.ids(self.quarantine)

    def rows_by_id(self) -> dict[str, dict[str, Any]]:
        """The rows of the target."""
        found = DeltaTable(str(self.target)).to_pyarrow_table().to_pylist()
        return {each["id"]: each for each in found}

    @property
    def opened(self) -> Quarantine:
        """Its quarantine table."""
        return Quarantine(str(self.target))
