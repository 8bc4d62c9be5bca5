"""How does rescued data look, for many rows at once?

One JSON object a row: members by the names in the file, values as their strings, the path of the
file last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.rescued_json import path_end, quote
from airflow_cloudfiles.engine.formats.scalars.string_casts import data_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.arrays import Positions

_SPECIAL: Final = bytes(range(0x20)) + b'"\\'


@dataclass(slots=True)
class Rescued:
    """What is rescued of the rows of a batch, column by column."""

    _rows: list[Positions] = field(default_factory=list)
    _members: list[pa.StringArray] = field(default_factory=list)

    def add(self, name: str, rows: Positions, strings: pa.StringArray) -> None:
        """Rescue strings of one column; rows ascending."""
        if len(rows):
            self.add_members(rows, _joined(quote(name) + ":", _quoted(strings)))

    def add_members(self, rows: Positions, members: pa.StringArray) -> None:
        """Rescue what is JSON already, such as `"a":"1","b":"2"`; rows ascending."""
        if len(rows):
            self._rows.append(rows)
            self._members.append(members)

    def column(self, count: int, file_uri: str) -> tuple[pa.StringArray, int]:
        """The rescued data of so many rows, and of how many there is some."""
        if not self._rows:
            return pa.nulls(count, pa.string()), 0
        rows = np.unique(np.concatenate(self._rows))
        members = [
            _spread(each, where, rows)
            for where, each in zip(self._rows, self._members, strict=True)
        ]
        joined = pc.binary_join_element_wise(*members, ",", null_handling="skip")
        path = path_end(file_uri)
        objects = pc.binary_join_element_wise("{", joined, path, "")
        return _spread(objects, rows, np.arange(count)), len(rows)


def _joined(before: str, strings: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(before, strings, "")


def _quoted(strings: pa.StringArray) -> pa.StringArray:
    """JSON strings."""
    data = data_of(strings)
    if len(data.translate(None, _SPECIAL)) == len(data):
        return pc.binary_join_element_wise('"', strings, '"', "")
    return pa.array([None if text is None else quote(text) for text in strings.to_pylist()])


def _spread(values: pa.StringArray, where: Positions, rows: Positions) -> pa.StringArray:
    """Values at some rows, among rows of which some have none; both ascending."""
    if len(where) == len(rows):
        return values
    places = np.searchsorted(where, rows)
    places[places == len(where)] = 0
    return values.take(pa.array(places, mask=where[places] != rows))
