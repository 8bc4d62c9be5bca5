"""Where a table has deletion vectors, former rows go by them, and its data files stay."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from tests.support.delta_tables import delete_by_vector, read_by_duckdb, take_vectors
from tests.support.followed import delete, following, live, put, there
from tests.support.ingested import Ingested
from tests.support.laws import examples


def test_rows_that_a_deletion_vector_has_deleted_do_not_come_back(tmp_path: Path) -> None:
    stream = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"})
    put(stream, "x", "x 1", "x 2")
    put(stream, "y", "y 1", "y 2")
    put(stream, "z", "z 1")
    stream.run()
    take_vectors(stream.table)
    assert live(stream) == ["x 1", "x 2", "y 1", "y 2", "z 1"]
    delete_by_vector(stream.target, "a", "y 2")
    put(stream, "x", "new")
    delete(stream, "z")
    stream.run()
    assert live(stream) == ["new", "y 1"]
    delete(stream, "x", "y")
    stream.run()
    assert live(stream) == []


def test_in_a_table_with_deletion_vectors_no_data_file_is_written_anew(tmp_path: Path) -> None:
    """Read by this package, and by another implementation of Delta."""
    stream = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"})
    for name in ("x", "y", "z"):
        put(stream, name, f"{name} 1", f"{name} 2")
    stream.run()
    take_vectors(stream.table)
    (written,) = files_of(stream)
    put(stream, "x", "new")
    stream.run()
    delete(stream, "y")
    stream.run()
    put(stream, "z")
    put(stream, "new", "last")
    stream.run()
    assert live(stream) == ["last", "new"]
    assert written not in files_of(stream)
    assert len([*stream.target.glob("*.parquet")]) == 3, "one for each batch that has rows"
    assert len([*stream.target.glob("deletion_vector_*.bin")]) == 2
    adds = [
        json.loads(line)["add"]
        for path in sorted((stream.target / "_delta_log").glob("*.json"))
        for line in path.read_text().splitlines()
        if "deletionVector" in line and line.startswith('{"add"')
    ]
    assert [each["deletionVector"]["cardinality"] for each in adds] == [2, 4]
    for each in adds:
        stats = json.loads(each["stats"])
        assert (each["path"], stats["numRecords"], stats["tightBounds"]) == (written, 6, False)
        assert stats["minValues"]["a"] == "x 1"


def test_beside_a_column_metadata_no_vector_is_written(tmp_path: Path) -> None:
    """By a struct of that name Delta's own reader on Spark finds the numbers of rows."""
    options = {"cloudFiles.maxFilesPerTrigger": "10", "cloudFiles.metadataColumns": "_metadata"}
    stream = following(tmp_path, **options)
    for name in ("x", "y", "z"):
        put(stream, name, f"{name} 1", f"{name} 2")
    stream.run()
    take_vectors(stream.table)
    delete_by_vector(stream.target, "a", "y 2")
    put(stream, "x", "new")
    stream.run()
    assert live(stream) == ["new", "y 1", "z 1", "z 2"]
    assert [*stream.target.glob("deletion_vector_*.bin")] == []
    snapshot = TableLog(DeltaLocation.to_read(str(stream.target))).snapshot()
    assert [file.deletion_vector for file in snapshot.files] == [None, None]


def test_a_struct_of_another_name_stands_in_no_vectors_way(tmp_path: Path) -> None:
    column = {"cloudFiles.metadataColumns": "_metadata AS source"}
    stream = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"}, **column)
    for name in ("x", "y"):
        put(stream, name, f"{name} 1")
    stream.run()
    take_vectors(stream.table)
    delete(stream, "x")
    stream.run()
    assert live(stream) == there(stream) == ["y 1"]
    assert len([*stream.target.glob("deletion_vector_*.bin")]) == 1


def test_vectors_are_in_a_checkpoint_too_and_go_on_from_there(tmp_path: Path) -> None:
    stream = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"})
    for name in ("x", "y", "z"):
        put(stream, name, f"{name} 1", f"{name} 2")
    stream.run()
    take_vectors(stream.table)
    delete(stream, "x")
    stream.run()
    stream.table.create_checkpoint()
    for commit in (stream.target / "_delta_log").glob("0*.json"):
        commit.unlink()
    delete(stream, "y")
    stream.run()
    assert live(stream) == there(stream)
    assert sorted(read_by_duckdb(stream.target).column("a").to_pylist()) == there(stream)
    (file,) = files_of(stream)
    assert [each.name for each in stream.target.glob("*.parquet")] == [file]


def test_a_vector_leaves_the_digits_of_bounds_as_they_are(tmp_path: Path) -> None:
    bound = "12345678901234567890123456.123456789012"
    hints = {"cloudFiles.schemaHints": "a DECIMAL(38,12)"}
    stream = following(tmp_path, **hints, **{"cloudFiles.maxFilesPerTrigger": "10"})
    put(stream, "x", bound)
    put(stream, "y", "1.5")
    stream.run()
    take_vectors(stream.table)
    delete(stream, "y")
    stream.run()
    (log,) = (stream.target / "_delta_log").glob("*4.json")
    assert f'\\"maxValues\\": {{\\"a\\": {bound}' in log.read_text()
    assert [str(value) for value in live(stream)] == [bound]


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_after_any_deletions_by_vectors_the_table_has_the_rows_of_its_files(data: Any) -> None:
    names = [f"f{number}" for number in range(8)]
    with TemporaryDirectory() as folder:
        stream = following(Path(folder), **{"cloudFiles.maxFilesPerTrigger": "8"})
        put(stream, "f0", "first")
        stream.run()
        take_vectors(stream.table)
        for round_ in range(4):
            for name in data.draw(st.sets(st.sampled_from(names), min_size=1)):
                count = data.draw(st.integers(0, 3))
                is_there = (stream.source / f"{name}.json").exists()
                if is_there and data.draw(st.booleans()):
                    delete(stream, name)
                else:
                    put(stream, name, *(f"{name} {round_}.{row}" for row in range(count)))
            stream.run()
            assert live(stream) == there(stream)
            rows = read_by_duckdb(stream.target).column("a").to_pylist()
            assert sorted(rows) == there(stream)


def files_of(stream: Ingested) -> list[str]:
    """The data files of the newest version, as its log has them."""
    snapshot = TableLog(DeltaLocation.to_read(str(stream.target))).snapshot()
    return [file.path for file in snapshot.files]
