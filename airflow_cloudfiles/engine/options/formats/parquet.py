"""Which options does Parquet have?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from airflow_cloudfiles.engine.options.values import Values

RebaseMode = Literal["CORRECTED", "EXCEPTION", "LEGACY"]
REBASE_MODES: tuple[RebaseMode, ...] = ("CORRECTED", "EXCEPTION", "LEGACY")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions:
    """The validated options of Parquet."""

    NAMES: ClassVar[tuple[str, ...]] = ("datetimeRebaseMode", "int96RebaseMode", "mergeSchema")
    REFUSED: ClassVar[Mapping[str, str]] = {}

    merge_schema: bool = True
    """`mergeSchema`: whether the schema is inferred from all files of the sample, in the widest
    types; false takes the columns of the newest file alone, and others are new columns later."""
    datetime_rebase_mode: RebaseMode = "CORRECTED"
    """`datetimeRebaseMode`: dates before 1582-10-15 and timestamps before 1900 in files that do not
    tell their calendar (Spark's own do): `CORRECTED` reads them as they are, `LEGACY` takes them
    for the hybrid calendar of Hive and Spark 2, `EXCEPTION` refuses the file."""
    int96_rebase_mode: RebaseMode = "CORRECTED"
    """`int96RebaseMode`: the same for timestamps stored as INT96."""

    @classmethod
    def parse(cls, read: Values) -> Self:
        """Validate."""
        return cls(
            merge_schema=read.boolean("mergeSchema", default=True),
            datetime_rebase_mode=read.choice("datetimeRebaseMode", REBASE_MODES, "CORRECTED"),
            int96_rebase_mode=read.choice("int96RebaseMode", REBASE_MODES, "CORRECTED"),
        )

    def can_split(self) -> bool:
        """Whether large files may be read in parts: row groups are."""
        return True
