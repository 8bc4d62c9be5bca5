"""Which options does JSON have?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.formats.charsets import codec_of, overlaps_itself
from airflow_cloudfiles.engine.options.formats.inferring import prefers_decimal, sampling_ratio
from airflow_cloudfiles.engine.options.values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions:
    """The validated options of JSON."""

    multi_line: bool = False
    """`multiLine`: whether a file is one document (an object, or an array of objects) that may
    span lines, rather than one record a line. Several documents in one file are all read, with a
    warning."""
    encoding: str = "utf-8"
    """`encoding`: of the files, by its usual name. UTF-16 and UTF-32 not with `multiLine`."""
    line_sep: str | None = None
    r"""`lineSep`: what ends a record; without it `\n`, `\r\n` or `\r`. Not with `multiLine`."""
    allow_comments: bool = False
    """`allowComments`: whether `/* */` and `//` comments are skipped."""
    allow_single_quotes: bool = True
    """`allowSingleQuotes`: whether names and strings may stand in single quotes."""
    allow_unquoted_field_names: bool = False
    """`allowUnquotedFieldNames`: whether field names may go without quotes."""
    allow_numeric_leading_zeros: bool = False
    """`allowNumericLeadingZeros`: whether numbers may begin with zeros (`007`)."""
    allow_backslash_escaping_any_character: bool = False
    r"""`allowBackslashEscapingAnyCharacter`: whether `\x` stands for `x`, whatever `x` is."""
    allow_unquoted_control_chars: bool = False
    """`allowUnquotedControlChars`: whether strings may hold control characters as they are."""
    allow_non_numeric_numbers: bool = True
    """`allowNonNumericNumbers`: whether `NaN`, `Infinity`, `INF` and their kind are numbers."""
    date_format: str | None = None
    """`dateFormat`: pattern of dates, for instance `dd.MM.yyyy`; without it, ISO 8601."""
    timestamp_format: str | None = None
    """`timestampFormat`: pattern of timestamps; without it, ISO 8601, also abbreviated."""
    timestamp_ntz_format: str | None = None
    """`timestampNTZFormat`: pattern of timestamps without a zone; without it, ISO 8601."""
    time_zone: str | None = None
    """`timeZone`: zone of timestamps that name none, for instance `Europe/Paris`; default UTC,
    whatever `spark.sql.session.timeZone` is."""
    locale: str | None = None
    """`locale`: language of month names in patterns, and of decimals in texts, as a tag such as
    `de-DE`; default `en-US`."""
    primitives_as_string: bool = False
    """`primitivesAsString`: whether inferred numbers and booleans are strings, also with
    `cloudFiles.inferColumnTypes=true`."""
    prefers_decimal: bool = False
    """`prefersDecimal`: whether inferred fractions are decimals, where they fit, rather than
    doubles. True, and not to be changed, with `addNewColumnsWithTypeWidening`."""
    infer_timestamp: bool = False
    """`inferTimestamp`: whether strings that are timestamps are inferred as such; has no effect
    without `cloudFiles.inferColumnTypes=true`."""
    drop_field_if_all_null: bool = False
    """`dropFieldIfAllNull`: whether a field whose values are all null, or empty arrays, is left out
    of the inferred schema; its nulls are nothing then, its empty arrays are rescued."""
    sampling_ratio: float = 1.0
    """`samplingRatio`: the share of the records of the sampled files that inference looks at."""

    NAMES: ClassVar[tuple[str, ...]] = (
        "multiLine",
        "encoding",
        "lineSep",
        "allowComments",
        "allowSingleQuotes",
        "allowUnquotedFieldNames",
        "allowNumericLeadingZeros",
        "allowBackslashEscapingAnyCharacter",
        "allowUnquotedControlChars",
        "allowNonNumericNumbers",
        "dateFormat",
        "timestampFormat",
        "timestampNTZFormat",
        "timeZone",
        "locale",
        "primitivesAsString",
        "prefersDecimal",
        "inferTimestamp",
        "dropFieldIfAllNull",
        "samplingRatio",
    )
    REFUSED: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def parse(cls, read: Values) -> Self:
        """Validate."""
        multi_line = read.boolean("multiLine", default=False)
        return cls(
            multi_line=multi_line,
            encoding=_encoding(read, multi_line=multi_line),
            line_sep=_line_sep(read, multi_line=multi_line),
            allow_comments=read.boolean("allowComments", default=False),
            allow_single_quotes=read.boolean("allowSingleQuotes", default=True),
            allow_unquoted_field_names=read.boolean("allowUnquotedFieldNames", default=False),
            allow_numeric_leading_zeros=read.boolean("allowNumericLeadingZeros", default=False),
            allow_backslash_escaping_any_character=read.boolean(
                "allowBackslashEscapingAnyCharacter", default=False
            ),
            allow_unquoted_control_chars=read.boolean("allowUnquotedControlChars", default=False),
            allow_non_numeric_numbers=read.boolean("allowNonNumericNumbers", default=True),
            date_format=read.text("dateFormat"),
            timestamp_format=read.text("timestampFormat"),
            timestamp_ntz_format=read.text("timestampNTZFormat"),
            time_zone=read.text("timeZone"),
            locale=read.text("locale"),
            primitives_as_string=read.boolean("primitivesAsString", default=False),
            prefers_decimal=prefers_decimal(read),
            infer_timestamp=read.boolean("inferTimestamp", default=False),
            drop_field_if_all_null=read.boolean("dropFieldIfAllNull", default=False),
            sampling_ratio=sampling_ratio(read),
        )

    def can_split(self) -> bool:
        """Whether large files may be read in parts."""
        cannot_be_found = self.line_sep is not None and overlaps_itself(self.line_sep.encode())
        return not self.multi_line and self.encoding == "utf-8" and not cannot_be_found


def _encoding(read: Values, *, multi_line: bool) -> str:
    """The encoding, under Python's name for it."""
    given = read.text("encoding") or "UTF-8"
    name = codec_of("encoding", given)
    if multi_line and name.startswith(("utf-16", "utf-32")):  # B24
        raise OptionError(
            f"encoding={given} is not allowed with multiLine=true. Write such files as UTF-8, or "
            "as one record a line and leave multiLine out."
        )
    return name


def _line_sep(read: Values, *, multi_line: bool) -> str | None:
    """The separator of records."""
    given = read.raw("lineSep")
    if given == "":
        raise OptionError(
            "lineSep must not be empty. Give what ends a record, or leave it out for line breaks."
        )
    if given is not None and multi_line:
        raise OptionError(
            f"lineSep={given!r} says that a file has many records, multiLine=true that it is one "
            "document. Leave one of them out."
        )
    return given
