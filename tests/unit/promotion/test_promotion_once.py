"""A promoted value is in one place at any time: killed, repeated, or raced, whatever is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.extensions.promotion import promote as promotion
from airflow_cloudfiles.engine.extensions.promotion.batches import (
    PromotedField,
    Promoter,
    with_column,
)
from airflow_cloudfiles.engine.extensions.promotion.values import reading_options
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_columns, parse_schema
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFiles
from airflow_cloudfiles.engine.types import to_arrow
from tests.support.crash_points import PROMOTION_POINTS
from tests.support.delta_tables import delete_by_vector, read_by_duckdb, take_vectors
from tests.support.laws import examples
from tests.support.promoted import Landed, read

PROGRAM = (
    "import json, sys\n"
    "from airflow_cloudfiles.engine.extensions.promotion import promote as promoting\n"
    "from airflow_cloudfiles.engine.extensions.promotion.promote import Promotion, promote\n"
    "promoting.GROUP_BYTES = 1\n"
    "promote(Promotion(**json.loads(sys.argv[1])))\n"
)


def _promote_and_be_killed(landed: Landed, point: str) -> None:
    given = {
        "target": landed.target,
        "checkpoint_location": landed.state,
        "fields": {"zip": "INT"},
        "options": {"cloudFiles.schemaEvolutionMode": "rescue"},
    }
    killed = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(given)],
        env={**os.environ, CRASH_AT: point},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def _check(landed: Landed, rows: int) -> int:
    """Whether each row is there once, and its value in one place; how many are promoted."""
    promoted = 0
    found = landed.rows()
    assert sorted(row["id"] for row in found) == list(range(rows))
    for row in found:
        rescued = row["_rescued_data"] or {}
        assert (row.get("zip") is None) == ("zip" in rescued), row
        assert (row.get("zip") or rescued.get("zip")) == row["id"] + 1
        assert rescued.get("other") == row["id"], "everything else stays"
        promoted += row.get("zip") is not None
    return promoted


def _record(number: int) -> dict[str, int]:
    return {"id": number, "zip": number + 1, "other": number}


@pytest.mark.slow
@pytest.mark.parametrize("point", [*PROMOTION_POINTS, "after-promotion-commit:2"])
def test_killed_anywhere_it_is_finished_by_repeating_it(tmp_path: Path, point: str) -> None:
    landed = Landed.create(tmp_path, "id BIGINT")
    for batch in range(3):
        landed.land(*(_record(batch * 10 + i) for i in range(10)))
    _promote_and_be_killed(landed, point)
    done = _check(landed, 30)
    assert done == {"after-promotion-commit": 10, "after-promotion-commit:2": 20}.get(point, 0)
    assert landed.promote({"zip": "INT"}).rows == 30 - done
    assert _check(landed, 30) == 30
    assert landed.log.versions() == [0, 1], "one version, however often it was killed"
    latest = landed.log.latest()
    assert latest is not None
    assert latest.data_schema.simpleString() == "struct<id:bigint,zip:int>"


@pytest.mark.parametrize("kind", ["BIGINT", None])
def test_killed_between_widening_and_the_schema_log_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None
) -> None:
    class KilledError(Exception):
        pass

    def dies(name: str) -> None:
        if name == "after-promotion-columns":
            raise KilledError

    landed = Landed.create(tmp_path, "id INT, n INT")
    landed.land({"id": 1, "n": 1}, {"id": 2, "n": 2**40})
    monkeypatch.setattr(promotion, "crash_point", dies)
    with pytest.raises(KilledError):
        landed.promote({"n": "BIGINT"})
    monkeypatch.undo()
    landed.land({"id": 3, "n": 3}, {"id": 4, "n": 2**41})  # the stream still has the narrow type
    assert [row["n"] for row in landed.rows()] == [1, None, 3, None]
    landed.promote({"n": kind})
    latest = landed.log.latest()
    assert latest is not None
    assert latest.data_schema == parse_schema("id INT, n BIGINT")
    landed.land({"id": 5, "n": 5}, schema=latest.data_schema)
    assert [(row["n"], row["_rescued_data"]) for row in landed.rows()] == [
        (1, None),
        (2**40, None),
        (3, None),
        (2**41, None),
        (5, None),
    ]


@pytest.mark.parametrize("fields", [{"zip": "INT"}, {"id": "BIGINT", "zip": "DATE"}])
def test_what_fails_has_changed_nothing(tmp_path: Path, fields: dict[str, str]) -> None:
    landed = Landed.create(tmp_path, "id INT")
    landed.land(*(_record(i) for i in range(10)))
    landed.land({"id": 10, "zip": 11, "other": 10})
    for path in Path(landed.target).glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-9])
    version, columns = landed.table.version(), landed.table.schema().to_json()
    with pytest.raises(SinkError, match="cannot be read"):
        landed.promote(fields)
    assert (landed.table.version(), landed.table.schema().to_json()) == (version, columns)
    assert landed.log.versions() == [0]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_column_that_fits_no_value_is_reported(tmp_path: Path, is_there: bool) -> None:
    landed = Landed.create(tmp_path, "id BIGINT, zip DATE" if is_there else "id BIGINT")
    landed.land({"id": 1, "zip": "one", "user": {"age": 7}}, {"id": 2, "zip": "two"})
    told = landed.promote({"zip": "DATE", "user.age": "INT"})
    assert told.values["zip"] == {"promoted": 0, "partly": 0, "unfit": 2, "occupied": 0}
    [warning] = told.warnings
    assert "None of the 2 rescued values of zip fits the column zip, a date" in warning
    assert landed.promote({"zip": "DATE"}).warnings == [warning]
    assert landed.promote({"nowhere": "DATE"}).warnings == [], "there is nothing to fit it"


@pytest.mark.slow
def test_it_runs_while_the_stream_writes_and_twice_at_once(tmp_path: Path) -> None:
    landed = Landed.create(tmp_path, "id BIGINT")
    landed.land(*(_record(i) for i in range(20)))
    failures: list[BaseException] = []
    told: list[int] = []

    def write() -> None:
        for batch in range(1, 16):
            landed.land(*(_record(batch * 20 + i) for i in range(20)))

    def promote() -> None:
        told.append(landed.promote({"zip": "INT"}).rows)

    def guarded(act: Any) -> None:
        try:
            act()
        except BaseException as failure:  # noqa: BLE001 - shown by the test
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=[act]) for act in (write, promote, promote)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    _check(landed, 320)
    told.append(landed.promote({"zip": "INT"}).rows)
    assert _check(landed, 320) == 320
    assert sum(told) == 320, "each row was promoted by one of them, once"


def test_a_commit_whose_answer_is_lost_is_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = Landed.create(tmp_path, "id BIGINT")
    landed.land(*(_record(i) for i in range(10)))
    real = TableFiles.replace

    def deaf(*arguments: Any, **more: Any) -> None:
        real(*arguments, **more)
        raise CommitFailedError("version already exists")

    monkeypatch.setattr(TableFiles, "replace", deaf)
    told = landed.promote({"zip": "INT"})
    assert (told.rows, _check(landed, 10)) == (10, 10)
    assert landed.live() <= {path.name for path in Path(landed.target).glob("*.parquet")}


def test_files_that_another_writer_has_replaced_are_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = Landed.create(tmp_path, "id BIGINT")
    landed.land(*(_record(i) for i in range(5)))
    landed.land(*(_record(i) for i in range(5, 10)))
    real = TableFiles.replace
    calls: list[int] = []

    def late(*arguments: Any, **more: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            DeltaTable(landed.target).optimize.compact()
        real(*arguments, **more)

    monkeypatch.setattr(TableFiles, "replace", late)
    told = landed.promote({"zip": "INT"})
    assert (told.rows, told.files_rewritten, len(calls)) == (10, 1, 2)
    assert _check(landed, 10) == 10


def test_rows_that_are_deleted_meanwhile_do_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion vector leaves the file its name, and says which of its rows are gone."""
    landed = Landed.create(tmp_path, "id INT")
    landed.land({"id": 1, "zip": 5}, {"id": 2, "zip": 6})

    def meanwhile(name: str) -> None:
        if name == "before-promotion-commit":
            monkeypatch.undo()
            take_vectors(landed.table)
            delete_by_vector(Path(landed.target), "id", 2)

    monkeypatch.setattr(promotion, "crash_point", meanwhile)
    told = landed.promote({"zip": "INT"})
    assert (told.rows, told.files_rewritten) == (1, 1)
    rows = read_by_duckdb(landed.target).select(["id", "zip"])
    assert rows.to_pylist() == [{"id": 1, "zip": 5}]


def test_who_loses_every_race_gives_up_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = Landed.create(tmp_path, "id BIGINT")
    landed.land(_record(0))

    def never(*arguments: Any, **more: Any) -> None:
        raise CommitFailedError("another writer")

    monkeypatch.setattr(TableFiles, "replace", never)
    monkeypatch.setattr(promotion, "COMMIT_TRIES", 3)
    with pytest.raises(SinkError, match="other writers committed first, 3 times"):
        landed.promote({"zip": "INT"})
    assert _check(landed, 1) == 0
    files = {path.name for path in Path(landed.target).glob("*.parquet")}
    assert files == landed.live(), "what was written in vain is removed"


def test_the_batches_of_the_stream_are_known_as_before(tmp_path: Path) -> None:
    landed = Landed.create(tmp_path, "id BIGINT")
    landed.land(_record(0))
    landed.land(_record(1))
    landed.promote({"zip": "INT"})
    assert landed.table.transaction_version("stream") == 1
    landed.batches = 1
    landed.land(_record(1))
    assert len(landed.rows()) == 2, "a batch that is repeated after it is still recognized"


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "7", "x", "2024-01-31", 'é\n\t"\\', "2024-01-31T01:02:03Z", "NaN"]),
)
INSIDE = st.dictionaries(st.sampled_from(["zip", "name", "Zip", "other"]), LEAVES, max_size=4)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(0, 9),
        "x": st.one_of(LEAVES, INSIDE, st.lists(LEAVES, max_size=3)),
        "y": LEAVES,
        "X": LEAVES,
        "user": st.one_of(INSIDE, LEAVES),
    },
)
KINDS = [
    "STRING",
    "BIGINT",
    "DOUBLE",
    "BOOLEAN",
    "DATE",
    "TIMESTAMP",
    "DECIMAL(10,2)",
    "ARRAY<INT>",
    "STRUCT<zip: INT, name: STRING>",
    "MAP<STRING, INT>",
]


@pytest.mark.law
@settings(max_examples=examples(150))
@given(st.data())
def test_promoting_gives_what_reading_with_the_column_would_have_given(data: st.DataObject) -> None:
    """The law of promotion, over 60,000 records: no value more, none less, none elsewhere."""
    records = data.draw(st.lists(RECORDS, min_size=4, max_size=8)) * 50
    paths = data.draw(st.sampled_from([["x"], ["user.zip"], ["x", "user.zip"], ["y", "user.zip"]]))
    fields = [parse_columns(f"{path} {data.draw(st.sampled_from(KINDS))}")[0] for path in paths]
    schema = parse_schema("id BIGINT, user STRUCT<name: STRING>")
    evolved = schema
    for each in fields:
        evolved = with_column(evolved, each.path, each.data_type)
    options = CloudFilesOptions.parse({"cloudFiles.format": "json"}, path="landing")
    before, wanted = read(records, schema), read(records, evolved)
    promoter = Promoter(
        [PromotedField(each.path, each.path, each.data_type) for each in fields],
        "_rescued_data",
        reading_options(options, {}),
        options,
    )
    grown = pa.RecordBatch.from_arrays(
        [_grown(before, field) for field in wanted.schema], schema=wanted.schema
    )
    after, found = promoter.apply(grown)
    assert _comparable(after) == _comparable(wanted)
    promoted = [n for (_, outcome), n in found.values.items() if outcome == "promoted"]
    assert sum(promoted) >= found.rows
    again, more = promoter.apply(after)
    assert more.rows == 0
    assert _comparable(again) == _comparable(after)


def _grown(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(field.name).cast(field.type)


def _comparable(batch: pa.RecordBatch) -> list[str]:
    """Rows in which the members of rescued data have no order, and numbers keep their text."""
    rows = []
    plain = pa.schema([(each.name, _plain(each.type)) for each in batch.schema])
    for row in batch.cast(plain).to_pylist():
        rescued = row.pop("_rescued_data")
        parsed = rescued and json.loads(rescued, parse_float=str, parse_int=str)
        rows.append(f"{row} {json.dumps(parsed, sort_keys=True)}")
    return rows


def _plain(kind: pa.DataType) -> pa.DataType:
    """Times as numbers: Python knows none before the year 1."""
    if pa.types.is_struct(kind):
        inner = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([each.with_type(_plain(each.type)) for each in inner])
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def test_the_schema_of_the_law_is_what_a_table_would_have() -> None:
    """`with_column` adds at the end, as a table does, and inside of structs."""
    schema = with_column(parse_schema("a STRUCT<b: INT>"), ("a", "c"), StructType())
    assert schema.simpleString() == "struct<a:struct<b:int,c:struct<>>>"
    assert to_arrow(with_column(schema, ("d",), parse_schema("x INT"))).names == ["a", "d"]
