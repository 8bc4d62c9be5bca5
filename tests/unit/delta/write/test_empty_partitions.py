"""An empty text in a partition column is null to Delta: where that is NOT NULL, it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.extensions.upkeep.alter import drop_not_null
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from tests.support.delta_tables import HandMadeTable, column, read
from tests.support.delta_writes import Sink, merge_rows, read_by_all, write_dataframe

GOOD = pa.table({"p": ["a"], "v": [1]})
EMPTY = pa.table({"p": ["b", ""], "v": [1, 2]})
REFUSED = r"NOT NULL constraint violated for column: p .* 1 of 2 rows has an empty text there"


@pytest.fixture
def target(tmp_path: Path) -> str:
    """A table with a row, whose partition column is NOT NULL."""
    schema = pa.schema([pa.field("p", pa.string(), nullable=False), ("v", pa.int64())])
    DeltaTable.create(tmp_path / "t", schema, partition_by=["p"])
    Sink(tmp_path / "t").write(GOOD)
    return str(tmp_path / "t")


@pytest.mark.parametrize(
    "write",
    [
        lambda to: Sink(to, app="other").write(EMPTY),
        lambda to: write_dataframe(to, EMPTY),
        lambda to: write_dataframe(to, EMPTY, txnAppId="a", txnVersion="1"),
        lambda to: write_dataframe(to, EMPTY, replaceWhere="v > 0"),
        lambda to: merge_rows(to, 0, EMPTY, keys=("v",)),
        lambda to: merge_rows(to, 0, EMPTY, keys=("v",), when_matched="ignore"),
        lambda to: merge_rows(to, 0, EMPTY, keys=("v",), when_not_matched="ignore"),
    ],
)
def test_an_empty_text_is_refused_before_the_commit(target: str, write: Any) -> None:
    with pytest.raises(SchemaMismatchError, match=REFUSED):
        write(target)
    assert read_by_all(target).to_pylist() == GOOD.to_pylist()


def test_rows_that_only_delete_may_have_one(target: str) -> None:
    rule = {"when_matched": "delete", "when_not_matched": "ignore"}
    merge_rows(target, 0, EMPTY, keys=("v",), **rule)
    assert read_by_all(target).num_rows == 0
    merge_rows(target, 1, EMPTY, keys=("v",), delete_when="v = 2")
    assert read_by_all(target).to_pylist() == [{"p": "b", "v": 1}]


def test_empty_bytes_are_refused_too(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("p", pa.binary(), nullable=False), ("v", pa.int64())])
    DeltaTable.create(tmp_path / "t", schema, partition_by=["p"])
    with pytest.raises(SchemaMismatchError, match=REFUSED):
        Sink(tmp_path / "t").write(pa.table({"p": [b"", b"x"], "v": [1, 2]}))


def test_where_null_is_allowed_an_empty_text_is_null(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "t", partition_by=("p",))
    sink.write(EMPTY)
    assert {row["p"] for row in read_by_all(tmp_path / "t").to_pylist()} == {"b", None}


def test_other_columns_that_are_not_null_may_be_empty(tmp_path: Path) -> None:
    schema = pa.schema([("p", pa.string()), pa.field("s", pa.string(), nullable=False)])
    DeltaTable.create(tmp_path / "t", schema, partition_by=["p"])
    Sink(tmp_path / "t").write(pa.table({"p": ["a"], "s": [""]}))
    assert read_by_all(tmp_path / "t").to_pylist() == [{"p": "a", "s": ""}]


@pytest.mark.parametrize("value", ["", None])
def test_a_table_that_has_one_is_named_and_repaired(tmp_path: Path, value: str | None) -> None:
    made = HandMadeTable(tmp_path / "t")
    columns = [column("p", "string") | {"nullable": False}, column("v", "long")]
    files = [made.file(f"{n}.parquet", {"v": [n]}, partition={"p": p}) for n, p in
             enumerate(["a", value])]  # fmt: skip
    made.create(*files, columns=columns, partitions=("p",), delta_logRetentionDuration="9 days")
    target, rows = str(made.folder), read(made.folder).to_pylist()
    for use in (
        lambda: Sink(target).write(GOOD),
        lambda: optimize(target),
        lambda: merge_rows(target, 0, GOOD, keys=("v",)),
        lambda: write_dataframe(target, GOOD, replaceWhere="v > 0"),
    ):
        with pytest.raises(SinkError, match=f"cloudfiles table drop-not-null --target {target} p"):
            use()
    assert drop_not_null(target, "P", dry_run=True).version is None
    assert drop_not_null(target, "P").version == 1
    assert drop_not_null(target, "p").version is None, "it is done once"
    # deltalake reads an empty text where the protocol has null.
    assert read_by_all(target, deltalake=value is None).to_pylist() == rows
    metadata = DeltaTable(target).metadata()
    assert metadata.configuration == {"delta.logRetentionDuration": "9 days"}
    assert metadata.created_time == 0
    Sink(target).write(GOOD)
    merge_rows(target, 0, pa.table({"p": ["c"], "v": [0]}), keys=("v",))
    optimize(target)
    assert {(row["p"], row["v"]) for row in read(target).to_pylist()} == {
        ("c", 0),
        (None, 1),
        ("a", 1),
    }
