"""Values of VARIANTs are alike in Spark, whether Delta or this package wrote or read them.

Arrow does not carry them out of Spark, so there they are asked for their JSON and their types.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import airflow_cloudfiles
from tests.support.delta_spark import DeltaSpark

pytestmark = pytest.mark.spark

JSON = (
    *("null", "true", "false", "0", "-1", "127", "128", "-32769", "2147483648"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.5", "1e300", "-0.0"),
    *("12345678901234567890.0123456789", "0.000000000000000001", '""', '"é☃\\u0000"', "{}", "[]"),
    *(f'"{"x" * 63}"', f'"{"x" * 64}"', f'"{"x" * 70000}"', '{"": 1}', '{"é.a": {"b": [null]}}'),
    *('{"b": 1, "a": {"c": [1, "2", 3.5, {"d": null}]}}', "[[[[1]]], {}, []]"),
    str([{"key": each} for each in range(300)]).replace("'", '"'),
    str({f"key{each}": each for each in range(300)}).replace("'", '"'),
)
CAST = (
    *("1Y", "1S", "1", "1L", "1.5F", "1.5D", "double('NaN')", "float('-Infinity')", "1.10BD"),
    *("cast('12345678901234567890.0123456789' AS DECIMAL(38, 10))", "X'00FF'", "''", "true"),
    *("DATE'1582-10-15'", "DATE'0001-01-01'", "TIMESTAMP'2024-01-31 12:30:15.123456'"),
    *("TIMESTAMP_NTZ'2024-01-31 12:30:15.123456'", "array(1, NULL)", "map('k', 1.5)"),
    "named_struct('b', DATE'2024-02-29', 'a', array(named_struct('c', X'FF')))",
)
FEATURES = {
    "plain": "",
    "shredded": "TBLPROPERTIES ('delta.enableVariantShredding'='true')",
    "mapped": "TBLPROPERTIES ('delta.columnMapping.mode'='name')",
    "deletion vectors": "TBLPROPERTIES ('delta.enableDeletionVectors'='true')",
}
ALIKE = (
    "to_variant_object(named_struct('a', id, 'b', if(id % 5 = 0, NULL, 'x'), "
    "'c', array(1.5D, 2.5D), 'd', named_struct('e', true, 'f', cast(NULL AS STRING)), 'v', v))"
)
"""Values with the same fields: those become columns of their own, but for the one that is any."""
ASKED = ", ".join(
    f"{name} IS NULL, is_variant_null({name}), to_json({name}), schema_of_variant({name})"
    for name in ("v", "o", "s.v", "get(l, 0)", "get(l, 1)", "m['k']")
)


def view(spark: Any, target: str, name: str) -> None:
    """Name what this package reads of a table."""
    airflow_cloudfiles.register(spark)
    spark.read.format("deltalake").load(target).createOrReplaceTempView(name)


def copy(spark: Any, source: str, target: str) -> None:
    """Write what Delta reads of a table into another one by this package."""
    airflow_cloudfiles.register(spark)
    # Where a table has deletion vectors, Delta refuses to be read by a write through Spark's second
    # API, into Spark's own `noop`, too ("non-pinned table snapshot"). What is cached is not read.
    frame = spark.read.format("delta").load(source).cache()
    frame.write.format("deltalake").mode("append").save(target)
    frame.unpersist()


def _variants() -> list[str]:
    parsed = [f"parse_json(r'{each}')" for each in JSON]
    return ["CAST(NULL AS VARIANT)", *parsed, *(_cast(each) for each in CAST)]


def _cast(value: str) -> str:
    nested = value.startswith(("array", "map", "named"))
    return f"to_variant_object({value})" if nested else f"CAST({value} AS VARIANT)"


@pytest.mark.parametrize("feature", FEATURES)
def test_variants_of_either_are_read_alike(delta: DeltaSpark, tmp_path: Path, feature: str) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    delta.run(
        f"CREATE TABLE delta.`{theirs}` (id BIGINT, v VARIANT, o VARIANT, s STRUCT<v: VARIANT>, "
        f"l ARRAY<VARIANT>, m MAP<STRING, VARIANT>) USING delta {FEATURES[feature]}"
    )
    values = ", ".join(f"({number}, {each})" for number, each in enumerate(_variants()))
    delta.run(
        f"INSERT INTO delta.`{theirs}` SELECT id, v, {ALIKE}, named_struct('v', v), "
        f"array(v, NULL), map('k', v) FROM VALUES {values} AS t(id, v)"
    )
    [written] = theirs.rglob("*.parquet")
    assert ("typed_value" in str(pq.read_schema(written))) == (feature == "shredded")
    delta.run(f"DELETE FROM delta.`{theirs}` WHERE id % 7 = 3")
    delta.run(f"UPDATE delta.`{theirs}` SET v = parse_json('[\"updated\"]') WHERE id % 7 = 4")
    asked = f"SELECT id, {ASKED} FROM"
    expected = delta.rows(f"{asked} delta.`{theirs}` ORDER BY id").to_pylist()
    delta.call(view, target=str(theirs), name="of_theirs")
    assert delta.rows(f"{asked} of_theirs ORDER BY id").to_pylist() == expected
    delta.call(copy, source=str(theirs), target=str(ours))
    assert delta.rows(f"{asked} delta.`{ours}` ORDER BY id").to_pylist() == expected
    delta.run(f"OPTIMIZE delta.`{ours}`")
    delta.call(view, target=str(ours), name="of_ours")
    assert delta.rows(f"{asked} of_ours ORDER BY id").to_pylist() == expected
    assert len(expected) > len(JSON)
