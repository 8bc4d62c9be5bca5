"""How is the name of a column written, so that it cannot be taken for another?

`a.b` is the field `b` of column `a`; a column that is called `a.b` is written in backquotes, as in
Spark's DDL and in `cloudFiles.schemaHints`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIRST: Final = re.compile(r"`((?:[^`]|``)*)`|[^.]*")
_PART: Final = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def quoted(name: str) -> str:
    """A name as DDL has it: in backquotes unless it is plain letters, digits and `_`."""
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def dotted(path: Iterable[str]) -> str:
    """A path to a field, each part quoted where it needs to be."""
    return ".".join(map(quoted, path))


def column_of(path: str) -> str:
    """The name of the column that a dotted path begins with."""
    found = _FIRST.match(path)
    if found is None or found[1] is None:
        return path.partition(".")[0]
    return found[1].replace("``", "`")


def parts_of(path: str) -> tuple[str, ...]:
    """The names on a path that `dotted` has written."""
    found = _PART.finditer(path)
    return tuple(each[2] or each[1].replace("``", "`") for each in found)
