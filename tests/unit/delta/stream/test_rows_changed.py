"""A commit that takes rows away is refused, skipped or emitted again, as the options say."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import TableRowsChangedError
from tests.support.delta_tables import HandMadeTable, features, removed
from tests.support.table_streams import Query

NAMES = ("ignoreDeletes", "ignoreChanges", "skipChangeCommits")
PROTOCOL = features("deletionVectors")


class Made:
    """A table, and a stream that has read all of it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.table = HandMadeTable(folder / "t")
        self.file = self.table.file("0.parquet", {"a": [1, 2, 3], "s": [None, "x", "y"]})
        self.table.create(self.file, protocol=PROTOCOL)
        self.query = Query(self.table.folder, folder / "checkpoint", **options)
        self.query.run()
        assert self.values(self.query.rows) == [1, 2, 3]

    @staticmethod
    def values(rows: list[dict[str, Any]]) -> list[int]:
        return [row["a"] for row in rows]

    def outcome(self) -> list[int] | str:
        """What the stream reads next, or the first words of its error."""
        try:
            return self.values(self.query.run())
        except TableRowsChangedError as error:
            return error.message.partition(" (")[0]


ALL = [dict(zip(NAMES, flags, strict=True)) for flags in product((False, True), repeat=3)]
UPDATE = "[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update"
DELETE = "[DELTA_SOURCE_IGNORE_DELETE] Detected deleted data"


@pytest.mark.parametrize("options", ALL)
def test_an_update_in_every_combination_of_options(tmp_path: Path, options: dict[str, Any]) -> None:
    made = Made(tmp_path, **options)
    rewritten = made.table.file("1.parquet", {"a": [1, 20, 3], "s": ["x"] * 3})
    made.table.commit(removed(made.file), rewritten)
    made.table.commit(made.table.file("2.parquet", {"a": [4], "s": ["x"]}))
    expected: list[int] | str = UPDATE
    if options["skipChangeCommits"]:
        expected = [4]
    elif options["ignoreChanges"]:
        expected = [1, 20, 3, 4]
    assert made.outcome() == expected


@pytest.mark.parametrize("options", ALL)
def test_a_delete_of_whole_files_in_every_combination_of_options(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    made = Made(tmp_path, **options)
    made.table.commit(removed(made.file))
    made.table.commit(made.table.file("2.parquet", {"a": [4], "s": ["x"]}))
    assert made.outcome() == ([4] if any(options.values()) else DELETE)


@pytest.mark.parametrize("options", ALL)
def test_a_delete_by_deletion_vector_is_an_update(tmp_path: Path, options: dict[str, Any]) -> None:
    made = Made(tmp_path, **options)
    vector = made.table.vector([0])
    first = {"add": {**made.file["add"], "deletionVector": vector}}
    made.table.commit(removed(made.file), first)
    more = made.table.vector([0, 2])
    made.table.commit(removed(first), {"add": {**made.file["add"], "deletionVector": more}})
    expected: list[int] | str = UPDATE
    if options["skipChangeCommits"]:
        expected = []
    elif options["ignoreChanges"]:
        expected = [2, 3, 2]  # the file again, each time with the vector of that version
    assert made.outcome() == expected


def test_rows_that_were_deleted_before_the_stream_began_are_not_read(tmp_path: Path) -> None:
    table = HandMadeTable(tmp_path / "t")
    rows = {"a": [1, None, 3], "s": ["x", "y", None]}
    files = [
        table.file(f"{kind}.parquet", rows, vector=table.vector([0], kind=kind)) for kind in "uip"
    ]
    table.create(*files, protocol=PROTOCOL)
    query = Query(table.folder, tmp_path / "checkpoint")
    assert query.run() == [{"a": None, "s": "y"}, {"a": 3, "s": None}] * 3


def test_an_insert_and_a_delete_of_its_rows_before_the_stream_reads_on(tmp_path: Path) -> None:
    made = Made(tmp_path, ignoreChanges=True)
    new = made.table.file("1.parquet", {"a": [4, 5], "s": ["x", "x"]})
    made.table.commit(new)
    vector = made.table.vector([0])
    made.table.commit(removed(new), {"add": {**new["add"], "deletionVector": vector}})
    assert made.outcome() == [4, 5, 5]


def test_the_error_names_the_file_the_version_and_the_option(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.table.commit(removed(made.file))
    message = made.query.failing(TableRowsChangedError)
    assert "0.parquet" in message
    assert "version 1" in message
    assert "'ignoreDeletes'" in message


def test_an_old_name_of_an_option_is_understood(tmp_path: Path) -> None:
    made = Made(tmp_path, ignoreFileDeletion=True)
    made.table.commit(removed(made.file), made.table.file("1.parquet", {"a": [9], "s": ["x"]}))
    assert made.outcome() == [9]
