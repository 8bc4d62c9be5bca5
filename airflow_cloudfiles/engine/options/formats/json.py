"""Declare the options of JSON."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import (
    UTF8,
    NestedValueOptions,
    charset,
    overlaps_itself,
)
from airflow_cloudfiles.engine.options.values import (
    GIB,
    boolean,
    record_size,
    separator,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions(NestedValueOptions):
    """The validated options of JSON."""

    multi_line: bool = option("multiLine", boolean, default=False)
    """Whether a file is one document (an object, or an array of objects) that may span lines,
    rather than one record a line. Several documents in one file are all read, with a warning."""
    encoding: str = option("encoding", charset, default=UTF8)
    """Encoding of the files, by its usual name. UTF-16 and UTF-32 not with `multiLine`."""
    line_sep: str | None = option("lineSep", separator, default=None, shown=r"`\n`, `\r\n` or `\r`")
    """What ends a record. Not with `multiLine`."""
    allow_comments: bool = option("allowComments", boolean, default=False)
    """Whether `/* */` and `//` comments are skipped."""
    allow_single_quotes: bool = option("allowSingleQuotes", boolean, default=True)
    """Whether names and strings may stand in single quotes."""
    allow_unquoted_field_names: bool = option("allowUnquotedFieldNames", boolean, default=False)
    """Whether field names may go without quotes."""
    allow_numeric_leading_zeros: bool = option("allowNumericLeadingZeros", boolean, default=False)
    """Whether numbers may begin with zeros (`007`)."""
    allow_backslash_escaping_any_character: bool = option(
        "allowBackslashEscapingAnyCharacter", boolean, default=False
    )
    r"""Whether `\x` stands for `x`, whatever `x` is."""
    allow_unquoted_control_chars: bool = option("allowUnquotedControlChars", boolean, default=False)
    """Whether strings may hold control characters as they are."""
    allow_non_numeric_numbers: bool = option("allowNonNumericNumbers", boolean, default=True)
    """Whether `NaN`, `Infinity`, `INF` and their kind are numbers."""
    primitives_as_string: bool = option("primitivesAsString", boolean, default=False)
    """Whether inferred numbers and booleans are strings, also with
    `cloudFiles.inferColumnTypes=true`."""
    infer_timestamp: bool = option("inferTimestamp", boolean, default=False)
    """Whether strings that are timestamps are inferred as such; has no effect without
    `cloudFiles.inferColumnTypes=true`."""
    drop_field_if_all_null: bool = option("dropFieldIfAllNull", boolean, default=False)
    """Whether a field whose values are all null, or empty arrays, is left out of the inferred
    schema; its nulls are nothing then, its empty arrays are rescued."""
    max_record_bytes: int = option("maxRecordBytes", record_size, default=GIB, shown="1g")
    """The most bytes of a line, or of a file with `multiLine`; `1g` at most. Ours.
    A small compressed file may describe a record of any size, and reading it takes about five times
    as much memory."""

    def _check(self) -> None:
        if self.multi_line and self.encoding.startswith(("utf-16", "utf-32")):  # B24
            raise OptionError(
                f"encoding={self.encoding} is not allowed with multiLine=true. Write such files as "
                "UTF-8, or as one record a line and leave multiLine out."
            )
        if self.multi_line and self.line_sep is not None:
            raise OptionError(
                f"lineSep={self.line_sep!r} splits a file into many records, multiLine=true makes "
                "it one document. Leave one of them out."
            )

    def can_split(self) -> bool:
        """Tell whether large files may be read in parts."""
        cannot_be_found = self.line_sep is not None and overlaps_itself(self.line_sep.encode())
        return not self.multi_line and self.encoding == UTF8 and not cannot_be_found
