"""What does the binary form of a VARIANT say?

The other direction of `variant`: the names of a dictionary, the members of an object, and a value
as JSON, for rescued data. What the format has and Spark's functions have not yet (times of day,
nanoseconds, UUIDs) is read, too.
"""

from __future__ import annotations

import base64
import uuid
from itertools import pairwise
from struct import unpack
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from airflow_cloudfiles.engine.formats.base import quote
from airflow_cloudfiles.engine.formats.variant.encode import NotVariantError, metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_VERSION: Final = 1
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
        """The name at a place."""
        if place >= len(self._names):
            raise NotVariantError("a field has a name that the metadata does not have")
        return self._names[place]

    def members(self, value: bytes) -> list[tuple[str, bytes]]:
        """The members of an object, in the order of their names.

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
        """A value as JSON.

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
    """How many bytes the value at a place takes.

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
    """The bytes of an object or array: the last offset tells."""
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
    """The number of members or elements, and where the next thing begins."""
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


def _whole(data: bytes) -> str:
    return str(int.from_bytes(data, "little", signed=True))


def _decimal(data: bytes) -> str:
    scale, unscaled = data[0], int.from_bytes(data[1:], "little", signed=True)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text


def _double(data: bytes) -> str:
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
    **dict.fromkeys((3, 4, 5, 6), _whole),
    7: _double,
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
