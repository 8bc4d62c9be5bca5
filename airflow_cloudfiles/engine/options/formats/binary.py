"""Which options do binary files have?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from airflow_cloudfiles.engine.options.formats.base import FormatOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryOptions(FormatOptions):
    """The validated options of binary files: there are none."""

    INFERS_SCHEMA: ClassVar[bool] = False
