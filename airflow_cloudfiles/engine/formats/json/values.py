"""Where in one buffer are the JSON values of a column, and of what kind is each?

The values of a column are kept as lines of one buffer, which a few vectorised passes turn into
positions. Slices of it become Arrow arrays without touching the values one by one.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.arrays import Bools, Bytes, Positions, validity

_LINE_BREAK = ord("\n")


class JsonValues:
    """Lines of a buffer; every line ends with a line break.

    A line is the JSON text of one value, already known to be valid; it is empty where the record
    had no such value.
    """

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.bytes = np.frombuffer(buffer, np.uint8)
        self.ends: Positions = np.flatnonzero(self.bytes == _LINE_BREAK)
        self.count = len(self.ends)

    @cached_property
    def starts(self) -> Positions:
        """Where each text begins."""
        starts = np.zeros(self.count, np.int64)
        starts[1:] = self.ends[:-1] + 1
        return starts

    @cached_property
    def first(self) -> Bytes:
        """First byte of each text; the line break for an empty one."""
        return self.bytes[self.starts]

    @cached_property
    def lengths(self) -> Positions:
        """Length of each text."""
        return self.ends - self.starts

    @cached_property
    def null(self) -> Bools:
        """Which are empty or `null`."""
        null: Bools = (self.first == _LINE_BREAK) | (self.first == ord("n"))
        return null

    @cached_property
    def quoted(self) -> Bools:
        """Which are strings."""
        quoted: Bools = self.first == ord('"')
        return quoted

    @cached_property
    def number(self) -> Bools:
        """Which are numbers."""
        digit: Bools = (self.first >= ord("0")) & (self.first <= ord("9"))
        number: Bools = digit | (self.first == ord("-"))
        return number

    @cached_property
    def empty(self) -> int:
        """How many are empty."""
        return int(np.count_nonzero(self.first == _LINE_BREAK))

    @cached_property
    def escaped(self) -> Bools:
        """Which have a backslash somewhere."""
        return self.having(b"\\")

    def having(self, characters: bytes) -> Bools:
        """Which have one of these bytes somewhere."""
        found = np.zeros(self.count, np.bool_)
        for character in characters:
            if character in self.buffer:
                places = np.flatnonzero(self.bytes == character)
                found[np.searchsorted(self.ends, places)] = True
        return found

    def last(self, distance: int) -> Bytes:
        """The byte so many places before the end of each text (of another if it is shorter)."""
        return self.bytes[np.maximum(self.ends - distance, 0)]

    def slice(self, valid: Bools | None, *, quoted: bool) -> pa.Array:
        """The strings as a string array, without their quotes if all that matter are quoted.

        Args:
            valid: Which of them matter; the others are null.
            quoted: Whether to cut off the first and the last byte.
        """
        offsets = np.zeros(self.count + 1, np.int32)
        offsets[1:] = self.ends + 1
        bitmap = None if valid is None else validity(valid)
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(self.buffer)]
        lines = pa.Array.from_buffers(pa.binary(), self.count, buffers)
        cut = pc.binary_slice(lines, 1, -2) if quoted else pc.binary_slice(lines, 0, -1)
        return cut.view(pa.string())

    def unquoted(self, valid: Bools | None) -> pa.Array:
        """The strings as a string array, those that are strings without their quotes."""
        keep = np.ones(len(self.bytes), np.bool_)
        keep[self.ends] = False
        keep[self.starts[self.quoted]] = False
        keep[self.ends[self.quoted] - 1] = False
        offsets = np.zeros(self.count + 1, np.int32)
        np.cumsum(self.lengths - 2 * self.quoted, out=offsets[1:])
        bitmap = None if valid is None else validity(valid)
        data = np.ascontiguousarray(self.bytes[keep])
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.string(), self.count, buffers)

    def value(self, position: int) -> bytes:
        """One text."""
        return self.buffer[self.starts[position] : self.ends[position]]
