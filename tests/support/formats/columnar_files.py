"""Files of columnar formats in memory, and reading them; for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.base import FileReader
from airflow_cloudfiles.engine.formats.columnar.reader import ColumnarInference
from airflow_cloudfiles.engine.formats.orc import OrcInference, OrcReader
from airflow_cloudfiles.engine.formats.parquet.file import ParquetInference, ParquetReader
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions


@dataclass(frozen=True)
class MemoryFile:
    """An `OpenedFile` whose bytes are in memory."""

    data: bytes
    uri: str = "file:///landing/f"

    @property
    def entry(self) -> FileEntry:
        return FileEntry("f", len(self.data), 0)

    def random_access(self) -> IO[bytes]:
        return io.BytesIO(self.data)

    def stream(self) -> IO[bytes]:
        raise AssertionError("columnar files are not read from their beginning")

    def text_stream(self, encoding: str = "utf-8") -> IO[bytes]:
        raise AssertionError(encoding)

    def blocks(self, *_: object, **__: object) -> Any:
        raise AssertionError("columnar files have no lines")


def parquet(table: pa.Table, **options: Any) -> MemoryFile:
    """A Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return MemoryFile(sink.getvalue())


def orc_file(table: pa.Table, **options: Any) -> MemoryFile:
    """An ORC file."""
    sink = io.BytesIO()
    orc.write_table(table, sink, **options)
    return MemoryFile(sink.getvalue())


def options(format_name: str = "parquet", *, has_schema: bool = False, **more: str) -> Any:
    """Options of a source; `evolution` stands for `cloudFiles.schemaEvolutionMode`."""
    names = {"evolution": "cloudFiles.schemaEvolutionMode", "hints": "cloudFiles.schemaHints"}
    given = {names.get(name, name): value for name, value in more.items()}
    return CloudFilesOptions.parse(
        {"cloudFiles.format": format_name, **given}, path="/landing", has_schema=has_schema
    )


def reader(schema: StructType, given: CloudFilesOptions) -> FileReader:
    """The reader of the format."""
    return (ParquetReader if given.format == "parquet" else OrcReader)(schema, given)


def inference(given: CloudFilesOptions, known: StructType | None = None) -> ColumnarInference:
    """The inference of the format."""
    return (ParquetInference if given.format == "parquet" else OrcInference)(given, known)


def infer(
    files: Sequence[MemoryFile], given: CloudFilesOptions, known: StructType | None = None
) -> StructType:
    """The schema of some files."""
    made = inference(given, known)
    for file in files:
        list(made.add_file(file))
    return made.result()


def rows(
    file: MemoryFile, schema: StructType, given: CloudFilesOptions | None = None
) -> list[dict[str, Any]]:
    """All rows of a file; in mode `rescue` unless options are given."""
    given = given or options(evolution="rescue")
    return [row for batch in reader(schema, given).read_file(file) for row in batch.to_pylist()]
