"""VARIANTs that other writers left in a table are read whole, or refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.variant_utils import VariantUtils

from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.formats.variant import encode
from airflow_cloudfiles.engine.spark.tables.source import DeltaTableReader
from airflow_cloudfiles.engine.tables.delta.opening import table_schema
from tests.support.formats.variant_files import NOTHING, UNSHREDDED, plain, variant

if TYPE_CHECKING:
    from pathlib import Path

TYPED = variant(pa.int64())


def table(folder: Path, *kinds_and_rows: tuple[pa.DataType, list[Any]]) -> str:
    """A Delta table with a data file for each type of its column `v`."""
    field = {"name": "v", "type": "variant", "nullable": True, "metadata": {}}
    inner = {"type": "struct", "fields": [field]}
    outer = [field, {"name": "s", "type": inner, "nullable": True, "metadata": {}}]
    features = ["variantType"]
    actions: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": features, "writerFeatures": features,
            }
        },
        {
            "metaData": {
                "id": "v", "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": outer}),
                "partitionColumns": [], "configuration": {}, "createdTime": 0,
            }
        },
    ]  # fmt: skip
    for number, (kind, rows) in enumerate(kinds_and_rows):
        name = f"part-{number}.parquet"
        columns = {
            "v": pa.array(rows, kind),
            "s": pa.array([{"v": row} for row in rows], pa.struct([("v", kind)])),
        }
        pq.write_table(pa.table(columns), folder / name)
        size = (folder / name).stat().st_size
        add = {"path": name, "size": size, "partitionValues": {}, "modificationTime": 0}
        actions.append({"add": add | {"dataChange": True}})
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return str(folder)


def read(target: str) -> list[dict[str, Any]]:
    reader = DeltaTableReader(target, table_schema(target))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_variants_of_a_table_are_read_whole_however_its_files_have_them(tmp_path: Path) -> None:
    turned = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    typed = {"metadata": NOTHING, "typed_value": 5}
    target = table(
        tmp_path,
        (UNSHREDDED, [plain({"a": 1}), None]),
        (turned, [plain([2])]),
        (TYPED, [typed, plain("x"), None]),
    )
    found = [
        [
            one and VariantUtils.to_python(one["value"], one["metadata"])
            for one in (r["v"], r["s"]["v"])
        ]
        for r in read(target)
    ]
    assert found == [[each, each] for each in ({"a": 1}, None, [2], 5, "x", None)]


def test_a_variant_whose_parts_contradict_each_other_is_refused_by_name(tmp_path: Path) -> None:
    parts = {"metadata": NOTHING, "value": encode("x")[0], "typed_value": 5}
    with pytest.raises(SinkError, match=r"Column v of .* has a VARIANT that is not valid"):
        read(table(tmp_path, (TYPED, [parts])))
