"""Which options does XML have?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.formats.charsets import codec_of
from airflow_cloudfiles.engine.options.formats.inferring import prefers_decimal, sampling_ratio
from airflow_cloudfiles.engine.options.values import Values

_TAG = re.compile(r"[^\s<>/&\"'=]+")
_WRITES = "it is an option of writing XML; this source reads. Remove it."


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlOptions:
    """The validated options of XML."""

    row_tag: str
    """`rowTag`; required: name of the elements that are rows, without angle brackets. What is
    outside of them is not read."""
    attribute_prefix: str = "_"
    """`attributePrefix`: what stands before the name of an attribute's column."""
    value_tag: str = "_VALUE"
    """`valueTag`: name of the column for the text of an element that has attributes or elements
    besides."""
    exclude_attribute: bool = False
    """`excludeAttribute`: whether attributes are ignored."""
    ignore_surrounding_spaces: bool = True
    """`ignoreSurroundingSpaces`: whether white space around values is taken away."""
    ignore_namespace: bool = False
    """`ignoreNamespace`: whether prefixes of names (`ns:name`) are ignored."""
    null_value: str | None = None
    """`nullValue`: a text that stands for null; without it there is none, and an empty element is
    an empty string, or null where the column is no string."""
    row_validation_xsd_path: str | None = None
    """`rowValidationXSDPath`: local path of an XML schema that each row is checked against; a row
    that is not valid is a corrupt record. Needs the extra `xml`."""
    encoding: str | None = None
    """`encoding` or `charset`: of the files; without it a byte order mark or the XML declaration
    tells, and UTF-8 is the default."""
    date_format: str | None = None
    """`dateFormat`: pattern of dates, for instance `dd.MM.yyyy`; default `yyyy-MM-dd`."""
    timestamp_format: str | None = None
    """`timestampFormat`: pattern of timestamps; without it, ISO 8601, also abbreviated."""
    timestamp_ntz_format: str | None = None
    """`timestampNTZFormat`: pattern of timestamps without a zone; without it, ISO 8601."""
    time_zone: str | None = None
    """`timeZone`: zone of timestamps that name none, for instance `Europe/Paris`; default UTC,
    whatever `spark.sql.session.timeZone` is."""
    locale: str | None = None
    """`locale`: language of month names in patterns, and of decimals, as a tag such as `de-DE`;
    default `en-US`."""
    infer_schema: bool = True
    """`inferSchema`: false makes every inferred value a string, also with
    `cloudFiles.inferColumnTypes=true`."""
    prefers_decimal: bool = False
    """`prefersDecimal`: whether inferred fractions are decimals, where they fit, rather than
    doubles. True, and not to be changed, with `addNewColumnsWithTypeWidening`."""
    sampling_ratio: float = 1.0
    """`samplingRatio`: the share of the rows of the sampled files that inference looks at."""

    NAMES: ClassVar[tuple[str, ...]] = (
        "rowTag",
        "attributePrefix",
        "valueTag",
        "excludeAttribute",
        "ignoreSurroundingSpaces",
        "ignoreNamespace",
        "nullValue",
        "rowValidationXSDPath",
        "encoding",
        "charset",
        "dateFormat",
        "timestampFormat",
        "timestampNTZFormat",
        "timeZone",
        "locale",
        "inferSchema",
        "prefersDecimal",
        "samplingRatio",
    )
    REFUSED: ClassVar[Mapping[str, str]] = {
        "rootTag": _WRITES,
        "declaration": _WRITES,
        "arrayElementName": _WRITES,
        "compression": "what is compressed is found by its content. Remove it.",
        "wildcardColName": "an element that the schema lacks is a new column, or rescued. Remove "
        "it.",
    }

    @classmethod
    def parse(cls, read: Values) -> Self:
        """Validate."""
        prefix, value_tag = read.raw("attributePrefix"), read.text("valueTag") or "_VALUE"
        prefix = "_" if prefix is None else prefix
        if prefix == value_tag:
            raise OptionError(
                f"attributePrefix and valueTag are both {prefix!r}: an attribute could not be told "
                "from a text. Give one of them another value."
            )
        return cls(
            row_tag=_row_tag(read),
            attribute_prefix=prefix,
            value_tag=value_tag,
            exclude_attribute=read.boolean("excludeAttribute", default=False),
            ignore_surrounding_spaces=read.boolean("ignoreSurroundingSpaces", default=True),
            ignore_namespace=read.boolean("ignoreNamespace", default=False),
            null_value=read.raw("nullValue"),
            row_validation_xsd_path=read.text("rowValidationXSDPath"),
            encoding=_encoding(read),
            date_format=read.text("dateFormat"),
            timestamp_format=read.text("timestampFormat"),
            timestamp_ntz_format=read.text("timestampNTZFormat"),
            time_zone=read.text("timeZone"),
            locale=read.text("locale"),
            infer_schema=read.boolean("inferSchema", default=True),
            prefers_decimal=prefers_decimal(read),
            sampling_ratio=sampling_ratio(read),
        )

    def can_split(self) -> bool:
        """Never: where a row begins is only known when all before it was read."""
        return False


def _row_tag(read: Values) -> str:
    """The name of the rows (B25)."""
    tag = (read.text("rowTag") or "").strip()
    if not tag:
        raise OptionError(
            "rowTag is required for format xml: the name of the element that is a row, for "
            "instance rowTag=book for <books><book>...</book></books>."
        )
    if not _TAG.fullmatch(tag):
        raise OptionError(
            f"rowTag={tag!r} is no name of an element. Give the bare name, without angle brackets."
        )
    return tag


def _encoding(read: Values) -> str | None:
    """The encoding, under Python's name for it."""
    first, second = read.text("encoding"), read.text("charset")
    if first and second and first.lower() != second.lower():
        raise OptionError(
            f"encoding={first} and charset={second} are two names of one option. Give one."
        )
    given = first or second
    return None if given is None else codec_of("encoding", given)
