"""What do the options of all formats have in common?

Each format has a module with one frozen class: its options as fields, and what it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from airflow_cloudfiles.engine.options.declared import OptionGroup, options_of
from airflow_cloudfiles.engine.options.refusals import Refused


class FormatOptions(OptionGroup):
    """The options that only some formats have."""

    __slots__ = ()
    REFUSED: ClassVar[tuple[Refused, ...]] = ()
    """Documented options that are refused for this format."""
    INFERS_SCHEMA: ClassVar[bool] = True
    """Whether columns are inferred; otherwise they are always the same, but for partitions."""

    @classmethod
    @cache
    def names(cls) -> tuple[str, ...]:
        """Options that `read` reads and the format obeys, as users write them."""
        declared = (*options_of(cls).values(), *cls.WITHOUT_FIELD)
        return tuple(name for each in declared for name in each.names)

    @classmethod
    @cache
    def refused(cls) -> Mapping[str, Refused]:
        """What is refused for this format, by its name in lower case."""
        return {each.name.lower(): each for each in cls.REFUSED}

    def can_split(self) -> bool:
        """Whether large files, not compressed, may be read in parts."""
        return False
