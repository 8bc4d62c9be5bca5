"""A column that the stream has wider is widened in one commit, or refused with both types."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import OptionError, SchemaMismatchError
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.sink import TableOptions
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFiles
from tests.support.crash_points import WIDENING_POINTS
from tests.support.delta_writes import ANY_SIZE

LOCAL = datetime(2024, 1, 31)  # noqa: DTZ001 - of no zone
INNER = pa.struct([("x", pa.int32()), ("s", pa.string())])
WIDE_INNER = pa.struct([("x", pa.int64()), ("s", pa.string()), ("new", pa.string())])


def _files(target: Path, schema: pa.Schema, values: list[dict[str, Any]]) -> list[DataFile]:
    return DataFileWriter(str(target), schema).write([pa.RecordBatch.from_pylist(values, schema)])


def _commit(
    target: Path,
    number: int,
    schema: pa.Schema,
    *values: dict[str, Any],
    widening: int | None = ANY_SIZE,
    merge_schema: bool = True,
    app: str = "stream",
) -> Any:
    return delta_commit.commit_batch(
        str(target),
        batch=BatchId(app, number),
        files=_files(target, schema, list(values)),
        schema=schema,
        rules=WriteRules(merge_schema=merge_schema, widened_bytes=widening),
    )


def _rows(target: Path) -> list[dict[str, Any]]:
    table = DeltaTable(str(target)).to_pyarrow_dataset().to_table()
    found: list[dict[str, Any]] = table.to_pylist()
    return sorted(found, key=str)


def _kind(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("a", kind), ("s", pa.string())])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("narrow", "wide", "old", "new"),
    [
        (pa.int8(), pa.int16(), -128, 2**15 - 1),
        (pa.int8(), pa.int64(), 127, -(2**63)),
        (pa.int16(), pa.decimal128(12, 2), -(2**15), Decimal("1.25")),  # B62
        (pa.int32(), pa.int64(), 2**31 - 1, 2**31),  # B57
        (pa.int32(), pa.decimal128(12, 2), 5, Decimal("123.45")),  # B59
        (pa.int64(), pa.decimal128(22, 2), 2**63 - 1, Decimal("0.01")),  # B59
        (pa.int32(), pa.float64(), -(2**31), 0.5),
        (pa.float32(), pa.float64(), 1.5, 1e300),  # B62
        (pa.decimal128(5, 2), pa.decimal128(7, 3), Decimal("1.25"), Decimal("1234.125")),
        (pa.date32(), pa.timestamp("us"), date(2024, 1, 31), LOCAL.replace(hour=1)),  # B63
    ],
)
def test_a_wider_column_widens_the_table_and_every_row_keeps_its_value(
    tmp_path: Path, narrow: pa.DataType, wide: pa.DataType, old: object, new: object
) -> None:
    target = tmp_path / "t"
    _commit(target, 0, _kind(narrow), {"a": old, "s": "old"}, {"a": None, "s": None})
    _commit(target, 1, _kind(narrow), {"a": old, "s": "older"})
    before = DeltaTable(str(target)).version()
    assert _commit(target, 2, _kind(wide), {"a": new, "s": "new"}).is_new
    # One commit to widen, also where timestamps need a table feature, and one of the batch.
    assert DeltaTable(str(target)).version() == before + 2
    table = DeltaTable(str(target)).to_pyarrow_dataset().to_table()
    assert table.schema.field("a").type == wide
    kept = LOCAL if isinstance(old, date) else old
    assert sorted(_rows(target), key=lambda row: str(row["s"])) == [
        {"a": None, "s": None},
        {"a": new, "s": "new"},
        {"a": kept, "s": "old"},
        {"a": kept, "s": "older"},
    ]
    assert not _commit(target, 2, _kind(wide), {"a": new, "s": "new"}).is_new
    assert len(_rows(target)) == 4


def test_what_is_inside_grows_and_widens_at_once(tmp_path: Path) -> None:  # B131
    target = tmp_path / "t"
    fields = ("st", "li", "ma")

    def schema(inner: pa.DataType) -> pa.Schema:
        kinds = (inner, pa.list_(inner), pa.map_(pa.string(), inner))
        return pa.schema(list(zip(fields, kinds, strict=True)))

    old = {"x": 7, "s": "é"}
    _commit(target, 0, schema(INNER), {"st": old, "li": [old, None], "ma": [("k", old)]})
    _commit(target, 1, schema(INNER), {"st": None, "li": None, "ma": None})
    new = {"x": 2**40, "s": None, "new": "n"}
    _commit(target, 2, schema(WIDE_INNER), {"st": new, "li": [new], "ma": [("k", new)]})
    grown = {**old, "new": None}
    assert _rows(target) == sorted(
        [
            {"st": grown, "li": [grown, None], "ma": [("k", grown)]},
            {"st": None, "li": None, "ma": None},
            {"st": new, "li": [new], "ma": [("k", new)]},
        ],
        key=str,
    )


@pytest.mark.parametrize(
    ("have", "want", "message"),
    [
        (pa.int32(), pa.string(), "a is int in .* but string in"),  # B60, B128
        (pa.int64(), pa.float64(), "a is bigint in .* but double in"),  # B61
        (pa.float64(), pa.int64(), "a is double in .* but bigint in"),  # B61
        (pa.int32(), pa.decimal128(5, 2), r"a is int in .* but decimal\(5,2\) in"),  # B133
        (pa.decimal128(10, 2), pa.decimal128(10, 4), r"decimal\(10,2\) in"),  # B130
        (pa.string(), pa.null(), "a has no type"),  # B129
    ],
)
def test_a_type_that_is_not_wider_is_refused(
    tmp_path: Path, have: pa.DataType, want: pa.DataType, message: str
) -> None:
    target = tmp_path / "t"
    _commit(target, 0, _kind(have), {"a": None, "s": "x"})
    with pytest.raises(SchemaMismatchError, match=f"{message}.*cloudFiles.schemaHints"):
        _commit(target, 1, _kind(want), {"a": None, "s": "y"})
    assert DeltaTable(str(target)).version() == 1, "nothing was changed"
    assert len(list(target.glob("*.parquet"))) == 1, "the refused file is removed"


@pytest.mark.parametrize(("merge", "rule"), [(True, None), (False, ANY_SIZE), (False, None)])
def test_unless_asked_for_a_wider_type_is_an_error_that_names_both(  # B68, B125
    tmp_path: Path, merge: bool, rule: int | None
) -> None:
    target = tmp_path / "t"
    _commit(target, 0, _kind(pa.int32()), {"a": 1})
    text = (
        r"fields of .*/t: a is int but bigint in the stream.*mergeSchema=true and typeWidening=true"
    )
    with pytest.raises(SchemaMismatchError, match=text):
        _commit(target, 1, _kind(pa.int64()), {"a": 2**40}, widening=rule, merge_schema=merge)
    with pytest.raises(SchemaMismatchError, match=text):
        delta_commit.check_target(
            str(target), _kind(pa.int64()), rules=WriteRules(merge_schema=merge, widened_bytes=rule)
        )
    delta_commit.check_target(
        str(target), _kind(pa.int64()), rules=WriteRules(merge_schema=True, widened_bytes=ANY_SIZE)
    )
    assert DeltaTable(str(target)).version() == 1


def test_a_large_table_is_rewritten_only_when_its_size_is_allowed(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _commit(target, 0, _kind(pa.int32()), {"a": 1})
    size = sum(path.stat().st_size for path in target.glob("*.parquet"))
    with pytest.raises(SchemaMismatchError, match=rf"has {size:,} bytes.*typeWideningMaxBytes"):
        _commit(target, 1, _kind(pa.int64()), {"a": 2}, widening=size - 1)
    assert _commit(target, 1, _kind(pa.int64()), {"a": 2}, widening=size).is_new


def test_a_writer_that_comes_between_makes_the_rewriting_start_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without care its narrow file would stay beside the wide ones (deltalake 1.6)."""
    target = tmp_path / "t"
    _commit(target, 0, _kind(pa.int32()), {"a": 1, "s": "first"})
    stale = DeltaTable(str(target))
    real = TableFiles.replace_all
    came: list[int] = []

    def late(*arguments: Any) -> None:
        if not came:
            came.append(1)
            between = pa.table({"a": pa.array([2], pa.int32()), "s": ["between"]})
            write_deltalake(str(target), between, mode="append")
        real(*arguments)

    monkeypatch.setattr(TableFiles, "replace_all", late)
    _commit(target, 1, _kind(pa.int64()), {"a": 2**40, "s": "last"})
    assert [row["s"] for row in sorted(_rows(target), key=lambda row: row["a"])] == [
        "first",
        "between",
        "last",
    ]
    live = {uri.rpartition("/")[2] for uri in DeltaTable(str(target)).file_uris()}
    for name in live:
        assert pq.read_schema(target / name).field("a").type == pa.int64()
    removed = [path for path in target.glob("part-*") if path.name not in live]
    assert len(removed) == 2, "the two narrow files wait for vacuum, the lost rewriting is gone"
    with pytest.raises(Exception, match="Metadata changed"):  # a narrow batch cannot slip in
        stale.create_write_transaction([], "append", stale.schema())


@pytest.mark.slow
@pytest.mark.parametrize("point", WIDENING_POINTS)
def test_killed_at_the_commit_the_table_is_the_old_or_the_new_one(
    tmp_path: Path, point: str
) -> None:
    target = tmp_path / "t"
    _commit(target, 0, _kind(pa.int32()), {"a": 1, "s": "x"}, {"a": None, "s": "y"})
    files = _files(target, _kind(pa.int64()), [{"a": 2**40, "s": "z"}])
    (tmp_path / "files.json").write_text(
        json.dumps([[f.name, f.size, f.rows, f.modification_time_ms, f.statistics] for f in files])
    )
    program = (
        "import json, sys, pyarrow as pa\n"
        "from airflow_cloudfiles.engine.tables.delta import commit as delta_commit\n"
        "from airflow_cloudfiles.engine.tables.delta.data_files import DataFile\n"
        "from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules\n"
        "files = [DataFile(*each) for each in json.load(open(sys.argv[2]))]\n"
        "delta_commit.commit_batch(sys.argv[1], batch=delta_commit.BatchId('stream', 1),\n"
        "    files=files, schema=pa.schema([('a', pa.int64()), ('s', pa.string())]),\n"
        "    rules=WriteRules(merge_schema=True, widened_bytes=2**30))\n"
    )
    arguments = [sys.executable, "-c", program, str(target), str(tmp_path / "files.json")]
    killed = subprocess.run(arguments, env={**os.environ, CRASH_AT: point}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [row["s"] for row in _rows(target)] == ["x", "y"], "the batch is in no version yet"
    subprocess.run(arguments, check=True)
    assert sorted(row["s"] for row in _rows(target)) == ["x", "y", "z"]
    assert sum(row["a"] or 0 for row in _rows(target)) == 2**40 + 1


def test_names_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:  # B127
    target = tmp_path / "t"
    twins = pa.schema([("b", pa.int32()), ("B", pa.int32())])
    with pytest.raises(SchemaMismatchError, match="b and B differ only in case"):
        delta_commit.commit_batch(
            str(target),
            batch=BatchId("s", 0),
            files=[],
            schema=twins,
            rules=WriteRules(merge_schema=True),
        )


def test_a_job_widens_when_its_stream_does_unless_configured_otherwise() -> None:
    def sink(**options: str) -> dict[str, str]:
        where = {"source": "s", "checkpoint_location": "c", "target": "t", "run_id": "r"}
        return JobSpec(kind="ingest", format="json", options=options, **where).sink_options()

    mode = {"cloudfiles.schemaevolutionmode": "addNewColumnsWithTypeWidening"}
    assert sink() == {"mergeSchema": "true", "typeWidening": "false"}
    assert sink(**mode)["typeWidening"] == "true"
    assert sink(**mode, TypeWidening="false", typeWideningMaxBytes="1g") == {
        "mergeSchema": "true",
        "typeWidening": "false",
        "typeWideningMaxBytes": "1g",
    }


def test_the_options_of_the_sink_are_read() -> None:
    assert WriteRules.of(TableOptions.read({})).widened_bytes is None
    given = {"typewidening": "TRUE", "typewideningmaxbytes": "5m"}
    assert WriteRules.of(TableOptions.read(given)).widened_bytes == 5 * 2**20
    with pytest.raises(OptionError, match="typeWideningMaxBytes must be a size"):
        TableOptions.read({"typewideningmaxbytes": "much"})
