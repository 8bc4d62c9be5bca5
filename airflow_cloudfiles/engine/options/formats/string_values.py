"""Which options do formats have in common whose values are strings?

How strings name dates and times, and what numbers with fractions are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.values import boolean, ratio, text


@dataclass(frozen=True, slots=True, kw_only=True)
class StringValueOptions(FormatOptions):
    """What formats have in common whose values are strings."""

    date_format: str | None = option(
        "dateFormat", text, default=None, shown="what Spark's cast takes, such as `2024-01-31`"
    )
    """Pattern of dates, for instance `dd.MM.yyyy`."""
    timestamp_format: str | None = option(
        "timestampFormat",
        text,
        default=None,
        shown="what Spark's cast takes, such as `2024-01-31T12:30:59Z`",
    )
    """Pattern of timestamps."""
    timestamp_ntz_format: str | None = option(
        "timestampNTZFormat",
        text,
        default=None,
        shown="what Spark's cast takes, such as `2024-01-31T12:30:59`",
    )
    """Pattern of timestamps without a zone."""
    time_zone: str | None = option("timeZone", text, default=None, shown="`UTC`")
    """Zone of timestamps that name none, for instance `Europe/Paris`, whatever
    `spark.sql.session.timeZone` is."""
    locale: str | None = option("locale", text, default=None, shown="`en-US`")
    """Language of names of months and days in patterns, and of decimals in strings, as a tag such
    as `de-DE`."""
    prefers_decimal: bool = option("prefersDecimal", boolean, default=False)
    """Whether inferred fractions are decimals, where they fit, rather than doubles. True, and not
    to be changed, with `addNewColumnsWithTypeWidening`."""

    @classmethod
    def _complete(cls, values: dict[str, Any], given: Mapping[str, str]) -> None:
        complete_prefers_decimal(values, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedValueOptions(StringValueOptions):
    """What JSON and XML have in common."""

    date_format: str | None = option("dateFormat", text, default=None, shown="ISO 8601")
    """Pattern of dates, for instance `dd.MM.yyyy`."""
    timestamp_format: str | None = option(
        "timestampFormat", text, default=None, shown="ISO 8601, also abbreviated"
    )
    """Pattern of timestamps."""
    timestamp_ntz_format: str | None = option(
        "timestampNTZFormat", text, default=None, shown="ISO 8601"
    )
    """Pattern of timestamps without a zone."""
    sampling_ratio: float = option("samplingRatio", ratio, default=1.0)
    """Share of the records of the sampled files that inference reads."""


def complete_prefers_decimal(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Add the default of `prefersDecimal`: true, and nothing else, where types are to widen (B64).

    Raises:
        OptionError: It is false where types are to widen.
    """
    mode = given.get("cloudfiles.schemaevolutionmode", "")
    if mode.lower() != "addnewcolumnswithtypewidening":
        return
    if not values.setdefault("prefers_decimal", True):
        raise OptionError(
            "prefersDecimal=false is not allowed with cloudFiles.schemaEvolutionMode="
            "addNewColumnsWithTypeWidening: a double cannot be widened. Leave prefersDecimal out."
        )
