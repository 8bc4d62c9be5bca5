"""An archive equals its members, unpacked into a folder, whatever is read and how."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.extensions.archives import members
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from tests.support.archive_files import KINDS
from tests.support.landed import Stream
from tests.support.laws import examples
from tests.unit.stream.test_every_format import OPTIONS, WRITERS

MODES: dict[str, dict[str, str]] = {
    "evolves": {"cloudFiles.inferColumnTypes": "true"},
    "strings": {},
    "rescues": {"cloudFiles.schemaEvolutionMode": "rescue", "cloudFiles.inferColumnTypes": "true"},
    "fails": {"cloudFiles.schemaEvolutionMode": "failOnNewColumns"},
    "widens": {"cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening"},
    "ahead": {"cloudFiles.evolveAhead": "true"},
    "given": {"rescuedDataColumn": "_rescued_data"},
}
VALUES = st.integers(0, 9) | st.sampled_from(["x", "é<&>", "1.5", "a,b"])
RECORDS = st.lists(
    st.fixed_dictionaries({"a": st.integers(0, 9)}, optional={"b": VALUES, "c": VALUES}),
    min_size=1,
    max_size=4,
)
NAMES = st.sampled_from(["1", "x/1", "x/y/2.gz", "_hidden/3", "x/.4", "é 5", "x/6!/7"])
Files = dict[str, bytes]


def _content(name: str, format_name: str, records: list[dict[str, Any]]) -> bytes:
    fields = dict.fromkeys(field for record in records for field in record)
    if format_name in {"avro", "parquet", "orc"}:  # a column has one type
        records = [
            {f: str(record.get(f, "")) if f != "a" else record[f] for f in fields}
            for record in records
        ]
    content = WRITERS[format_name](records)
    is_text = format_name in {"json", "csv", "xml"}
    return gzip.compress(content) if name.endswith(".gz") and is_text else content


def _land(source: Path, files: Files, kind: str | None, number: int) -> None:
    """Put files into a folder, or into an archive."""
    if kind is not None:
        (source / f"{number}{kind}").write_bytes(KINDS[kind](files.items()))
        return
    for name, content in files.items():
        path = source / f"{number}{name}" if "/" not in name else source / f"{number}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _outcomes(
    batches: Sequence[Files], kind: str | None, format_name: str, mode: str
) -> list[Counter[str] | str]:
    """What comes of each batch: its rows, or the error; an error heals by a second run, or not."""
    found: list[Counter[str] | str] = []
    schema: StructType | None = (
        parse_schema("a INT, b STRING, _rescued_data STRING") if mode == "given" else None
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in")
        source.mkdir()
        options = {**OPTIONS.get(format_name, {}), **MODES[mode], "cloudFiles.partitionColumns": ""}
        stream = Stream(source, Path(folder, "state"), format_name, schema=schema, **options)
        for number, files in enumerate(batches):
            _land(source, files, kind, number)
            for _ in range(2):
                try:
                    rows = stream.run()
                except CloudFilesError as error:
                    found.append(type(error).__name__)
                else:
                    found.append(Counter(_without_path(row) for row in rows))
    return found


def _without_path(row: dict[str, Any]) -> str:
    rescued = row.get("_rescued_data")
    if rescued is not None:
        row = {**row, "_rescued_data": {**json.loads(rescued), "_file_path": ""}}
    return json.dumps(row, sort_keys=True, default=str)


@pytest.mark.law
@pytest.mark.parametrize("format_name", WRITERS)
@settings(max_examples=examples(30), deadline=None)
@given(
    batches=st.lists(
        st.dictionaries(NAMES, RECORDS, min_size=1, max_size=4), min_size=1, max_size=3
    ),
    kind=st.sampled_from(sorted(KINDS)),
    mode=st.sampled_from(sorted(MODES)),
    held=st.sampled_from([1, 4 * 2**20]),
)
def test_an_archive_equals_its_members(
    batches: list[dict[str, list[dict[str, Any]]]],
    format_name: str,
    kind: str,
    mode: str,
    held: int,
) -> None:
    files = [
        {name: _content(name, format_name, records) for name, records in each.items()}
        for each in batches
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(members, "HELD_BYTES", held)  # or a stream, and a temporary file
        packed = _outcomes(files, kind, format_name, mode)
    assert packed == _outcomes(files, None, format_name, mode)
