"""Decimals of zero and of tiny values are keys and literals like all others."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.tables.delta.predicates import holds, parse_predicate
from tests.support.delta_tables import read
from tests.support.delta_writes import Sink, merge_rows, read_by_all, write_dataframe

KINDS = [pa.decimal128(38, 18), pa.decimal128(18, 8), pa.decimal128(10, 8), pa.decimal128(7, 7),
         pa.decimal128(9, 0)]  # fmt: skip


def _values(kind: pa.DataType) -> list[Decimal]:
    one = Decimal(1).scaleb(-kind.scale)
    largest = Decimal(10 ** min(kind.precision, 27) - 1).scaleb(-kind.scale)
    return [Decimal(0).scaleb(-kind.scale), one, -one, 3 * one, largest, -largest]


def _table(kind: pa.DataType, version: int) -> pa.Table:
    keys = pa.array(_values(kind), kind)
    return pa.table({"k": keys, "v": [version] * len(keys)})


@pytest.mark.parametrize("partition_by", [(), ("k",)])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_they_are_keys_of_merges(
    tmp_path: Path, kind: pa.DataType, partition_by: tuple[str, ...]
) -> None:
    rows = _table(kind, 0)
    if partition_by:
        rows = rows.filter(pc.greater_equal(rows["k"], 0))
    sink = Sink(tmp_path / "t", partition_by=partition_by)
    for row in range(rows.num_rows):
        sink.write(rows.slice(row, 1))
    for number in range(1, 5):  # the later ones read what the library has written
        new = rows.set_column(1, "v", pa.array([number] * rows.num_rows))
        merge_rows(tmp_path / "t", number, new.slice(0, number % 2 or None), keys=("k",))
        found = read_by_all(tmp_path / "t")
        assert sorted(found["k"].to_pylist()) == sorted(rows["k"].to_pylist())
    assert set(found["v"].to_pylist()) == {4}


@pytest.mark.parametrize(
    ("kind", "values", "wrong"),
    [
        (pa.decimal128(10, 4), ["1", "-0.0001"], "negative decimals"),
        (pa.decimal128(10, 4), ["-12.5", "1"], "negative decimals"),
        (pa.binary(), [b"a", b"b"], "binary values"),
    ],
)
def test_partitions_that_the_library_damages_are_refused(
    tmp_path: Path, kind: pa.DataType, values: list[Any], wrong: str
) -> None:
    cast = Decimal if pa.types.is_decimal(kind) else bytes
    rows = pa.table({"id": [1, 2], "p": pa.array(map(cast, values), kind)})
    old, new = rows.slice(0, 1), rows.slice(1)
    for target, first, second in ((tmp_path / "a", old, new), (tmp_path / "b", new, old)):
        Sink(target, partition_by=("p",)).write(first)
        for write in (
            lambda to, rows: merge_rows(to, 0, rows, keys=("id",)),
            lambda to, rows: write_dataframe(to, rows, replaceWhere="id > 0"),
        ):
            with pytest.raises(SinkError, match=f"is partitioned by p, and .* writes {wrong}"):
                write(target, second)
        Sink(target, app="append").write(second)
        assert {row["p"] for row in read_by_all(target).to_pylist()} == set(rows["p"].to_pylist())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_they_order_and_delete_the_rows_of_merges(tmp_path: Path, kind: pa.DataType) -> None:
    zero, one = _values(kind)[:2]
    schema = pa.schema([("id", pa.int64()), ("at", kind)])
    for number, at in enumerate([zero, one, zero]):
        rows = pa.Table.from_pylist([{"id": 1, "at": at}, {"id": 2, "at": zero}], schema)
        merge_rows(tmp_path / "t", number, rows, keys=("id",), order_by="at",
                   delete_when=f"at = {one:f} AND id = 2")  # fmt: skip
    assert {row["id"]: row["at"] for row in read(tmp_path / "t").to_pylist()} == {1: one, 2: zero}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_they_are_literals_of_replace_where(tmp_path: Path, kind: pa.DataType) -> None:
    for number, value in enumerate(_values(kind)):
        Sink(tmp_path / "t", app=f"app-{number}").write(_table(kind, 0))
        row = pa.table({"k": pa.array([value], kind), "v": [9]})
        for text in (f"k = {value:f}", f"k IN ('{value}')", f"k BETWEEN {value:f} AND '{value}'"):
            write_dataframe(tmp_path / "t", row, replaceWhere=text)
            found = [each["v"] for each in read(tmp_path / "t").to_pylist() if each["k"] == value]
            assert found == [9], text


@pytest.mark.parametrize("text", ["0", "0.0", "'0E-8'", "0E-8", "-0", "'-0.00'", "0E+3", "+0"])
def test_a_zero_is_a_zero_however_it_is_written(text: str) -> None:
    rows = _table(KINDS[1], 0).to_batches()[0]
    predicate = parse_predicate("replaceWhere", f"k = {text}", rows.schema)
    assert holds(predicate, rows).to_pylist() == [True, *[False] * 5]
    assert "CAST('0.00000000' AS DECIMAL(18, 8))" in predicate.to_sql().replace("-0.", "0.")
