"""Which options of inference do formats without types share?"""

from __future__ import annotations

import re
from typing import Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.values import Values

_RATIO: Final = re.compile(r"\d{0,3}(?:\.\d{1,17})?")


def prefers_decimal(read: Values) -> bool:
    """`prefersDecimal`: false by default; true, and nothing else, where types are to widen (B64).

    Raises:
        OptionError: It is no boolean, or false where types are to widen.
    """
    mode = read.raw("cloudFiles.schemaEvolutionMode") or ""
    widens = mode.lower() == "addnewcolumnswithtypewidening"
    prefers = read.boolean("prefersDecimal", default=widens)
    if widens and not prefers:
        raise OptionError(
            "prefersDecimal=false is not allowed with cloudFiles.schemaEvolutionMode="
            "addNewColumnsWithTypeWidening: a double cannot be widened. Leave prefersDecimal out."
        )
    return prefers


def sampling_ratio(read: Values) -> float:
    """`samplingRatio`: a share above 0, at most 1, which is the default.

    Raises:
        OptionError: It is no such number.
    """
    given = (read.text("samplingRatio") or "1").strip()
    ratio = float(given) if given and _RATIO.fullmatch(given) else 0.0
    if not 0 < ratio <= 1:
        raise OptionError(
            f"samplingRatio must be a number above 0 and at most 1, such as 0.1; got {given!r}."
        )
    return ratio
