"""Which columns do these workbooks have, and of which types?

The names are those of the headers of all wanted sheets, in the order of their first appearance; a
sheet without a header has `_c1`, `_c2` and so on. All are strings, for which only headers are read,
unless `cloudFiles.inferColumnTypes` is set; then every cell is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from airflow_cloudfiles.engine.formats.excel.sheets import names_of, tables
from airflow_cloudfiles.engine.formats.excel.types import TypeFinder
from airflow_cloudfiles.engine.formats.tables.inference import TableInference

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.formats.excel.rows import Rows, Table
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions

__all__ = ["ExcelInference"]


class ExcelInference(TableInference["Rows"]):
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
        finder = TypeFinder(self._own) if options.infer_column_types else None
        super().__init__(options, known, finder)

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

    def _learn_types(self, rows: Rows, keys: dict[int, str]) -> None:
        if self._finder is None:
            return
        for column, cells in rows.by_column():
            self._learn_type(keys.get(column), cells)
