"""How does a row become one VARIANT (`singleVariantColumn`)?

As in Spark (`StaxXmlParser.convertVariant`, 4.3): an element with attributes or elements is an
object, one that repeats an array, one that is empty null; `true`, `false` and numbers are what they
say, with all of their digits; other texts are strings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType, VariantType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.rescued_json import quote
from airflow_cloudfiles.engine.formats.scalars.strings import decimal_text, exact_decimal
from airflow_cloudfiles.engine.formats.variant.encode import NotVariantError, encode_json
from airflow_cloudfiles.engine.formats.xml.explain import XmlExplained
from airflow_cloudfiles.engine.formats.xml.tree import NotXmlError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.datetimes.names import Locale
    from airflow_cloudfiles.engine.formats.xml.fields import Fields, Item
    from airflow_cloudfiles.engine.formats.xml.tree import XmlNode

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_MOST_DIGITS: Final = 38
_WORDS: Final = {"true", "false"}


def check_column(schema: StructType, name: str) -> None:
    """Refuse a schema that does not have the column.

    Raises:
        IncompatibleSchemaError: It has no such column, or one of another type.
    """
    if name not in schema.names or not isinstance(schema[name].dataType, VariantType):
        raise IncompatibleSchemaError(
            f"singleVariantColumn names {name!r}, which the schema does not have as a column of "
            "type VARIANT. Leave the schema out."
        )


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

    def explain(self, node: XmlNode) -> XmlExplained:
        """Encode one row.

        Raises:
            NotXmlError: It cannot be a VARIANT without a loss, or is too large for one.
        """
        try:
            value, metadata = encode_json(self._json(node).encode())
        except NotVariantError as error:
            raise NotXmlError(str(error)) from error
        row: dict[str, object] = {self._column: {"value": value, "metadata": metadata}}
        return XmlExplained(row, rescued="", fits=True)

    def _json(self, item: Item) -> str:
        if isinstance(item, str):
            return self._text(self._fields.text(item))
        if self._fields.is_leaf(item):
            return self._text(self._fields.leaf(item) or None)
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
