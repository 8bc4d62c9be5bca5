"""Make columns of many rows at once.

The fast path. Rows whose markup is plain (`pieces`) are taken apart all at once into elements;
these find their places in the schema by name, level by level (`shape`), and the texts of a
column are converted together. A row in which something does not find its place, or does not fit,
is not taken, and is explained instead (`explain`).

Programs write most files: row after row has the same tags in the same order. Such a row is
understood once, as rows of any markup are, and is a layout from then on. Other rows are compared
with it byte by byte, but for their values, many rows at a time. What was found in the one is then
true of all of them: only the values differ.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats import base
from airflow_cloudfiles.engine.formats.base import Bools, Positions, validity
from airflow_cloudfiles.engine.formats.xml.pieces import (
    MarkupPieces,
    PieceTable,
    cut,
    find_elements,
    forbidden,
)
from airflow_cloudfiles.engine.formats.xml.rows import WORD_BYTES, head_of, words_of
from airflow_cloudfiles.engine.formats.xml.shape import (
    NOWHERE,
    ElementPlaces,
    NodeValues,
    SchemaNode,
    SchemaNodes,
)
from airflow_cloudfiles.engine.formats.xml.tree import Fields, Values, are_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_cloudfiles.engine.formats.xml.rows import CutRows, XmlRows
    from airflow_cloudfiles.engine.formats.xml.shape import TextCasts, XmlLeaf, XmlStruct
    from airflow_cloudfiles.engine.options.formats.nested import XmlOptions


MOST_PIECES: Final = 512
"""A layout of more is compared piece by piece with few rows of a block, which is no gain."""
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode
_QUOTES: Final = b"\"'"
_SMALLEST_SHARE: Final = 1 / 16
"""Fewer rows of a block than this are read together with all that have no layout."""
_MOST_FAILURES: Final = 2
"""Rows of a block that were tried as a layout in vain, after which no more are."""
_MOST_SKIPPED: Final = 16
"""Blocks in which no layout is looked for after one without any: each time one more."""
_NONE: Final = np.empty(0, np.int64)


class Layout:
    """The markup of a row, and what was found in it.

    Args:
        pieces: The markup: tags, parted where values of attributes are.
        found: The row itself, read alone.
        places: The schema.
        unknown: The fields that the schema has not and that are rescued: the piece before each.
        names: As the row has them, of the places whose values are rescued when they do not fit.

    Attributes:
        sources: Where the values of each place of the schema come from, in the row.
        parents: How many elements there are in the place above.
        unknown: As above, in the order of rescued data.
        names: As above.
    """

    def __init__(
        self,
        pieces: list[bytes],
        found: ElementPlaces,
        places: SchemaNodes,
        *,
        unknown: dict[str, int],
        names: dict[int, str],
    ) -> None:
        self._lengths = np.array([[len(piece)] for piece in pieces])
        are_tags = np.array([piece[:1] == b"<" for piece in pieces])
        numbers = np.cumsum(are_tags) - 1
        self._tags = [
            number if is_tag else None
            for number, is_tag in zip(numbers.tolist(), are_tags.tolist(), strict=True)
        ]
        self._heads = [head_of(piece) for piece in pieces if piece[:1] == b"<"]
        self._words = [list(_words(piece)) for piece in pieces]
        self._quote = next((piece[-1:] for piece in pieces if piece[-1] in _QUOTES), None)
        # What is behind the last piece is behind the row.
        self._between = found.between[found.between < len(pieces) - 1]
        self._beside, self._blank = found.beside, found.beside_is_blank
        self.unknown = dict(sorted(unknown.items()))
        self.names = names
        self.sources = [NodeValues(_NONE, _NONE, _NONE)]
        self.sources += [found.source(place) for place in range(1, len(places))]
        self.parents = [1] * len(places)
        for number, source in enumerate(self.sources):
            for child in places[number].children:
                self.parents[child] = len(source.parents) if number else 1

    def find(self, block: Block, candidates: Positions) -> LayoutRows | None:
        """Find those of some rows that have this layout; `None` when there are none."""
        rows = candidates[block.counts[candidates] == len(self._heads)]
        tags = block.firsts[rows] + np.arange(len(self._heads))[:, None]
        alike = np.ones(len(rows), np.bool_)
        for (mask, head), tag in zip(self._heads, tags, strict=True):
            alike &= (block.tags.heads[tag] & mask) == head
        if not alike.any():
            return None
        if not alike.all():
            rows, tags = rows[alike], tags[:, alike]
        begins = self._begins(block, rows, tags)
        # Where each value begins, and where the next piece: the row's own end for the last one.
        values, nexts = begins[:-1] + self._lengths, begins[1:]
        alike = (values <= nexts).all(axis=0) & (values[-1] == nexts[-1])
        if self._quote is not None:
            alike &= begins[-2] <= len(block.words) - 1
        if not alike.all():
            rows, values, nexts = rows[alike], values[:, alike], nexts[:, alike]
        alike = self._are_same(block, values)
        alike &= self._have_same_texts(block, values, nexts)
        if not alike.all():
            rows, values, nexts = rows[alike], values[:, alike], nexts[:, alike]
        return LayoutRows(
            self, rows, Values(block.text, values.ravel(), nexts.ravel(), block.options)
        )

    def _begins(self, block: Block, rows: Positions, tags: Positions) -> Positions:
        """Find where the pieces should begin, one line each, and where the rows end."""
        begins = np.empty((len(self._lengths) + 1, len(rows)), np.int64)
        begins[-1] = block.ends[rows]
        if self._quote is None:
            begins[:-1] = block.tags.begins[tags]
            return begins
        quotes = block.quotes(self._quote)
        nexts = np.zeros(len(rows), np.int64)
        for piece, tag in enumerate(self._tags):
            if tag is None:
                # A piece between two values has a quote at either end.
                begins[piece] = quotes.take(nexts, mode="clip") if len(quotes) else 0
                nexts += 2
            else:
                begins[piece] = block.tags.begins[tags[tag]]
                nexts = np.searchsorted(quotes, begins[piece]) + 1
        return begins

    def _are_same(self, block: Block, values: Positions) -> Bools:
        """Tell whether the pieces before values are the layout's, past the heads of tags."""
        alike = np.ones(values.shape[1], np.bool_)
        for piece, words in enumerate(self._words):
            for back, mask, word in words:
                alike &= (block.words[values[piece] - back] & mask) == word
        return alike

    def _have_same_texts(self, block: Block, values: Positions, nexts: Positions) -> Bools:
        """Tell whether there is text only where the layout has some."""
        alike = np.ones(values.shape[1], np.bool_)
        for piece in self._between.tolist():
            alike &= are_blank(block.characters, values[piece], nexts[piece])
        for piece, blank in zip(self._beside.tolist(), self._blank.tolist(), strict=True):
            alike &= are_blank(block.characters, values[piece], nexts[piece]) == blank
        return alike


class LayoutRows:
    """Rows of one layout; says where values come from, as `ElementPlaces` does for any markup.

    Args:
        layout: Their layout.
        taken: The position of each row in the block.
        values: All that is behind their pieces: behind one piece of every row, then the next.

    Attributes:
        taken: As above.
        values: As above.
        bad: The rows that are refused.
    """

    def __init__(self, layout: Layout, taken: Positions, values: Values) -> None:
        self.taken = taken
        self.values = values
        self.bad = np.zeros(len(taken), np.bool_)
        self._layout = layout
        self._rows = np.arange(len(taken))
        self._members: defaultdict[int, list[str]] = defaultdict(list)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.taken)

    def rescue(self, place: int, source: NodeValues, misfits: Positions, texts: pa.Array) -> bool:
        """Rescue values that do not fit; places are given in the order of the schema.

        Returns:
            Whether they are; if not, their rows are to be refused.
        """
        name = self._layout.names.get(place)
        if name is not None:
            self._rescue(name, source.rows[misfits], texts.take(pa.array(misfits)))
        return name is not None

    def _rescue(self, name: str, rows: Positions, texts: pa.Array) -> None:
        key = base.quote(name) + ":"
        for row, text in zip(rows.tolist(), texts.to_pylist(), strict=True):
            self._members[row].append(key + _encode(text))

    def rescued(self) -> dict[int, bytes]:
        """Collect the members of the rescued data of rows that are not refused, by position.

        Rows in which an unknown field is not well-formed are refused here.
        """
        for name, piece in self._layout.unknown.items():
            places = self._rows + piece * self.count if piece >= 0 else np.full(self.count, -1)
            texts, wrong = self.values.take(places, are_attributes=False)
            self.bad |= wrong
            self._rescue(name, self._rows, texts)
        positions, bad = self.taken.tolist(), self.bad.tolist()
        return {
            positions[row]: ",".join(members).encode()
            for row, members in self._members.items()
            if not bad[row]
        }

    def source(self, place: int) -> NodeValues:
        """Return what stands in a place, for all rows."""
        one, parents = self._layout.sources[place], self._layout.parents[place]
        rows = self._rows
        if len(one.rows) == 1 == parents and one.texts[0] >= 0:
            return NodeValues(rows, rows, one.texts[0] * self.count + rows, one.are_attributes)
        texts = np.where(one.texts < 0, -1, one.texts * self.count + rows[:, None])
        return NodeValues(
            (one.parents + rows[:, None] * parents).ravel(),
            np.repeat(rows, len(one.rows)),
            texts.ravel(),
            one.are_attributes,
        )


class Block:
    """A text with rows in it, ready to be compared with layouts.

    Args:
        rows: The rows.
        options: How their values are meant.
    """

    def __init__(self, rows: CutRows, options: XmlOptions) -> None:
        self.text = rows.text
        self.tags = rows.tags
        self.ends = rows.ends
        self.firsts = np.searchsorted(self.tags.begins, rows.begins)
        self.counts = np.searchsorted(self.tags.begins, rows.ends) - self.firsts
        self.words = words_of(rows.text)
        self.characters = np.frombuffer(rows.text, np.uint8)
        self.options = options
        self._quotes: dict[bytes, Positions] = {}

    def quotes(self, quote: bytes) -> Positions:
        """Find where a kind of quotes is."""
        if quote not in self._quotes:
            self._quotes[quote] = np.flatnonzero(self.characters == ord(quote))
        return self._quotes[quote]


class MarkupLayouts:
    """The layouts of a file's rows; learns as it meets them.

    Args:
        learn: Understands a row; `None` for one that is no model for others.
        options: How values are meant.
    """

    def __init__(self, learn: Callable[[bytes], Layout | None], options: XmlOptions) -> None:
        self._learn = learn
        self._options = options
        self._known: list[Layout] = []
        self._in_vain = 0
        self._skipped = 0

    def take(self, rows: CutRows, left: Positions) -> tuple[list[LayoutRows], Positions]:
        """Find rows that have a layout.

        Args:
            rows: The rows of a block.
            left: Those of them that may be taken.

        Returns:
            Those that have one, the rows of each layout together; and those that have none.
        """
        if self._skipped < min(self._in_vain, _MOST_SKIPPED):
            self._skipped += 1
            return [], left
        block = Block(rows, self._options)
        smallest = max(1, int(len(left) * _SMALLEST_SHARE))
        known, failures = self._known, 0
        self._known, groups = [], []
        while len(left) >= smallest and failures < _MOST_FAILURES:
            is_known = bool(known)
            layout = known.pop(0) if known else self._learn(_model(block, rows, left, failures))
            group = None if layout is None else layout.find(block, left)
            if layout is None or group is None or group.count < smallest:
                failures += not is_known
                continue
            self._known.append(layout)
            groups.append(group)
            left = _without(left, group.taken)
        self._skipped, self._in_vain = 0, 0 if groups else self._in_vain + 1
        return groups, left


def _model(block: Block, rows: CutRows, left: Positions, failures: int) -> bytes:
    """Choose a row to learn from: it has as many tags as most of them."""
    counts = block.counts[left]
    alike = left[counts == np.bincount(counts).argmax()]
    # When the first one was none, the last one may be.
    return rows[int(alike[-failures])]


def _without(positions: Positions, others: Positions) -> Positions:
    """Positions, ascending, that others, which are among them, leave."""
    if len(others) == len(positions):
        return _NONE
    is_left = np.zeros(int(positions[-1]) + 1, np.bool_)
    is_left[positions] = True
    is_left[others] = False
    return np.flatnonzero(is_left)


def _words(piece: bytes) -> Iterator[tuple[int, np.uint64, np.uint64]]:
    """Yield the words that a piece is compared by: how far before its end, mask, content.

    The head of a tag is none of them. The last one overlaps with the one before.
    """
    last = max(0, len(piece) - WORD_BYTES)
    for offset in {*range(0, last, WORD_BYTES), last}:
        if offset or piece[:1] != b"<":
            yield len(piece) - offset, *head_of(piece[offset:])


_MOST_PLACES: Final = 1_000_000
"""Structs times names: past this, names are data and a table of them is no gain."""


@dataclass(frozen=True, slots=True)
class ReadRows:
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

    def read(self, rows: XmlRows) -> list[ReadRows]:
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
                parts.append(ReadRows(left[taken.rows], taken.arrays))
        return parts

    def _taken(self, found: ElementPlaces | LayoutRows, values: Values) -> ReadRows:
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

    def taken(self) -> ReadRows:
        """Take the columns of the rows of which nothing is left over."""
        found = self.found
        arrays = self._children(self.places[0], found.count)
        rescued = found.rescued() if isinstance(found, LayoutRows) else {}
        rows = found.taken
        if found.bad.any():
            keep = np.flatnonzero(~found.bad)
            rows, arrays = rows[keep], [array.take(pa.array(keep)) for array in arrays]
        return ReadRows(rows, arrays, rescued)

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
        found = self.found
        if len(misfits) and not (
            isinstance(found, LayoutRows) and found.rescue(number, source, misfits, texts)
        ):
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
