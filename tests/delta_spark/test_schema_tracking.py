"""Delta's own stream with `schemaTrackingLocation` and ours go over the same changes alike.

Both read a table of ours with column mapping, whose columns are added, renamed and dropped. Each
start of one is a start of the other: both give the same rows, both fail with the same error of
Delta's, and both logs end with the same entry.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.extensions.upkeep.alter import (
    add_column,
    drop_column,
    rename_column,
    set_properties,
)
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from airflow_cloudfiles.engine.tables.delta.merge_schema import SOURCE_NAME
from tests.support.delta_pairs import Streams
from tests.support.delta_spark import DeltaSpark
from tests.support.delta_tables import read
from tests.support.delta_writes import Sink, snapshot_of
from tests.support.laws import examples

pytestmark = [pytest.mark.spark, pytest.mark.law]

EVOLVED = "DELTA_STREAMING_METADATA_EVOLUTION"
BLOCKED = "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"
TURNS = 8


class Both:
    """A table, and two streams from it."""

    def __init__(self, delta: DeltaSpark, folder: Path, mode: str = "name") -> None:
        self.delta, self.folder, self.target = delta, folder, folder / "table"
        self.sink = Sink(self.target, delta_columnMapping_mode=mode)
        self.streams = Streams(delta, self.target, folder, tracks=True)
        self.number = self.made = 0
        self.append()

    # The table

    @property
    def columns(self) -> list[str]:
        return read(self.target).column_names

    def append(self, *more: str) -> None:
        self.number += 1
        self.sink.write(pa.table({name: [f"{name} {self.number}"] for name in self._fed(*more)}))

    def append_a_new_column(self) -> None:
        self.append(self.a_new())

    def _fed(self, *more: str) -> list[str]:
        """Name the columns of rows as a stream has them, which may feed columns of other names."""
        if not self.target.exists():
            return ["a", "b"]
        fields = json.loads(snapshot_of(self.target).metadata.schema_json)["fields"]
        return [*(str(each["metadata"].get(SOURCE_NAME, each["name"])) for each in fields), *more]

    def a_new(self) -> str:
        self.made += 1
        return f"c {self.made}"

    def add(self) -> None:
        add_column(str(self.target), f"`{self.a_new()}` STRING")

    def rename(self) -> None:
        rename_column(str(self.target), f"`{self.columns[-1]}`", self.a_new())

    def drop(self) -> None:
        if len(self.columns) > 1:
            drop_column(str(self.target), f"`{self.columns[0]}`")

    def swap(self) -> None:
        if len(self.columns) > 1:
            first, second = self.columns[:2]
            rename_column(str(self.target), f"`{first}`", "kept")
            rename_column(str(self.target), f"`{second}`", first)
            rename_column(str(self.target), "kept", second)

    def compact(self) -> None:
        optimize(str(self.target))

    def set_property(self) -> None:
        set_properties(str(self.target), {"delta.checkpointInterval": str(100 + self.number)})

    # The streams

    def start(self, **options: str) -> str:
        """Start both; the error that both fail with, or nothing."""
        ours, theirs = self.streams.ours(**options), self.streams.theirs(**options)
        assert ours == theirs
        if theirs[0] != EVOLVED:  # then the log of Delta's has only the first of several changes
            assert self._entry("ours") == self._entry("theirs")
        return theirs[0]

    def _entry(self, name: str) -> dict[str, Any]:
        """The newest entry of a schema log, without the place of its stream and its number."""
        paths = self.folder.glob(f"{name}/schemas/_schema_log_*/[0-9]*")
        newest = max(paths, key=lambda path: int(path.name))
        entry = json.loads(newest.read_text().partition("\n")[2])
        for key in ("dataSchemaJson", "partitionSchemaJson", "protocolJson"):
            entry[key] = json.loads(entry[key])
        own = ("sourceMetadataPath", "previousMetadataSeqNum")
        return {key: value for key, value in entry.items() if key not in own}


@contextlib.contextmanager
def _noted(note: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(note)
        raise


CHANGES: dict[str, Callable[[Both], None]] = {
    "added": Both.add,
    "added with rows": Both.append_a_new_column,
    "renamed": Both.rename,
    "dropped": Both.drop,
    "swapped": Both.swap,
    "property": Both.set_property,
}
KINDS = {
    "renamed": {"allowSourceColumnRename"},
    "dropped": {"allowSourceColumnDrop"},
    "swapped": {"allowSourceColumnRename"},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_stops_both_and_both_go_on(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    both = Both(delta, tmp_path)
    assert both.start() == ""
    both.append()
    CHANGES[name](both)
    version = snapshot_of(both.target).version
    both.append()
    assert both.start() == EVOLVED
    allowed = dict.fromkeys(KINDS.get(name, ()), str(version))
    if allowed:
        assert both.start() == BLOCKED
        assert both.start(**dict.fromkeys(allowed, str(version - 1))) == BLOCKED
    assert both.start(**allowed) == ""
    both.append()
    assert both.start(**allowed) == ""
    assert both.start() == (BLOCKED if allowed else "")


@pytest.mark.timeout(3600)
def test_random_changes_stop_both_alike(delta: DeltaSpark, tmp_path: Path) -> None:
    for number in range(examples(12)):
        seed = random.randrange(2**32)
        rng = random.Random(seed)
        both = Both(delta, tmp_path / str(number), rng.choice(["name", "id"]))
        changes: list[Any] = [*CHANGES.values(), Both.append, Both.append, Both.compact]
        turns = [*changes, Both.start, Both.start]
        allowed = {"allowSourceColumnRename": "always", "allowSourceColumnDrop": "always"}
        done, error = ["start"], both.start()
        for turn in rng.choices(turns, k=TURNS):
            done.append(turn.__name__)
            with _noted(f"seed {seed}: {done}"):
                turn(both)
        for _ in range(2 * TURNS):
            with _noted(f"seed {seed}: {done}"):
                error = both.start(**allowed)
            if error == "":
                break
        assert error == "", f"seed {seed}: it has never ended after {done}"
