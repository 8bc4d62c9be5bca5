"""Which schema do these Avro files have?

The one in their headers. Where files disagree, fields are added, and types never relaxed (B12): the
first file that has a field, which is the newest of a sample, says its type.
"""

from __future__ import annotations

from typing import cast

from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from airflow_cloudfiles.engine import worker_messages
from airflow_cloudfiles.engine.casing import NameMatcher
from airflow_cloudfiles.engine.formats.avro.reader import AvroFile
from airflow_cloudfiles.engine.formats.base import OpenedFile
from airflow_cloudfiles.engine.formats.columnar.reader import content_of
from airflow_cloudfiles.engine.formats.columnar.types import column_types
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.avro import AvroOptions


class AvroInference:
    """Learns the schema of Avro files.

    Args:
        options: Of the source.
        known: The schema there is already; its fields keep their types.
    """

    def __init__(self, options: CloudFilesOptions, known: StructType | None = None) -> None:
        self._options = cast("AvroOptions", options.format_options)
        self._matcher = options.matcher
        self._learns_all = self._options.merge_schema or known is not None
        self._found = known

    def add_file(self, file: OpenedFile) -> None:
        """Learn from the header of one file.

        Raises:
            FileUnreadableError: It is no Avro file, or has a schema that cannot be read.
        """
        if not file.entry.size or (self._found is not None and not self._learns_all):
            return
        with content_of(file, "Avro") as content:
            schema = StructType(
                column_types(AvroFile(content, self._options).schema, self._matcher)
            )
        self._add(schema)

    def result(self) -> StructType:
        """Every field, in order of appearance."""
        return self._found or StructType()

    def evidence(self) -> bytes:
        """All that is known, for `absorb`."""
        return worker_messages.encode(self._found)

    def absorb(self, evidence: bytes) -> None:
        """Learn what another process learned from the files after those of this one."""
        found = worker_messages.decode(evidence)
        if found is not None and (self._found is None or self._learns_all):
            self._add(found)

    def _add(self, schema: StructType) -> None:
        known = self._found
        self._found = schema if known is None else _merge_fields(known, schema, self._matcher)


def _merge(left: DataType, right: DataType, matcher: NameMatcher) -> DataType:
    """The type on the left, with the fields that only the right one has."""
    if isinstance(left, NullType):
        return right
    if isinstance(left, StructType) and isinstance(right, StructType):
        return _merge_fields(left, right, matcher)
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        return ArrayType(_merge(left.elementType, right.elementType, matcher))
    if isinstance(left, MapType) and isinstance(right, MapType):
        return MapType(left.keyType, _merge(left.valueType, right.valueType, matcher))
    return left


def _merge_fields(left: StructType, right: StructType, matcher: NameMatcher) -> StructType:
    merged = {matcher.key(field.name): field for field in left.fields}
    for field in right.fields:
        key = matcher.key(field.name)
        known = merged.setdefault(key, field)
        kind = _merge(known.dataType, field.dataType, matcher)
        merged[key] = StructField(known.name, kind, True, known.metadata)
    return StructType(list(merged.values()))
