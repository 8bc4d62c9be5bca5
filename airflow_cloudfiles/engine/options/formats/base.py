"""What do the options of all formats have in common?

Each format has a module with one frozen class: its options under their Python names, each told in
the text below it (`docs/generate_options.py` makes the reference from these).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self, runtime_checkable

from airflow_cloudfiles.engine.options.values import Values


@runtime_checkable
class FormatOptions(Protocol):
    """The options that only some formats have."""

    NAMES: ClassVar[tuple[str, ...]]
    """Options that `parse` reads and the format obeys, as users write them."""
    REFUSED: ClassVar[Mapping[str, str]]
    """Documented options that are refused for this format, with the reason and what to do."""

    @classmethod
    def parse(cls, read: Values) -> Self:
        """Validate.

        Raises:
            OptionError: A value of the wrong kind, or options that contradict each other.
        """

    def can_split(self) -> bool:
        """Whether large files, not compressed, may be read in parts."""
