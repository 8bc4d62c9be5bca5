"""Which columns do files have whose records are rows of a table, and of which types?

The names are those of the headers of all files, in the order of their first appearance (B9). All
are strings, unless `cloudFiles.inferColumnTypes` is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from pyspark.sql.types import DataType, NullType, StringType, StructField, StructType

from airflow_cloudfiles.engine import worker_messages
from airflow_cloudfiles.engine.types import is_column_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

STRING: Final = StringType()
Values_contra = TypeVar("Values_contra", contravariant=True)
"""Values of one column, as a format has them."""


class TypeFinder(Protocol[Values_contra]):
    """Finds the types of values."""

    def of(self, values: Values_contra, known: DataType, /) -> DataType:
        """The type that holds these values and what is of a known type."""

    def merge(self, left: DataType, right: DataType) -> DataType:
        """The type that holds the values of both."""


class TableInference(Generic[Values_contra]):
    """Learns the schema of files.

    Args:
        options: Of the source.
        known: A schema the files are read with already; what they have besides is appended to it,
            its own types stay.
        finder: Finds the types of columns; `None` where all are strings.
    """

    def __init__(
        self,
        options: CloudFilesOptions,
        known: StructType | None,
        finder: TypeFinder[Values_contra] | None,
    ) -> None:
        self._known = StructType([]) if known is None else known
        self._matcher = options.matcher
        self._fixed = self._matcher.keys(self._known.names)
        self._names: dict[str, str] = {}
        self._types: dict[str, DataType] = {}
        self._finder = finder

    def result(self) -> StructType:
        """What is known: `NullType` where no value has shown the type."""
        new = [StructField(name, self._types[key]) for key, name in self._names.items()]
        return StructType([*self._known.fields, *new])

    def evidence(self) -> bytes:
        """All that is known, for `absorb`."""
        return worker_messages.encode((self._names, self._types))

    def absorb(self, evidence: bytes) -> None:
        """Learn what another process learned from the files after those of this one."""
        names, types = worker_messages.decode(evidence)
        self._learn_names(names.values())
        if self._finder is not None:
            for key, kind in types.items():
                self._types[key] = self._finder.merge(self._types[key], kind)

    def _learn_names(self, names: Iterable[str]) -> None:
        for name in names:
            key = self._matcher.key(name)
            if key not in self._names and key not in self._fixed and is_column_name(name):
                self._names[key] = name
                self._types[key] = STRING if self._finder is None else NullType()

    def _learn_type(self, key: str | None, values: Values_contra) -> None:
        """Learn from values of a column, unless its type is known."""
        if self._finder is not None and key in self._types:
            self._types[key] = self._finder.of(values, self._types[key])
