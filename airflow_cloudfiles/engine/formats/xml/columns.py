"""Make columns of many rows at once.

The fast path. Rows whose markup is plain (`pieces`) are taken apart all at once into elements
(`elements`); these find their places in the schema by name, level by level, and the texts of a
column are converted together. A row in which something does not find its place, or does not fit,
is not taken, and is explained instead (`explain`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.base import Bools, Positions, validity
from airflow_cloudfiles.engine.formats.xml.layouts import (
    MOST_PIECES,
    Layout,
    LayoutRows,
    MarkupLayouts,
)
from airflow_cloudfiles.engine.formats.xml.pieces import (
    MarkupPieces,
    PieceTable,
    cut,
    find_elements,
    forbidden,
)
from airflow_cloudfiles.engine.formats.xml.shape import (
    NOWHERE,
    ElementPlaces,
    NodeValues,
    SchemaNode,
    SchemaNodes,
)
from airflow_cloudfiles.engine.formats.xml.tree import Fields, Values

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.xml.casts import TextCasts
    from airflow_cloudfiles.engine.formats.xml.rows import XmlRows
    from airflow_cloudfiles.engine.formats.xml.shape import XmlLeaf, XmlStruct
    from airflow_cloudfiles.engine.options.formats.xml import XmlOptions

_MOST_PLACES: Final = 1_000_000
"""Structs times names: past this, names are data and a table of them is no gain."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows that were read.

    Attributes:
        rows: Their positions, ascending.
        arrays: Their columns.
        rescued: The members of the rescued data of some of them, by position.
    """

    rows: Positions
    arrays: list[pa.Array]
    rescued: dict[int, bytes] = field(default_factory=dict)


@dataclass
class Columns:
    """Reads rows of one schema.

    Attributes:
        shape: The schema.
        kind: The schema as one Arrow struct.
        options: The options of XML.
        casts: The conversions of texts.
        case_sensitive: Whether `Foo` is another field than `foo`.
        ignores_unknown: Whether fields that the schema lacks may be dropped.
        rescues: Whether values that do not fit are rescued.
        rescues_unknown: Whether unknown fields are rescued, too, and nobody needs to know.
    """

    shape: XmlStruct
    kind: pa.DataType
    options: XmlOptions
    casts: TextCasts
    case_sensitive: bool
    ignores_unknown: bool
    rescues: bool
    rescues_unknown: bool

    def __post_init__(self) -> None:
        self._places = SchemaNodes(self.shape, self.kind, case_sensitive=self.case_sensitive)
        self._fields = Fields(self.options)
        self._table = PieceTable()
        self._layouts = MarkupLayouts(self._learn, self.options)

    def read(self, rows: XmlRows) -> list[Taken]:
        """Read those rows that can be, in groups."""
        texts = rows.texts
        if not len(texts):
            return []
        bad = forbidden(
            texts.text,
            texts.begins,
            texts.ends,
            checks_references=self.ignores_unknown or self.options.exclude_attribute,
        )
        bad[list(rows.broken)] = True
        groups, left = self._layouts.take(texts, np.flatnonzero(~bad))
        parts = [self._taken(group, group.values) for group in groups]
        if len(left):
            pieces = cut(list(texts.some(left)))
            found, values = self._find(pieces)
            if found is not None:
                taken = self._taken(found, values)
                parts.append(Taken(left[taken.rows], taken.arrays))
        return parts

    def _taken(self, found: ElementPlaces | LayoutRows, values: Values) -> Taken:
        return _RowsPass(self._places, self.casts, found, values).taken()

    def _learn(self, row: bytes) -> Layout | None:
        """Learn the layout of a row, if all that is in it has a place."""
        pieces = cut([row])
        if len(pieces.begins) > MOST_PIECES:
            return None
        found, _ = self._find(pieces, rescues_unknown=self.rescues_unknown)
        if found is None:
            return None
        names = list(self._table.names)
        numbers, texts = found.unknown_elements()
        unknown = {
            self._fields.name(names[n]): text for n, text in zip(numbers, texts, strict=True)
        }
        if len(unknown) < len(numbers):
            return None  # what is repeated is rescued as a list
        markup = pieces.strings().cast(pa.binary()).to_pylist()
        of_places = {
            place: self._fields.name(names[found.names_at(place)[0]])
            for place in self._places[0].children
            if self._is_rescued_at_once(place) and len(found.names_at(place)) == 1
        }
        layout = Layout(markup, found, self._places, unknown=unknown, names=of_places)
        return None if found.bad.any() else layout

    def _is_rescued_at_once(self, place: int) -> bool:
        """Tell whether a value that does not fit is rescued as text, whatever else a row has."""
        return self.rescues and self._places[place].is_leaf and not self._places[place].is_list

    def _find(
        self, pieces: MarkupPieces, *, rescues_unknown: bool = False
    ) -> tuple[ElementPlaces | None, Values]:
        """Find the places of what is in some rows; `None` when none of them can be taken."""
        values = Values(
            pieces.text, pieces.ends, np.append(pieces.begins[1:], len(pieces.text)), self.options
        )
        elements = find_elements(pieces, self._table.look_up(pieces.strings()))
        names, attributes = list(self._table.names), list(self._table.attributes)
        too_many = self._places.size() * (len(names) + len(attributes)) > _MOST_PLACES
        if not elements.count or too_many:
            return None, values
        found = ElementPlaces(
            elements,
            self._places,
            elements_at=self._places.table(names, self._fields.name),
            attributes_at=self._places.table(attributes, self._fields.attribute_name),
            texts_at=self._places.table([self.options.value_tag], str)[:, 0],
            ignores_unknown=self.ignores_unknown,
            ignores_attributes=self.options.exclude_attribute,
            rescues_unknown=rescues_unknown,
        )
        found.find_texts(values)
        return found, values


@dataclass(frozen=True, slots=True)
class _RowsPass:
    """One pass over some rows."""

    places: SchemaNodes
    casts: TextCasts
    found: ElementPlaces | LayoutRows
    values: Values

    def taken(self) -> Taken:
        """Take the columns of the rows of which nothing is left over."""
        found = self.found
        arrays = self._children(self.places[0], found.count)
        rescued = found.rescued() if isinstance(found, LayoutRows) else {}
        rows = found.taken
        if found.bad.any():
            keep = np.flatnonzero(~found.bad)
            rows, arrays = rows[keep], [array.take(pa.array(keep)) for array in arrays]
        return Taken(rows, arrays, rescued)

    def _children(self, place: SchemaNode, count: int) -> list[pa.Array]:
        return [self._column(number, count) for number in place.children]

    def _column(self, number: int, count: int) -> pa.Array:
        """Build what stands in a place, for each of its parents."""
        place = self.places[number]
        source = self.found.source(number)
        if place.is_leaf:
            array = self._leaf(number, source)
        elif place.struct == NOWHERE:
            array = pa.nulls(len(source.parents), place.kind)  # rows with a map are refused
        else:
            children = self._children(place, len(source.parents))
            array = pa.Array.from_buffers(
                place.kind, len(source.parents), [None], children=children
            )
        if place.is_list:
            return _lists(place.whole_kind, array, source.parents, count)
        return self._one_each(array, source, count)

    def _leaf(self, number: int, source: NodeValues) -> pa.Array:
        place = self.places[number]
        shape = cast("XmlLeaf", place.shape)
        texts, wrong = self.values.take(source.texts, are_attributes=source.are_attributes)
        if not shape.is_string and not source.are_attributes:
            # An empty element is null, as in Spark; an empty attribute is not.
            blank = self.values.are_empty(texts)
            if blank is not None:
                texts = pc.if_else(blank, pa.scalar(None, pa.string()), texts)
        array, misfits = self.casts.cast(texts, place.kind, shape.convert)
        if len(misfits) and not self.found.rescue(number, source, misfits, texts):
            wrong[misfits] = True
        self._refuse(source, wrong)
        return array

    def _refuse(self, source: NodeValues, wrong: Bools) -> None:
        """Refuse the rows of some values."""
        if wrong.any():
            self.found.bad[source.rows[wrong]] = True

    def _one_each(self, array: pa.Array, source: NodeValues, count: int) -> pa.Array:
        """Build at most one value for each parent."""
        parents = source.parents
        again = np.append(parents[1:] == parents[:-1], False)[: len(parents)]
        self._refuse(source, again)
        if len(parents) == count and not again.any():
            return array
        places = np.full(count, -1)
        places[parents] = np.arange(len(parents))
        return array.take(pa.array(places, mask=places < 0))


def _lists(kind: pa.DataType, array: pa.Array, parents: Positions, count: int) -> pa.Array:
    """Collect all values of each parent; null where there is none."""
    lengths = np.bincount(parents, minlength=count)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [validity(lengths > 0), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, count, buffers, children=[array])
