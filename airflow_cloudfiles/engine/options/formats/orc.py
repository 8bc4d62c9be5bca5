"""Which options does ORC have?"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.values import boolean


@dataclass(frozen=True, slots=True, kw_only=True)
class OrcOptions(FormatOptions):
    """The validated options of ORC."""

    merge_schema: bool = option("mergeSchema", boolean, default=True)
    """Whether the schema is inferred from all files of the sample, in the widest types; false takes
    the columns of the newest file alone, and others are new columns later."""

    def can_split(self) -> bool:
        """Whether large files may be read in parts: stripes are."""
        return True
