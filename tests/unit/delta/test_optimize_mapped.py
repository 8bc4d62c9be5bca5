"""Files of a table with column mapping become few, and their columns keep their physical names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.extensions.upkeep.alter import add_column, drop_column, rename_column
from airflow_cloudfiles.engine.extensions.upkeep.optimize import auto_compact, optimize
from airflow_cloudfiles.engine.options.sink import TableOptions
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile
from airflow_cloudfiles.engine.tables.delta.read.log import decoded
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from tests.support.delta_tables import MAPPED, HandMadeTable, column, read, sorted_rows
from tests.support.delta_writes import Sink, read_by_another

INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("s", INNER),
        ("l", pa.list_(INNER)),
        ("z", pa.date32()),
    ]
)
RENAMED = ("number", "p", "s", "l")
PARTITIONS = ["a b", "%=/", None]


def _sink(target: Path, mode: str, *, partitioned: bool) -> Sink:
    """A table with nested columns, of which some were renamed, dropped and added."""
    by = ("p",) if partitioned else ()
    sink = Sink(target, partition_by=by, delta_columnMapping_mode=mode)
    _append(sink, 0)
    rename_column(str(target), "id", "number")
    rename_column(str(target), "s.x", "u")
    drop_column(str(target), "z")
    add_column(str(target), "id STRING")
    _append(sink, 100, RENAMED)
    return sink


def _append(sink: Sink, start: int, names: tuple[str, ...] = SCHEMA.names) -> None:
    """Append twice to each partition."""
    for number in range(start, start + 20, 10):
        rows = [
            {
                names[0]: number + place,
                "p": value,
                "s": {"x": place, "y": "y"},
                "l": [{"x": 1, "y": None}, None],
                "z": None,
            }
            for place, value in enumerate(PARTITIONS)
        ]
        fields = [each.with_name(name) for each, name in zip(SCHEMA, names, strict=False)]
        sink.write(rows, pa.schema(fields))


def _files(target: Path) -> list[AddFile]:
    return list(TableLog(DeltaLocation.of(str(target))).snapshot().files)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_files_are_written_together(tmp_path: Path, mode: str, *, partitioned: bool) -> None:
    target = tmp_path / "t"
    sink = _sink(target, mode, partitioned=partitioned)
    before, old, version = read(target), _files(target), DeltaTable(target).version()
    groups = len(PARTITIONS) if partitioned else 1
    done = optimize(str(target))
    assert (done.removed_files, done.added_files) == (len(old), groups)
    assert (done.version, done.skipped_groups) == (version + groups, 0)
    assert sorted_rows(read(target)) == sorted_rows(before)
    assert sorted_rows(read_by_another(target)) == sorted_rows(before)
    assert {frozenset(each.partition_values.items()) for each in _files(target)} == {
        frozenset(each.partition_values.items()) for each in old
    }
    [file, *_] = _files(target)
    assert not {"id", "number", "s"} & set(_physical(target, file)), "physical names"
    assert optimize(str(target)).removed_files == 0
    _append(sink, 200, RENAMED)
    assert read(target).num_rows == before.num_rows + 2 * len(PARTITIONS)


def _physical(target: Path, file: AddFile) -> list[str]:
    return list(pq.read_schema(target / decoded(file.path)).names)


@pytest.mark.parametrize("partitioned", [False, True])
def test_all_files_of_a_mapped_table_are_written_anew(tmp_path: Path, *, partitioned: bool) -> None:
    target = tmp_path / "t"
    _sink(target, "name", partitioned=partitioned)
    before = read(target)
    done = optimize(str(target), all_files=True)
    assert done.added_files == (len(PARTITIONS) if partitioned else 1)
    assert sorted_rows(read(target)) == sorted_rows(before) == sorted_rows(read_by_another(target))


def test_a_mapped_table_is_compacted_after_a_batch(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _sink(target, "name", partitioned=True)
    options = TableOptions.read({"autocompact": "true", "autocompactminfiles": "2"})
    assert auto_compact(str(target), options)["compacted_into_files"] == len(PARTITIONS)


def test_a_column_that_is_renamed_meanwhile_stays_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "t"
    _sink(target, "name", partitioned=False)

    def between(name: str) -> None:
        if name == "before-optimize-commit":
            drop_column(str(target), "number")
            add_column(str(target), "number BIGINT")

    monkeypatch.setattr("airflow_cloudfiles.engine.extensions.upkeep.optimize.crash_point", between)
    before = len(_files(target))
    assert optimize(str(target)).skipped_groups == 1
    assert len(_files(target)) == before
    assert set(read(target)["number"].to_pylist()) == {None}


def test_a_table_of_the_legacy_protocol_is_written_as_it_is_read(tmp_path: Path) -> None:
    table = HandMadeTable(tmp_path / "t")
    columns = [column("a", "long", 1), column("b", "string", 2)]
    files = [table.file(f"{place}.parquet", {"col-1": [place]}) for place in range(2)]
    table.create(*files, protocol=MAPPED, columns=columns, delta_columnMapping_mode="name")
    assert optimize(str(table.folder)).added_files == 1
    assert sorted(read(table.folder)["a"].to_pylist()) == [0, 1]
