"""What the tests of CSV share: files, options and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.types import StructField, StructType

from airflow_cloudfiles.engine.formats.csv.infer import CsvInference
from airflow_cloudfiles.engine.formats.csv.reader import CsvReader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.schema.ddl import parse_columns
from airflow_cloudfiles.engine.storage import open_store

SHORT = {"evolution": "cloudFiles.schemaEvolutionMode", "typed": "cloudFiles.inferColumnTypes"}


def opened(path: Path) -> StoreFile:
    """A local file, as the stream opens it."""
    store = open_store(str(path.parent))
    entry = store.head(path.name)
    assert entry is not None
    return StoreFile(store, entry)


def written(folder: Path, content: str | bytes, name: str = "f.csv") -> StoreFile:
    """A new file with a content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return opened(path)


def columns(ddl: str) -> StructType:
    """A schema from DDL, without a JVM."""
    return StructType([StructField(each.path[0], each.data_type) for each in parse_columns(ddl)])


def options(*, given: bool = False, **others: Any) -> CloudFilesOptions:
    """Options of a CSV source; what does not fit is rescued, and new columns too."""
    found = {"cloudFiles.format": "csv"}
    if not given:
        found["cloudFiles.schemaEvolutionMode"] = "rescue"
    found |= {SHORT.get(key, key): value for key, value in others.items()}
    return CloudFilesOptions.parse(found, path="/landing", has_schema=given)


def reader(ddl: str, *, is_thorough: bool = False, **others: Any) -> CsvReader:
    """A reader of a schema."""
    return CsvReader(columns(ddl), options(**others), is_thorough=is_thorough)


def rows_of(file: StoreFile, found: CsvReader) -> list[dict[str, Any]]:
    """The rows of a file; batches are valid and of the promised schema."""
    rows = []
    for batch in found.read_file(file):
        batch.validate(full=True)
        assert batch.schema.equals(found.arrow_schema)
        rows += batch.to_pylist()
    return rows


def inferred(*files: StoreFile, known: str | None = None, **others: Any) -> dict[str, str]:
    """What inference finds: type by column."""
    inference = CsvInference(options(**others), None if known is None else columns(known))
    for file in files:
        list(inference.add_file(file))
    return {each.name: each.dataType.simpleString() for each in inference.result().fields}
