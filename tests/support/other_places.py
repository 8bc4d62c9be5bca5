"""A Delta table of one data file, which its log names in some way."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PLACES = ("below the table", "an absolute URI", "an absolute path", "a path upwards")
_SCHEMA = {
    "type": "struct",
    "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}],
}


def table_with_file(folder: Path, place: str) -> Path:
    """Make a table whose data file is below it or elsewhere, and has the values 1, 2 and 3.

    Args:
        folder: For the table and the file.
        place: How the log names the file; one of `PLACES`.
    """
    target, elsewhere = folder / "table", folder / "else where"
    is_below = place == "below the table"
    file = (target / "_landing" if is_below else elsewhere) / "f.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1, 2, 3]}), file)
    encoded = str(file).replace(" ", "%20")
    path = {
        "below the table": "_landing/f.parquet",
        "an absolute URI": f"file://{encoded}",
        "an absolute path": encoded,
        "a path upwards": "../else%20where/f.parquet",
    }[place]
    add = {
        "path": path,
        "partitionValues": {},
        "size": file.stat().st_size,
        "modificationTime": int(file.stat().st_mtime * 1000),
        "dataChange": True,
    }
    metadata = {
        "id": "table",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    log = target / "_delta_log" / f"{0:020}.json"
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(map(json.dumps, [*actions, {"add": add}])))
    return target
