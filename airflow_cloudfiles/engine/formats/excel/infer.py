"""Which columns do these workbooks have, and of which types?

The names are those of the headers of all wanted sheets, in the order of their first appearance; a
sheet without a header has `_c1`, `_c2` and so on. All are strings, for which only headers are read,
unless `cloudFiles.inferColumnTypes` is set; then every cell is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from pyspark.sql.types import DataType, NullType, StructField, StructType

from airflow_cloudfiles.engine import worker_messages
from airflow_cloudfiles.engine.formats.excel.sheets import names_of, tables
from airflow_cloudfiles.engine.formats.excel.types import STRING, TypeFinder
from airflow_cloudfiles.engine.types import is_column_name

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.formats.excel.rows import Rows, Table
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions

__all__ = ["ExcelInference"]


class ExcelInference:
    """Learns the schema of workbooks.

    Args:
        options: Which cells are read, and whether columns are typed.
        known: A schema the files are read with already; what they have besides is appended to it,
            its own types stay.

    Raises:
        OptionError: A pattern, a time zone or a locale that does not exist.
    """

    def __init__(self, options: CloudFilesOptions, known: StructType | None = None) -> None:
        self._own = cast("ExcelOptions", options.format_options)
        self._known = StructType([]) if known is None else known
        self._matcher = options.matcher
        self._fixed = self._matcher.keys(self._known.names)
        self._names: dict[str, str] = {}
        self._types: dict[str, DataType] = {}
        self._finder = TypeFinder(self._own) if options.infer_column_types else None

    def add_file(self, file: OpenedFile) -> None:
        """Learn from one file.

        Raises:
            FileUnreadableError: The file is no workbook, damaged, or lacks the sheet.
        """
        for _, table in tables(file, self._own):
            if self._own.header_rows:
                self._learn_header(table)
            else:
                self._learn_positions(table)

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

    def _learn_header(self, table: Table) -> None:
        names: tuple[str, ...] = ()
        for rows in table.rows():
            if not names:
                names = names_of(table, self._matcher)
                self._learn_names(names)
            if self._finder is None:
                return
            first_of: dict[str, int] = {}
            for place, name in enumerate(names, table.first):
                first_of.setdefault(self._matcher.key(name), place)
            self._learn_types(rows, {place: key for key, place in first_of.items()})
        self._learn_names(names_of(table, self._matcher))

    def _learn_positions(self, table: Table) -> None:
        address = self._own.data_address
        if address.left is not None and address.right is not None:
            self._learn_names(f"_c{each + 1}" for each in range(address.right - address.left + 1))
        for rows in table.rows():
            columns = sorted(set(rows.columns.tolist()))
            self._learn_names(f"_c{each + 1}" for each in columns)
            self._learn_types(rows, {each: self._matcher.key(f"_c{each + 1}") for each in columns})

    def _learn_names(self, names: Iterable[str]) -> None:
        for name in names:
            key = self._matcher.key(name)
            if key not in self._names and key not in self._fixed and is_column_name(name):
                self._names[key] = name
                self._types[key] = STRING if self._finder is None else NullType()

    def _learn_types(self, rows: Rows, keys: dict[int, str]) -> None:
        if self._finder is None:
            return
        for column, cells in rows.by_column():
            key = keys.get(column)
            if key in self._types:
                self._types[key] = self._finder.of(cells, self._types[key])
