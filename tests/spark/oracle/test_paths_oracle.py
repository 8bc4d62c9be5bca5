"""Values of paths are those that Spark's own reader makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.schema.ddl import parse_schema
from tests.support.landed import Stream
from tests.unit.formats.scalars.test_partition_values import CHANGED, NEW_YORK, READ

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_given_schema_reads_the_values_of_paths_as_spark_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    by_type: dict[str, list[str]] = {}
    for ddl, text, _ in [*READ, *CHANGED]:
        if text:  # Spark refuses an empty one
            by_type.setdefault(ddl, []).append(text)
    for number, (ddl, texts) in enumerate(by_type.items()):
        source = tmp_path / str(number)
        for place, text in enumerate(texts):
            folder = source / f"k={quote(text, safe=' +,')}"
            folder.mkdir(parents=True)
            (folder / "f.json").write_text(f'{{"a": {place}}}\n', encoding="utf-8")
        schema = parse_schema(f"a INT, k {ddl}")
        theirs = spark.read.schema(schema).option("timeZone", NEW_YORK).json(str(source))
        state = tmp_path / f"state{number}"
        stream = Stream(source, state, "json", schema=schema, timeZone=NEW_YORK)
        ours = pa.Table.from_pylist(stream.run(), theirs.toArrow().schema)
        assert _rows(ours) == _rows(theirs.toArrow()), ddl


def _rows(table: pa.Table) -> list[tuple[int, str]]:
    return sorted((row["a"], repr(row["k"])) for row in table.to_pylist())
