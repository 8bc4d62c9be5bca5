"""Declare the options of XML."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import NestedValueOptions, charset
from airflow_cloudfiles.engine.options.values import (
    RefusedOption,
    ValueKind,
    any_text,
    boolean,
    text,
)

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
