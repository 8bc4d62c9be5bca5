"""What readers make of a data file that is not below its table, as the how-to says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableColumns
from tests.support.delta_tables import read_by_duckdb
from tests.support.other_places import PLACES, table_with_file

PAGE = Path(__file__).parents[3] / "docs/how-to/register-parquet-files.md"


def _ours(target: Path) -> list[int]:
    snapshot = TableLog(DeltaLocation.of(str(target))).snapshot()
    reader = DataFileReader(TableColumns.of(snapshot))
    batches = (batch for file in snapshot.files for batch in reader.read(file))
    return [value for batch in batches for value in batch["a"].to_pylist()]


def _query(target: Path) -> list[int]:
    found = QueryBuilder().register("t", DeltaTable(str(target))).execute("SELECT a FROM t")
    return list(pa.table(found.read_all())["a"].to_pylist())


def _dataset(target: Path) -> list[int]:
    return list(DeltaTable(str(target)).to_pyarrow_table()["a"].to_pylist())


def _delete(target: Path) -> list[int]:
    DeltaTable(str(target)).delete("a = 4")
    DeltaTable(str(target)).delete("a = 1")
    return [1, *_ours(target)]


READERS: dict[str, tuple[Callable[[Path], list[int]], ...]] = {
    "this package": (_ours,),
    "`deltalake` 1.6: queries": (_query,),
    "`deltalake` 1.6: `to_pyarrow_table`, `delete`, `merge`": (_dataset, _delete),
    "DuckDB 1.5": (lambda target: list(read_by_duckdb(target)["a"].to_pylist()),),
}


def _said() -> dict[str, list[str]]:
    """What the how-to says of each reader, by place."""
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("place", PLACES)
def test_a_reader_does_what_the_how_to_says(tmp_path: Path, name: str, place: str) -> None:
    said = _said()[name][PLACES.index(place)]
    outcomes: list[Any] = []
    for read in READERS[name]:
        folder = tmp_path / f"{len(outcomes)}"
        folder.mkdir()
        target = table_with_file(folder, place)
        try:
            outcomes.append(sorted(read(target)) == [1, 2, 3])
        except Exception:  # noqa: BLE001 - each has errors of its own
            outcomes.append(False)
    is_read = said in {"reads", "work"}
    assert outcomes == [is_read] * len(outcomes)
