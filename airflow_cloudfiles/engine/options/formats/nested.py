"""Declare the options of JSON and XML, whose records are nested."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

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
    RefusedOption,
    ValueKind,
    any_text,
    boolean,
    record_size,
    separator,
    text,
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


_TAG: Final = re.compile(r"[^\s<>/&\"'=]+")
_OF_WRITING: Final = "it is an option of writing XML; this source reads. Remove it."


def _tag(name: str, text: str) -> str:
    tag = text.strip()
    if not _TAG.fullmatch(tag):
        raise OptionError(
            f"{name}={text!r} is no name of an element. Give the bare name, without angle brackets."
        )
    return tag


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlOptions(NestedValueOptions):
    """The validated options of XML."""

    HAS_ONLY_STRINGS: ClassVar[bool] = True

    row_tag: str = option(
        "rowTag",
        ValueKind("text", _tag, ignores_empty=True),
        required="rowTag is required for format xml: the name of the element that is a row, for "
        "instance rowTag=book for <books><book>...</book></books>.",
    )
    """Name of the elements that are rows, without angle brackets (B25). What is outside of them is
    not read."""
    attribute_prefix: str = option("attributePrefix", any_text, default="_")
    """What stands before the name of an attribute's column."""
    value_tag: str = option("valueTag", text, default="_VALUE")
    """Name of the column for the text of an element that has attributes or elements besides."""
    exclude_attribute: bool = option("excludeAttribute", boolean, default=False)
    """Whether attributes are ignored."""
    ignore_surrounding_spaces: bool = option("ignoreSurroundingSpaces", boolean, default=True)
    """Whether white space around values is removed."""
    ignore_namespace: bool = option("ignoreNamespace", boolean, default=False)
    """Whether prefixes of names (`ns:name`) are ignored."""
    null_value: str | None = option("nullValue", any_text, default=None)
    """The text that stands for null; without it there is none, and an empty element is an empty
    string, or null where the column is no string."""
    row_validation_xsd_path: str | None = option("rowValidationXSDPath", text, default=None)
    """Local path of an XML schema that each row is checked against; a row that is not valid is a
    corrupt record. Needs the extra `xml`."""
    encoding: str | None = option(
        "encoding",
        charset,
        default=None,
        also=("charset",),
        shown="the byte order mark or the XML declaration, else `UTF-8`",
    )
    """Encoding of the files."""
    date_format: str | None = option("dateFormat", text, default=None, shown="`yyyy-MM-dd`")
    """Pattern of dates, for instance `dd.MM.yyyy`."""
    infer_schema: bool = option("inferSchema", boolean, default=True)
    """False makes every inferred value a string, also with `cloudFiles.inferColumnTypes=true`."""

    REFUSED: ClassVar[tuple[RefusedOption, ...]] = (
        RefusedOption("rootTag", _OF_WRITING),
        RefusedOption("declaration", _OF_WRITING),
        RefusedOption("arrayElementName", _OF_WRITING),
        RefusedOption("compression", "what is compressed is found by its content. Remove it."),
        RefusedOption(
            "wildcardColName",
            "an element that the schema lacks is a new column, or rescued. Remove it.",
            accepts=("xs_any",),
        ),
    )

    def _check(self) -> None:
        if self.attribute_prefix == self.value_tag:
            raise OptionError(
                f"attributePrefix and valueTag are both {self.value_tag!r}: an attribute could not "
                "be distinguished from a text. Give one of them another value."
            )
