"""Whatever happens to the table and to the query, each row is read once."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import TableEvolvedError
from tests.support.delta_tables import removed
from tests.support.table_streams import GrowingTable, Query

STEPS = st.sampled_from(
    ["one", "three", "empty", "compact", "add column", "plan", "execute", "restart", "run"]
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "maxFilesPerTrigger": st.sampled_from([1, 2, 3]),
        "maxBytesPerTrigger": st.sampled_from([1, 10**6]),
        "startingVersion": st.just(0),
    },
)


class Made:
    """A table to which rows with numbers of their own are added."""

    def __init__(self, folder: Path) -> None:
        self.table = GrowingTable(folder, "a")
        self.rows = 0
        self.columns = 1

    def number(self) -> int:
        self.rows += 1
        return self.rows

    def one(self) -> None:
        self.table.append(self.number())

    def three(self) -> None:
        files = []
        for _ in range(3):
            name = f"three-{self.number()}.parquet"
            files.append(self.table.file(name, {"col-1": [self.rows]}))
        self.table.commit(*files)

    def empty(self) -> None:
        self.table.commit({"commitInfo": {}})

    def compact(self) -> None:
        """Put the rows of a file into another one."""
        if self.table.files:
            old = self.table.files.pop()
            new = {**old["add"], "path": f"{self.table.version}-{old['add']['path']}"}
            (self.table.folder / new["path"]).write_bytes(
                (self.table.folder / old["add"]["path"]).read_bytes()
            )
            new["dataChange"] = False
            self.table.files.insert(0, {"add": new})
            self.table.commit(removed(old, dataChange=False), {"add": new})

    def add_column(self) -> None:
        self.columns += 1
        self.table.add(f"c{self.columns}", self.columns)


def driven(query: Query, step: str) -> None:
    """A step of the query; one that fails with a change of the schema is started again."""
    with contextlib.suppress(TableEvolvedError):
        if step == "restart" or query.stream is None:
            query.start(available_now=False)
        if step == "run":
            query.run(available_now=False)
        elif step == "plan" and len(query.offsets) == query.committed:
            query.plan()
        elif step == "execute" and len(query.offsets) > query.committed:
            query.execute()
        return
    query.stream = None


@pytest.mark.law
@given(steps=st.lists(STEPS, max_size=25), options=OPTIONS, track=st.booleans())
@settings(max_examples=60)
def test_each_row_is_read_once(steps: list[str], options: dict[str, Any], *, track: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Made(Path(folder) / "t")
        query = Query(made.table.folder, Path(folder) / "checkpoint", track=track, **options)
        for step in steps:
            change = getattr(made, step.replace(" ", "_"), None)
            if change is not None:
                change()
            else:
                driven(query, step)
        for _ in range(made.columns + 1):
            with contextlib.suppress(TableEvolvedError):
                query.run(available_now=False)
                break
        found = [row["a"] for row in query.rows]
        assert sorted(found) == list(range(1, made.rows + 1)), query.offsets
