"""Iceberg's own runtime and our sink write to one table: in turn, at once, over both catalogs."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.errors import LostBatchesError, UnsupportedTableError
from tests.iceberg_spark.test_iceberg_reads_what_we_write import read, same, theirs
from tests.support.iceberg_spark import IcebergSpark
from tests.support.iceberg_tables import LocalCatalog
from tests.support.iceberg_writes import IcebergSink

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
MODES = ", ".join(f"'write.{each}.mode'='merge-on-read'" for each in ("delete", "update", "merge"))
STATEMENTS = {
    "appended": "INSERT INTO {t} (k, v) SELECT k + 1000, v FROM {t}",
    "overwritten": "INSERT OVERWRITE {t} (k, v) SELECT k, upper(v) FROM {t}",
    "deleted from by copies": "DELETE FROM {t} WHERE k % 5 = 0",
    "set to deletion files": f"ALTER TABLE {{t}} SET TBLPROPERTIES ({MODES})",
    "deleted from": "DELETE FROM {t} WHERE k % 7 = 0",
    "updated": "UPDATE {t} SET v = 'new' WHERE k % 3 = 0",
    "merged": "MERGE INTO {t} AS t USING"
    " (SELECT * FROM VALUES (1L, 'm'), (-1L, 'n') AS s(k, v)) AS s ON t.k = s.k"
    " WHEN MATCHED THEN UPDATE SET v = s.v"
    " WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)",
    "compacted": "CALL {c}.system.rewrite_data_files(table => 'db.t',"
    " options => map('rewrite-all', 'true'))",
    "deletions compacted": "CALL {c}.system.rewrite_position_delete_files(table => 'db.t')",
    "manifests rewritten": "CALL {c}.system.rewrite_manifests('db.t')",
    "given a column": "ALTER TABLE {t} ADD COLUMN more INT AFTER k",
    "renamed in": "ALTER TABLE {t} RENAME COLUMN v TO value",
    "widened": "ALTER TABLE {t} ALTER COLUMN more TYPE BIGINT",
    "stripped of a column": "ALTER TABLE {t} DROP COLUMN value",
    "partitioned anew": "ALTER TABLE {t} ADD PARTITION FIELD bucket(4, k)",
    "expired": "CALL {c}.system.expire_snapshots(table => 'db.t', retain_last => 1,"
    " older_than => TIMESTAMP '2999-01-01 00:00:00')",
}


def _rows(start: int, count: int = 12) -> list[dict[str, object]]:
    return [{"k": start + each, "v": f"v{each}"} for each in range(count)]


def _in_turn(iceberg: IcebergSpark, lake: LocalCatalog) -> None:
    sink, schema = IcebergSink(lake), SCHEMA
    sink.write(_rows(0), schema)
    for number, (what, statement) in enumerate(STATEMENTS.items(), 1):
        iceberg.run(statement.format(t=f"{lake.name}.db.t", c=lake.name))
        same(read(lake), before := theirs(iceberg, lake))
        schema = SCHEMA if "v" in before.column_names else SCHEMA.remove(1)
        rows = _rows(100 * number)
        assert sink.write(rows, schema).is_new, what
        assert not sink.write_again(rows, schema).is_new, what
        same(read(lake), after := theirs(iceberg, lake))
        assert after.num_rows == before.num_rows + len(rows), what


def test_they_go_on_and_so_do_we(iceberg: IcebergSpark, lake: LocalCatalog) -> None:
    _in_turn(iceberg, lake)


def test_both_go_on_over_a_rest_catalog(iceberg: IcebergSpark, rest: LocalCatalog) -> None:
    _in_turn(iceberg, rest)


def test_a_table_that_iceberg_rolls_back_is_noticed(
    iceberg: IcebergSpark, lake: LocalCatalog
) -> None:
    sink = IcebergSink(lake)
    sink.write(_rows(0), SCHEMA)
    sink.write(_rows(100), SCHEMA)
    first, second = (each.snapshot_id for each in lake.table("t").snapshots())
    iceberg.run(f"CALL {lake.name}.system.rollback_to_snapshot('db.t', {first})")
    with pytest.raises(LostBatchesError):
        sink.write(_rows(200), SCHEMA)
    iceberg.run(f"CALL {lake.name}.system.set_current_snapshot('db.t', {second})")
    sink.write_again(_rows(200), SCHEMA)
    assert theirs(iceberg, lake).num_rows == 36


MADE = {
    "of every transform": "(k BIGINT NOT NULL, v STRING, d DATE) USING iceberg"
    " PARTITIONED BY (bucket(3, k), truncate(2, v), months(d))",
    "of a field of a struct": "(k BIGINT, v STRING, s STRUCT<p: STRING>) USING iceberg"
    " PARTITIONED BY (bucket(3, s.p))",
    "with deletion files": f"(k BIGINT, v STRING) USING iceberg TBLPROPERTIES ({MODES})",
    "with comments": "(k BIGINT COMMENT 'key', v STRING) USING iceberg COMMENT 'table'",
    "of small manifests": "(k BIGINT, v STRING) USING iceberg"
    " TBLPROPERTIES ('commit.manifest.min-count-to-merge'='2')",
}


@pytest.mark.parametrize("name", MADE)
def test_we_append_to_what_iceberg_makes(
    iceberg: IcebergSpark, lake: LocalCatalog, name: str
) -> None:
    table = f"{lake.name}.db.t"
    iceberg.run(f"CREATE TABLE {table} {MADE[name]}")
    sink = IcebergSink(lake)
    for number in range(3):
        iceberg.run(f"INSERT INTO {table} (k, v) VALUES ({number}, 'them'), ({number + 50}, NULL)")
        sink.write(_rows(100 * (number + 1)), SCHEMA)
        same(read(lake), theirs(iceberg, lake))
    assert theirs(iceberg, lake).num_rows == 3 * (2 + 12)


@pytest.mark.parametrize("version", [1, 3])
def test_other_format_versions_are_refused_by_name(
    iceberg: IcebergSpark, lake: LocalCatalog, version: int
) -> None:
    made = f"(k BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version'='{version}')"
    iceberg.run(f"CREATE TABLE {lake.name}.db.t {made}")
    with pytest.raises(UnsupportedTableError, match=f"format version {version}"):
        IcebergSink(lake).write(_rows(0), SCHEMA)
    assert theirs(iceberg, lake).num_rows == 0


def _at_once(iceberg: IcebergSpark, lake: LocalCatalog) -> None:
    """Three streams of ours and statements of theirs, each of some commits."""
    IcebergSink(lake, stream="first").write([], SCHEMA)
    failures: list[BaseException] = []

    def stream(name: int) -> None:
        sink = IcebergSink(lake, stream=str(name))
        try:
            for number in range(5):
                assert sink.write(_rows(1000 * name + 100 * number), SCHEMA).is_new
        except BaseException as failure:  # noqa: BLE001 - shown by the assertion below
            failures.append(failure)

    threads = [threading.Thread(target=stream, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for number in range(6):
        iceberg.run(f"INSERT INTO {lake.name}.db.t VALUES ({9000 + number}, 'them')")
    for thread in threads:
        thread.join()
    assert not failures
    found = sorted(theirs(iceberg, lake)["k"].to_pylist())
    ours = [
        1000 * name + 100 * number + row
        for name in range(3)
        for number in range(5)
        for row in range(12)
    ]
    assert found == sorted([*ours, *range(9000, 9006)])


def test_writers_of_both_kinds_at_once(iceberg: IcebergSpark, lake: LocalCatalog) -> None:
    _at_once(iceberg, lake)


def test_writers_of_both_kinds_at_once_over_rest(iceberg: IcebergSpark, rest: LocalCatalog) -> None:
    _at_once(iceberg, rest)
