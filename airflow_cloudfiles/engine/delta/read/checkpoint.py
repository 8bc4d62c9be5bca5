"""What does a checkpoint of a Delta table's log say?

A checkpoint has one row for each file of the table, and a few rows for everything else. Opening a
table needs those few only, so the rows of files stay columns until somebody asks for the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.delta.read.actions import (
    Action,
    AddFile,
    DeletionVector,
    RemoveFile,
)

_OF_FILES: Final = {
    "add": ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector"),
    "remove": ("path", "deletionTimestamp", "dataChange", "deletionVector"),
}
"""What is read of a file: its statistics would take most of the memory."""
_OTHERS: Final = ("metaData", "protocol", "sidecar")


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """A checkpoint, or a part of one.

    Attributes:
        others: All that is not about a file.
        added: The files of the table, as columns.
        removed: Files that it had before, as columns.
    """

    others: Sequence[Action]
    added: pa.StructArray | None = None
    removed: pa.StructArray | None = None

    @classmethod
    def read(cls, content: IO[bytes]) -> CheckpointPart:
        """Read a file of Parquet.

        Raises:
            pa.ArrowException: It is damaged.
            msgspec.ValidationError: It is not written as the protocol has it.
        """
        parquet = pq.ParquetFile(content, arrow_extensions_enabled=False)
        there = set(parquet.schema_arrow.names)
        wanted = [f"{name}.{each}" for name, fields in _OF_FILES.items() for each in fields]
        wanted = [each for each in (*wanted, *_OTHERS) if each.partition(".")[0] in there]
        table = parquet.read(columns=wanted)
        rows = {name: _there(table, name) for name in (*_OF_FILES, *_OTHERS)}
        others = [
            msgspec.convert({name: without_nulls(row)}, Action)
            for name in _OTHERS
            for row in _pylist(rows[name])
        ]
        return cls(others, _checked(rows["add"], "size"), _checked(rows["remove"]))

    @classmethod
    def of_actions(cls, actions: Sequence[Action]) -> CheckpointPart:
        """The same for a checkpoint that is not columnar."""
        return cls(actions)

    def files(self) -> Iterator[AddFile]:
        """The files of the table."""
        yield from (each.add for each in self.others if each.add is not None)
        if self.added is not None:
            yield from _files(self.added)

    def gone(self) -> Iterator[RemoveFile]:
        """Files that it had before."""
        yield from (each.remove for each in self.others if each.remove is not None)
        if self.removed is not None:
            yield from _removed(self.removed)


def without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """An action of a checkpoint without the fields that JSON would leave out."""
    return {name: value for name, value in fields.items() if value is not None}


def _there(table: pa.Table, name: str) -> pa.StructArray | None:
    """The actions of one kind; `None` where the checkpoint has no column for them."""
    if name not in table.column_names:
        return None
    found = table.column(name).drop_null().combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _pylist(rows: pa.StructArray | None) -> list[dict[str, Any]]:
    return [] if rows is None else rows.to_pylist(maps_as_pydicts="strict")


def _checked(rows: pa.StructArray | None, *required: str) -> pa.StructArray | None:
    """Refuse files without what each must have, before somebody relies on the checkpoint."""
    if rows is None:
        return None
    for name in ("path", *required):
        if name not in rows.type.names or rows.field(name).null_count:
            raise msgspec.ValidationError(f"a file has no {name}")
    for name, is_of in _KINDS.items():
        if name in rows.type.names and not is_of(rows.field(name).type):
            raise msgspec.ValidationError(f"{name} is a {rows.field(name).type}")
    return rows


_KINDS: Final = {
    "path": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    "size": pa.types.is_integer,
    "modificationTime": pa.types.is_integer,
    "deletionTimestamp": pa.types.is_integer,
    "dataChange": pa.types.is_boolean,
    "partitionValues": pa.types.is_map,
    "deletionVector": pa.types.is_struct,
}


def _files(rows: pa.StructArray) -> Iterator[AddFile]:
    return map(
        AddFile,
        _values(rows, "path"),
        _values(rows, "size"),
        _partitions(rows),
        _values(rows, "modificationTime", 0),
        _values(rows, "dataChange", True),
        _vectors(rows),
    )


def _removed(rows: pa.StructArray) -> Iterator[RemoveFile]:
    return map(
        RemoveFile,
        _values(rows, "path"),
        _values(rows, "deletionTimestamp"),
        _values(rows, "dataChange", True),
        _vectors(rows),
    )


def _values(rows: pa.StructArray, name: str, default: object = None) -> list[Any]:
    """A column; what is null, or was not written, is the default."""
    if name not in rows.type.names:
        return [default] * len(rows)
    # Not pyarrow's fill_null, which imports pandas.
    return [default if each is None else each for each in rows.field(name).to_pylist()]


def _partitions(rows: pa.StructArray) -> list[dict[str, str | None]]:
    """The partition values of each file; a table without partitions has one dictionary for all."""
    if "partitionValues" not in rows.type.names:
        return [{}] * len(rows)
    column = rows.field("partitionValues")
    if not len(column.keys):
        return [{}] * len(rows)
    return [each or {} for each in column.to_pylist(maps_as_pydicts="strict")]


def _vectors(rows: pa.StructArray) -> list[DeletionVector | None]:
    if "deletionVector" not in rows.type.names:
        return [None] * len(rows)
    column = rows.field("deletionVector")
    # Where there is none, some writers have a struct of nulls.
    if column.field("storageType").null_count == len(column):
        return [None] * len(rows)
    return [
        msgspec.convert(without_nulls(each), DeletionVector)
        if each is not None and each["storageType"] is not None
        else None
        for each in column.to_pylist()
    ]
