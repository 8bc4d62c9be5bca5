"""Which options does binary files have?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from airflow_cloudfiles.engine.options.values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryOptions:
    """The validated options of binary files."""

    NAMES: ClassVar[tuple[str, ...]] = ()
    REFUSED: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def parse(cls, read: Values) -> Self:  # noqa: ARG003 - none yet
        """Validate."""
        return cls()

    def can_split(self) -> bool:
        """Whether large files may be read in parts."""
        return False
