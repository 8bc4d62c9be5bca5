"""Declare the options of CSV, and how their values are written.

Names, defaults and meanings are those of Spark's CSV reader and of Auto Loader; what would lose
values is refused. `docs/decisions/0028-reading-csv.md` says where reading differs from Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, get_args

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.options.declared import Option, option
from airflow_cloudfiles.engine.options.formats.base import (
    UTF8,
    StringValueOptions,
    codec_of,
    complete_prefers_decimal,
)
from airflow_cloudfiles.engine.options.values import (
    GIB,
    RefusedOption,
    ValueKind,
    any_text,
    at_least_zero,
    boolean,
    choice,
    positive,
    record_size,
)

UnescapedQuotes = Literal["STOP_AT_DELIMITER", "STOP_AT_CLOSING_QUOTE", "RAISE_ERROR"]
_QUOTE_HANDLINGS: Final[tuple[UnescapedQuotes, ...]] = get_args(UnescapedQuotes)
_ESCAPED: Final = {"t": "\t", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MOST_LINE_END: Final = 2


def _character(name: str, text: str) -> str:
    if text in {"\\0", "\0", "\\u0000"}:
        return ""
    if len(text) > 1:
        raise OptionError(f"{name} must be one character, got {text!r}.")
    if text and text in "\r\n":
        raise OptionError(f"{name} must not be a line break, got {text!r}.")
    return text


def _column_separator(name: str, text: str) -> str:
    if not text:
        raise OptionError(
            f"{name} must not be empty. Give what stands between two values, or leave it out for a "
            "comma."
        )
    if text == "\\":
        raise OptionError(
            rf"{name} must not be a single backslash, which begins an escape. Write \\ for a "
            "backslash."
        )

    def plain(found: re.Match[str]) -> str:
        if found[1].startswith("u"):
            return chr(int(found[1][1:], 16))
        if found[1] not in _ESCAPED:
            raise OptionError(f"{name} has an unknown escape {found[0]!r}, in {text!r}.")
        return _ESCAPED[found[1]]

    separator = _ESCAPE.sub(plain, text)
    if any(each in separator for each in "\r\n"):
        raise OptionError(f"{name} must not hold a line break, got {text!r}.")
    return separator


def _encoding(name: str, text: str) -> str:
    found = codec_of(name, text)
    return UTF8 if found in {"ascii", UTF8} else found


def _record_separator(name: str, text: str) -> str:
    if not 1 <= len(text) <= _MOST_LINE_END:
        raise OptionError(f"{name} must be one or two characters, got {text!r}.")
    return text


def _longest_value(name: str, text: str) -> int | None:
    return None if text.strip() == "-1" else positive.read(name, text)


def _unescaped_quotes(name: str, text: str) -> UnescapedQuotes:
    if text.upper() in {"SKIP_VALUE", "BACK_TO_DELIMITER"}:
        raise UnsupportedOptionError(
            f"{name}={text.upper()} is not in this version: it drops what the file holds. Choose "
            f"{', '.join(_QUOTE_HANDLINGS[:-1])} or {_QUOTE_HANDLINGS[-1]}."
        )
    return _QUOTES.read(name, text)


_QUOTES: Final = choice(_QUOTE_HANDLINGS)
character: Final = ValueKind("character", _character)
"""One character, or none."""
column_separator: Final = ValueKind("text", _column_separator)
r"""One character or several, with escapes such as `\t` as Spark reads them."""
encoding_of_csv: Final = ValueKind("encoding", _encoding, ignores_empty=True)
"""Python's name of the codec; ASCII is read as the UTF-8 that it is."""
record_separator: Final = ValueKind("text", _record_separator)
"""One or two characters."""
longest_value: Final = ValueKind("number", _longest_value)
"""A whole number of at least 1; `None`, written -1: any length."""
unescaped_quotes: Final = ValueKind(_QUOTES.label, _unescaped_quotes)
"""What is done with a quote that is not escaped."""


_QUOTE = '"'
_BACKSLASH = "\\"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions(StringValueOptions):
    """The validated options of CSV."""

    HAS_ONLY_STRINGS: ClassVar[bool] = True

    sep: str = option("sep", column_separator, default=",", also=("delimiter",))
    r"""What stands between two values: one character or several. `\t` is a tab, `\\` a
    backslash."""
    quote: str = option("quote", character, default=_QUOTE)
    """The character around values that hold a separator; an empty text: there is none."""
    escape: str = option("escape", character, default=_BACKSLASH)
    """What stands before a quote inside a quoted value; `"` for files after RFC 4180, which double
    their quotes."""
    escape_of_escape: str = option(
        "charToEscapeQuoteEscaping",
        character,
        default=_BACKSLASH,
        shown="the character of `escape`, or none when that is the quote",
    )
    """What stands before `escape` where it means itself."""
    comment: str = option("comment", character, default="")
    """Lines that begin with this character are skipped."""
    header: bool | None = option(
        "header",
        boolean,
        default=None,
        shown="`true` when the schema is inferred, `false` when it was given",
    )
    """Whether the first line of each file names its columns (B8)."""
    skip_rows: int = option("skipRows", at_least_zero, default=0)
    """Number of lines at the beginning of each file that are skipped, before the header."""
    multi_line: bool = option("multiLine", boolean, default=False)
    """Whether a quoted value may hold line breaks. Files are not read in parts then."""
    encoding: str = option("encoding", encoding_of_csv, default=UTF8, also=("charset",))
    """Encoding of the files, for instance `UTF-16` or `ISO-8859-1`. Only UTF-8 is read in parts."""
    line_sep: str | None = option(
        "lineSep", record_separator, default=None, shown=r"`\n`, `\r\n` or `\r`"
    )
    """One or two characters that end a line."""
    null_value: str = option("nullValue", any_text, default="", shown="the empty text")
    """The text that stands for null, also in quotes."""
    empty_value: str = option("emptyValue", any_text, default="", shown="the empty text")
    """What an empty quoted value (`""`) is read as. The empty text is null unless `nullValue` is
    something else."""
    nan_value: str = option("nanValue", any_text, default="NaN")
    """The text for "not a number" in float and double columns."""
    positive_inf: str = option("positiveInf", any_text, default="Inf")
    """The text for infinity."""
    negative_inf: str = option("negativeInf", any_text, default="-Inf")
    """The text for minus infinity."""
    prefer_date: bool = option("preferDate", boolean, default=True)
    """Whether inference finds dates; otherwise they are timestamps. Needs
    `cloudFiles.inferColumnTypes`."""
    trims_start: bool = option("ignoreLeadingWhiteSpace", boolean, default=False)
    """Whether blanks before a value are removed."""
    trims_end: bool = option("ignoreTrailingWhiteSpace", boolean, default=False)
    """Whether blanks after a value are removed."""
    max_columns: int = option("maxColumns", positive, default=20480)
    """A record with more values is not valid."""
    max_chars: int | None = option("maxCharsPerColumn", longest_value, default=None, shown="`-1`")
    """A record with a longer value is not valid; -1: any length."""
    max_record_bytes: int = option("maxRecordBytes", record_size, default=GIB, shown="1g")
    """The most bytes of a record; `1g` at most. Ours.
    A small compressed file may describe a record of any size, and reading it takes about five times
    as much memory."""
    unescaped_quotes: UnescapedQuotes = option(
        "unescapedQuoteHandling", unescaped_quotes, default="STOP_AT_DELIMITER"
    )
    """What a quote inside a quoted value does that is not escaped: `STOP_AT_DELIMITER` takes the
    text up to the next separator as it stands, `STOP_AT_CLOSING_QUOTE` continues to the closing
    quote, `RAISE_ERROR` makes the record one that is not valid."""

    WITHOUT_FIELD: ClassVar[tuple[Option[Any], ...]] = (
        Option(
            name="enforceSchema",
            kind=boolean,
            default=True,
            doc="Accepted and without effect, as with Auto Loader.",
        ),
    )
    REFUSED: ClassVar[tuple[RefusedOption, ...]] = (
        RefusedOption(
            "inferSchema",
            "types are inferred with cloudFiles.inferColumnTypes=true. Set that.",
            accepts=("false",),
        ),
        RefusedOption(
            "samplingRatio",
            "the sample is chosen with cloudFiles.schemaInference.sampleSize.numFiles and "
            "cloudFiles.schemaInference.sampleSize.numBytes. Set these.",
            accepts=("1", "1.0"),
        ),
        RefusedOption(
            "parserCaseSensitive",
            "its name is readerCaseSensitive today. Set that.",
            accepts=("true",),
        ),
        RefusedOption(
            "enableDateTimeParsingFallback",
            "without a pattern dates and timestamps are read as Spark's cast reads them, with a "
            "pattern only by the pattern. Remove it.",
            accepts=("false",),
        ),
        RefusedOption(
            "mergeSchema",
            "the columns of all sampled files are merged. Remove it, and name the columns with "
            "cloudFiles.schemaHints or .schema(...).",
            accepts=("true",),
        ),
        RefusedOption(
            "singleVariantColumn",
            "a CSV record has columns. Read them as strings, or as JSON or XML files into one "
            "VARIANT column.",
        ),
        RefusedOption("inputBufferSize", "the reader here has no such buffer. Remove it."),
    )

    def can_split(self) -> bool:
        """Tell whether large files may be read in parts: only where each line is a record."""
        is_one_byte = self.line_sep is None or len(self.line_sep.encode()) == 1
        return not self.multi_line and is_one_byte and self.encoding == UTF8

    @classmethod
    def _complete(cls, values: dict[str, Any], given: Mapping[str, str]) -> None:
        complete_prefers_decimal(values, given)
        escape = values.get("escape", _BACKSLASH)
        if not values.get("escape_of_escape"):
            is_quote = escape == values.get("quote", _QUOTE)
            values["escape_of_escape"] = "" if is_quote else escape

    def _check(self) -> None:
        """Refuse a character that means two things."""
        if self.quote and self.quote in self.sep:
            raise OptionError(
                f"sep={self.sep!r} and quote={self.quote!r} contradict each other: one character "
                "cannot be both. Change one of them."
            )
        if self.line_sep is not None and self.line_sep in self.sep:
            raise OptionError(
                f"sep={self.sep!r} and lineSep={self.line_sep!r} contradict each other: one text "
                "cannot be both. Change one of them."
            )
        if self.multi_line and self.line_sep not in {None, "\n"}:
            raise OptionError(
                f"multiLine=true and lineSep={self.line_sep!r} contradict each other: values would "
                "be changed. Leave lineSep out; what ends the first line ends every line."
            )
