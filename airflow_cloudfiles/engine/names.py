"""Compare names of columns without their case, and quote them in DDL.

They are, as everywhere in Spark, unless the session is case-sensitive (`spark.sql.caseSensitive`):
then they are two (B16). Which rule holds is an option of the stream (`CloudFilesOptions.matcher`),
and is handed on to whatever compares names. What has no such choice, such as the columns of a Delta
table, uses `CASE_INSENSITIVE`.

`a.b` is the field `b` of column `a`; a column that is called `a.b` is written in backquotes, as in
Spark's DDL and in `cloudFiles.schemaHints`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructField, StructType


@dataclass(frozen=True, slots=True)
class NameMatcher:
    """Compares the names of columns and fields.

    Attributes:
        case_sensitive: Whether names that differ only in case are two.
    """

    case_sensitive: bool = False

    @property
    def key(self) -> Callable[[str], str]:
        """Gives the form of a name under which all spellings of one column are equal.

        A loop over many names takes this function once: the call then costs what `str.lower` costs.
        """
        return str if self.case_sensitive else str.lower

    def keys(self, names: Iterable[str]) -> frozenset[str]:
        """Compute the keys of names."""
        return frozenset(map(self.key, names))

    def same(self, one: str, other: str) -> bool:
        """Tell whether two names are spellings of one column."""
        return one == other or self.key(one) == self.key(other)

    def positions(self, schema: StructType) -> dict[str, int]:
        """Map the key of each field to its position; of fields with one key, that of the first."""
        key = self.key
        positions: dict[str, int] = {}
        for position, field in enumerate(schema.fields):
            positions.setdefault(key(field.name), position)
        return positions

    def find(self, schema: StructType, name: str) -> StructField | None:
        """Find the field of a name; `None` when there is none."""
        wanted, key = self.key(name), self.key
        return next((field for field in schema.fields if key(field.name) == wanted), None)


CASE_INSENSITIVE: Final = NameMatcher(case_sensitive=False)
"""Spark's default, and the rule wherever there is no choice."""
CASE_SENSITIVE: Final = NameMatcher(case_sensitive=True)


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIRST: Final = re.compile(r"`((?:[^`]|``)*)`|[^.]*")
_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def quoted(name: str) -> str:
    """Quote a name for DDL: in backquotes unless it is plain letters, digits and `_`."""
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def dotted(path: Iterable[str]) -> str:
    """Format a path to a field, each part quoted where it needs to be."""
    return ".".join(map(quoted, path))


def column_of(path: str) -> str:
    """Return the name of the column that a dotted path begins with."""
    found = _FIRST.match(path)
    if found is None or found[1] is None:
        return path.partition(".")[0]
    return found[1].replace("``", "`")


def parts_of(path: str) -> tuple[str, ...]:
    """Split the names on a path that `dotted` has written."""
    found = _PART.finditer(path)
    return tuple(each[2] or each[1].replace("``", "`") for each in found)
