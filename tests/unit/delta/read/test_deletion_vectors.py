"""Deletion vectors of every kind list the rows that their writer deleted, or are refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import TargetCorruptedError
from airflow_cloudfiles.engine.tables.delta.read.actions import DeletionVector
from airflow_cloudfiles.engine.tables.delta.read.deletion_vectors import (
    DamagedVectorError,
    deleted_rows,
)
from tests.support.delta_tables import (
    HandMadeTable,
    base85,
    bitmap,
    features,
    read,
    read_by_duckdb,
    removed,
    sorted_rows,
)

DENSE = range(0, 70000, 2)


def inline(content: bytes, rows: int) -> DeletionVector:
    return DeletionVector("i", base85(content), len(content), rows)


def nothing(_start: int, _length: int) -> bytes:
    raise AssertionError("an inline vector has no file")


runs = st.tuples(st.integers(0, 2**34), st.integers(1, 9000)).map(
    lambda pair: list(range(pair[0], pair[0] + pair[1]))
)
row_numbers = st.lists(st.one_of(st.integers(0, 2**34).map(lambda row: [row]), runs), max_size=5)


@given(row_numbers, st.booleans())
def test_a_vector_lists_the_rows_that_another_implementation_wrote(
    parts: list[list[int]], has_runs: bool
) -> None:
    rows = sorted({row for part in parts for row in part})
    content = bitmap(rows, runs=has_runs)
    assert deleted_rows(inline(content, len(rows)), nothing).tolist() == rows


@pytest.mark.parametrize("has_runs", [False, True])
@pytest.mark.parametrize("rows", [[], [0], list(DENSE), list(range(200_000)), [2**33, 2**40]])
def test_every_kind_of_container_is_read(rows: list[int], has_runs: bool) -> None:
    content = bitmap(rows, runs=has_runs)
    assert deleted_rows(inline(content, len(rows)), nothing).tolist() == rows


@given(st.binary(max_size=60), st.integers(0, 80))
def test_damage_is_an_error_of_its_own(noise: bytes, cut: int) -> None:
    content = bitmap(list(range(50)), runs=True)
    for damaged in (content[:cut] + noise, struct.pack("<I", 1681511377) + noise):
        try:
            found = deleted_rows(inline(damaged, 50), nothing)
        except DamagedVectorError:
            continue
        assert len(found) == 50


def two_files(folder: Path, vector: dict[str, Any] | None, **more: Any) -> HandMadeTable:
    """A table with a file of a hundred rows, whose second version has a deletion vector."""
    made = HandMadeTable(folder)
    rows = pa.table({"a": range(100), "s": [str(each) for each in range(100)]})
    whole = made.file("part-0.parquet", rows, row_group_size=30)
    made.create(whole, protocol=features("deletionVectors"), **more)
    other = made.file("part-1.parquet", {"a": [1000], "s": ["kept"]})
    if vector is not None:
        with_vector = {"add": {**whole["add"], "deletionVector": vector}}
        made.commit(removed(whole), with_vector, other)
    return made


@pytest.mark.parametrize("kind", ["i", "u", "p"])
@pytest.mark.parametrize("prefix", ["", "ab"])
@pytest.mark.parametrize("rows", [[0], [29, 30, 59], list(range(100)), []])
def test_rows_that_a_vector_lists_are_not_read(
    tmp_path: Path, kind: str, prefix: str, rows: list[int]
) -> None:
    made = two_files(tmp_path / "t", None)
    vector = made.vector(rows, kind=kind, prefix=prefix)
    whole = made.file("part-9.parquet", {"a": range(100), "s": [None] * 100}, row_group_size=30)
    made.commit({"add": {**whole["add"], "deletionVector": vector}})
    found = read(made.folder)
    assert sorted_rows(found) == sorted_rows(read_by_duckdb(made.folder))
    assert found.num_rows == 200 - len(rows)
    assert read(made.folder, 0).num_rows == 100


def test_a_second_delete_in_one_file_replaces_the_vector(tmp_path: Path) -> None:
    made = two_files(tmp_path / "t", None)
    plain = made.file("part-0.parquet", {"a": range(100), "s": [None] * 100})
    first = {"add": {**plain["add"], "deletionVector": made.vector([1])}}
    second = {"add": {**plain["add"], "deletionVector": made.vector([1, 2])}}
    made.commit(removed(plain), first)
    made.commit(removed(first), second)
    assert [read(made.folder, version).num_rows for version in range(3)] == [100, 99, 98]
    assert read_by_duckdb(made.folder).num_rows == 98


CONTENT: dict[str, Callable[[bytes], bytes]] = {
    "short": lambda content: content[:-6],
    "checksum": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "content": lambda content: content[:-6] + bytes([content[-6] ^ 1]) + content[-5:],
}
"""What happens to the file of a vector."""
NOTED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "cardinality": lambda vector: {"cardinality": vector["cardinality"] + 1},
    "size": lambda vector: {"sizeInBytes": vector["sizeInBytes"] - 1},
    "negative": lambda _: {"offset": -5},
    "outside": lambda vector: {"pathOrInlineDv": "../" + vector["pathOrInlineDv"]},
    "kind": lambda _: {"storageType": "x"},
}
"""What is wrong with what the log says of it."""


def damaged(made: HandMadeTable, what: str) -> dict[str, Any]:
    vector = made.vector([1, 2, 3])
    [path] = made.folder.glob("deletion_vector_*.bin")
    if what in CONTENT:
        path.write_bytes(CONTENT[what](path.read_bytes()))
    elif what == "gone":
        path.unlink()
    else:
        vector |= NOTED[what](vector)
    return vector


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("gone", "it is gone"),
        ("short", "ends too early"),
        ("checksum", "checksum"),
        ("content", "checksum"),
        ("cardinality", "3 rows, not 4"),
        ("size", "bytes, not"),
        ("negative", "offset is -5"),
        ("outside", "names no file"),
        ("kind", "storage type is 'x'"),
    ],
)
def test_a_damaged_vector_is_refused_with_its_name(tmp_path: Path, what: str, why: str) -> None:
    made = two_files(tmp_path / "t", None)
    plain = made.file("part-5.parquet", {"a": range(10), "s": [None] * 10})
    made.commit({"add": {**plain["add"], "deletionVector": damaged(made, what)}})
    with pytest.raises(TargetCorruptedError, match=why) as raised:
        read(made.folder)
    assert str(made.folder) in str(raised.value)
    assert what in {"kind", "outside"} or "deletion_vector_" in str(raised.value)


def test_a_vector_of_another_file_is_refused(tmp_path: Path) -> None:
    made = two_files(tmp_path / "t", None)
    plain = made.file("part-5.parquet", {"a": range(10), "s": [None] * 10})
    made.commit({"add": {**plain["add"], "deletionVector": made.vector([10])}})
    with pytest.raises(TargetCorruptedError, match="has row 10, and it has 10 rows"):
        read(made.folder)
