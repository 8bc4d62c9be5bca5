"""Write JSON values as VARIANTs, and read VARIANTs.

The binary form of Spark and Parquet (Variant Binary Encoding, version 1): a dictionary of the names
of fields, and a value that refers to it. As Spark's `parse_json`: whole numbers are as small as can
be, fractions are decimals with all of their digits (`1.10` stays `1.10`), numbers with an exponent,
or of more than 38 digits, are doubles: infinity beyond the largest one.

A name that comes twice in an object, and a string that is no UTF-8, have no VARIANT.

The other direction of `variant`: the names of a dictionary, the members of an object, and a value
as JSON, for rescued data. What the format has and Spark's functions have not yet (times of day,
nanoseconds, UUIDs) is read, too.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Sequence
from itertools import pairwise
from struct import pack, unpack
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from airflow_cloudfiles.engine.formats.base import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_BYTES: Final = 16 * 2**20
"""The largest value, and the largest dictionary, that every reader of the format takes."""

_VERSION: Final = 1
_NULL, _TRUE, _FALSE = b"\x00", b"\x04", b"\x08"
_INTEGERS: Final = ((1, b"\x0c"), (2, b"\x10"), (4, b"\x14"), (8, b"\x18"))
_DOUBLE: Final = b"\x1c"
_DECIMALS: Final = ((9, 4, b"\x20"), (18, 8, b"\x24"), (38, 16, b"\x28"))
_MOST_OF_DECIMAL: Final = 41
"""Characters of a decimal: 38 digits, a zero before the point, the point and a sign."""
_LONG_STRING: Final = b"\x40"
_LONG_CHARACTERS: Final = 20
_MAX_SHORT_STRING: Final = 63
_MOST_IN_ONE_BYTE: Final = 255
_TOKEN: Final = re.compile(r'[ \t\r\n]*+([{}\[\],:]|"(?:[^"\\]|\\.)*+"|[^\s{}\[\],:"]++)')
"""A mark, a string, a number or a word of valid JSON."""
_OPENING, _CLOSING, _BETWEEN = frozenset("{["), frozenset("}]"), frozenset(",:")


class NotVariantError(ValueError):
    """The value cannot be a VARIANT without a loss; the message says why."""


class _Number(str):
    """The text of a number that is not whole."""

    __slots__ = ()


class _Pairs(list[tuple[str, object]]):
    """The members of an object, in their order."""

    __slots__ = ()


def encode_json(text: bytes, *, checked: bool = False) -> tuple[bytes, bytes]:
    """Encode strict JSON.

    Args:
        text: One value.
        checked: Whether it is known to be valid. Then it may be nested as deeply as a `Grammar`
            allows, and `NaN`, `Infinity` and `-Infinity` may stand for numbers.

    Returns:
        Value and metadata, as `VARIANT` has them.

    Raises:
        NotVariantError: It has no VARIANT, or is larger than `MAX_BYTES`.
    """
    try:
        try:
            return encode(_parse(text.decode(), words=checked))
        except RecursionError:
            if not checked:
                raise
            return _encode_deep(text.decode())
    except (RecursionError, UnicodeError) as error:
        raise NotVariantError(
            "nested too deeply" if isinstance(error, RecursionError) else "a text has no UTF-8"
        ) from error
    except ValueError as error:
        if isinstance(error, NotVariantError):
            raise
        raise NotVariantError(str(error)) from error


def _parse(text: str, *, words: bool) -> object:
    return json.loads(
        text,
        parse_float=_Number,
        parse_int=_whole,
        parse_constant=float if words else _refuse,
        object_pairs_hook=_Pairs,
    )


def _encode_deep(text: str) -> tuple[bytes, bytes]:
    """Encode valid JSON that is nested too deeply for a parser that calls itself."""
    names: dict[str, int] = {}
    # What is open: for each object or array its names, `None` for an array, and its values.
    opened: list[tuple[list[str] | None, list[bytes]]] = [(None, [])]
    place = 0
    while (token := _TOKEN.match(text, place)) is not None:
        place, word = token.end(), token[1]
        if word in _OPENING:
            opened.append(([] if word == "{" else None, []))
        elif word in _CLOSING:
            keys, values = opened.pop()
            if keys is None:
                opened[-1][1].append(array_of(values))
            else:
                members = list(zip(keys, values, strict=True))
                opened[-1][1].append(object_of(members, names))
        elif word not in _BETWEEN:
            keys, values = opened[-1]
            if keys is not None and len(keys) == len(values):
                keys.append(json.loads(word))
                names.setdefault(keys[-1], len(names))
            else:
                values.append(_value(_parse(word, words=True), names))
    return _checked(opened[0][1][0], names)


def encode(parsed: object, names: dict[str, int] | None = None) -> tuple[bytes, bytes]:
    """Encode Python objects: dictionaries, lists, strings, numbers, booleans and `None`.

    Args:
        parsed: The value.
        names: The places of names in the dictionary; gets those that it lacks.

    Raises:
        NotVariantError: See `encode_json`.
    """
    names = {} if names is None else names
    return _checked(_value(parsed, names), names)


def _checked(value: bytes, names: dict[str, int]) -> tuple[bytes, bytes]:
    metadata = metadata_of(list(names))
    if max(len(value), len(metadata)) > MAX_BYTES:
        raise NotVariantError(f"larger than {MAX_BYTES} bytes")
    return value, metadata


def _refuse(word: str) -> object:
    raise NotVariantError(f"{word} is no JSON")


def _whole(digits: str) -> object:
    # A number of so many digits need not be made one to see that it is too large.
    return int(digits) if len(digits) <= _LONG_CHARACTERS else _Number(digits)


def _value(parsed: object, names: dict[str, int]) -> bytes:
    scalar = _SCALARS.get(type(parsed))
    if scalar is not None:
        return scalar(parsed)
    if isinstance(parsed, _Pairs):
        return _object(parsed, names)
    if isinstance(parsed, dict):
        return _object(_Pairs(parsed.items()), names)
    if isinstance(parsed, list):
        return array_of([_value(each, names) for each in parsed])
    raise NotVariantError(f"a {type(parsed).__name__} has no form in JSON")


def array_of(values: list[bytes]) -> bytes:
    """Encode an array of values."""
    return _container(0b11, values, None)


def string_of(text: str) -> bytes:
    """Encode a string."""
    data = text.encode()
    if len(data) <= _MAX_SHORT_STRING:
        return bytes([len(data) << 2 | 0b01]) + data
    return _LONG_STRING + len(data).to_bytes(4, "little") + data


def integer_of(number: int) -> bytes:
    """Encode a whole number, in as few bytes as it takes."""
    for width, header in _INTEGERS:
        if -(1 << (8 * width - 1)) <= number < 1 << (8 * width - 1):
            return header + number.to_bytes(width, "little", signed=True)
    return number_of(str(number))


def number_of(text: str) -> bytes:
    """Encode a decimal with the digits of its text, or the nearest double."""
    if len(text) <= _MOST_OF_DECIMAL and "e" not in text and "E" not in text:
        whole, _, fraction = text.lstrip("-").partition(".")
        unscaled, scale = int(whole + fraction), len(fraction)
        digits = max(len(str(unscaled)), scale)
        for most, width, header in _DECIMALS:
            if digits <= most:
                signed = -unscaled if text[0] == "-" else unscaled
                return header + bytes([scale]) + signed.to_bytes(width, "little", signed=True)
    return _double(float(text))


def _double(number: float) -> bytes:
    return _DOUBLE + pack("<d", number)


def _object(members: _Pairs, names: dict[str, int]) -> bytes:
    # The names of an object come before those of the objects in it, as in Spark.
    encoded: list[tuple[str, bytes]] = []
    for name, each in members:
        names.setdefault(name, len(names))
        encoded.append((name, _value(each, names)))
    return object_of(encoded, names)


def object_of(members: Sequence[tuple[str, bytes]], names: dict[str, int]) -> bytes:
    """Encode an object: fields in the order of their names, values in that of the source.

    Args:
        members: Names and values.
        names: The places of names in the dictionary; gets those that it lacks.

    Raises:
        NotVariantError: A name comes twice.
    """
    fields: dict[str, tuple[int, int]] = {}
    for place, (name, _) in enumerate(members):
        if name in fields:
            raise NotVariantError(f"the name {name!r} comes twice in an object")
        fields[name] = (names.setdefault(name, len(names)), place)
    # Spark looks names up by the order of Java's strings, which is that of UTF-16.
    order = None if "".join(fields).isascii() else lambda name: name.encode("utf-16-be")
    ordered = [fields[name] for name in sorted(fields, key=order)]
    return _container(0b10, [value for _, value in members], ordered)


def _container(kind: int, values: list[bytes], fields: list[tuple[int, int]] | None) -> bytes:
    """Encode an array, or an object if there are identifiers of fields with positions of values."""
    offsets = [0]
    for each in values:
        offsets.append(offsets[-1] + len(each))
    count_width = 1 if len(values) <= _MOST_IN_ONE_BYTE else 4
    offset_width = _width(offsets[-1])
    header = offset_width - 1
    identifiers = b""
    if fields is None:
        header |= (count_width == 4) << 2  # noqa: PLR2004 - a large array
    else:
        identifier_width = _width(max((each for each, _ in fields), default=0))
        header |= (identifier_width - 1) << 2 | (count_width == 4) << 4  # noqa: PLR2004 - likewise
        identifiers = b"".join(each.to_bytes(identifier_width, "little") for each, _ in fields)
        offsets = [*(offsets[place] for _, place in fields), offsets[-1]]
    return b"".join(
        (
            bytes([header << 2 | kind]),
            len(values).to_bytes(count_width, "little"),
            identifiers,
            *(each.to_bytes(offset_width, "little") for each in offsets),
            *values,
        )
    )


def metadata_of(names: Sequence[str]) -> bytes:
    """Encode the dictionary of names."""
    strings = [name.encode() for name in names]
    offsets = [0]
    for each in strings:
        offsets.append(offsets[-1] + len(each))
    width = _width(max(offsets[-1], len(strings)))
    numbers = (each.to_bytes(width, "little") for each in (len(strings), *offsets))
    return b"".join((bytes([_VERSION | (width - 1) << 6]), *numbers, *strings))


def _width(number: int) -> int:
    """Bytes that hold a number."""
    if number >= 1 << 24:
        raise NotVariantError(f"larger than {MAX_BYTES} bytes")
    return 1 if number < 1 << 8 else 2 if number < 1 << 16 else 3


_SCALARS: Final[dict[type, Callable[[Any], bytes]]] = {
    _Number: number_of,
    str: string_of,
    int: integer_of,
    float: _double,
    bool: lambda value: _TRUE if value else _FALSE,
    type(None): lambda _: _NULL,
}


_SHORT_STRING, _OBJECT, _ARRAY = 1, 2, 3
_NOT_FINITE: Final = {"inf": '"Infinity"', "-inf": '"-Infinity"', "nan": '"NaN"'}
_DAY_MICROS: Final = 86_400_000_000


class Names:
    """The dictionary of a VARIANT, which may grow.

    Args:
        metadata: Its binary form.

    Attributes:
        ids: Where each name is.

    Raises:
        NotVariantError: It is none, or of a version that nobody knows.
    """

    def __init__(self, metadata: bytes) -> None:
        if not metadata or metadata[0] & 0x0F != _VERSION:
            raise NotVariantError("the metadata is not of version 1")
        width = (metadata[0] >> 6) + 1
        size = _number(metadata, 1, width)
        begin = 1 + width * (size + 2)
        offsets = [_number(metadata, 1 + width * (each + 1), width) for each in range(size + 1)]
        strings = metadata[begin : begin + offsets[-1]]
        if len(strings) != offsets[-1] or sorted(offsets) != offsets:
            raise NotVariantError("the metadata ends too early")
        parts = pairwise(offsets)
        try:
            self._names = [strings[start:end].decode() for start, end in parts]
        except UnicodeDecodeError as error:
            raise NotVariantError("a name is no UTF-8") from error
        self._metadata = metadata
        self._size = size
        self.ids: dict[str, int] = {}
        for place, name in enumerate(self._names):
            self.ids.setdefault(name, place)

    @property
    def metadata(self) -> bytes:
        """Its binary form, with the names that were added."""
        if len(self._names) != self._size:
            self._metadata, self._size = metadata_of(self._names), len(self._names)
        return self._metadata

    def learn(self, name: str) -> None:
        """Add a name, unless it is there."""
        if name not in self.ids:
            self.ids[name] = len(self._names)
            self._names.append(name)

    def __getitem__(self, place: int) -> str:
        """Return the name at a place."""
        if place >= len(self._names):
            raise NotVariantError("a field has a name that the metadata does not have")
        return self._names[place]

    def members(self, value: bytes) -> list[tuple[str, bytes]]:
        """List the members of an object, in the order of their names.

        Raises:
            NotVariantError: It is no object, or damaged.
        """
        if not value or value[0] & 3 != _OBJECT:
            raise NotVariantError("the value is no object")
        header = value[0] >> 2
        offset_width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1
        count, place = _count(value, large=bool(header & 0x10))
        offsets_at = place + count * id_width
        begin = offsets_at + (count + 1) * offset_width
        found = []
        for each in range(count):
            name = self[_number(value, place + each * id_width, id_width)]
            at = begin + _number(value, offsets_at + each * offset_width, offset_width)
            found.append((name, value[at : at + size_of(value, at)]))
        _check_sizes(value, (each for _, each in found))
        return found

    def json(self, value: bytes) -> str:
        """Format a value as JSON.

        Raises:
            NotVariantError: It is damaged, or of a type that nobody knows.
        """
        if not value:
            raise NotVariantError("there is no value")
        kind, header = value[0] & 3, value[0] >> 2
        if kind == _SHORT_STRING:
            return quote(_text(value[1 : 1 + header]))
        if kind == _OBJECT:
            members = (f"{quote(key)}:{self.json(each)}" for key, each in self.members(value))
            return "{" + ",".join(members) + "}"
        if kind == _ARRAY:
            elements = list(_elements(value))
            _check_sizes(value, elements)
            return "[" + ",".join(map(self.json, elements)) + "]"
        size = size_of(value, 0)
        return _PRIMITIVES[header](value[1:size])


def size_of(value: bytes, place: int) -> int:
    """Compute how many bytes the value at a place takes.

    Raises:
        NotVariantError: It is cut off.
    """
    kind, header = _number(value, place, 1) & 3, value[place] >> 2
    if kind == _SHORT_STRING:
        size = 1 + header
    elif kind == _OBJECT:
        count, begin = _count(value[place : place + 5], large=bool(header & 0x10))
        size = _nested_size(value, place, begin + count * ((header >> 2 & 3) + 1), count)
    elif kind == _ARRAY:
        count, begin = _count(value[place : place + 5], large=bool(header & 4))
        size = _nested_size(value, place, begin, count)
    elif header in _LONG:
        size = 5 + _number(value, place + 1, 4)
    elif header in _SIZES:
        size = 1 + _SIZES[header]
    else:
        raise NotVariantError(f"a value has the type {header}, which is not known")
    if place + size > len(value):
        raise NotVariantError("a value is cut off")
    return size


def _check_sizes(value: bytes, parts: Iterable[bytes]) -> None:
    """Refuse parts that overlap: a few bytes could stand for more than any memory holds."""
    if sum(map(len, parts)) > len(value):
        raise NotVariantError("the parts of a value overlap")


def _nested_size(value: bytes, place: int, offsets_at: int, count: int) -> int:
    """Read the bytes of an object or array: the last offset tells."""
    width = (value[place] >> 2 & 3) + 1
    last = offsets_at + count * width
    return last + width + _number(value, place + last, width)


def _elements(value: bytes) -> Iterator[bytes]:
    header = value[0] >> 2
    count, place = _count(value, large=bool(header & 4))
    width = (header & 3) + 1
    begin = place + (count + 1) * width
    for each in range(count):
        at = begin + _number(value, place + each * width, width)
        yield value[at : at + size_of(value, at)]


def _count(value: bytes, *, large: bool) -> tuple[int, int]:
    """Read the number of members or elements, and find where the next thing begins."""
    width = 4 if large else 1
    return _number(value, 1, width), 1 + width


def _number(data: bytes, place: int, width: int) -> int:
    found = data[place : place + width]
    if len(found) < width:
        raise NotVariantError("a value is cut off")
    return int.from_bytes(found, "little")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotVariantError("a string is no UTF-8") from error


def _decimal(data: bytes) -> str:
    scale, unscaled = data[0], int.from_bytes(data[1:], "little", signed=True)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text


def _double_text(data: bytes) -> str:
    text = repr(unpack("<d", data)[0])
    return _NOT_FINITE.get(text, text)


def _float(data: bytes) -> str:
    text = str(np.frombuffer(data, "<f4")[0])
    return _NOT_FINITE.get(text, text)


def _moment(unit: str, end: str = "") -> Callable[[bytes], str]:
    def rule(data: bytes) -> str:
        number = int.from_bytes(data, "little", signed=True)
        text = str(np.datetime64(number, unit))  # type: ignore[call-overload]
        if text == "NaT":
            return str(number)
        return f'"{text.rstrip("0").rstrip(".") if "." in text else text}{end}"'

    return rule


def _time(data: bytes) -> str:
    micros = int.from_bytes(data, "little", signed=True)
    if not 0 <= micros < _DAY_MICROS:
        return str(micros)
    text = str(np.datetime64(micros, "us")).partition("T")[2]
    return f'"{text.rstrip("0").rstrip(".")}"'


_LONG: Final = frozenset({15, 16})
"""Types with four bytes that say how long they are."""
_SIZES: Final = {
    0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 4, 6: 8, 7: 8, 8: 5, 9: 9, 10: 17, 11: 4, 12: 8, 13: 8,
    14: 4, 17: 8, 18: 8, 19: 8, 20: 16,
}  # fmt: skip
"""How many bytes the primitive types take."""
_PRIMITIVES: Final[dict[int, Callable[[Any], str]]] = {
    0: lambda _: "null",
    1: lambda _: "true",
    2: lambda _: "false",
    **dict.fromkeys((3, 4, 5, 6), lambda data: str(int.from_bytes(data, "little", signed=True))),
    7: _double_text,
    **dict.fromkeys((8, 9, 10), _decimal),
    11: _moment("D"),
    12: _moment("us", "Z"),
    13: _moment("us"),
    14: _float,
    15: lambda data: f'"{base64.b64encode(data[4:]).decode()}"',
    16: lambda data: quote(_text(data[4:])),
    17: _time,
    18: _moment("ns", "Z"),
    19: _moment("ns"),
    20: lambda data: f'"{uuid.UUID(bytes=data)}"',
}
