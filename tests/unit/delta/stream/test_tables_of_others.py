"""Tables of others are read as a stream at each version, and as batch reads read them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from tests.support.delta_tables import (
    MAPPED,
    HandMadeTable,
    column,
    duckdb_session,
    features,
    read,
    removed,
    sorted_rows,
)
from tests.support.table_streams import Query, Rows
from tests.unit.delta.read.test_log import six_versions, write_checkpoint


def by_deltalake(folder: Path) -> None:
    """Partitions, checkpoints, a delete, a compaction and a merge."""
    for number in range(5):
        rows = [{"a": number, "p": f"{number % 2} %/ä", "n": {"x": [number]}}, {"a": None}]
        write_deltalake(
            folder,
            pa.Table.from_pylist(rows),
            mode="append",
            partition_by=["p"],
            configuration={"delta.checkpointInterval": "3"} if not number else None,
        )
    DeltaTable(folder).delete("a = 3")
    DeltaTable(folder).optimize.compact()
    merger = DeltaTable(folder).merge(
        pa.table({"a": [2, 9]}), "s.a = t.a", source_alias="s", target_alias="t"
    )
    merger.when_matched_delete().when_not_matched_insert({"a": "s.a"}).execute()


def by_duckdb(folder: Path) -> None:
    """Rows that are inserted."""
    write_deltalake(folder, pa.table({"a": [1, None], "x": [1.5, None], "d": ["ä", ""]}))
    with duckdb_session() as session:
        session.execute(f"ATTACH '{folder}' AS t (TYPE delta)")
        session.execute("INSERT INTO t SELECT 2, 2.5, 'y'")
        session.execute("INSERT INTO t SELECT a + 10, x, NULL FROM t")


def by_hand(folder: Path, mode: str, protocol: dict[str, Any] | None) -> None:
    """Mapped columns and partitions; two vectors of one file, where the protocol has them."""
    made = HandMadeTable(folder)
    columns = [column("p", "date", 2), column("a", "long", 1)]
    files = [
        made.file(f"{number}.parquet", {"col-1": [number, number + 1]}, partition={"col-2": day})
        for number, day in enumerate(("2024-02-29", None))
    ]
    made.create(
        files[0],
        protocol=protocol or features("columnMapping", "deletionVectors"),
        columns=columns,
        partitions=("p",),
        delta_columnMapping_mode=mode,
    )
    made.commit(files[1])
    if protocol is None:
        first, second = (
            {"add": {**files[0]["add"], "deletionVector": made.vector([row])}} for row in (0, 1)
        )
        made.commit(removed(files[0]), first)
        made.commit(removed(first), second)


def with_checkpoint(folder: Path, kind: str) -> None:
    """A checkpoint at version 3, without which the versions before it are not readable."""
    protocol = None if kind in {"classic", "parts"} else features("v2Checkpoint")
    write_checkpoint(folder, six_versions(folder, protocol), kind)


MAKERS: dict[str, Callable[[Path], None]] = {
    "deltalake": by_deltalake,
    "DuckDB": by_duckdb,
    "mapped by name, with deletion vectors": lambda each: by_hand(each, "name", None),
    "mapped by id, with deletion vectors": lambda each: by_hand(each, "id", None),
    "mapped by name, of the legacy protocol": lambda each: by_hand(each, "name", MAPPED),
    "mapped by id, of the legacy protocol": lambda each: by_hand(each, "id", MAPPED),
    **{
        f"a checkpoint of the kind {kind}": lambda each, kind=kind: with_checkpoint(each, kind)
        for kind in ("classic", "parts", "json", "parquet", "v2-inline")
    },
}


def _as_of(whole: Path, to: Path, version: int) -> Path:
    """A table as it was at a version."""

    def later(folder: str, names: list[str]) -> list[str]:
        if Path(folder).name != "_delta_log":
            return []
        return [
            name
            for name in names
            if name == "_last_checkpoint" or (name[:20].isdigit() and int(name[:20]) > version)
        ]

    shutil.copytree(whole, to, ignore=later)
    return to


def _counted(rows: Rows, schema: pa.Schema) -> Counter[str]:
    return Counter(sorted_rows(pa.Table.from_pylist(rows, schema)))


@pytest.mark.parametrize("maker", MAKERS)
def test_a_stream_sees_each_version_as_batch_reads_do(tmp_path: Path, maker: str) -> None:
    whole = tmp_path / "whole"
    MAKERS[maker](whole)
    going_on = Query(whole, tmp_path / "going-on", skipChangeCommits=True)
    before: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for version in range(TableLog(DeltaLocation.to_read(str(whole))).listing().latest + 1):
        table = read(whole, version)
        now = Counter(sorted_rows(table))
        going_on.table = _as_of(whole, tmp_path / str(version), version)
        begun = Query(going_on.table, tmp_path / f"state-{version}")
        assert _counted(begun.run(), table.schema) == now, f"begun at version {version}"
        if not before - now:  # the commit takes no row away
            added += now - before
        going_on.run()
        assert _counted(going_on.rows, table.schema) == added, f"gone on to version {version}"
        before = now
