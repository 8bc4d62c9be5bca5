"""Where in the schema may an element or attribute stand?

A schema as a flat list of places, and tables from place and name to place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from airflow_cloudfiles.engine.formats.xml.shape import XmlLeaf, XmlList, XmlShape, XmlStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from airflow_cloudfiles.engine.formats.arrays import Positions

NOWHERE: Final = -1


@dataclass(slots=True)
class SchemaNode:
    """A place where elements may stand.

    Attributes:
        shape: Of one element.
        kind: The Arrow type of one element.
        whole_kind: Of all elements that have one parent: `kind`, or a list of it.
        is_list: Whether it may come many times.
        struct: Its number among the structs; `NOWHERE` for others.
        children: The places in it, in the order of the schema.
    """

    shape: XmlShape
    kind: pa.DataType
    whole_kind: pa.DataType
    is_list: bool
    struct: int = NOWHERE
    children: list[int] = field(default_factory=list)

    @property
    def is_leaf(self) -> bool:
        """Whether texts stand here."""
        return isinstance(self.shape, XmlLeaf)


class SchemaNodes:
    """All places of a schema, the row itself first.

    Args:
        shape: The schema.
        kind: The schema as one Arrow struct.
        case_sensitive: Whether `Foo` is another field than `foo`.
    """

    def __init__(self, shape: XmlStruct, kind: pa.DataType, *, case_sensitive: bool) -> None:
        self._case_sensitive = case_sensitive
        self._all: list[SchemaNode] = []
        self._structs: list[SchemaNode] = []
        self._add(shape, kind)
        self.structs = np.array([place.struct for place in self._all])
        self.are_leaves = np.array([place.is_leaf for place in self._all])

    def __getitem__(self, number: int) -> SchemaNode:
        return self._all[number]

    def __len__(self) -> int:
        return len(self._all)

    def size(self) -> int:
        """How many structs there are."""
        return len(self._structs)

    def table(self, names: Iterable[str], field_of: Callable[[str], str | None]) -> Positions:
        """The place of each name in each struct; `NOWHERE` where it has none.

        Args:
            names: As they stand in the rows.
            field_of: The name of a field; `None` for what is no field.
        """
        columns = [self._column(field_of(name)) for name in names]
        return np.array(columns, np.int64).reshape(len(columns), len(self._structs)).T

    def _column(self, name: str | None) -> list[int]:
        """Where a field is, in each struct."""
        found = []
        for place in self._structs:
            index = None
            if name is not None and isinstance(place.shape, XmlStruct):
                index = place.shape.find(name, case_sensitive=self._case_sensitive)
            found.append(NOWHERE if index is None else place.children[index])
        return found

    def _add(self, shape: XmlShape, kind: pa.DataType) -> int:
        whole_kind = kind
        is_list = isinstance(shape, XmlList)
        if isinstance(shape, XmlList):
            shape, kind = shape.element, kind.value_type
        place = SchemaNode(shape, kind, whole_kind, is_list)
        number = len(self._all)
        self._all.append(place)
        if isinstance(shape, XmlStruct):
            place.struct = len(self._structs)
            self._structs.append(place)
            place.children = [
                self._add(child, kind.field(index).type)
                for index, child in enumerate(shape.children)
            ]
        return number
