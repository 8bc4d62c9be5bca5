"""Read an Avro file by the schema that its writer put into it.

Its schema becomes a tree of `AvroNode`s. Each knows the Arrow type of its values, which is the one
that Spark reads them as (`SchemaConverters`, Spark 4.3), and a *wire* schema: another Avro schema
for the same bytes. By that one they are decoded, so that nothing is converted, guessed or lost on
the way:

- a string is decoded as bytes: whether they are UTF-8 is judged later, value by value;
- a map is decoded as an array of pairs;
- an enum is decoded as its number;
- the branches of a union are decoded as records of one field, which tells them apart;
- logical types are taken away.

Names of the wire schema are our own, so that any name a writer may use is possible.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cloudfiles.engine.options.formats.columnar import AvroOptions

MAX_DEPTH: Final = 100
"""A schema nested deeper is refused, as a column of that depth is in other formats."""
_MAX_NODES: Final = 100_000
"""A schema that is larger when all its named types are written out is refused."""
_MAX_FIXED_BYTES: Final = 2**30
_DECIMAL_BYTES: Final = 16
"""A decimal of more bytes has more digits than a column can take."""
VALUE: Final = "v"
KEY: Final = "k"

_PLAIN: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_WIRE: Final = {"int": "long", "string": "bytes", "enum": "long"}
_WIDER: Final = (({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64()))
"""Unions of two numbers that Spark reads as the wider one."""


@dataclass(frozen=True, slots=True)
class AvroNode:
    """A type of a file.

    Attributes:
        kind: Its Avro type; `wider` for a union of two numbers that are read as one.
        arrow: What its values become.
        wire: The schema its bytes are decoded by.
        children: Types of fields, of elements, of map values, of the branches of a union.
        symbols: Of an enum.
        may_be_empty: Whether a value may take no bytes at all.
    """

    kind: str
    arrow: pa.DataType
    wire: Any
    children: tuple[AvroNode, ...] = ()
    symbols: tuple[str, ...] = ()
    may_be_empty: bool = False


class AvroSchemaError(ValueError):
    """A schema that is not valid, or not one that can be read here."""


def parse_schema(text: bytes, options: AvroOptions) -> AvroNode:
    """Read the schema of a file.

    Args:
        text: As it stands in the header.
        options: How the branches of unions are named.

    Returns:
        A node of kind `record`. As in Spark, a file of something else cannot be read.

    Raises:
        AvroSchemaError: It is not valid, recursive, too deep or too large; the text says why.
    """
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError("its schema is no JSON, or nested too deeply") from error
    try:
        node = _AvroSchemaParser(options).parse(loaded, "", 0)
    except (KeyError, TypeError, AttributeError) as error:
        raise AvroSchemaError(f"its schema is not valid (at {error})") from error
    if node.kind != "record":
        raise AvroSchemaError(f"it holds values of type {node.kind}, not records")
    return node


@dataclass(slots=True)
class _AvroSchemaParser:
    """Reads one schema.

    Attributes:
        names: Definitions of named types, by full name.
        open: Full names of the records that are being read, from outside to inside.
        nodes: How many types were read.
        given: How many names were given in the wire schema.
    """

    options: AvroOptions
    names: dict[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    nodes: int = 0
    given: int = 0

    def parse(self, schema: Any, namespace: str, depth: int) -> AvroNode:
        """Read a type.

        Args:
            schema: A name, an object, or a list (a union).
            namespace: Of the type that encloses it.
            depth: How many types enclose it.
        """
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise AvroSchemaError(f"its schema is nested deeper than {MAX_DEPTH} levels")
        if self.nodes > _MAX_NODES:
            raise AvroSchemaError(f"its schema has more than {_MAX_NODES} types")
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _plain(schema, {})
            schema, namespace = self._named(schema, namespace)
        return self._object(schema, namespace, depth)

    def _object(self, schema: Mapping[str, Any], namespace: str, depth: int) -> AvroNode:
        """Read a type that is written as an object."""
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.parse(kind, namespace, depth + 1)
        if kind in _PLAIN:
            return _plain(kind, schema)
        if kind == "array":
            return self._array(self.parse(schema["items"], namespace, depth + 1))
        if kind == "map":
            return self._map(self.parse(schema["values"], namespace, depth + 1))
        if kind in {"record", "error", "enum", "fixed"}:
            return self._defined(kind, schema, namespace, depth)
        return self.parse(kind, namespace, depth + 1)

    def _name(self) -> str:
        """Build a name for the wire schema."""
        self.given += 1
        return f"t{self.given}"

    def _named(self, name: str, namespace: str) -> tuple[Mapping[str, Any], str]:
        for full in (f"{namespace}.{name}", name) if namespace and "." not in name else (name,):
            if full in self.names:
                return self.names[full]
        raise AvroSchemaError(f"its schema names the type {name!r}, which it does not define")

    def _defined(
        self, kind: str, schema: Mapping[str, Any], namespace: str, depth: int
    ) -> AvroNode:
        name = str(schema["name"])
        namespace = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        self.names[full] = (schema, namespace)
        if kind == "enum":
            symbols = tuple(map(str, schema["symbols"]))
            return AvroNode("enum", pa.string(), "long", symbols=symbols)
        if kind == "fixed":
            return self._fixed(schema)
        if full in self.open:
            raise AvroSchemaError(
                f"its type {full} is recursive, which no column can be; Spark refuses it too"
            )
        self.open.append(full)
        record = self._record(schema["fields"], namespace, depth)
        self.open.pop()
        return record

    def _record(self, fields: list[Mapping[str, Any]], namespace: str, depth: int) -> AvroNode:
        children = [self.parse(each["type"], namespace, depth + 1) for each in fields]
        names = [str(each["name"]) for each in fields]
        wire = [{"name": f"f{place}", "type": child.wire} for place, child in enumerate(children)]
        return AvroNode(
            "record",
            pa.struct(zip(names, (child.arrow for child in children), strict=True)),
            {"type": "record", "name": self._name(), "fields": wire},
            tuple(children),
            may_be_empty=all(child.may_be_empty for child in children),
        )

    def _fixed(self, schema: Mapping[str, Any]) -> AvroNode:
        size = schema["size"]
        if not isinstance(size, int) or not 0 <= size <= _MAX_FIXED_BYTES:
            raise AvroSchemaError(f"its schema has a fixed type of {size!r} bytes")
        wire = {"type": "fixed", "name": self._name(), "size": size}
        kind = _decimal(schema, size) or pa.binary(size)
        return AvroNode("fixed", kind, wire, may_be_empty=size == 0)

    def _array(self, items: AvroNode) -> AvroNode:
        if items.may_be_empty:
            # Their number costs no bytes: a damaged file could claim any.
            raise AvroSchemaError("it has an array of values that take no bytes, which is refused")
        return AvroNode(
            "array",
            pa.list_(pa.field("element", items.arrow)),
            {"type": "array", "items": items.wire},
            (items,),
        )

    def _map(self, values: AvroNode) -> AvroNode:
        pair = [{"name": KEY, "type": "bytes"}, {"name": VALUE, "type": values.wire}]
        wire = {"type": "record", "name": self._name(), "fields": pair}
        return AvroNode(
            "map",
            pa.map_(pa.string(), pa.field("value", values.arrow)),
            {"type": "array", "items": wire},
            (values,),
        )

    def _union(self, schema: list[Any], namespace: str, depth: int) -> AvroNode:
        if not schema or any(isinstance(each, list) for each in schema):
            raise AvroSchemaError("its schema has a union of nothing, or of unions")
        branches = [self.parse(each, namespace, depth + 1) for each in schema]
        there = [branch for branch in branches if branch.kind != "null"]
        if len(branches) - len(there) > 1:
            raise AvroSchemaError("its schema has a union with two nulls")
        if len(there) <= 1:
            wire = [branch.wire for branch in branches]
            only = there[0] if there else branches[0]
            return AvroNode(only.kind, only.arrow, wire, only.children, only.symbols)
        kinds = {branch.kind for branch in there}
        for numbers, kind in _WIDER:
            if kinds == numbers and len(there) == len(numbers):
                wire = [_branch(self._name(), VALUE, each) for each in branches]
                return AvroNode("wider", kind, wire, tuple(there))
        names = _member_names(schema, branches, self.options)
        wire = [
            each.wire if name is None else _branch(self._name(), f"m{name[0]}", each)
            for name, each in zip(names, branches, strict=True)
        ]
        members = [name[1] for name in names if name]
        arrow = pa.struct(zip(members, (each.arrow for each in there), strict=True))
        return AvroNode("union", arrow, wire, tuple(there))


def _plain(kind: str, schema: Mapping[str, Any]) -> AvroNode:
    """Convert a type without a name."""
    logical = schema.get("logicalType")
    arrow = _LOGICAL.get((kind, logical)) if isinstance(logical, str) else None
    if arrow is None and kind == "bytes":
        arrow = _decimal(schema, None)
    return AvroNode(kind, arrow or _PLAIN[kind], _WIRE.get(kind, kind), may_be_empty=kind == "null")


def _decimal(schema: Mapping[str, Any], size: int | None) -> pa.DataType | None:
    """Find the decimal that bytes stand for; `None` where no column can be one.

    As in Avro, a logical type that is not valid is none.
    """
    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    most = MAX_DECIMAL_PRECISION
    if size is not None and size < _DECIMAL_BYTES:
        most = len(str(2 ** (8 * size - 1) - 1)) - 1 if size else 0
    if not 0 <= scale <= precision <= most or precision == 0:
        return None
    return pa.decimal128(precision, scale)


def _branch(record: str, name: str, node: AvroNode) -> Any:
    """Mark a branch of a union, so that it tells which one it is; its bytes are the same."""
    if node.kind == "null":
        return node.wire
    return {"type": "record", "name": record, "fields": [{"name": name, "type": node.wire}]}


def _member_names(
    schema: list[Any], branches: list[AvroNode], options: AvroOptions
) -> list[tuple[int, str] | None]:
    """Find for each branch that is not null its place among these and its name, as in Spark."""
    names: list[tuple[int, str] | None] = []
    seen: set[str] = set()
    for each, branch in zip(schema, branches, strict=True):
        if branch.kind == "null":
            names.append(None)
            continue
        name = f"member{len(seen)}"
        if options.stable_union_names:
            name = f"{options.stable_union_prefix}{_type_name(each)}"
        key = CASE_INSENSITIVE.key(name)  # as Spark, whatever the session says
        if key in seen:
            raise AvroSchemaError(
                f"two branches of a union are called {name}; set "
                "enableStableIdentifiersForUnionType=false"
            )
        names.append((len(seen), name))
        seen.add(key)
    return names


def _type_name(schema: Any) -> str:
    """Return the name of a type, or of what it is where it has none."""
    if isinstance(schema, str):
        return schema.rpartition(".")[2]
    name = schema.get("name", schema["type"])
    return _type_name(name) if isinstance(name, str | dict) else "union"
