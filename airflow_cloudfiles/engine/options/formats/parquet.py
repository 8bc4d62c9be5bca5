"""Which options does Parquet have?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.values import GIB, boolean, choice, record_size

RebaseMode = Literal["CORRECTED", "EXCEPTION", "LEGACY"]
REBASE_MODES: tuple[RebaseMode, ...] = ("CORRECTED", "EXCEPTION", "LEGACY")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions(FormatOptions):
    """The validated options of Parquet."""

    merge_schema: bool = option("mergeSchema", boolean, default=True)
    """Whether the schema is inferred from all files of the sample, in the widest types; false takes
    the columns of the newest file alone, and others are new columns later."""
    datetime_rebase_mode: RebaseMode = option(
        "datetimeRebaseMode", choice(REBASE_MODES), default="CORRECTED"
    )
    """What dates before 1582-10-15 and timestamps before 1900 are in files that do not name their
    calendar (Spark's own do): `CORRECTED` reads them as they are, `LEGACY` takes them for the
    hybrid calendar of Hive and Spark 2, `EXCEPTION` refuses the file."""
    int96_rebase_mode: RebaseMode = option(
        "int96RebaseMode", choice(REBASE_MODES), default="CORRECTED"
    )
    """The same for timestamps stored as INT96."""
    max_record_bytes: int = option("maxRecordBytes", record_size, default=GIB, shown="1g")
    """The most bytes that a record may take in memory, with the pages that it is in; `1g` at most.
    Ours. Rows are read so many at a time that they take some 64 MB, or a single one."""

    def can_split(self) -> bool:
        """Whether large files may be read in parts: row groups are."""
        return True
