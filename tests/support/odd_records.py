"""Records of every kind for a given schema: what fits, what does not, and what is no record.

Seeded generators of JSON, CSV and XML. Most values are odd on purpose: out of range, too precise,
of another type, in another shape, or cut short.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from xml.sax.saxutils import escape

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.schema.ddl import parse_schema

_NUMBERS = [
    "0", "-0", "7", "-1", "127", "128", "200", "255", "256", "-128", "-129", "32767", "32768",
    "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "123456789012345678901234567890", "1e400", "-1e400", "1e39", "1e-400",
    "1.005", "1.015", "-1.005", "2.5", "0.125", "99999999.994", "99999999.995", "99999999.999",
    "1e3", "1E2", "1.10", "-1.5e3", "0.1", "1e20", "9.223372036854776e18", "12345.678",
]  # fmt: skip
_DATES = [
    "2024-02-29", "2024-2-9", "2023-02-29", "2024", "2024-01", " 2024-01-31 ", "0001-01-01",
    "9999-12-31", "1582-10-10", "2024-13-01", "20240131", "2024/01/31", "2024-01-31T10:00:00Z",
    "2024-01-31 10:00:00", "2024-01-31 x", "2024-01-31T", "2024-01-31T00:00:00Z", "123", "-200000",
    "+5", "19723", "2024-01-31T12:30:59.123456789Z", "2024-01-31 12:30:59.1234567",
    "2024-01-31T12:30:59.123456Z", "2024-01-31T12:30:59+05:30", "2024-01-31T25:00:00Z",
    "2024-01-31T12:30", "2024-01-31 1:2:3.123456789", "2024-01-31T12:30:59 Europe/Paris",
    "2024-01-31T12:30:59GMT+1", "2024-01-31T12:30:59.9999999", "1969-12-31T23:59:59.9999999Z",
    "2024-01-31T12:30:59.", "2024-01-31T12:30:59.1234567 PST", "2024-07-01T00:00:00.0000001Z",
]  # fmt: skip
_TEXTS = [
    "", " ", "x", "é😀", "null", "true", "TRUE", "False", "NaN", "Infinity", "-Infinity", "+INF",
    "1", "1.005", "1,234.5", "+7", " 7", "7 ", "aGVsbG8=", "aGVsbG8", "0x10", "12abc", "--5", "5d",
    "a\tb", "a\\b", "1e400", "200",
]  # fmt: skip

LEAVES = (
    "STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN",
    "DECIMAL(10,2)", "DECIMAL(38,10)", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY",
)  # fmt: skip


class Records:
    """One source of random records.

    Args:
        seed: The same one gives the same records.
        fitting: How often a value is one that its column takes.
    """

    def __init__(self, seed: object, fitting: float = 0.75) -> None:
        self.random = random.Random(str(seed))
        self._fitting = fitting

    def chance(self, share: float) -> bool:
        """Whether something happens this time."""
        return self.random.random() < share

    def text(self, kind: DataType) -> str:
        """A text for a column of an atomic type."""
        if not self.chance(self._fitting):
            return self.random.choice([*_NUMBERS, *_DATES, *_TEXTS])
        return self.fitting(kind)

    def fitting(self, kind: DataType) -> str:
        """A text that a column of an atomic type takes."""
        for base, choose in _FITTING:
            if isinstance(kind, base):
                return choose(self.random)
        raise TypeError(kind)

    # JSON ---------------------------------------------------------------------------------

    def json_line(self, schema: StructType) -> str:
        """One line: mostly a record."""
        line = self._object(schema)
        kind = self.random.random()
        if kind < 0.03:
            return line[: self.random.randrange(len(line))].rstrip() or "{"
        if kind < 0.05:
            return self.random.choice(["{bad", "x", "[1]", "7", "null", '"x"', "[]", "{}", "}"])
        if kind < 0.07:
            return f"[{line},{self._object(schema)}]"
        if kind < 0.08:
            return line + self.random.choice([" x", "{", '{"a":1}', "]", ","])
        return line

    def json_value(self, kind: DataType) -> str:
        """A value, perhaps of another type."""
        if self.chance(0.08):
            others = ["{}", "[]", '{"a":1}', "[1]", "[[]]", "true", '""', "5"]
            return self.random.choice([*others, *["null"] * len(others)])
        if isinstance(kind, StructType):
            return self._object(kind)
        if isinstance(kind, ArrayType):
            items = [self.json_value(kind.elementType) for _ in range(self.random.randrange(4))]
            return "[" + ",".join(items) + "]"
        if isinstance(kind, MapType):
            keys = self.random.sample(["k", "l", "é", ""], self.random.randrange(3))
            items = [f"{json.dumps(key)}:{self.json_value(kind.valueType)}" for key in keys]
            return "{" + ",".join(items) + "}"
        text = self.text(kind)
        plain = isinstance(kind, IntegralType | FractionalType | BooleanType)
        if plain and self.chance(0.9) and (text in _NUMBERS or text in {"true", "false"}):
            return text
        return json.dumps(text, ensure_ascii=self.chance(0.5))

    def _object(self, schema: StructType) -> str:
        fields = list(schema.fields)
        if self.chance(0.1):
            self.random.shuffle(fields)
        members = [
            f"{json.dumps(each.name)}:{self.json_value(each.dataType)}"
            for each in fields
            if not self.chance(0.08)
        ]
        if self.chance(0.08):
            members.append('"unknown":' + self.json_value(schema.fields[0].dataType))
        if self.chance(0.04) and members:
            again = self.random.choice(schema.fields)
            members.append(f"{json.dumps(again.name)}:{self.json_value(again.dataType)}")
        return "{" + self.random.choice([",", ", "]).join(members) + "}"

    # CSV ----------------------------------------------------------------------------------

    def csv_line(self, schema: StructType) -> str:
        """One line: mostly with as many values as there are columns."""
        values = [self._csv_value(each.dataType) for each in schema.fields]
        kind = self.random.random()
        if kind < 0.03:
            values = values[: self.random.randrange(1, len(values))]
        elif kind < 0.06:
            values += ["extra"] * self.random.randrange(1, 3)
        return ",".join(values)

    def _csv_value(self, kind: DataType) -> str:
        if self.chance(0.05):
            return ""
        text = self.text(kind)
        if "," in text or self.chance(0.1):
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return text

    # XML ----------------------------------------------------------------------------------

    def xml_row(self, schema: StructType, tag: str = "row") -> str:
        """One row; its own attributes fit, because Spark fails the query for one that does not."""
        return self._element(tag, schema, attributes_fit=True)

    def _element(self, tag: str, kind: DataType, *, attributes_fit: bool = False) -> str:
        if not isinstance(kind, StructType):
            text = self.text(kind)
            return f"<{tag}>{escape(text)}</{tag}>"
        attributes, parts = "", []
        for each in kind.fields:
            if self.chance(0.1):
                continue
            if each.name == "_VALUE":
                parts.append(escape(self.text(each.dataType)))
            elif each.name.startswith("_"):
                text = self.fitting(each.dataType) if attributes_fit else self.text(each.dataType)
                value = escape(text, {'"': "&quot;", "\t": "&#9;"})
                attributes += f' {each.name[1:]}="{value}"'
            elif isinstance(each.dataType, ArrayType):
                element = each.dataType.elementType
                count = self.random.randrange(4)
                parts += [self._element(each.name, element) for _ in range(count)]
            else:
                parts.append(self._element(each.name, each.dataType))
        if self.chance(0.06):
            parts.append("<unknown>1</unknown>")
        return f"<{tag}{attributes}>{''.join(parts)}</{tag}>"


def random_schema(records: Records, *, nested: bool) -> StructType:
    """Some columns."""
    count = records.random.randrange(2, 7)
    ddl = [f"c{place} {_random_type(records, 2 if nested else 0)}" for place in range(count)]
    schema: StructType = parse_schema(", ".join(ddl))
    return schema


def _random_type(records: Records, depth: int) -> str:
    kind = records.random.randrange(8) if depth else 9
    if kind == 0:
        return f"ARRAY<{_random_type(records, depth - 1)}>"
    if kind == 1:
        return f"MAP<STRING, {_random_type(records, depth - 1)}>"
    if kind == 2:
        fields = [f"f{each}: {_random_type(records, depth - 1)}" for each in range(2)]
        return f"STRUCT<{', '.join(fields)}>"
    return records.random.choice(LEAVES)


def with_corrupt(schema: StructType, name: str = "_corrupt_record") -> StructType:
    """The schema with a column for corrupt records."""
    return StructType([*schema.fields, StructField(name, StringType())])


def _number(generator: random.Random) -> str:
    return str(generator.randrange(-100, 100))


_FITTING: list[tuple[type[DataType], Callable[[random.Random], str]]] = [
    (StringType, lambda generator: generator.choice(_TEXTS)),
    (BooleanType, lambda generator: generator.choice(["true", "false"])),
    (IntegralType, _number),
    (DecimalType, lambda generator: generator.choice(["1.25", "-7", "0.5", "12.00"])),
    (FractionalType, lambda generator: generator.choice(["1.25", "-7.5", "1e3", "0.1"])),
    (
        DateType,
        lambda generator: f"20{generator.randrange(10, 30)}-0{generator.randrange(1, 9)}-11",
    ),
    (TimestampType, lambda generator: f"2024-02-29T10:{generator.randrange(10, 60)}:00.123456Z"),
    (TimestampNTZType, lambda generator: f"2024-02-29T10:{generator.randrange(10, 60)}:00"),
    (BinaryType, lambda generator: generator.choice(["aGVsbG8=", "", "aGVs"])),
]
