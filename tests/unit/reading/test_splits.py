"""Splits cover every byte once and are about equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.reading.splits import MAX_SPLIT_BYTES, pack

SIZES = st.lists(st.integers(0, 400 * 2**20), max_size=60)


def _files(sizes: list[int], ending: str = "json") -> list[FileEntry]:
    return [FileEntry(f"f{i:04}.{ending}", size, i) for i, size in enumerate(sizes)]


@given(SIZES, st.integers(1, 64))
def test_every_byte_of_every_file_is_in_exactly_one_range(sizes: list[int], cores: int) -> None:
    ranges: dict[str, list[tuple[int, int]]] = {}
    for split in pack(_files(sizes), parallelism=cores):
        for part in split:
            end = part.file.size if part.end is None else part.end
            ranges.setdefault(part.file.path, []).append((part.start, end))
    assert len(ranges) == len(sizes)
    for file in _files(sizes):
        position = 0
        for start, end in sorted(ranges[file.path]):
            assert start == position
            position = end
        assert position == file.size


@given(SIZES)
def test_a_compressed_file_is_never_cut(sizes: list[int]) -> None:
    splits = pack(_files(sizes, "json.gz"), parallelism=4)
    assert all(part.is_whole for split in splits for part in split)


def test_no_file_makes_no_split() -> None:
    assert pack([], parallelism=8) == []


@pytest.mark.slow
def test_many_small_files_make_about_as_many_splits_as_tasks_can_run() -> None:
    splits = pack(_files([200] * 50_000), parallelism=2)
    assert len(splits) <= 16
    few = pack(_files([200] * 10), parallelism=2)
    assert len(few) == 1


def test_a_large_file_is_cut_into_splits_no_larger_than_the_maximum() -> None:
    splits = pack(_files([1_000 * 2**20]), parallelism=2)
    assert len(splits) >= 8
    assert max(part.size for split in splits for part in split) <= MAX_SPLIT_BYTES * 1.5


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("count", [10, 37, 100, 1000])
def test_no_core_waits_for_the_last_split(cores: int, count: int) -> None:
    splits = pack(_files([27 * 2**20] * count), parallelism=cores)
    loads = [0] * cores
    for split in splits:  # whoever is free takes the next one
        loads[loads.index(min(loads))] += sum(part.size for part in split)
    assert max(loads) <= 1.25 * sum(loads) / cores + 27 * 2**20


def test_input_a_little_larger_than_the_cores_can_take_at_once_is_one_round() -> None:
    assert len(pack(_files([27 * 2**20] * 10), parallelism=2)) == 2
    assert len(pack(_files([500] * 10_000), parallelism=2)) == 2


@given(SIZES, st.integers(1, 64))
def test_ranges_keep_the_order_of_the_log(sizes: list[int], cores: int) -> None:
    parts = [part for split in pack(_files(sizes), parallelism=cores) for part in split]
    assert parts == sorted(parts, key=lambda part: (part.file.path, part.start))
