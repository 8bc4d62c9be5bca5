"""Which columns need wider types for the values that were rescued?

For formats whose files do not say types: the text of a rescued number determines the narrowest type
that holds it, and the matrix (`widening`) whether its column may become that. Rescued data is what
the reader made of it: one JSON object a row, offending leaves under their source names, nested ones
under their path.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.schema.inference import diff
from airflow_cloudfiles.engine.schema.widening import can_widen, widen
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

FILE_KEY: Final = "_file_path"
"""The last member of rescued data: the file the row came from."""
ALL_TEXT: Final = frozenset({"csv", "excel", "xml"})
"""Formats whose values are rescued as strings, so that numbers are rescued as JSON strings."""

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_INTEGRAL: Final = ((ByteType(), 7), (ShortType(), 15), (IntegerType(), 31), (LongType(), 63))


class WiderTypes:
    """Learns from rescued data which types are too narrow.

    Args:
        schema: Columns of the records.
        options: The stream's options.

    Attributes:
        schema: The schema as wide as what was added asks for.
        files: The first file that asked for the wider type of a column, by the column's path.
    """

    def __init__(self, schema: StructType, options: CloudFilesOptions) -> None:
        self.schema = schema
        self.files: dict[str, str] = {}
        self._options = options
        self._without_hints = dataclasses.replace(options, schema_hints=None)
        self._reads_strings = options.format in ALL_TEXT
        # Where case matters, a name in another case is rescued for its name, not for its value.
        self._key = str if options.reader_case_sensitive else options.matcher.key
        self._columns = {
            self._key(field.name): position
            for position, field in enumerate(schema.fields)
            if can_widen(StructType([field]), options)
        }
        self._known: set[tuple[str, DataType]] = set()

    def add(self, rescued: Iterable[str | None]) -> bool:
        """Learn from the rescued data of some rows.

        Returns:
            Whether a column must be wider than it is.
        """
        for text in rescued if self._columns else ():
            if text is not None:
                self._add(_members(text))
        return bool(self.files)

    def _add(self, members: dict[str, Any]) -> None:
        for name, value in members.items():
            position = self._columns.get(self._key(name))
            if position is None:
                continue
            field = self.schema.fields[position]
            seen = self._type(field.dataType, value)
            if seen is not None and (field.name, seen) not in self._known:
                self._known.add((field.name, seen))
                self._widen(field.name, seen, str(members.get(FILE_KEY)))

    def _widen(self, name: str, seen: DataType, file_uri: str) -> None:
        observed = StructType([StructField(name, seen)])
        wider = widen(self.schema, observed, self._options)
        for change in diff(self.schema, wider):
            self.files.setdefault(change.path, file_uri)
        self.schema = wider

    def _type(self, kind: DataType, value: Any) -> DataType | None:
        """The type of a rescued value, in the shape of its column; `None` when it has none."""
        if isinstance(kind, StructType) and isinstance(value, dict):
            return self._struct(kind, value)
        if isinstance(kind, ArrayType) and isinstance(value, list):
            element = self._all(kind.elementType, value)
            return None if element is None else ArrayType(element)
        if isinstance(kind, MapType) and isinstance(value, dict):
            inside = self._all(kind.valueType, value.values())
            return None if inside is None else MapType(kind.keyType, inside)
        if isinstance(value, str) and self._reads_strings and _NUMBER.fullmatch(value):
            value = _decimal(value)
        return _number_type(value) if isinstance(value, Decimal) else None

    def _struct(self, kind: StructType, value: dict[str, Any]) -> StructType | None:
        names = {self._key(field.name): field for field in kind.fields}
        fields = []
        for name, each in value.items():
            field = names.get(self._key(name))
            seen = None if field is None else self._type(field.dataType, each)
            if field is not None and seen is not None:
                fields.append(StructField(field.name, seen))
        return StructType(fields) if fields else None

    def _all(self, kind: DataType, values: Iterable[Any]) -> DataType | None:
        """One type for what is inside an array or a map, as wide as any of its values asks for."""
        found: DataType | None = None
        for value in values:
            seen = self._type(kind, value)
            if seen is None or found is None:
                found = seen or found
                continue
            before, more = (StructType([StructField("a", each)]) for each in (found, seen))
            found = widen(before, more, self._without_hints).fields[0].dataType
        return found


def _members(text: str) -> dict[str, Any]:
    """Parse rescued data, with numbers exactly as they are written."""
    try:
        members = json.loads(text, parse_int=_decimal, parse_float=_decimal)
    except RecursionError:  # too deep for any column
        return {}
    return members if isinstance(members, dict) else {}


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except ArithmeticError:  # an exponent beyond everything
        return None


def _number_type(value: Decimal) -> DataType | None:
    """The narrowest type that holds a number exactly; a double for fractions past 38 digits."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    if precision > MAX_DECIMAL_PRECISION:
        return DoubleType() if exponent and math.isfinite(float(value)) else None
    if scale:
        return DecimalType(precision, scale)
    number = int(value)
    for kind, bits in _INTEGRAL:
        if -(2**bits) <= number < 2**bits:
            return kind
    return DecimalType(precision, 0)
