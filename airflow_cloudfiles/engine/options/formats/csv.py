"""Which options does CSV have?

Names, defaults and meanings are those of Spark's CSV reader and of Auto Loader; what would lose
values is refused. `docs/decisions/0028-reading-csv.md` says where reading differs from Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.options.formats.charsets import UTF8, codec_of
from airflow_cloudfiles.engine.options.formats.inferring import prefers_decimal
from airflow_cloudfiles.engine.options.values import Values

UnescapedQuotes = Literal["STOP_AT_DELIMITER", "STOP_AT_CLOSING_QUOTE", "RAISE_ERROR"]
_QUOTE_HANDLINGS: tuple[UnescapedQuotes, ...] = (
    "STOP_AT_DELIMITER",
    "STOP_AT_CLOSING_QUOTE",
    "RAISE_ERROR",
)
_ESCAPED = {"t": "\t", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_MOST_LINE_END = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """The validated options of CSV."""

    sep: str = ","
    r"""`sep` (or `delimiter`): what stands between two values: one character or several. `\t` is a
    tab, `\\` a backslash. Default `,`."""
    quote: str = '"'
    """`quote`: the character around values that hold a separator; an empty text: there is none.
    Default `"`."""
    escape: str = "\\"
    r"""`escape`: what stands before a quote inside a quoted value; `"` for files after RFC 4180,
    which double their quotes. Default `\`."""
    escape_of_escape: str = "\\"
    r"""`charToEscapeQuoteEscaping`: what stands before `escape` where it means itself. Default: the
    character of `escape`, or none when that is the quote."""
    comment: str = ""
    """`comment`: lines that begin with this character are passed over. Default: there is none."""
    header: bool | None = None
    """`header`: whether the first line of each file names its columns. Default: true when the
    schema is inferred (B8), false when it was given."""
    skip_rows: int = 0
    """`skipRows`: lines at the beginning of each file that are passed over, before the header.
    Default 0."""
    multi_line: bool = False
    """`multiLine`: whether a quoted value may hold line breaks. Files are not read in parts then.
    Default false."""
    encoding: str = "utf-8"
    """`encoding` (or `charset`): of the files, for instance `UTF-16` or `ISO-8859-1`. Only UTF-8 is
    read in parts. Default UTF-8."""
    line_sep: str | None = None
    r"""`lineSep`: one or two characters that end a line. Default: `\n`, `\r\n` or `\r`."""
    null_value: str = ""
    """`nullValue`: the text that stands for null, also in quotes. Default: the empty text."""
    empty_value: str = ""
    """`emptyValue`: what an empty quoted value (`""`) is read as. Default: the empty text, which is
    null unless `nullValue` is something else."""
    nan_value: str = "NaN"
    """`nanValue`: the text for "not a number" in float and double columns. Default `NaN`."""
    positive_inf: str = "Inf"
    """`positiveInf`: the text for infinity. Default `Inf`."""
    negative_inf: str = "-Inf"
    """`negativeInf`: the text for minus infinity. Default `-Inf`."""
    date_format: str | None = None
    """`dateFormat`: the pattern of dates. Default: what Spark's cast takes, such as
    `2024-01-31`."""
    timestamp_format: str | None = None
    """`timestampFormat`: the pattern of timestamps. Default: what Spark's cast takes, such as
    `2024-01-31T12:30:59Z`."""
    timestamp_ntz_format: str | None = None
    """`timestampNTZFormat`: the pattern of timestamps without a zone. Default: as for
    timestamps."""
    time_zone: str | None = None
    """`timeZone`: the zone of timestamps that name none. Default: UTC, whatever
    `spark.sql.session.timeZone` is."""
    locale: str | None = None
    """`locale`: the language of names of months and days in patterns, for instance `de-DE`.
    Default: `en-US`."""
    prefer_date: bool = True
    """`preferDate`: whether inference finds dates; otherwise they are timestamps. Needs
    `cloudFiles.inferColumnTypes`. Default true."""
    prefers_decimal: bool = False
    """`prefersDecimal`: whether inferred fractions are decimals, where they fit, rather than
    doubles. True, and not to be changed, with `addNewColumnsWithTypeWidening`."""
    trims_start: bool = False
    """`ignoreLeadingWhiteSpace`: whether blanks before a value are cut off. Default false."""
    trims_end: bool = False
    """`ignoreTrailingWhiteSpace`: whether blanks after a value are cut off. Default false."""
    max_columns: int = 20480
    """`maxColumns`: a record with more values is not valid. Default 20480."""
    max_chars: int | None = None
    """`maxCharsPerColumn`: a record with a longer value is not valid; -1: any length. Default
    -1."""
    unescaped_quotes: UnescapedQuotes = "STOP_AT_DELIMITER"
    """`unescapedQuoteHandling`: what a quote inside a quoted value does that is not escaped:
    `STOP_AT_DELIMITER` takes the text up to the next separator as it stands,
    `STOP_AT_CLOSING_QUOTE` goes on to the closing quote, `RAISE_ERROR` makes the record one that is
    not valid. Default `STOP_AT_DELIMITER`."""

    NAMES: ClassVar[tuple[str, ...]] = (
        "sep",
        "delimiter",
        "quote",
        "escape",
        "charToEscapeQuoteEscaping",
        "comment",
        "header",
        "skipRows",
        "multiLine",
        "encoding",
        "charset",
        "lineSep",
        "nullValue",
        "emptyValue",
        "nanValue",
        "positiveInf",
        "negativeInf",
        "dateFormat",
        "timestampFormat",
        "timestampNTZFormat",
        "timeZone",
        "locale",
        "preferDate",
        "prefersDecimal",
        "ignoreLeadingWhiteSpace",
        "ignoreTrailingWhiteSpace",
        "maxColumns",
        "maxCharsPerColumn",
        "unescapedQuoteHandling",
        "enforceSchema",
        "mergeSchema",
    )
    REFUSED: ClassVar[Mapping[str, str]] = {
        "inferSchema": "types are inferred with cloudFiles.inferColumnTypes=true. Set that.",
        "samplingRatio": "the sample is chosen with cloudFiles.schemaInference.sampleSize.numFiles "
        "and cloudFiles.schemaInference.sampleSize.numBytes. Set these.",
        "parserCaseSensitive": "its name is readerCaseSensitive today. Set that.",
        "enableDateTimeParsingFallback": "without a pattern dates and timestamps are read as "
        "Spark's cast reads them, with a pattern only by the pattern. Remove it.",
        "singleVariantColumn": "a CSV record has columns. Read them as strings, or as JSON or XML "
        "files into one VARIANT column.",
        "inputBufferSize": "the reader here has no such buffer. Remove it.",
    }

    @classmethod
    def parse(cls, read: Values) -> Self:
        """Validate.

        Raises:
            OptionError: A value of the wrong kind, or options that contradict each other.
            UnsupportedOptionError: A value that would lose what the files hold.
        """
        _refuse_values(read)
        quote = _character(read, "quote", '"')
        escape = _character(read, "escape", "\\")
        escape_of_escape = _character(read, "charToEscapeQuoteEscaping", "")
        header = read.boolean("header", default=False)
        found = cls(
            sep=_separator(_one_of(read, "sep", "delimiter")),
            quote=quote,
            escape=escape,
            escape_of_escape=escape_of_escape or ("" if escape == quote else escape),
            comment=_character(read, "comment", ""),
            header=None if read.raw("header") is None else header,
            skip_rows=read.at_least_zero("skipRows", 0),
            multi_line=read.boolean("multiLine", default=False),
            encoding=_encoding(_one_of(read, "encoding", "charset") or "utf-8"),
            line_sep=_line_end(read.raw("lineSep")),
            null_value=_raw(read, "nullValue", ""),
            empty_value=_raw(read, "emptyValue", ""),
            nan_value=_raw(read, "nanValue", "NaN"),
            positive_inf=_raw(read, "positiveInf", "Inf"),
            negative_inf=_raw(read, "negativeInf", "-Inf"),
            date_format=read.text("dateFormat"),
            timestamp_format=read.text("timestampFormat"),
            timestamp_ntz_format=read.text("timestampNTZFormat"),
            time_zone=read.text("timeZone"),
            locale=read.text("locale"),
            prefers_decimal=prefers_decimal(read),
            prefer_date=read.boolean("preferDate", default=True),
            trims_start=read.boolean("ignoreLeadingWhiteSpace", default=False),
            trims_end=read.boolean("ignoreTrailingWhiteSpace", default=False),
            max_columns=read.positive("maxColumns", 20480),
            max_chars=_max_chars(read),
            unescaped_quotes=read.choice(
                "unescapedQuoteHandling", _QUOTE_HANDLINGS, "STOP_AT_DELIMITER"
            ),
        )
        found._refuse_contradictions()
        return found

    def can_split(self) -> bool:
        """Whether large files may be read in parts: only where each line is a record."""
        is_one_byte = self.line_sep is None or len(self.line_sep.encode()) == 1
        return not self.multi_line and is_one_byte and self.encoding == "utf-8"

    def _refuse_contradictions(self) -> None:
        """No character can mean two things."""
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


def _refuse_values(read: Values) -> None:
    """Refuse what univocity would do at the price of values."""
    handling = (read.raw("unescapedQuoteHandling") or "").upper()
    if handling in {"SKIP_VALUE", "BACK_TO_DELIMITER"}:
        raise UnsupportedOptionError(
            f"unescapedQuoteHandling={handling} is not in this version: it drops what the file "
            "holds. Choose STOP_AT_DELIMITER, STOP_AT_CLOSING_QUOTE or RAISE_ERROR."
        )
    read.boolean("enforceSchema", default=True)
    if not read.boolean("mergeSchema", default=True):
        raise UnsupportedOptionError(
            "mergeSchema=false is not in this version: the columns of all sampled files are "
            "merged. Remove it, and name the columns with cloudFiles.schemaHints or .schema(...)."
        )


def _one_of(read: Values, first: str, second: str) -> str | None:
    """An option with two names."""
    one, other = read.raw(first), read.raw(second)
    if one is not None and other is not None and one != other:
        raise OptionError(
            f"{first}={one!r} and {second}={other!r} are two names of one option. Give one."
        )
    return other if one is None else one


def _raw(read: Values, name: str, default: str) -> str:
    text = read.raw(name)
    return default if text is None else text


def _character(read: Values, name: str, default: str) -> str:
    """One character, or none."""
    text = _raw(read, name, default)
    if text in {"\\0", "\0", "\\u0000"}:
        return ""
    if len(text) > 1:
        raise OptionError(f"{name} must be one character, got {text!r}.")
    if text and text in "\r\n":
        raise OptionError(f"{name} must not be a line break, got {text!r}.")
    return text


def _separator(text: str | None) -> str:
    r"""The separator, with escapes such as `\t` as Spark reads them."""
    if text is None:
        return ","
    if not text:
        raise OptionError(
            "sep must not be empty. Give what stands between two values, or leave it out for a "
            "comma."
        )
    if text == "\\":
        raise OptionError(
            r"sep must not be a single backslash, which begins an escape. Write \\ for a backslash."
        )

    def plain(found: re.Match[str]) -> str:
        if found[1].startswith("u"):
            return chr(int(found[1][1:], 16))
        if found[1] not in _ESCAPED:
            raise OptionError(f"sep has an unknown escape {found[0]!r}, in {text!r}.")
        return _ESCAPED[found[1]]

    sep = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text, flags=re.DOTALL)
    if any(each in sep for each in "\r\n"):
        raise OptionError(f"sep must not hold a line break, got {text!r}.")
    return sep


def _encoding(name: str) -> str:
    """The encoding as Python names it."""
    found = codec_of("encoding", name)
    return UTF8 if found in {"ascii", UTF8} else found


def _line_end(text: str | None) -> str | None:
    if text is None:
        return None
    if not 1 <= len(text) <= _MOST_LINE_END:
        raise OptionError(f"lineSep must be one or two characters, got {text!r}.")
    return text


def _max_chars(read: Values) -> int | None:
    text = read.raw("maxCharsPerColumn")
    return None if text is None or text.strip() == "-1" else read.positive("maxCharsPerColumn", 1)
