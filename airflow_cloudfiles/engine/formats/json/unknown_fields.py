"""Which fields outside the schema keep coming, record after record?

When a source has drifted for good, every record has the same field too many, or the same column
in another case. Explaining each of them would be slow, so a reader learns these fields and decodes
with a struct that has them too; what they hold is rescued just as if it had been explained.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import Raw

from airflow_cloudfiles.engine.formats.json.shape import (
    EMPTY,
    JsonStruct,
    can_be_told,
    extended_class,
)
from airflow_cloudfiles.engine.formats.rescued_json import quote

MAX_LEARNT: Final = 200
"""Fields a reader learns at most: a record of arbitrary keys would not stop otherwise."""


@dataclass(frozen=True, slots=True)
class Extended:
    """A decoder for the columns and some more fields.

    Attributes:
        decoder: Its instances have the attributes of the columns' struct, and more.
        fields: Of the fields besides, the key in rescued data and a function that gets the text.
        drops_nulls: Whether a field besides that is null is nothing at all.
    """

    decoder: msgspec.json.Decoder[Any]
    fields: tuple[tuple[bytes, Any], ...]
    drops_nulls: bool = False

    def members(self, rows: list[Any]) -> tuple[dict[int, bytes], int]:
        """What the fields besides hold in rows, as members of rescued data by position.

        Returns:
            The members, and how many quotation marks they had in the source.
        """
        found: dict[int, bytes] = {}
        quotes = 0
        for key, getter in self.fields:
            values: list[Raw] = list(map(getter, rows))
            for index, value in enumerate(values):
                if value is EMPTY:
                    continue
                text = bytes(value)
                quotes += 2 + text.count(b'"')
                if self.drops_nulls and text == b"null":
                    continue
                before = found.get(index)
                found[index] = key + text if before is None else before + b"," + key + text
        return found, quotes


class UnknownFieldColumns:
    """The fields that a reader has learnt.

    Attributes:
        extended: Decodes them too; `None` as long as there are none.
    """

    def __init__(self, shape: JsonStruct, *, drops_nulls: bool = False) -> None:
        self._shape = shape
        self._drops_nulls = drops_nulls
        self._names: list[str] = []
        self._spelled: dict[int, str] = {}
        self._learnt = 0
        self.extended: Extended | None = None

    def learn(self, unknown: set[str], spelled: dict[int, str]) -> None:
        """Learn unknown fields, and how columns are spelled where case does not matter.

        Every call may be given all of what was met so far.
        """
        new = [name for name in unknown.difference(self._names) if can_be_told(name)]
        respelled = {
            index: name
            for index, name in spelled.items()
            if self._spelled.get(index) != name and can_be_told(name)
        }
        if not (new or respelled) or self._learnt >= MAX_LEARNT:
            return
        self._learnt += 1
        self._names = sorted([*self._names, *new])[:MAX_LEARNT]
        self._spelled |= respelled
        attributes = [f"x{index}" for index in range(len(self._names))]
        make = extended_class(
            self._shape,
            {self._shape.attributes[index]: name for index, name in self._spelled.items()},
            dict(zip(attributes, self._names, strict=True)),
        )
        fields = [
            (quote(name).encode() + b":", attrgetter(attribute))
            for attribute, name in zip(attributes, self._names, strict=True)
        ]
        self.extended = Extended(msgspec.json.Decoder(make), tuple(fields), self._drops_nulls)
