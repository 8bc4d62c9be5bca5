"""Explain which part of a row does not fit, and what becomes of it.

The slow path, one row at a time. It takes a row apart into what the schema can hold and what it
cannot, as one JSON object: the rescued data. That object looks like the row with everything taken
away that found its column; attributes have their prefix, texts beside elements the name of
`valueTag`:

- a value that does not fit its column's type, under its own name;
- a field the schema does not have, or has only in another case; repeated, it is an array;
- of an element that comes more than once where the column is no array, all but the last (the last
  one counts, as in Spark), as an array;
- nested, the path down to such a value, and nothing else beside it. In arrays the elements that
  did fit are `null`, and elements after the last rescued one are left out.

Known fields come first, in the order of the schema, then unknown ones by name.

With `singleVariantColumn` a row becomes one VARIANT.

As in Spark (`StaxXmlParser.convertVariant`, 4.3): an element with attributes or elements is an
object, one that repeats an array, one that is empty null; `true`, `false` and numbers are what they
say, with all of their digits; other texts are strings.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from airflow_cloudfiles.engine.formats.base import add_sample, cut_sample, quote
from airflow_cloudfiles.engine.formats.scalars import MISFIT, decimal_text, exact_decimal
from airflow_cloudfiles.engine.formats.variant import NotVariantError, encode_json
from airflow_cloudfiles.engine.formats.xml.shape import (
    XmlLeaf,
    XmlList,
    XmlMap,
    XmlShape,
    XmlStruct,
)
from airflow_cloudfiles.engine.formats.xml.tree import SPACE, Fields, Item, NotXmlError, XmlNode
from airflow_cloudfiles.engine.types import canonical, merge_types

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.datetimes.default_format import Locale


class _NothingType:
    """The type of `NOTHING`."""


NOTHING: Final = _NothingType()
"""No rescued data; `None` is a null that is rescued."""


@dataclass(frozen=True, slots=True)
class XmlExplanation:
    """One row.

    Attributes:
        row: The values that fit, by column, as `pyarrow.array` takes them.
        rescued: The members of the rescued JSON object, without the braces; empty when all fits.
        fits: Whether every known field got all of its value (unknown fields do not count).
    """

    row: dict[str, object]
    rescued: str
    fits: bool


@dataclass(slots=True)
class XmlExplainer:
    """Explains rows against one schema.

    Attributes:
        root: The shape of the schema.
        fields: How elements have fields.
        case_sensitive: Whether `Foo` is another field than `foo`.
        collects_new: Whether unknown fields are new columns to be reported, rather than rescued.
        reserved: Keys of top-level names that are never new columns, whatever the mode.
        left_out: Fields that are none either, at any depth: the keys of the names to each.
        new_fields: What `explain` met, by top-level name, with a sample; only grows.
    """

    root: XmlStruct
    fields: Fields
    case_sensitive: bool
    collects_new: bool
    reserved: frozenset[str] = frozenset()
    left_out: frozenset[tuple[str, ...]] = frozenset()
    new_fields: dict[str, object] = field(default_factory=dict)
    _misfits: int = 0

    def explain(self, node: XmlNode) -> XmlExplanation:
        """Take one row apart."""
        before = self._misfits
        row, rescued = self._struct(self.root, node, ())
        members = "" if isinstance(rescued, _NothingType) else _json(rescued)[1:-1]
        return XmlExplanation(row, members, fits=self._misfits == before)

    def _struct(
        self, shape: XmlStruct, node: XmlNode, path: tuple[str, ...]
    ) -> tuple[dict[str, object], object]:
        taken: dict[int, tuple[str, list[Item]]] = {}
        unknown: dict[str, list[Item]] = {}
        for name, item in self.fields.of(node):
            index = shape.find(name, case_sensitive=self.case_sensitive)
            if index is None:
                unknown.setdefault(name, []).append(item)
            else:
                taken.setdefault(index, (name, []))[1].append(item)
        row: dict[str, object] = {}
        rescued: dict[str, object] = {}
        for index in sorted(taken):
            name, items = taken[index]
            found, rest = self._field(shape.children[index], items, (*path, shape.names[index]))
            row[shape.names[index]] = found
            if rest is not NOTHING:
                rescued[name] = rest
        for name in sorted(unknown):
            rest = self._unknown_field(shape, name, unknown[name], path)
            if rest is not NOTHING:
                rescued[name] = rest
        return row, rescued or NOTHING

    def _field(
        self, shape: XmlShape, items: list[Item], path: tuple[str, ...]
    ) -> tuple[object, object]:
        """Find what all under one name gives to a column, and what is left over."""
        if isinstance(shape, XmlList):
            return self._list(shape, items, path)
        found, rest = self._value(shape, items[-1], path)
        if len(items) == 1:
            return found, rest
        earlier = [self.fields.plain(item) for item in items[:-1]]
        return found, earlier if rest is NOTHING else [*earlier, rest]

    def _list(
        self, shape: XmlList, items: list[Item], path: tuple[str, ...]
    ) -> tuple[object, object]:
        found: list[object] = []
        rescued: list[object] = []
        for position, item in enumerate(items):
            element, rest = self._value(shape.element, item, path)
            found.append(element)
            if rest is not NOTHING:
                rescued += [None] * (position - len(rescued))
                rescued.append(rest)
        return found, rescued or NOTHING

    def _value(self, shape: XmlShape, item: Item, path: tuple[str, ...]) -> tuple[object, object]:
        if isinstance(shape, XmlLeaf):
            found, rest = self._leaf(shape, item)
            self._misfits += found is MISFIT
            return (None if found is MISFIT else found), rest
        if isinstance(item, XmlNode) and isinstance(shape, XmlStruct):
            return self._struct(shape, item, path)
        if isinstance(item, XmlNode) and isinstance(shape, XmlMap):
            return self._map(shape, item, path)
        text = self.fields.plain(item)
        self._misfits += text is not None
        return None, NOTHING if text is None else text

    def _map(self, shape: XmlMap, node: XmlNode, path: tuple[str, ...]) -> tuple[object, object]:
        items: dict[str, list[Item]] = {}
        for name, item in self.fields.of(node):
            items.setdefault(name, []).append(item)
        found: list[tuple[str, object]] = []
        rescued: dict[str, object] = {}
        for name, each in items.items():
            value, rest = self._field(shape.value, each, path)
            found.append((name, value))
            if rest is not NOTHING:
                rescued[name] = rest
        return found or None, rescued or NOTHING

    def _leaf(self, shape: XmlLeaf, item: Item) -> tuple[object, object]:
        """Convert to the value or `MISFIT`, and what is left over."""
        if isinstance(item, str):
            return self._text(shape, item, item, {})
        attributes = self.fields.merged(self.fields.attributes(item))
        if item.is_plain:
            return self._text(shape, item.text, item, attributes)
        if not shape.is_string:
            return MISFIT, self.fields.plain(item)
        return self._text(shape, item.inner(), item, attributes)

    def _text(
        self, shape: XmlLeaf, text: str, item: Item, attributes: dict[str, object]
    ) -> tuple[object, object]:
        rest = attributes or NOTHING
        if not shape.is_string and isinstance(item, XmlNode) and not text.strip(SPACE):
            return None, rest  # an empty element is null, as in Spark
        value = self.fields.text(text)
        if value is None:
            return None, rest
        found = shape.convert(value)
        return (MISFIT, self.fields.plain(item)) if found is MISFIT else (found, rest)

    def _unknown_field(
        self, shape: XmlStruct, name: str, items: list[Item], path: tuple[str, ...]
    ) -> object:
        """Report an unknown field as a new column if it can be one; what is left over if not."""
        plain = [self.fields.plain(item) for item in items]
        value = plain[0] if len(plain) == 1 else plain
        key = shape.matcher.key(name)
        may_be_new = (
            self.collects_new
            and key not in shape.folded
            and (path or key not in self.reserved)
            and not (self.left_out and (*map(shape.matcher.key, path), key) in self.left_out)
            and canonical(_type_of(value), shape.room) is not None
        )
        if not may_be_new:
            return value
        add_sample(self.new_fields, (*path, name), _sample(value))
        return NOTHING


def _type_of(value: object) -> DataType:
    """Find as much of the type of a value as tells whether it is too deep for a column."""
    if isinstance(value, dict):
        return StructType([StructField(name, _type_of(each)) for name, each in value.items()])
    if isinstance(value, list):
        return ArrayType(reduce(merge_types, map(_type_of, value)))
    return StringType()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sample(value: object) -> object:
    """Format a value for a message, cut off when it is long."""
    text = value if isinstance(value, str) else _json(value)
    cut = cut_sample(text)
    return value if cut == text else cut


_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_MOST_DIGITS: Final = 38
_WORDS: Final = {"true", "false"}


class VariantExplainer:
    """Turns whole rows into values of one column.

    Args:
        column: Its name.
        fields: How elements have fields.
        locale: How decimals are written.

    Attributes:
        new_fields: None, ever.
    """

    def __init__(self, column: str, fields: Fields, locale: Locale) -> None:
        self.new_fields: dict[str, object] = {}
        self._column = column
        self._fields = fields
        self._locale = locale

    def explain(self, node: XmlNode) -> XmlExplanation:
        """Encode one row.

        Raises:
            NotXmlError: It cannot be a VARIANT without a loss, or is too large for one.
        """
        try:
            value, metadata = encode_json(self._json(node).encode())
        except NotVariantError as error:
            raise NotXmlError(str(error)) from error
        row: dict[str, object] = {self._column: {"value": value, "metadata": metadata}}
        return XmlExplanation(row, rescued="", fits=True)

    def _json(self, item: Item) -> str:
        if isinstance(item, str):
            return self._text(self._fields.text(item))
        if self._fields.is_leaf(item):
            return self._text(self._fields.text(item.text) or None)
        found: dict[str, list[str]] = {}
        for name, each in self._fields.of(item):
            found.setdefault(name, []).append(self._json(each))
        members = (
            f"{quote(name)}:{each[0] if len(each) == 1 else '[' + ','.join(each) + ']'}"
            for name, each in found.items()
        )
        return "{" + ",".join(members) + "}"

    def _text(self, text: str | None) -> str:
        if text is None:
            return "null"
        if text.lower() in _WORDS:
            return text.lower()
        plain = decimal_text(text, self._locale)
        if _NUMBER.fullmatch(plain):
            number = exact_decimal(plain)
            if number is not None and abs(number.adjusted()) <= _MOST_DIGITS:
                digits = format(number, "f").removeprefix("-").replace(".", "").lstrip("0")
                scale = max(0, -int(number.as_tuple().exponent))
                if max(len(digits), scale) <= _MOST_DIGITS:
                    return format(number, "f")
        return quote(text)
