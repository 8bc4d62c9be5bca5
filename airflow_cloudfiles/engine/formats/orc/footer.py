"""Which types and stripes does the footer of an ORC file name, before the library has read them?

The library gives a decimal without a precision, as Hive 0.11 wrote it, six digits after the point
and cuts the others off. Only the footer tells such a column from one that is `decimal(38,6)`.

The footer is a message of Protocol Buffers (`orc_proto.proto` of Apache ORC); what is needed of it
is its types: a list in the order of their columns, in which each names the places of its children.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_FOOTER_OF_TAIL: Final = 2
_STRIPES_OF_FOOTER, _TYPES_OF_FOOTER = 3, 4
_ROWS_OF_STRIPE: Final = 5
_KIND, _CHILDREN, _NAMES, _PRECISION = 1, 2, 3, 5
_DECIMAL: Final = 14
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Type:
    """A type of the footer: its kind, the places and names of its children, its precision."""

    kind: int
    children: list[int]
    names: list[str]
    precision: int


def unscaled_decimals(tail: bytes) -> dict[int, str]:
    """The columns that are, or hold, a decimal without a precision.

    Args:
        tail: The end of the file, as the library has serialized it: postscript and footer.

    Returns:
        The path of the first such decimal, by the position of its column.

    Raises:
        ValueError: It is no such message, or its types do not make a tree.
    """
    types = [_type(value) for value in _of_footer(tail, _TYPES_OF_FOOTER)]
    if not any(each.kind == _DECIMAL and not each.precision for each in types):
        return {}
    found: dict[int, str] = {}
    root = types[0]
    for column, (place, name) in enumerate(zip(root.children, root.names, strict=True)):
        path = _first_unscaled(types, place, name)
        if path is not None:
            found[column] = path
    return found


def rows_of_stripes(tail: bytes) -> list[int]:
    """How many rows each stripe says it has.

    Args:
        tail: As of `unscaled_decimals`.

    Raises:
        ValueError: It is no such message.
    """
    found = []
    for stripe in _of_footer(tail, _STRIPES_OF_FOOTER):
        rows = [value for tag, value in _fields(stripe) if tag == _ROWS_OF_STRIPE]
        found.append(max((each for each in rows if isinstance(each, int)), default=0))
    return found


def _of_footer(tail: bytes, wanted: int) -> list[bytes]:
    """The messages of a kind in the footer."""
    footer = next((value for tag, value in _fields(tail) if tag == _FOOTER_OF_TAIL), b"")
    inner = _fields(footer if isinstance(footer, bytes) else b"")
    return [value for tag, value in inner if tag == wanted and isinstance(value, bytes)]


def _first_unscaled(types: list[_Type], place: int, path: str) -> str | None:
    """Where the first decimal without a precision is at or below a type, in the file's order."""
    waiting = [(place, path)]
    while waiting:
        place, path = waiting.pop()
        if place >= len(types):
            raise ValueError("its footer names a type that it does not have")
        found = types[place]
        if found.kind == _DECIMAL and not found.precision:
            return path
        if any(each <= place for each in found.children):
            raise ValueError("its types do not make a tree")
        names = found.names or [""] * len(found.children)
        inner = zip(found.children, names, strict=True)
        waiting += reversed([(each, f"{path}.{name}" if name else path) for each, name in inner])
    return None


def _type(message: bytes) -> _Type:
    kind, precision = 0, 0
    children: list[int] = []
    names: list[str] = []
    for tag, value in _fields(message):
        if tag == _NAMES and isinstance(value, bytes):
            names.append(value.decode("utf-8", "backslashreplace"))
        elif tag == _CHILDREN:
            children += list(_varints(value)) if isinstance(value, bytes) else [value]
        elif isinstance(value, int) and tag == _KIND:
            kind = value
        elif isinstance(value, int) and tag == _PRECISION:
            precision = value
    return _Type(kind, children, names, precision)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: their numbers and values, numbers of fixed width as bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        wire = key & 7
        if wire == _VARINT:
            number, place = _varint(message, place)
            yield key >> 3, number
            continue
        if wire == _BYTES:
            size, place = _varint(message, place)
        elif wire in {_EIGHT_BYTES, _FOUR_BYTES}:
            size = 8 if wire == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"its footer has a field of the unknown kind {wire}")
        if place + size > len(message):
            raise ValueError("its footer ends too early")
        yield key >> 3, message[place : place + size]
        place += size


def _varints(packed: bytes) -> Iterator[int]:
    place = 0
    while place < len(packed):
        number, place = _varint(packed, place)
        yield number


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where the next thing begins."""
    number = shift = 0
    while place < len(message):
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the mark of the last byte
            return number, place
        shift += 7
    raise ValueError("its footer ends too early")
