"""Declare what the options of several formats have in common.

Each format has a module with one frozen class: its options as fields, and what it refuses.

The options of every text format name encodings, and the stream decodes them: both ask here.
Names are those that Java, Python and the IANA give, in any case.

How strings name dates and times, and what numbers with fractions are.
"""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, Literal

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import OptionGroup, option, options_of
from airflow_cloudfiles.engine.options.values import RefusedOption, ValueKind, boolean, ratio, text

FirstPart = Literal["beginning", "header", "end", "all or end"]


class FormatOptions(OptionGroup):
    """The options that only some formats have."""

    __slots__ = ()
    REFUSED: ClassVar[tuple[RefusedOption, ...]] = ()
    """Documented options that are refused for this format."""
    INFERS_SCHEMA: ClassVar[bool] = True
    """Whether columns are inferred; otherwise they are always the same, but for partitions."""
    HAS_TYPES: ClassVar[bool] = False
    """Whether the fields of a file have types, whatever the options are."""
    HAS_ONLY_STRINGS: ClassVar[bool] = False
    """Whether values are rescued as strings, so that numbers are rescued as JSON strings."""
    HAS_SHEETS: ClassVar[bool] = False
    """Whether rows come from sheets of a file."""
    ROWS_FROM: ClassVar[FirstPart] = "beginning"
    """Which part of a large file is read first, for its rows."""
    SCHEMA_FROM: ClassVar[FirstPart] = "beginning"
    """The same where only the schema is wanted, which some formats keep in one place."""

    @classmethod
    @cache
    def names(cls) -> tuple[str, ...]:
        """Options that `read` reads and the format obeys, as users write them."""
        declared = (*options_of(cls).values(), *cls.WITHOUT_FIELD)
        return tuple(name for each in declared for name in each.names)

    @classmethod
    @cache
    def refused(cls) -> Mapping[str, RefusedOption]:
        """List what is refused for this format, by its name in lower case."""
        return {each.name.lower(): each for each in cls.REFUSED}

    def can_split(self) -> bool:
        """Tell whether large files, not compressed, may be read in parts."""
        return False

    def reads_archives(self) -> bool:
        """Tell whether of an archive its members are read, rather than itself."""
        return True


UTF8: Final = "utf-8"
_NO_TEXT: Final = frozenset(
    {"base64", "bz2", "hex", "quopri", "rot-13", "uu", "zlib", "mbcs", "oem", "undefined"}
    | {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "unicode-internal"}
)
"""What Python calls codecs, but no file is written in."""
_USUAL: Final = (
    *("UTF-8", "UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "UTF-32LE", "UTF-32BE", "US-ASCII"),
    *(f"ISO-8859-{number}" for number in range(1, 17) if number != 12),  # noqa: PLR2004 - none
    *(f"windows-125{number}" for number in range(9)),
    *("KOI8-R", "KOI8-U", "GBK", "GB18030", "Big5", "EUC-JP", "EUC-KR", "Shift_JIS"),
    *("IBM437", "IBM850", "IBM037", "IBM500", "x-MacRoman"),
)
"""What is offered where a name is not known."""


def codec_of(option: str, name: str) -> str:
    """Python's name of the codec for an encoding.

    Args:
        option: The option that names it, for the error.
        name: For instance `UTF-8`, `latin1`, `windows-1252` or `Cp1252`.

    Raises:
        OptionError: There is no such encoding; the text names the nearest.
    """
    for candidate in (name.strip(), name.strip().lower().removeprefix("x-").replace("mac", "mac-")):
        try:
            codec = codecs.lookup(candidate).name
        except (LookupError, ValueError):
            continue
        if codec.replace("_", "-") not in _NO_TEXT:
            return UTF8 if codec == "utf-8-sig" else codec
    spellings = {each.lower(): each for each in _USUAL}
    near = difflib.get_close_matches(name.strip().lower(), spellings, n=2)
    hint = f" Did you mean {' or '.join(spellings[each] for each in near)}?" if near else ""
    raise OptionError(
        f"{option}={name!r} is no encoding of text that is known here.{hint} Give a name such as "
        "UTF-8, UTF-16LE, ISO-8859-1 or windows-1252."
    )


charset: Final = ValueKind("encoding", codec_of, ignores_empty=True)
"""The name of an encoding; its value is Python's name of the codec."""


@cache
def overlaps_itself(separator: bytes) -> bool:
    r"""Tell whether the end of a separator may begin the next one, as in `||` or `\n\n`.

    Of three bars only the first two are a separator then: to know, one must read from the first
    line on, so such a file is not read in parts.
    """
    return any(separator.startswith(separator[-size:]) for size in range(1, len(separator)))


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
