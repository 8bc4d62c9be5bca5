"""Delta's own writer and ours take turns at one table: every version is read alike by both.

`HISTORIES=50` in the environment says how many; else ten, and 200 with `EXAMPLES=all`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.extensions.upkeep.alter import add_column, drop_column, rename_column
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from tests.delta_spark.test_delta_reads_what_we_write import same
from tests.support.delta_spark import DeltaSpark
from tests.support.delta_tables import read
from tests.support.delta_writes import Sink, merge_rows, snapshot_of
from tests.support.laws import ALL

pytestmark = [pytest.mark.spark, pytest.mark.law]

HISTORIES = int(os.environ.get("HISTORIES", "200" if ALL else "10"))
IN_A_TEST = 10
TURNS = 8


class _Table:
    """A table with column mapping, its key `k` and text columns that come, go and are renamed."""

    def __init__(self, delta: DeltaSpark, target: Path, rng: random.Random) -> None:
        self.delta, self.target, self.rng = delta, target, rng
        self.name = f"delta.`{target}`"
        self.sink = Sink(target, delta_columnMapping_mode=rng.choice(["name", "id"]))
        self.rows = 0
        self.made = self.merges = 0
        self.sink.write(self.some(["k", "c0"]))

    @property
    def columns(self) -> list[str]:
        return read(self.target).column_names

    def some(self, columns: list[str]) -> pa.Table:
        """New rows, some of whose values are null."""
        count = self.rng.randrange(1, 4)
        keys = range(self.rows, self.rows + count)
        self.rows += count
        values = {
            name: pa.array([self.rng.choice([None, f"{name} {k}"]) for k in keys], pa.string())
            for name in columns
            if name != "k"
        }
        return pa.table({"k": pa.array(keys, pa.int64()), **values})

    def a_text(self) -> str | None:
        return self.rng.choice([each for each in self.columns if each != "k"] or [None])

    def a_new(self) -> str:
        self.made += 1
        return self.rng.choice(["c{}", "C {}", "ä{}", "a.b{}"]).format(self.made)

    # Ours

    def we_append(self) -> None:
        self.sink.write(self.some(self.columns))

    def we_append_a_new_column(self) -> None:
        self.sink.write(self.some([*self.columns, self.a_new()]))

    def we_merge(self) -> None:
        keys = self.rng.sample(range(self.rows), min(2, self.rows))
        rows = self.some(self.columns).slice(0, len(keys))
        rows = rows.set_column(0, "k", pa.array(keys[: rows.num_rows], pa.int64()))
        merge_rows(self.target, self.merges, rows, keys=("k",))
        self.merges += 1

    def we_compact(self) -> None:
        optimize(str(self.target))

    def we_rename(self) -> None:
        if (name := self.a_text()) is not None:
            rename_column(str(self.target), f"`{name}`", self.a_new())

    def we_drop(self) -> None:
        if (name := self.a_text()) is not None:
            drop_column(str(self.target), f"`{name}`")

    def we_add(self) -> None:
        add_column(str(self.target), f"`{self.a_new()}` STRING")

    # Theirs

    def they_append(self) -> None:
        values = [f"'{name}'" for name in self.columns if name != "k"]
        self.rows += 1
        self.delta.run(f"INSERT INTO {self.name} VALUES ({', '.join([str(self.rows), *values])})")

    def they_delete(self) -> None:
        self.delta.run(f"DELETE FROM {self.name} WHERE k % 5 = {self.rng.randrange(5)}")

    def they_update(self) -> None:
        if (name := self.a_text()) is not None:
            self.delta.run(f"UPDATE {self.name} SET `{name}` = 'updated' WHERE k % 2 = 0")

    def they_compact(self) -> None:
        self.delta.run(f"OPTIMIZE {self.name}")

    def they_rename(self) -> None:
        if (name := self.a_text()) is not None:
            self.delta.run(f"ALTER TABLE {self.name} RENAME COLUMN `{name}` TO `{self.a_new()}`")

    def they_drop(self) -> None:
        if (name := self.a_text()) is not None:
            self.delta.run(f"ALTER TABLE {self.name} DROP COLUMN `{name}`")

    def they_add(self) -> None:
        self.delta.run(f"ALTER TABLE {self.name} ADD COLUMNS (`{self.a_new()}` STRING)")

    def they_restore(self) -> None:
        version = self.rng.randrange(snapshot_of(self.target).version + 1)
        self.delta.run(f"RESTORE TABLE {self.name} TO VERSION AS OF {version}")


OURS = [each for each in vars(_Table) if each.startswith("we_")]
THEIRS = [each for each in vars(_Table) if each.startswith("they_")]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, HISTORIES, IN_A_TEST))
def test_every_version_of_a_random_history_is_read_alike(
    delta: DeltaSpark, tmp_path: Path, first: int
) -> None:
    for number in range(first, min(first + IN_A_TEST, HISTORIES)):
        seed = random.randrange(2**32)
        rng = random.Random(seed)
        table = _Table(delta, tmp_path / str(number), rng)
        done = []
        for turn in range(TURNS):
            done.append(rng.choice(OURS if turn % 2 else THEIRS))
            before = snapshot_of(table.target).version
            try:
                getattr(table, done[-1])()
            except SinkError:  # by name, such as a merge where `deltalake` misreads the table
                assert snapshot_of(table.target).version == before, f"seed {seed}: {done}"
            theirs = delta.table(table.target)
            assert theirs.column_names == table.columns, f"seed {seed}: {done}"
            same(read(table.target), theirs)
        for version in range(snapshot_of(table.target).version + 1):
            same(read(table.target, version), delta.table(table.target, version))
