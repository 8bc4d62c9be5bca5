"""How does Spark read a Delta table without jars?

`spark.read.format("deltalake").load(path)` (and `format("delta")` where no Delta jar is): one
version of the table, its data files shared out over tasks. It is meant for looking at what a
stream has written; the Delta jars read faster and know more of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from airflow_cloudfiles.engine.delta.opening import open_existing
from airflow_cloudfiles.engine.delta.rewrite import fragments_of
from airflow_cloudfiles.engine.delta.variant import as_read
from airflow_cloudfiles.engine.formats.columnar.types import holds_variant
from airflow_cloudfiles.engine.spark.error_marks import marking_errors
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MOST_TASKS = 64
"""Files of a table are shared out over at most this many tasks."""


class TablePart(InputPartition):
    """Which data files of a version one task reads, by their place in its list."""

    def __init__(self, version: int, places: tuple[int, ...]) -> None:
        super().__init__((version, places))


@marking_errors
class DeltaTableReader(DataSourceReader):
    """Reads the version that is newest when the query is planned."""

    def __init__(self, target: str, schema: StructType) -> None:
        self._target = target
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Share the data files out."""
        table = open_existing(self._target)
        count = len(table.file_uris())
        tasks = max(1, min(MOST_TASKS, count))
        shares = [tuple(range(first, count, tasks)) for first in range(tasks)]
        return [TablePart(table.version(), share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some files; columns a file lacks are null."""
        version, places = partition.value
        table = open_existing(self._target, version)
        schema = pa.schema(table.schema().to_arrow())
        fragments = sorted(fragments_of(table), key=lambda fragment: str(fragment.path))
        wanted = to_arrow(self._schema)
        for place in places:
            parts = _with_parts(schema, fragments[place].physical_schema, wanted)
            for batch in fragments[place].to_batches(
                schema=parts, columns=self._schema.fieldNames()
            ):
                columns = [
                    as_read(column, field, self._target)
                    for column, field in zip(batch.columns, wanted, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _with_parts(schema: pa.Schema, found: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The schema to read a file with: of a VARIANT all the parts that the file has of it."""
    for field in wanted:
        place = found.get_field_index(field.name)
        if place >= 0 and holds_variant(field.type):
            schema = schema.set(schema.get_field_index(field.name), found.field(place))
    return schema
