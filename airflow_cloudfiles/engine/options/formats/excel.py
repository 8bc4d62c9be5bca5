"""Which options do workbooks have?

Names, defaults and meanings are those of Databricks' reader of Excel files;
`docs/decisions/0139-reading-excel.md` says where reading differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import StringValueOptions
from airflow_cloudfiles.engine.options.formats.excel_address import Address, data_address
from airflow_cloudfiles.engine.options.refusals import Refused
from airflow_cloudfiles.engine.options.values import Kind, choice, record_size, text

Operation = Literal["readSheet", "listSheets"]
_OPERATIONS: Final[tuple[Operation, ...]] = ("readSheet", "listSheets")
_MEBIBYTE: Final = 2**20


def _header_rows(name: str, given: str) -> int:
    if given.strip() not in {"0", "1"}:
        raise OptionError(
            f"{name} must be 0 or 1, got {given!r}. Leave the rows above the header out with "
            "dataAddress, for instance A3:F."
        )
    return int(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcelOptions(StringValueOptions):
    """The validated options of workbooks."""

    data_address: Address = option(
        "dataAddress", data_address, default=Address(), shown="all of the first sheet"
    )
    """The cells that are read, as Excel writes them: `Sheet1`, `C5:H10`, `Sheet1!C5:H10` or
    `'My sheet'!C5:H10`. Ours besides: `B:F`, `3:10`, `B3:F` (open below), and a pattern for several
    sheets, `Sales *` or `'Sales *'!A3:F`, whose names `_metadata.sheet_name` gives."""
    header_rows: int = option("headerRows", Kind("0 or 1", _header_rows), default=0)
    """How many of the first rows name the columns: 0 or 1. With 0 the columns are those of a given
    schema in their order, or else `_c1`, `_c2` and so on."""
    operation: Operation = option("operation", choice(_OPERATIONS), default="readSheet")
    """What is read: the cells of sheets, or with `listSheets` a row for each sheet of each file,
    with `sheetIndex BIGINT` (from 0) and `sheetName STRING`."""
    date_format: str | None = option(
        "dateFormat", text, default=None, shown="what Spark's cast takes, such as `2024-01-31`"
    )
    """Pattern of dates in cells of text, as the other patterns. Cells that Excel shows as dates
    need none."""
    time_zone: str | None = option("timeZone", text, default=None, shown="`UTC`")
    """Zone of timestamps, whatever `spark.sql.session.timeZone` is: workbooks name none. Ours, as
    are `locale` and `prefersDecimal`."""
    max_record_bytes: int = option(
        "maxRecordBytes", record_size, default=256 * _MEBIBYTE, shown="256m"
    )
    """The most bytes of text that is held of one workbook, which keeps the texts of all its sheets
    in one place; `1g` at most. A small file may hold any amount. Ours."""

    REFUSED: ClassVar[tuple[Refused, ...]] = (
        Refused(
            "inferSchema",
            "types are inferred with cloudFiles.inferColumnTypes=true. Set that.",
            accepts=("false",),
        ),
        Refused("header", "its name is headerRows in Excel. Set that to 0 or 1."),
        Refused(
            "singleVariantColumn",
            "a row of a sheet has columns. Read them as strings, or as JSON or XML files into one "
            "VARIANT column.",
        ),
    )

    @property
    def lists_sheets(self) -> bool:
        """Whether rows are sheets."""
        return self.operation == "listSheets"
