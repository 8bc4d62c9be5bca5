"""What the tests of XML share: files, options, rows, and records of any shape with their source."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.formats.scalars import MISFIT
from airflow_cloudfiles.engine.formats.xml.infer import XmlInference
from airflow_cloudfiles.engine.formats.xml.reader import XmlReader
from airflow_cloudfiles.engine.formats.xml.shape import TextCasts
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.schema.ddl import parse_columns
from airflow_cloudfiles.engine.storage import open_store
from tests.support.formats.numbers_law import gives_back, is_number

SHORT = {"evolution": "cloudFiles.schemaEvolutionMode", "typed": "cloudFiles.inferColumnTypes"}


def opened(path: Path) -> StoreFile:
    """A local file, as the stream opens it."""
    store = open_store(str(path.parent))
    entry = store.head(path.name)
    assert entry is not None
    return StoreFile(store, entry)


def written(folder: Path, content: str | bytes, name: str = "f.xml") -> StoreFile:
    """A new file with a content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return opened(path)


def columns(ddl: str) -> StructType:
    """A schema from DDL, without a JVM."""
    return StructType([StructField(each.path[0], each.data_type) for each in parse_columns(ddl)])


def options(*, given: bool = False, **others: Any) -> CloudFilesOptions:
    """Options of an XML source; what does not fit is rescued, and new columns too."""
    found: dict[str, Any] = {"cloudFiles.format": "xml", "rowTag": "row"}
    if not given:
        found["cloudFiles.schemaEvolutionMode"] = "rescue"
    found |= {SHORT.get(key, key): value for key, value in others.items()}
    return CloudFilesOptions.parse(found, path="/landing", has_schema=given)


def reader(ddl: str | StructType, *, is_thorough: bool = False, **others: Any) -> XmlReader:
    """A reader of a schema."""
    schema = columns(ddl) if isinstance(ddl, str) else ddl
    return XmlReader(schema, options(**others), is_thorough=is_thorough)


def rows_of(file: StoreFile, found: XmlReader) -> list[dict[str, Any]]:
    """The rows of a file; batches are valid and of the promised schema."""
    rows = []
    for batch in found.read_file(file):
        batch.validate(full=True)
        assert batch.schema.equals(found.arrow_schema)
        rows += batch.to_pylist()
    return rows


def inferred(*files: StoreFile, known: StructType | None = None, **others: Any) -> StructType:
    """What is inferred from files."""
    inference = XmlInference(options(**others), known)
    for file in files:
        list(inference.add_file(file))
    return inference.result()


# Records of any shape ----------------------------------------------------------------------


@dataclass
class Element:
    """An element, as a test makes it."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    content: list[str | Element] = field(default_factory=list)

    def fields(self) -> dict[str, list[str | Element]]:
        """Its fields, as the documentation says."""
        found: dict[str, list[str | Element]] = {}
        for name, value in self.attributes.items():
            found.setdefault(f"_{name}", []).append(value)
        for each in self.content:
            if isinstance(each, Element):
                found.setdefault(each.name, []).append(each)
            elif each.strip(" \n\t"):
                found.setdefault("_VALUE", []).append(each)
        return found

    @property
    def is_leaf(self) -> bool:
        return not self.attributes and not any(isinstance(each, Element) for each in self.content)

    @property
    def text(self) -> str:
        return "".join(each for each in self.content if isinstance(each, str))


def plain(item: str | Element) -> Any:
    """A field that did not find its column, as rescued data has it."""
    if isinstance(item, str):
        return item.strip(" \n\t")
    if item.is_leaf:
        return item.text.strip(" \n\t")
    merged = {name: [plain(each) for each in items] for name, items in item.fields().items()}
    return {name: items[0] if len(items) == 1 else items for name, items in merged.items()}


class Source:
    """Writes elements in any of the ways XML has."""

    def __init__(self, generator: random.Random, *, parts_texts: bool = True) -> None:
        self._random = generator
        self._wild = generator.random() < 0.3
        self._parts_texts = parts_texts

    def element(self, element: Element) -> str:
        pick = self._random.choice
        attributes = "".join(
            f"{pick([' ', ' ', '  ', chr(10)])}{name}{pick(['=', '=', ' = '])}{self._quoted(value)}"
            if self._wild
            else f' {name}="{escape(value, {chr(34): "&quot;"})}"'
            for name, value in element.attributes.items()
        )
        if not element.content and self._random.random() < 0.7:
            return f"<{element.name}{attributes}{pick(['', ' '])}/>"
        space = "" if element.text else self._space()
        inner = "".join(
            self._text(each) if isinstance(each, str) else space + self.element(each)
            for each in element.content
        )
        inner += space
        return f"<{element.name}{attributes}>{inner}</{element.name}{pick(['', '', ' '])}>"

    def _quoted(self, value: str) -> str:
        quote = self._random.choice("'\"")
        return quote + escape(value, {quote: "&quot;" if quote == '"' else "&apos;"}) + quote

    def _text(self, text: str) -> str:
        way = self._random.randrange(12) if self._wild else 11
        if way == 0 and "]]>" not in text and text.strip():
            return f"<![CDATA[{text}]]>"
        if way == 1:
            return "".join(f"&#{ord(each)};" for each in text)
        if way == 2 and text and self._parts_texts:
            return escape(text[0]) + "<!-- </row> & <row> -->" + escape(text[1:])
        if way == 3 and self._parts_texts:
            return escape(text) + "<?pi <row> ?>"
        return escape(text)

    def _space(self) -> str:
        return self._random.choice(["", "", "\n  ", " ", "\t\n"])


ABSENT = object()


@dataclass
class Account:
    """Checks that a row gives back the record it was read from: the law.

    Attributes:
        casts: The conversion of texts, one by one.
        rule: Which numbers are rescued for being inexact.
    """

    casts: TextCasts
    rule: str = "wholeNumbers"

    def record(self, schema: StructType, source: Element, row: dict[str, Any]) -> None:
        """Check one record."""
        rescued = row["_rescued_data"]
        rest = ABSENT if rescued is None else json.loads(rescued)
        if rest is not ABSENT:
            assert rest.pop("_file_path").startswith("file:")
        self._struct(schema, source, row, rest or ABSENT)

    def _struct(self, schema: StructType, source: Element, row: dict[str, Any], rest: Any) -> None:
        rest = {} if rest is ABSENT else dict(rest)
        fields = source.fields()
        for column in schema.fields:
            items = fields.pop(column.name, [])
            left = rest.pop(column.name, ABSENT)
            if items:
                self._items(column.dataType, items, row[column.name], left)
            else:
                assert row[column.name] is None
                assert left is ABSENT
        assert rest == {
            name: plain(items[0]) if len(items) == 1 else [plain(each) for each in items]
            for name, items in fields.items()
        }

    def _items(self, kind: DataType, items: Sequence[str | Element], value: Any, rest: Any) -> None:
        if isinstance(kind, ArrayType):
            assert len(value) == len(items)
            parts = [ABSENT if part is None else part for part in ([] if rest is ABSENT else rest)]
            parts += [ABSENT] * (len(items) - len(parts))
            for item, each, part in zip(items, value, parts, strict=True):
                self._item(kind.elementType, item, each, part)
        elif len(items) == 1:
            self._item(kind, items[0], value, rest)
        else:
            assert rest[: len(items) - 1] == [plain(each) for each in items[:-1]]
            last = rest[-1] if len(rest) == len(items) else ABSENT
            self._item(kind, items[-1], value, last)

    def _item(self, kind: DataType, item: str | Element, value: Any, rest: Any) -> None:
        if isinstance(kind, StructType) and isinstance(item, Element):
            self._struct(kind, item, value, rest)
        elif isinstance(kind, MapType) and isinstance(item, Element):
            schema = StructType([StructField(name, kind.valueType) for name in item.fields()])
            found = dict(value or {})
            assert set(found) == set(schema.names)
            self._struct(schema, item, found, rest)
        elif rest is ABSENT:
            assert same(value, self._expected(kind, item))
        elif value is None:
            assert rest == plain(item)
            assert not isinstance(kind, StringType)
        else:
            assert isinstance(item, Element)
            assert same(value, self._expected(kind, item))
            assert rest == plain(Element(item.name, item.attributes))

    def _expected(self, kind: DataType, item: str | Element) -> Any:
        if isinstance(item, Element) and any(isinstance(each, Element) for each in item.content):
            assert isinstance(kind, StringType)
            return "".join(
                escape(each) if isinstance(each, str) else outer(each) for each in item.content
            ).strip(" \n\t")
        text = plain(item) if isinstance(item, str) else item.text.strip(" \n\t")
        if not text and isinstance(item, Element) and not isinstance(kind, StringType):
            return None
        found = self.casts.converter(kind)(text)
        assert found is not MISFIT
        if isinstance(kind, DoubleType | FloatType) and is_number(text):
            assert isinstance(found, float)
            assert gives_back(text, found, self.rule, is_float=isinstance(kind, FloatType))
        return found


def numbers(kind: pa.DataType) -> pa.DataType:
    """A type with moments as numbers, since Python's end with the year 9999."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(numbers(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(numbers(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(numbers(kind.item_type)))
    return kind


def table_of(file: StoreFile, found: XmlReader) -> pa.Table:
    """The rows of a file, with moments as numbers."""
    batches = list(found.read_file(file))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(found.arrow_schema)
    table = pa.Table.from_batches(batches, found.arrow_schema)
    plain_types = pa.schema([each.with_type(numbers(each.type)) for each in table.schema])
    return table.cast(plain_types).combine_chunks()


def same(value: Any, expected: Any) -> bool:
    """Whether a value of a row is what its text was converted to."""
    if isinstance(value, str) and isinstance(expected, str):
        # In a string column, space between elements is part of the text.
        return re.sub(r">\s+<", "><", value) == re.sub(r">\s+<", "><", expected)
    if isinstance(value, float) and math.isnan(value):
        return isinstance(expected, float) and math.isnan(expected)
    return type(value) is type(expected) and bool(value == expected)


def outer(element: Element) -> str:
    """An element as XML, as a string column has it."""
    attributes = "".join(
        f' {name}="{escape(value, {chr(34): "&quot;"})}"'
        for name, value in element.attributes.items()
    )
    inner = "".join(
        escape(each) if isinstance(each, str) else outer(each) for each in element.content
    )
    return f"<{element.name}{attributes}>{inner}</{element.name}>"
