"""VARCHAR(n) and CHAR(n) are enforced, at any depth, by appends, merges and batch writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.extensions.upkeep.alter import rename_column
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from airflow_cloudfiles.engine.tables.delta.read.columns import rows_columns
from airflow_cloudfiles.engine.tables.delta.write.layout import character_limits
from tests.support.delta_tables import HandMadeTable, column, features, read
from tests.support.delta_writes import Sink, merge_rows, read_by_all, write_dataframe

KEY = "__CHAR_VARCHAR_TYPE_STRING"
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
REFUSED = r"exceeds char/varchar type length limitation: column v of .* at most 3 characters"


def _table(folder: Path, text: str = "varchar(3)", kind: Any = "string", **how: Any) -> str:
    made = HandMadeTable(folder)
    columns = [column("id", "long"), column("v", kind) | {"metadata": {KEY: text}}]
    made.create(columns=columns, **how)
    return str(folder)


def _rows(*values: str | None) -> pa.Table:
    return pa.table({"id": list(range(len(values))), "v": pa.array(values, pa.string())}, SCHEMA)


WRITES: dict[str, Any] = {
    "a stream": lambda to, rows: Sink(to).write(rows),
    "an append": write_dataframe,
    "an append with a transaction": lambda to, rows: write_dataframe(
        to, rows, txnAppId="a", txnVersion="1"
    ),
    "replaceWhere": lambda to, rows: write_dataframe(to, rows, replaceWhere="id >= 0"),
    "a merge": lambda to, rows: merge_rows(to, 0, rows, keys=("id",)),
    "a merge that inserts": lambda to, rows: merge_rows(
        to, 0, rows, keys=("id",), when_matched="ignore"
    ),
    "a merge that updates": lambda to, rows: merge_rows(
        to, 0, rows, keys=("id",), when_not_matched="ignore"
    ),
}


@pytest.mark.parametrize("partitions", [(), ("v",)])
@pytest.mark.parametrize("text", ["varchar(3)", "char(3)", "VARCHAR(3)"])
@pytest.mark.parametrize("write", WRITES)
def test_a_text_that_is_too_long_is_refused_before_the_commit(
    tmp_path: Path, write: str, text: str, partitions: tuple[str, ...]
) -> None:
    target = _table(tmp_path / "t", text, partitions=partitions)
    for bad in ("abcd", "abc ", "𠮷𠮷𠮷𠮷"):
        with pytest.raises(SchemaMismatchError, match=REFUSED):
            WRITES[write](target, _rows("a", bad))
    assert DeltaTable(target).version() == 0
    good = _rows("abc", "𠮷𠮷𠮷", None, "ä")
    WRITES[write](target, good)
    kept = [] if write == "a merge that updates" else good.to_pylist()
    assert sorted(read_by_all(target).to_pylist(), key=lambda row: row["id"]) == kept


@pytest.mark.parametrize(
    ("text", "kind", "good", "bad", "named"),
    [
        ("array<varchar(2)>", pa.list_(pa.string()), ["ab", None], ["ab", "abc"], "v.element"),
        ("map<char(1),varchar(2)>", pa.map_(pa.string(), pa.string()), [("a", "bc")],
         [("ab", "c")], "v.key"),
        ("map<char(1),varchar(2)>", pa.map_(pa.string(), pa.string()), [("a", "bc")],
         [("a", "bcd")], "v.value"),
        ("struct<x:decimal(4,2),y:varchar(2),z:array<struct<w:char(1)>>>",
         pa.struct([("x", pa.decimal128(4, 2)), ("y", pa.string()),
                    ("z", pa.list_(pa.struct([("w", pa.string())])))]),
         {"y": "ab", "z": [{"w": "a"}, None]}, {"y": "", "z": [{"w": "ab"}]}, "v.z.element.w"),
    ],
)  # fmt: skip
def test_texts_inside_are_checked(
    tmp_path: Path, text: str, kind: pa.DataType, good: Any, bad: Any, named: str
) -> None:
    in_spark = rows_columns(pa.schema([("v", kind)]))["v"].dataType.jsonValue()
    target = _table(tmp_path / "t", text, in_spark)
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    with pytest.raises(SchemaMismatchError, match=f"column {named} of"):
        write_dataframe(target, pa.Table.from_pylist([{"id": 1, "v": bad}], schema))
    rows = pa.Table.from_pylist([{"id": 1, "v": good}, {"id": 2, "v": None}], schema)
    write_dataframe(target, rows)
    assert read(target).to_pylist() == rows.to_pylist()


def test_a_column_keeps_its_limit_when_it_is_renamed_and_its_files_are_written_anew(
    tmp_path: Path,
) -> None:
    folder, mapped = tmp_path / "t", [column("id", "long", 1), column("v", "string", 2)]
    mapped[1]["metadata"][KEY] = "varchar(3)"
    HandMadeTable(folder).create(
        columns=mapped,
        protocol=features("columnMapping"),
        delta_columnMapping_mode="name",
        delta_columnMapping_maxColumnId="2",
    )
    sink = Sink(folder)
    sink.write(_rows("abc"))
    rename_column(str(folder), "v", "w")
    sink.write(_rows("abc"))
    optimize(str(folder))
    with pytest.raises(SchemaMismatchError, match="column w of"):
        sink.write(_rows("abcd"))


@pytest.mark.parametrize("text", ["array<varchar(2)>", "struct<a:char(2)>", "varchar(2)>", ""])
def test_a_type_that_is_not_that_of_the_column_is_named(tmp_path: Path, text: str) -> None:
    target = _table(tmp_path / "t", text)
    if text:
        with pytest.raises(SinkError, match=f"{KEY}='.*' , which is not|which is not understood"):
            Sink(target).write(_rows("a"))
    else:
        Sink(target).write(_rows("a longer text"))


def test_odd_names_of_fields_are_read() -> None:
    names = ["a b", "x:y", "c,d", "e<f", "`g`", "ü"]
    inner = StructType([StructField(each, StringType())
                        for each in names])  # fmt: skip
    text = "struct<" + ",".join(f"{each}:varchar({n})" for n, each in enumerate(names)) + ">"
    field = StructField("v", inner, True, {KEY: text})
    assert character_limits(field, "t") == {("v", each): n for n, each in enumerate(names)}
