"""Explain which field of a record does not fit, and what becomes of it.

The slow path, one record at a time. It takes a record apart into what the schema can hold, in the
form the fast path would have decoded (`shape`), and what it cannot, as one JSON object: the
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
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw
from pyspark.sql.types import ArrayType, DataType, NullType, StringType, StructField, StructType

from airflow_cloudfiles.engine.formats.base import SAMPLE_CHARACTERS, add_sample, quote
from airflow_cloudfiles.engine.formats.json.shape import (
    EMPTY,
    JsonLeaf,
    JsonList,
    JsonMap,
    JsonShape,
    JsonStruct,
    text_of,
)
from airflow_cloudfiles.engine.formats.json.tokens import (
    DEFAULT,
    MAX_DEPTH,
    Grammar,
    NotJsonError,
    key_text,
)
from airflow_cloudfiles.engine.formats.scalars import MISFIT
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher
from airflow_cloudfiles.engine.types import (
    Room,
    canonical,
    is_column_name,
    is_unicode,
    merge_types,
    seen_part,
)

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[Raw])
_BLANK: Final = b" \t\r\n"
_QUOTE: Final = b'"'
_AS_TEXT: Final[dict[str, Any]] = {"parse_int": str, "parse_float": str}
"""Numbers are not made, which takes time for long ones."""
_SAY_NOTHING: Final = (b"null", b'""')
"""Values that tell inference no type."""

Members = list[tuple[bytes, bytes]]
"""Keys and values of an object, as their texts."""
Rescued = bytes | None
"""Strict JSON text of what a value could not give to its column; `None` when that is nothing."""


@dataclass(frozen=True, slots=True)
class JsonExplanation:
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
class JsonExplainer:
    """Explains records against one schema.

    Attributes:
        root: The shape of the schema.
        case_sensitive: Whether `Foo` is another field than `foo`.
        collects_new: Whether unknown fields are new columns to be reported, rather than rescued.
        grammar: What is taken for JSON.
        drops_nulls: Whether an unknown field that is null is nothing at all.
        as_spark: Whether nothing is rescued, so that rows are Spark's: an array or map with a value
            that does not fit is NULL; of a repeated key, the last value that fits counts; of a line
            with more than its record, or with bytes that are not UTF-8, what can be read.
        matcher: How names of columns are compared.
        reserved: Keys of top-level names that are never new columns, whatever the mode.
        left_out: Fields that are none either, at any depth: the keys of the names to each.
        new_fields: What `explain` met, by top-level name, with a sample; only grows.
        unknown_fields: Top-level names that are rescued whatever their value; only grows.
        spelled: How columns were spelled last, by position, where it is not as in the schema.
    """

    root: JsonStruct
    case_sensitive: bool
    collects_new: bool
    grammar: Grammar = DEFAULT
    drops_nulls: bool = False
    as_spark: bool = False
    matcher: NameMatcher = CASE_INSENSITIVE
    reserved: frozenset[str] = frozenset()
    left_out: frozenset[tuple[str, ...]] = frozenset()
    new_fields: dict[str, object] = field(default_factory=dict)
    unknown_fields: set[str] = field(default_factory=set)
    spelled: dict[int, str] = field(default_factory=dict)
    _misfits: int = 0

    def check_keys(self, line: bytes) -> None:
        """Refuse a valid record of which a key, at any depth, is no Unicode text.

        Without a column for it such a field would be nowhere; Spark's reader refuses the record.

        Raises:
            NotJsonError: A key has half a character (a lone surrogate).
        """
        for record in self._taken(line)[0]:
            try:
                json.loads(self.grammar.strict(record), object_pairs_hook=_check_keys, **_AS_TEXT)
            except RecursionError as error:
                raise NotJsonError("nested too deeply to find a key that is no text") from error

    def explain(self, line: bytes) -> list[JsonExplanation]:
        """Take one line apart: one row for an object, several for an array of objects.

        Raises:
            NotJsonError: The line is no record (a corrupt one).
        """
        records, is_whole = self._taken(line)
        rows = [self._row(each) for each in records]
        return rows if is_whole else [replace(row, fits=False) for row in rows]

    def _taken(self, line: bytes) -> tuple[list[bytes], bool]:
        """Find the records of a line, and whether they are all of it, in UTF-8.

        Raises:
            NotJsonError: They are not, and that is not passed over as by Spark's reader.
        """
        record = line.rstrip(_BLANK)
        record = record[self.grammar.begin(record) :]
        is_whole = True
        try:
            record.decode()
        except UnicodeDecodeError as error:
            if not self.as_spark:
                raise NotJsonError(f"invalid UTF-8 at byte {error.start}") from error
            record, is_whole = record.decode(errors="replace").encode(), False
        records, end = _records(record, self.grammar)
        if end is not None:
            if not self.as_spark:
                raise NotJsonError(f"more after the record, at byte {end}")
            is_whole = False
        return records, is_whole

    def _row(self, record: bytes) -> JsonExplanation:
        before = self._misfits
        row, rescued = self._struct(self.root, record, ())
        members = b"" if rescued is None else rescued[1:-1]
        return JsonExplanation(row, members, fits=self._misfits == before)

    def _value(
        self, shape: JsonShape, value: bytes, path: tuple[str, ...]
    ) -> tuple[object, Rescued]:
        """Decode a value as the fast path would have, and find what does not fit of it."""
        if isinstance(shape, JsonLeaf):
            found, rescued = _leaf(shape, value, self.grammar)
            self._misfits += rescued is not None
            return found, rescued
        if value == b"null":
            return None, None
        if value[:1] != (b"[" if isinstance(shape, JsonList) else b"{"):
            self._misfits += 1
            return UNSET, self.grammar.strict(value)
        if isinstance(shape, JsonList):
            return self._list(shape, value, path)
        if isinstance(shape, JsonMap):
            return self._map(shape, value, path)
        return self._struct(shape, value, path)

    def _struct(
        self, shape: JsonStruct, value: bytes, path: tuple[str, ...]
    ) -> tuple[object, Rescued]:
        taken: dict[int, Members] = {}
        unknown: dict[str | None, Members] = {}
        for key, text in _members(value, self.grammar):
            name = key_text(key)
            # A key has one spelling in rescued data, whatever escapes the record writes it with.
            plain = key if name is None else quote(name).encode()
            index = None if name is None else self._index(shape, name)
            if index is None:
                unknown.setdefault(name, []).append((plain, text))
                continue
            taken.setdefault(index, []).append((plain, text))
            if name != shape.names[index] and not path and name is not None:
                self.spelled[index] = name
        row: dict[str, object] = {}
        rescued: list[bytes] = []
        for index in sorted(taken):
            *earlier, (key, text) = taken[index]
            rescued += [again + b":" + self.grammar.strict(old) for again, old in earlier]
            child, below = shape.children[index], (*path, shape.names[index])
            found, rest = self._value(child, text, below)
            if earlier and self.as_spark:
                values = [self._value(child, old, below)[0] for _, old in earlier]
                found = next((each for each in (found, *reversed(values)) if _fits(each)), found)
            row[shape.attributes[index]] = found
            if rest is not None:
                rescued.append(key + b":" + rest)
        for name in sorted(unknown, key=lambda each: each or ""):
            rescued += self._unknown_fields(shape, name, unknown[name], path)
        return shape.make(**row), _object(rescued)

    def _unknown_fields(
        self, shape: JsonStruct, name: str | None, members: Members, path: tuple[str, ...]
    ) -> list[bytes]:
        """Collect what to rescue of a name that is not a column; it may come repeatedly."""
        last = members[-1][1]
        # The last one counts, here as in inference: the others must not make a column.
        if not self._is_nothing(last) and self._is_new(shape, name, last, path):
            return []
        return [
            key + b":" + self.grammar.strict(text)
            for key, text in members
            if not self._is_nothing(text)
        ]

    def _list(self, shape: JsonList, value: bytes, path: tuple[str, ...]) -> tuple[object, Rescued]:
        found: list[object] = []
        rescued: list[bytes] = []
        for position, text in enumerate(_elements(value, self.grammar)):
            element, rest = self._value(shape.element, text, path)
            if self.as_spark and not _fits(element):
                return UNSET, value
            found.append(None if element is UNSET else element)
            if rest is not None:
                rescued += [b"null"] * (position - len(rescued))
                rescued.append(rest)
        return found, b"[" + b",".join(rescued) + b"]" if rescued else None

    def _map(self, shape: JsonMap, value: bytes, path: tuple[str, ...]) -> tuple[object, Rescued]:
        last: dict[str, tuple[bytes, bytes]] = {}
        rescued: list[bytes] = []
        for key, text in _members(value, self.grammar):
            name = key_text(key)
            if name is None:
                rescued.append(key + b":" + self.grammar.strict(text))
                continue
            if name in last:
                again, old = last[name]
                rescued.append(again + b":" + self.grammar.strict(old))
            last[name] = (key, text)
        found: dict[str, object] = {}
        for name, (key, text) in last.items():
            element, rest = self._value(shape.value, text, path)
            if self.as_spark and not _fits(element):
                return UNSET, value
            found[name] = None if element is UNSET else element
            if rest is not None:
                rescued.append(key + b":" + rest)
        return found, _object(rescued)

    def _is_nothing(self, value: bytes) -> bool:
        """Tell whether an unknown field need not be kept."""
        return self.drops_nulls and value == b"null"

    def _index(self, shape: JsonStruct, name: str) -> int | None:
        """Find the column of a field name."""
        index = shape.index.get(name)
        if index is None and not self.case_sensitive:
            index = shape.folded.get(self.matcher.key(name))
        return index

    def _is_new(
        self, shape: JsonStruct, name: str | None, text: bytes, path: tuple[str, ...]
    ) -> bool:
        """Report an unknown field as a new column if it can be one."""
        if name is None:
            return False
        key = self.matcher.key(name)
        may_be_new = (
            self.collects_new
            and name
            and is_column_name(name)
            and key not in shape.folded
            and (path or key not in self.reserved)
            and not (self.left_out and (*map(self.matcher.key, path), key) in self.left_out)
        )
        if not may_be_new:
            if not path:
                self.unknown_fields.add(name)
            return False
        strict = self.grammar.strict(text)
        if not _has_column_type(strict, shape.room, drops_nulls=self.drops_nulls):
            return False
        add_sample(self.new_fields, (*path, name), _sample(strict))
        return True


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    for key, _ in pairs:
        if not is_unicode(key):
            raise NotJsonError(f"the key {json.dumps(key)} is no Unicode text")


def has_repeated_key(record: bytes) -> bool:
    """Tell whether an object anywhere in a strict record has a key twice, or may have."""
    repeated = False

    def check(pairs: list[tuple[str, object]]) -> None:
        nonlocal repeated
        repeated = repeated or len({key for key, _ in pairs}) < len(pairs)

    try:
        json.loads(record, object_pairs_hook=check, **_AS_TEXT)
    except RecursionError:
        return True  # too deep to tell so cheaply: let it be explained
    return repeated


def _leaf(shape: JsonLeaf, value: bytes, grammar: Grammar) -> tuple[object, Rescued]:
    if value == b"null":
        return Raw(value), None
    strict = grammar.strict(value)
    if shape.convert(strict) is MISFIT:
        return EMPTY, strict
    if strict == value or not isinstance(shape.kind, StringType) or value[:1] in b"\"'":
        return Raw(strict), None
    # A string column takes the text as it stands in the source, tolerant spelling and all.
    return Raw(quote(value.decode()).encode()), None


def _fits(found: object) -> bool:
    """Tell whether a value, or a part of it, found its place."""
    return found is not UNSET and found is not EMPTY


def _records(record: bytes, grammar: Grammar) -> tuple[list[bytes], int | None]:
    """Find the objects of a line; none when there are only comments; and where more follows."""
    if not record:
        return [], None
    first = record[:1]
    if first not in {b"{", b"["}:
        raise NotJsonError("neither an object nor an array of objects")
    if first == b"{" and _is_strict(record):
        return [record], None
    end = grammar.value_end(record)
    more = end if grammar.has_more(record, end) else None
    if first == b"{":
        return [record[:end]], more
    found = grammar.elements(record[:end])
    if any(each[:1] != b"{" for each in found):
        raise NotJsonError("an array with something else than objects")
    return found, more


def _is_strict(record: bytes) -> bool:
    """Tell whether a record is one strict JSON object, checked in C."""
    if record.count(b"{") + record.count(b"[") > MAX_DEPTH:
        return False  # maybe nested too deeply: let the tokens be counted
    try:
        _MEMBERS.decode(record)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _members(value: bytes, grammar: Grammar = DEFAULT) -> Members:
    """Strict key strings and value strings of an object that is known to be valid."""
    if b"\\" not in value:
        try:
            decoded = _MEMBERS.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return _tolerant_members(value, grammar)
        found = [(_QUOTE + key.encode() + _QUOTE, bytes(text)) for key, text in decoded.items()]
        # Every key has two quotes; what is left over belongs to a key that came twice.
        if value.count(_QUOTE) == 2 * len(found) + sum(text.count(_QUOTE) for _, text in found):
            return found
    return _tolerant_members(value, grammar)


def _tolerant_members(value: bytes, grammar: Grammar) -> Members:
    """Split any valid object in the same way."""
    return [(grammar.strict_key(key), text) for key, text in grammar.members(value)]


def _elements(value: bytes, grammar: Grammar = DEFAULT) -> list[bytes]:
    """Texts of the elements of an array that is known to be valid."""
    try:
        return [bytes(text) for text in _ELEMENTS.decode(value)]
    except (msgspec.DecodeError, RecursionError):
        return grammar.elements(value)


def _object(members: list[bytes]) -> Rescued:
    return b"{" + b",".join(members) + b"}" if members else None


def _has_column_type(strict: bytes, room: Room, *, drops_nulls: bool) -> bool:
    """Tell whether a column could have the type of a value, as inference will say of it.

    An empty struct has no type (B77), nor has what is nested deeper than there is room.
    """
    if strict[:1] not in b"{[" and strict not in _SAY_NOTHING:
        return True
    found = _type_of(strict, room.arrow + 1)
    seen = seen_part(found) if drops_nulls else found
    return seen is not None and canonical(seen, room) is not None


def _type_of(strict: bytes, depth: int) -> DataType:
    """Find as much of the type of a value as tells whether it has one."""
    if not depth:  # too deep for a column, whatever it holds
        return StructType([])
    if strict in _SAY_NOTHING:
        return NullType()
    if strict[:1] == b"[":
        element: DataType = NullType()
        for text in _elements(strict):
            element = merge_types(element, _type_of(text, depth - 1))
        return ArrayType(element)
    if strict[:1] == b"{":
        fields = {key_text(key): text for key, text in _members(strict)}  # the last one counts
        return StructType(
            [StructField(name, _type_of(text, depth - 1)) for name, text in fields.items() if name]
        )
    return StringType()


def _sample(strict: bytes) -> object:
    """Format a value for a message: parsed when it is short, cut off when it is long."""
    if len(strict) <= SAMPLE_CHARACTERS:
        try:
            return json.loads(strict)
        except (ValueError, RecursionError):
            return strict.decode()
    text = text_of(strict)
    return (strict.decode() if text is None else text)[:SAMPLE_CHARACTERS] + "…"
