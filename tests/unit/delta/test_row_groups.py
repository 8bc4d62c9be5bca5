"""Small batches share a row group of a data file; a large one has its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cloudfiles.engine.tables.delta.data_files import ROW_GROUP_BYTES, DataFileWriter

SCHEMA = pa.schema([("n", pa.int64()), ("pad", pa.binary(56))])
SMALL = 1_000
LARGE = ROW_GROUP_BYTES // 64 + 1
"""A row has 64 bytes."""


def _batch(first: int, rows: int) -> pa.RecordBatch:
    values = {"n": range(first, first + rows), "pad": [bytes(56)] * rows}
    return pa.RecordBatch.from_pydict(values, schema=SCHEMA)


def _written(folder: Path, sizes: list[int]) -> pq.FileMetaData:
    firsts = [sum(sizes[:number]) for number in range(len(sizes))]
    batches = map(_batch, firsts, sizes)
    (file,) = DataFileWriter(str(folder), SCHEMA).write(batches)
    rows = pq.read_table(folder / file.name)["n"].to_pylist()
    assert rows == list(range(sum(sizes)))
    assert file.rows == len(rows)
    return pq.read_metadata(folder / file.name)


def test_batches_of_a_stream_of_rows_share_row_groups(tmp_path: Path) -> None:
    # As Spark gives them to a sink, some thousand rows each.
    assert _written(tmp_path, [SMALL] * 30).num_row_groups == 1


@pytest.mark.parametrize(
    "sizes", [[SMALL, LARGE, SMALL], [LARGE, SMALL], [SMALL, 0, LARGE], [LARGE] * 2]
)
def test_a_large_batch_is_not_held_back_for_others(tmp_path: Path, sizes: list[int]) -> None:
    written = _written(tmp_path, sizes)
    groups = [written.row_group(each).num_rows for each in range(written.num_row_groups)]
    assert groups == [rows for rows in sizes if rows]


def test_rows_are_written_before_all_batches_are_there(tmp_path: Path) -> None:
    sizes: list[int] = []

    def batches():
        for number in range(3):
            sizes.append(sum(path.stat().st_size for path in tmp_path.glob("*.parquet")))
            yield _batch(number * LARGE, LARGE)

    DataFileWriter(str(tmp_path), SCHEMA).write(batches())
    assert sizes[0] == 0
    assert 0 < sizes[1] < sizes[2]


def test_what_waits_for_its_row_group_leaves_no_file_when_the_task_fails(tmp_path: Path) -> None:
    def batches():
        yield _batch(0, LARGE)
        yield _batch(0, SMALL)
        raise ConnectionError("the rest does not come")

    with pytest.raises(ConnectionError):
        DataFileWriter(str(tmp_path), SCHEMA).write(batches())
    assert not list(tmp_path.glob("*.parquet"))
