"""A stream from a Delta table as Spark drives it, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions
from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader
from airflow_cloudfiles.engine.tables.delta.stream.evolution import QueryPlace
from airflow_cloudfiles.engine.tables.delta.stream.table_stream import TableStream
from airflow_cloudfiles.engine.tables.delta.stream.tracking import StreamDefinition, define
from tests.support.delta_tables import MAPPED, HandMadeTable, column, removed

Rows = list[dict[str, Any]]
CONFIGURED = {"delta.columnMapping.mode": "name"}


class Query:
    """One query: its checkpoint survives `restart`, and what it has read is in `rows`.

    Spark's order is kept: the offset is written before the files are asked for, the batch is
    committed before the next one is planned, and a planned one that was not committed is run again.
    """

    def __init__(
        self, table: Path, checkpoint: Path, *, track: bool = False, **options: Any
    ) -> None:
        self.table, self.checkpoint = table, checkpoint
        self.options = {key.lower(): str(value) for key, value in options.items()}
        if track:
            self.options["schematrackinglocation"] = str(checkpoint / "schemas")
        self.settings: dict[str, str] = {}
        self.offsets: list[dict[str, Any]] = []
        self.committed = 0
        self.batches: list[Rows] = []
        self.ordinal = 0
        self.stream: TableStream | None = None
        self.definition: StreamDefinition | None = None

    def load(self) -> None:
        """Define it anew."""
        self.definition = define(str(self.table), TableStreamOptions.read(self.options))

    def start(self, *, available_now: bool = True, reload: bool = True) -> None:
        """Start it, as with `load()` and `start()`; a batch that was planned is run again."""
        if reload or self.definition is None:
            self.load()
        options = TableStreamOptions.read(self.options)
        place = QueryPlace(str(self.checkpoint), self.ordinal, self.settings)
        assert self.definition is not None
        self.stream = TableStream(str(self.table), options, self.definition, lambda: place)
        if available_now:
            self.stream.prepare_available_now()
        if len(self.offsets) > self.committed:
            self.execute()

    def begin(self) -> dict[str, Any]:
        """Where the batch begins that is to be planned or run."""
        assert self.stream is not None
        if self.committed == 0:
            return self.stream.initial().to_json()
        return self.offsets[self.committed - 1]

    def plan(self, *, unlimited: bool = False) -> bool:
        """Write the offset of the next batch; false when there is nothing new."""
        assert self.stream is not None
        start = self.begin()
        read = self.stream.read_offset(start)
        end = json.loads(json.dumps(self.stream.latest(read, unlimited=unlimited).to_json()))
        if end == start:
            return False
        self.offsets.append(end)
        return True

    def execute(self) -> None:
        """Run the batch that was planned last, and commit it."""
        assert self.stream is not None
        start = self.stream.read_offset(self.begin())
        files = self.stream.files(start, self.stream.read_offset(self.offsets[-1]))
        reader = DataFileReader(self.stream.columns)
        rows: Rows = []
        for file in files:
            for batch in reader.read(file):
                rows += batch.to_pylist()
        self.batches.append(rows)
        self.committed = len(self.offsets)

    def run(self, **how: Any) -> Rows:
        """Start it and let it end by itself; give the rows of this run."""
        before = len(self.batches)
        self.start(**how)
        while self.plan():
            self.execute()
        return [row for batch in self.batches[before:] for row in batch]

    def failing(self, kind: type[CloudFilesError], **how: Any) -> str:
        """Run it until it fails with an error; give the message."""
        try:
            self.run(**how)
        except kind as error:
            return error.message
        raise AssertionError(f"it has not failed with {kind.__name__}")

    @property
    def rows(self) -> Rows:
        """All it has read."""
        return [row for batch in self.batches for row in batch]

    def log(self) -> list[dict[str, Any]]:
        """The entries of its schema tracking log."""
        [folder] = (self.checkpoint / "schemas").glob("_schema_log_*")
        found = []
        for number in range(len(list(folder.iterdir()))):
            first, _, rest = (folder / str(number)).read_text().partition("\n")
            assert first == "v1"
            found.append(json.loads(rest))
        return found


class GrowingTable(HandMadeTable):
    """A table to which versions are added, with column mapping by name."""

    def __init__(self, folder: Path, *names: str) -> None:
        super().__init__(folder)
        self.columns = [
            column(name, "long", number) for number, name in enumerate(names or ("a", "b"), 1)
        ]
        self.files: list[dict[str, Any]] = []
        self.create(protocol=MAPPED, columns=self.columns, delta_columnMapping_mode="name")

    def append(self, *values: Any, **more: Any) -> int:
        """Append a version with one file: rows of which every column has the same value."""
        physical = [each["metadata"]["delta.columnMapping.physicalName"] for each in self.columns]
        rows = {name: list(values) for name in physical}
        add = self.file(f"part-{len(self.files):03}.parquet", rows)
        add["add"]["modificationTime"] = 1000 + len(self.files)
        add["add"] |= more
        self.files.append(add)
        return self.commit(add)

    def evolve(self, change: Callable[[list[dict[str, Any]]], Any], *more: dict[str, Any]) -> int:
        """Append a version whose only change is one of the columns."""
        self.columns = json.loads(json.dumps(self.columns))
        change(self.columns)
        return self.commit(self.metadata(self.columns, (), CONFIGURED), *more)

    def rename(self, before: str, after: str) -> int:
        """Rename a column."""
        return self.evolve(lambda columns: self._named(columns, before).update(name=after))

    def drop(self, name: str) -> int:
        """Drop a column."""
        return self.evolve(lambda columns: columns.remove(self._named(columns, name)))

    def add(self, name: str, number: int, kind: Any = "long") -> int:
        """Add a column."""
        return self.evolve(lambda columns: columns.append(column(name, kind, number)))

    def retype(self, name: str, kind: Any) -> int:
        """Give a column another type."""
        return self.evolve(lambda columns: self._named(columns, name).update(type=kind))

    def delete(self, place: int) -> int:
        """Remove a file."""
        return self.commit(removed(self.files[place]))

    @staticmethod
    def _named(columns: list[dict[str, Any]], name: str) -> dict[str, Any]:
        return next(each for each in columns if each["name"] == name)
