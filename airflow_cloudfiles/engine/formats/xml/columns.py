"""How do many rows become columns at once?

The fast path. Rows whose markup is plain (`pieces`) are taken apart all at once into elements
(`elements`); these find their places in the schema by name, level by level, and the texts of a
column are converted together. A row in which something does not find its place, or does not fit,
is not taken, and is explained instead (`explain`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.arrays import Positions, validity
from airflow_cloudfiles.engine.formats.xml.elements import find_elements
from airflow_cloudfiles.engine.formats.xml.fields import SPACE, Fields
from airflow_cloudfiles.engine.formats.xml.found import Found, NodeValues
from airflow_cloudfiles.engine.formats.xml.pieces import PieceTable, cut
from airflow_cloudfiles.engine.formats.xml.places import NOWHERE, SchemaNode, SchemaNodes
from airflow_cloudfiles.engine.formats.xml.values import Values

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.xml.casts import TextCasts
    from airflow_cloudfiles.engine.formats.xml.rows import Rows
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
    """

    rows: Positions
    arrays: list[pa.Array]


_NONE: Final = np.empty(0, np.int64)
NONE_TAKEN: Final = Taken(_NONE, [])


class Columns:
    """Reads rows of one schema.

    Args:
        shape: The schema.
        kind: The schema as one Arrow struct.
        options: The options of XML.
        casts: The conversions of texts.
        case_sensitive: Whether `Foo` is another field than `foo`.
        ignores_unknown: Whether fields that the schema lacks may be dropped.
    """

    def __init__(  # noqa: PLR0913 - what a reader knows
        self,
        shape: XmlStruct,
        kind: pa.DataType,
        options: XmlOptions,
        casts: TextCasts,
        *,
        case_sensitive: bool,
        ignores_unknown: bool,
    ) -> None:
        self._places = SchemaNodes(shape, kind, case_sensitive=case_sensitive)
        self._options = options
        self._fields = Fields(options)
        self._casts = casts
        self._ignores_unknown = ignores_unknown
        self._table = PieceTable()

    def read(self, rows: Rows) -> Taken:
        """Read those rows that can be."""
        whole = [row for row in range(len(rows.texts)) if row not in rows.broken]
        if not whole:
            return NONE_TAKEN
        pieces = cut([rows.texts[row] for row in whole] if rows.broken else rows.texts)
        markup, both = pieces.strings()
        elements = find_elements(pieces, self._table.look_up(markup))
        names, attributes = list(self._table.names), list(self._table.attributes)
        too_many = self._places.size() * (len(names) + len(attributes)) > _MOST_PLACES
        if not elements.count or too_many:
            return NONE_TAKEN
        found = Found(
            elements,
            self._places,
            elements_at=self._places.table(names, self._fields.name),
            attributes_at=self._places.table(attributes, self._fields.attribute_name),
            texts_at=self._places.table([self._options.value_tag], str)[:, 0],
            ignores_unknown=self._ignores_unknown,
            ignores_attributes=self._options.exclude_attribute,
        )
        values = Values(both, pieces, self._options)
        found.find_texts(values)
        return _Reading(self._places, self._casts, found, values).taken(np.array(whole))


class _Reading:
    """One pass over some rows."""

    def __init__(self, places: SchemaNodes, casts: TextCasts, found: Found, values: Values) -> None:
        self._places = places
        self._casts = casts
        self._found = found
        self._values = values

    def taken(self, positions: Positions) -> Taken:
        """The columns of the rows of which nothing is left over."""
        found = self._found
        arrays = self._children(self._places[0], found.count)
        rows = positions[found.taken]
        if found.bad.any():
            keep = np.flatnonzero(~found.bad)
            rows, arrays = rows[keep], [array.take(pa.array(keep)) for array in arrays]
        return Taken(rows, arrays)

    def _children(self, place: SchemaNode, count: int) -> list[pa.Array]:
        return [self._column(number, count) for number in place.children]

    def _column(self, number: int, count: int) -> pa.Array:
        """What stands in a place, for each of its parents."""
        place = self._places[number]
        source = self._found.source(number)
        if place.is_leaf:
            array = self._leaf(place, source)
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

    def _leaf(self, place: SchemaNode, source: NodeValues) -> pa.Array:
        shape = cast("XmlLeaf", place.shape)
        texts, wrong = self._values.take(source.texts, are_attributes=source.are_attributes)
        if not shape.is_string and not source.are_attributes:
            # An empty element is null, as in Spark; an empty attribute is not.
            blank = pc.equal(pc.ascii_trim(texts, characters=SPACE), "")
            if pc.any(blank).as_py():
                texts = pc.if_else(blank, pa.scalar(None, pa.string()), texts)
        array, misfits = self._casts.cast(texts, place.kind, shape.convert)
        self._found.refuse(source, wrong | misfits)
        return array

    def _one_each(self, array: pa.Array, source: NodeValues, count: int) -> pa.Array:
        """At most one value for each parent."""
        parents = source.parents
        again = np.append(parents[1:] == parents[:-1], False)[: len(parents)]
        self._found.refuse(source, again)
        if len(parents) == count and not again.any():
            return array
        places = np.full(count, -1)
        places[parents] = np.arange(len(parents))
        return array.take(pa.array(places, mask=places < 0))


def _lists(kind: pa.DataType, array: pa.Array, parents: Positions, count: int) -> pa.Array:
    """All values of each parent; null where there is none."""
    lengths = np.bincount(parents, minlength=count)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [validity(lengths > 0), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, count, buffers, children=[array])
