"""Which field of this record does not fit, and what becomes of it?

The slow path, one record at a time. It takes a record apart into what the schema can hold, in the
form the fast path would have decoded (`json_shape`), and what it cannot, as one JSON object: the
rescued data. That object looks like the record with everything taken away that found its column:

- a value that does not fit its column's type, under its own key;
- a field the schema does not have, or has only in another case;
- of a key that comes twice, all values but the last (the last one counts, as in Spark);
- nested, the path down to such a leaf, and nothing else beside it. In arrays the elements that
  did fit are `null`, and elements after the last rescued one are left out.

Known fields come first, in the order of the schema, then unknown ones by
name.
Values keep their source text: `1.10` stays `1.10`, a string keeps its escapes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import msgspec
from msgspec import UNSET, Raw
from pyspark.sql.types import ArrayType, DataType, NullType, StringType, StructField, StructType

from airflow_cloudfiles.engine.formats import json_tokens
from airflow_cloudfiles.engine.formats.json_scalars import MISFIT, text_of
from airflow_cloudfiles.engine.formats.json_shape import (
    EMPTY,
    Leaf,
    ListShape,
    MapShape,
    Shape,
    StructShape,
)
from airflow_cloudfiles.engine.formats.json_tokens import NotJsonError
from airflow_cloudfiles.engine.types import canonical, is_column_name, merge_types

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[Raw])
_SAMPLE_CHARACTERS: Final = 1000
_MAX_COLUMN_DEPTH: Final = 100
_BLANK: Final = b" \t\r\n"
_QUOTE: Final = b'"'

Rescued = bytes | None
"""Strict JSON text of what a value could not give to its column; `None` when that is nothing."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One row of a record.

    Attributes:
        row: An instance of the root struct, holding only what fits.
        rescued: The members of the rescued JSON object, without the braces; empty when all fits.
        fits: Whether every known field got all of its value (unknown fields do not count).
    """

    row: object
    rescued: bytes
    fits: bool


@dataclass(slots=True)
class Explainer:
    """Explains records against one schema.

    Attributes:
        root: The shape of the schema.
        case_sensitive: Whether `Foo` is another field than `foo`.
        collects_new: Whether unknown fields are new columns to be reported, rather than rescued.
        reserved: Folded top-level names that are never new columns, whatever the mode.
        new_fields: What `explain` met, by top-level name, with a sample; only grows.
        strangers: Top-level names that are rescued whatever their value; only grows.
        spelled: How columns were spelled last, by position, where it is not as in the schema.
    """

    root: StructShape
    case_sensitive: bool
    collects_new: bool
    reserved: frozenset[str] = frozenset()
    new_fields: dict[str, object] = field(default_factory=dict)
    strangers: set[str] = field(default_factory=set)
    spelled: dict[int, str] = field(default_factory=dict)
    _misfits: int = 0

    def explain(self, line: bytes) -> list[Explained]:
        """Take one line apart: one row for an object, several for an array of objects.

        Raises:
            NotJsonError: The line is no record (a corrupt one).
        """
        record = line.strip(_BLANK)
        try:
            record.decode()
        except UnicodeDecodeError as error:
            raise NotJsonError(f"invalid UTF-8 at byte {error.start}") from error
        return [self._row(each) for each in _records(record)]

    def _row(self, record: bytes) -> Explained:
        before = self._misfits
        row, rescued = self._struct(self.root, record, ())
        members = b"" if rescued is None else rescued[1:-1]
        return Explained(row, members, fits=self._misfits == before)

    def _value(self, shape: Shape, value: bytes, path: tuple[str, ...]) -> tuple[object, Rescued]:
        """What the fast path would have decoded for a value, and what does not fit of it."""
        if isinstance(shape, Leaf):
            found, rescued = _leaf(shape, value)
            self._misfits += rescued is not None
            return found, rescued
        if value == b"null":
            return None, None
        if value[:1] != (b"[" if isinstance(shape, ListShape) else b"{"):
            self._misfits += 1
            return UNSET, json_tokens.strict(value)
        if isinstance(shape, ListShape):
            return self._list(shape, value, path)
        if isinstance(shape, MapShape):
            return self._map(shape, value, path)
        return self._struct(shape, value, path)

    def _struct(
        self, shape: StructShape, value: bytes, path: tuple[str, ...]
    ) -> tuple[object, Rescued]:
        taken: dict[int, list[tuple[bytes, bytes]]] = {}
        unknown: list[tuple[str, bytes]] = []
        for key, text in _members(value):
            name = json_tokens.key_text(key)
            # A key has one spelling in rescued data, whatever escapes the record writes it with.
            plain = key if name is None else json.dumps(name, ensure_ascii=False).encode()
            index = None if name is None else self._index(shape, name)
            if index is not None:
                taken.setdefault(index, []).append((plain, text))
                if name != shape.names[index] and not path and name is not None:
                    self.spelled[index] = name
            elif not self._is_new(shape, name, text, path):
                unknown.append((name or "", plain + b":" + json_tokens.strict(text)))
        row: dict[str, object] = {}
        rescued: list[bytes] = []
        for index in sorted(taken):
            *earlier, (key, text) = taken[index]
            rescued += [again + b":" + json_tokens.strict(old) for again, old in earlier]
            found, rest = self._value(shape.children[index], text, (*path, shape.names[index]))
            row[shape.attributes[index]] = found
            if rest is not None:
                rescued.append(key + b":" + rest)
        rescued += [member for _, member in sorted(unknown, key=itemgetter(0))]
        return shape.make(**row), _object(rescued)

    def _list(
        self, shape: ListShape, value: bytes, path: tuple[str, ...]
    ) -> tuple[object, Rescued]:
        found: list[object] = []
        rescued: list[bytes] = []
        for position, text in enumerate(_elements(value)):
            element, rest = self._value(shape.element, text, path)
            found.append(None if element is UNSET else element)
            if rest is not None:
                rescued += [b"null"] * (position - len(rescued))
                rescued.append(rest)
        return found, b"[" + b",".join(rescued) + b"]" if rescued else None

    def _map(self, shape: MapShape, value: bytes, path: tuple[str, ...]) -> tuple[object, Rescued]:
        last: dict[str, tuple[bytes, bytes]] = {}
        rescued: list[bytes] = []
        for key, text in _members(value):
            name = json_tokens.key_text(key)
            if name is None:
                rescued.append(key + b":" + json_tokens.strict(text))
                continue
            if name in last:
                again, old = last[name]
                rescued.append(again + b":" + json_tokens.strict(old))
            last[name] = (key, text)
        found: dict[str, object] = {}
        for name, (key, text) in last.items():
            element, rest = self._value(shape.value, text, path)
            found[name] = None if element is UNSET else element
            if rest is not None:
                rescued.append(key + b":" + rest)
        return found, _object(rescued)

    def _index(self, shape: StructShape, name: str) -> int | None:
        """The column of a field name."""
        index = shape.index.get(name)
        if index is None and not self.case_sensitive:
            index = shape.folded.get(name.lower())
        return index

    def _is_new(
        self, shape: StructShape, name: str | None, text: bytes, path: tuple[str, ...]
    ) -> bool:
        """Report an unknown field as a new column if it can be one."""
        if name is None:
            return False
        folded = name.lower()
        may_be_new = (
            self.collects_new
            and name
            and is_column_name(name)
            and folded not in shape.folded
            and (path or folded not in self.reserved)
        )
        if not may_be_new:
            if not path:
                self.strangers.add(name)
            return False
        strict = json_tokens.strict(text)
        if strict[:1] in b"{[" and not _has_column_type(strict):
            return False
        sample = _sample(strict)
        for outer in reversed((*path, name)):
            sample = {outer: sample}
        _merge(self.new_fields, sample)
        return True


def has_repeated_key(record: bytes) -> bool:
    """Whether an object anywhere in a strict record has a key twice, or may have."""
    repeated = False

    def check(pairs: list[tuple[str, object]]) -> None:
        nonlocal repeated
        repeated = repeated or len({key for key, _ in pairs}) < len(pairs)

    try:
        json.loads(record, object_pairs_hook=check, parse_int=str, parse_float=str)
    except RecursionError:
        return True  # too deep to tell so cheaply: let it be explained
    return repeated


def _leaf(shape: Leaf, value: bytes) -> tuple[object, Rescued]:
    if value == b"null":
        return Raw(value), None
    strict = json_tokens.strict(value)
    if shape.convert(strict) is MISFIT:
        return EMPTY, strict
    if strict == value or not isinstance(shape.kind, StringType) or value[:1] in b"\"'":
        return Raw(strict), None
    # A string column takes the text as it stands in the source, tolerant spelling and all.
    return Raw(json.dumps(value.decode(), ensure_ascii=False).encode()), None


def _records(record: bytes) -> list[bytes]:
    """The objects of a line."""
    first = record[:1]
    if first not in {b"{", b"["}:
        raise NotJsonError("neither an object nor an array of objects")
    if first == b"{" and _is_strict(record):
        return [record]
    end = json_tokens.value_end(record)
    if record[end:].strip(b" \t\r\n,"):
        raise NotJsonError(f"more after the record, at byte {end}")
    if first == b"{":
        return [record[:end]]
    found = json_tokens.elements(record[:end])
    if any(each[:1] != b"{" for each in found):
        raise NotJsonError("an array with something else than objects")
    return found


def _is_strict(record: bytes) -> bool:
    """Whether a record is one strict JSON object, checked in C."""
    if record.count(b"{") + record.count(b"[") > json_tokens.MAX_DEPTH:
        return False  # maybe nested too deeply: let the tokens be counted
    try:
        _MEMBERS.decode(record)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _members(value: bytes) -> list[tuple[bytes, bytes]]:
    """Strict key texts and value texts of an object that is known to be valid."""
    if b"\\" not in value:
        try:
            decoded = _MEMBERS.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return _tolerant_members(value)
        found = [(_QUOTE + key.encode() + _QUOTE, bytes(text)) for key, text in decoded.items()]
        # Every key has two quotes; what is left over belongs to a key that came twice.
        if value.count(_QUOTE) == 2 * len(found) + sum(text.count(_QUOTE) for _, text in found):
            return found
    return _tolerant_members(value)


def _tolerant_members(value: bytes) -> list[tuple[bytes, bytes]]:
    """The same for any valid object."""
    return [(json_tokens.strict(key), text) for key, text in json_tokens.members(value)]


def _elements(value: bytes) -> list[bytes]:
    """Texts of the elements of an array that is known to be valid."""
    try:
        return [bytes(text) for text in _ELEMENTS.decode(value)]
    except (msgspec.DecodeError, RecursionError):
        return json_tokens.elements(value)


def _object(members: list[bytes]) -> Rescued:
    return b"{" + b",".join(members) + b"}" if members else None


def _has_column_type(strict: bytes) -> bool:
    """Whether a column could have the type of an object or array.

    An empty struct has no type (B77), and one nested beyond reason has none that Spark could plan.
    """
    try:
        return canonical(_type_of(strict, _MAX_COLUMN_DEPTH)) is not None
    except NotJsonError:
        return False


def _type_of(strict: bytes, depth: int) -> DataType:
    """As much of the type of a value as tells whether it has one."""
    if not depth:
        raise NotJsonError("nested too deeply for a column")
    if strict == b"null":
        return NullType()
    if strict[:1] == b"[":
        element: DataType = NullType()
        for text in _elements(strict):
            element = merge_types(element, _type_of(text, depth - 1))
        return ArrayType(element)
    if strict[:1] == b"{":
        names = ((json_tokens.key_text(key), text) for key, text in _members(strict))
        return StructType(
            [StructField(name, _type_of(text, depth - 1)) for name, text in names if name]
        )
    return StringType()


def _sample(strict: bytes) -> object:
    """A value for a message: parsed when it is short, cut off when it is long."""
    if len(strict) <= _SAMPLE_CHARACTERS:
        try:
            return json.loads(strict)
        except (ValueError, RecursionError):
            return strict.decode()
    text = text_of(strict)
    return (strict.decode() if text is None else text)[:_SAMPLE_CHARACTERS] + "…"


def _merge(into: dict[str, object], sample: object) -> None:
    """Add what is new in a nested sample."""
    if not isinstance(sample, dict):
        return
    for name, value in sample.items():
        known = into.get(name)
        if name not in into:
            into[name] = value
        elif isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
