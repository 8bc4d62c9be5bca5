"""Infer the fields of the rows of XML files, and their types.

Types follow Spark's XML inference (`XmlInferSchema`, Spark 4.3): an element that comes twice in its
parent is an array; one with attributes or elements is a struct, whose text is the field `valueTag`;
an element that is a plain text here and a struct with a text there is that struct; an empty
element, and the text of `nullValue`, say nothing.

Ours, as for JSON: without `cloudFiles.inferColumnTypes` every text is a string; fields are in the
order of their first appearance; names equal but for case are one column (B15); what clashes with a
schema that is known beforehand teaches nothing; rows that are none are passed over. The result does
not depend on the order of the rows, but for the order and the spelling of the fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.base import MAX_COLUMN_DEPTH
from airflow_cloudfiles.engine.formats.scalars import (
    MISFIT,
    decimal_text,
    decimal_type,
    exact_decimal,
)
from airflow_cloudfiles.engine.formats.xml.reader import RowValidator
from airflow_cloudfiles.engine.formats.xml.rows import RowScanner, XmlRows
from airflow_cloudfiles.engine.formats.xml.shape import TextCasts
from airflow_cloudfiles.engine.formats.xml.tree import (
    SPACE,
    Fields,
    Item,
    NotXmlError,
    XmlNode,
    parse,
)
from airflow_cloudfiles.engine.types import merge_types

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.nested import XmlOptions

_NULL: Final = NullType()
_STRING: Final = StringType()
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_KNOWN_TEXTS: Final = 50_000
"""Texts whose type is remembered: values repeat themselves."""


@dataclass(slots=True, eq=False)
class _Spot:
    """What is known in one place.

    Attributes:
        name: The first spelling.
        text: The type of its texts.
        fields: What is in its elements, by the name's key; `None` for a type that has no fields.
        entries: What is in the values of a map, known beforehand.
        is_list: Whether it comes more than once in its parent.
        is_fixed: Whether its type is known beforehand.
    """

    name: str
    text: DataType = _NULL
    fields: dict[str, _Spot] | None = field(default_factory=dict)
    entries: _Spot | None = None
    is_list: bool = False
    is_fixed: bool = False


class XmlInference:
    """Learns the schema of XML files.

    Args:
        options: `cloudFiles.inferColumnTypes` and the options of XML.
        known: A schema the rows are read with already; what they have besides is appended to it,
            its own types stay.

    Raises:
        OptionError: A date pattern, a time zone or a locale is none; the extra `xml` is missing.
    """

    def __init__(self, options: CloudFilesOptions, known: StructType | None = None) -> None:
        own = cast("XmlOptions", options.format_options)
        self._own = own
        self._fields = Fields(own)
        self._scanner = RowScanner(own.row_tag, ignore_namespace=own.ignore_namespace)
        self._key_of = options.matcher.key
        self._value_key = self._key_of(own.value_tag)
        # Names in another case are other fields to the reader, which rescues their values.
        self._group_of = str if options.reader_case_sensitive else self._key_of
        self._typed = options.infer_column_types and own.infer_schema
        casts = TextCasts(own)
        self._locale = casts.locale
        self._cascade = [
            (kind, casts.converter(kind)) for kind in (DateType(), TimestampType(), BooleanType())
        ]
        path = own.row_validation_xsd_path
        self._validator = None if path is None else RowValidator(path)
        self._root = _Spot("")
        if known is not None:
            _fix(self._root, known, self._key_of)
        self._types: dict[str, DataType] = {}
        self._rows = 0

    def add_file(self, file: OpenedFile) -> Generator[int]:
        """Learn from the rows of one file, or as many as `samplingRatio` says, block by block.

        Raises:
            FileUnreadableError: The file is damaged, or has a row that is too large.
        """
        for rows in self._scanner.rows(file, self._own.encoding):
            if self._validator is not None:
                self._validator.check(rows)
            size = 0
            for text in self._sample(rows):
                size += len(text)
                try:
                    node = parse(text)
                except NotXmlError:
                    continue  # the reader accounts for it
                self._learn_node(self._root, node, 1)
            if size:
                yield size

    def result(self) -> StructType:
        """Return what is known: `NullType` where no value has shown the type."""
        return _struct_type(self._root, self._value_key)

    def _sample(self, rows: XmlRows) -> Iterator[bytes]:
        for position, text in enumerate(rows.texts):
            if position in rows.broken:
                continue
            self._rows += 1
            ratio = self._own.sampling_ratio
            if int(self._rows * ratio) > int((self._rows - 1) * ratio):
                yield text

    def _learn_node(self, spot: _Spot, node: XmlNode, depth: int) -> None:
        """Learn the fields of an element."""
        # Those of one column together.
        groups: dict[str, list[tuple[str, Item]]] = {}
        for name, item in self._fields.of(node):
            groups.setdefault(self._group_of(name), []).append((name, item))
        fields = spot.fields if spot.entries is None else {}
        for items in groups.values():
            name = items[0][0]
            if spot.entries is not None:
                child = spot.entries
            elif fields is None:
                return
            else:
                child = fields.setdefault(self._key_of(name), _Spot(name))
            self._learn(child, [item for _, item in items], depth)

    def _learn(self, spot: _Spot, items: list[Item], depth: int) -> None:
        if spot.fields is None:
            return
        if len(items) > 1 and not spot.is_fixed:
            spot.is_list = True
        for item in items:
            if not isinstance(item, XmlNode) or self._fields.is_leaf(item):
                self._learn_text(spot, item)
            elif depth < MAX_COLUMN_DEPTH:
                self._learn_node(spot, item, depth + 1)
            elif not spot.is_fixed:
                spot.text = _STRING

    def _learn_text(self, spot: _Spot, item: Item) -> None:
        text = item if isinstance(item, str) else item.text
        if not spot.is_fixed:
            # As Spark: an empty element is null, but an empty attribute is a string.
            is_empty_string = item is text and self._fields.text(text) == ""
            spot.text = merge_types(
                spot.text, _STRING if is_empty_string else self._type_of(text), of_files=True
            )
        elif spot.entries is None and spot.fields is not None and text.strip(SPACE):
            tag = self._own.value_tag
            self._learn_text(spot.fields.setdefault(self._value_key, _Spot(tag)), text)

    def _type_of(self, text: str) -> DataType:
        value = self._fields.text(text)
        if not value:
            return _NULL
        if not self._typed:
            return _STRING
        known = self._types.get(value)
        if known is None:
            known = self._find_type(value)
            if len(self._types) < _KNOWN_TEXTS:
                self._types[value] = known
        return known

    def _find_type(self, text: str) -> DataType:
        if _WHOLE.fullmatch(text) and -(2**63) <= int(text) < 2**63:
            return LongType()
        decimal = self._decimal_type(text) if self._own.prefers_decimal else None
        if decimal is not None:
            return decimal
        if _NUMBER.fullmatch(text):
            return DoubleType()
        for kind, convert in self._cascade:
            if convert(text) is not MISFIT:
                return kind
        return _STRING

    def _decimal_type(self, text: str) -> DataType | None:
        """Find the decimal that holds a number as it stands there."""
        plain = decimal_text(text, self._locale)
        if not _NUMBER.fullmatch(plain):
            return None
        exact = exact_decimal(plain)
        if exact is None:
            return None
        found = decimal_type(exact)
        return found if isinstance(found, DecimalType) else None


def _fix(spot: _Spot, kind: DataType, key_of: Callable[[str], str]) -> None:
    """Take down a type that is known beforehand."""
    spot.is_fixed = True
    if isinstance(kind, ArrayType) and not isinstance(kind.elementType, ArrayType):
        spot.is_list = True
        kind = kind.elementType
    if isinstance(kind, StructType):
        spot.fields = {}
        for column in kind.fields:
            inner = spot.fields.setdefault(key_of(column.name), _Spot(column.name))
            _fix(inner, column.dataType, key_of)
    elif isinstance(kind, MapType):
        spot.text = kind.keyType
        spot.entries = _Spot("")
        _fix(spot.entries, kind.valueType, key_of)
    else:
        spot.text = kind
        spot.fields = None


def _struct_type(spot: _Spot, value_key: str) -> StructType:
    fields = spot.fields or {}
    return StructType(
        [StructField(field.name, _data_type(field, value_key)) for field in fields.values()]
    )


def _data_type(spot: _Spot, value_key: str) -> DataType:
    found = _element_type(spot, value_key)
    return ArrayType(found) if spot.is_list else found


def _element_type(spot: _Spot, value_key: str) -> DataType:
    """Find the type of one element."""
    if spot.entries is not None:
        return MapType(spot.text, _data_type(spot.entries, value_key))
    if not spot.fields:
        return spot.text
    if not spot.is_fixed and not isinstance(spot.text, NullType):
        tagged = spot.fields.get(value_key)
        if tagged is None or tagged.fields:
            return _STRING  # plain texts here, elements without a text of their own there
        tagged.text = merge_types(tagged.text, spot.text, of_files=True)
    return _struct_type(spot, value_key)
