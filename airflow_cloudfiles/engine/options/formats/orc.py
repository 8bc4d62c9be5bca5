"""Which options does ORC have?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from airflow_cloudfiles.engine.options.values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class OrcOptions:
    """The validated options of ORC."""

    NAMES: ClassVar[tuple[str, ...]] = ("mergeSchema",)
    REFUSED: ClassVar[Mapping[str, str]] = {}

    merge_schema: bool = True
    """`mergeSchema`: whether the schema is inferred from all files of the sample, in the widest
    types; false takes the columns of the newest file alone, and others are new columns later."""

    @classmethod
    def parse(cls, read: Values) -> Self:
        """Validate."""
        return cls(merge_schema=read.boolean("mergeSchema", default=True))

    def can_split(self) -> bool:
        """Whether large files may be read in parts: stripes are."""
        return True
