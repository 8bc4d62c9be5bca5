"""Does a number format show a date, a time, or a number?

Workbooks hold dates as numbers; only the format of a cell tells.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from airflow_cloudfiles.engine.formats.excel.cells import Kind

_BUILT_IN: Final[Mapping[int, Kind]] = {
    **dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 59)), Kind.DATE),
    **dict.fromkeys((18, 19, 20, 21, 45, 47, *range(32, 36)), Kind.TIME),
    22: Kind.TIMESTAMP,
    46: Kind.DURATION,
}
"""Formats that have numbers alone (ECMA-376, 18.8.30), of all languages."""
_DURATION: Final = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_NO_CODE: Final = re.compile(r'"[^"]*"?|\\.|_.|\*.|\[[^\]]*\]', re.DOTALL)
"""Texts, escaped characters, spaces of a width, fillers, colors, conditions and languages."""
_TEXTS: Final = re.compile(r'"[^"]*"?|\\.')
_AM_PM: Final = re.compile(r"am/pm|a/p", re.IGNORECASE)


def built_in(number: int) -> Kind:
    """What a format shows that has a number alone."""
    return _BUILT_IN.get(number, Kind.NUMBER)


@lru_cache(maxsize=1024)
def shown_by(code: str) -> Kind:
    """What a format shows, by its code such as `yyyy-mm-dd`."""
    if code.strip().lower() == "general":
        return Kind.NUMBER
    if _DURATION.search(_TEXTS.sub("", code)):
        return Kind.DURATION
    first, _, _ = _NO_CODE.sub("", code).partition(";")
    letters = set(_AM_PM.sub("h", first).lower())
    has_time = bool(letters & {"h", "s"})
    has_date = bool(letters & {"y", "d"}) or ("m" in letters and not has_time)
    if letters & {"#", "?"} or ("0" in letters and not has_time and not letters & {"y", "d"}):
        return Kind.NUMBER
    if has_date:
        return Kind.TIMESTAMP if has_time else Kind.DATE
    return Kind.TIME if has_time else Kind.NUMBER
