"""Which options does ORC have?"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.values import GIB, boolean, record_size


@dataclass(frozen=True, slots=True, kw_only=True)
class OrcOptions(FormatOptions):
    """The validated options of ORC."""

    merge_schema: bool = option("mergeSchema", boolean, default=True)
    """Whether the schema is inferred from all files of the sample, in the widest types; false takes
    the columns of the newest file alone, and others are new columns later."""
    max_record_bytes: int = option("maxRecordBytes", record_size, default=GIB, shown="1g")
    """The most bytes of the numbers of a stripe in memory, unless the file has a thousandth of
    them: a stripe is read as a whole; `1g` at most. Ours. What strings take is not limited."""

    def can_split(self) -> bool:
        """Whether large files may be read in parts: stripes are."""
        return True
