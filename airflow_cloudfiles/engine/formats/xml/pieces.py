"""Find the markup in the source of many rows, and what each piece of it says.

The source of rows is cut into markup and values in turn:

    <row id="  7  ">  <name>  Anna  </name>  </row>

Markup pieces are few different ones, repeated; each is understood once (`PieceTable`). A value
between them is an attribute or a text. A row with anything else (comments, CDATA sections, quotes
of two kinds, names that are not ASCII, an error) is odd: somebody else reads it.

Rows are checked to be well-formed when their elements are named.

From pieces of markup to elements, all rows at once: how deep each piece is, where each element
ends, which one it is in. A row whose tags do not match, or that is nested too deeply to be worth
it, is left out: somebody else tells what is wrong with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.base import is_utf8
from airflow_cloudfiles.engine.formats.xml.tree import not_references, slices

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import Bools, Bytes, Int8s, Int32s, Positions

_MOST_PIECES: Final = 50_000
"""Past this, markup holds data; what was learnt is forgotten to bound the memory."""
_NO_CHARACTERS: Final = (b"]]>", b"\xef\xbf\xbe", b"\xef\xbf\xbf")
_NAME: Final = rb"[A-Za-z_:][A-Za-z0-9_.:-]*"
_PIECE: Final = re.compile(
    rb"<(?P<end>/)?(?P<name>" + _NAME + rb")"
    rb"(?:\s+(?P<first>" + _NAME + rb")\s*=\s*[\"']|\s*(?P<empty>/)?>)"
    rb"|[\"'](?:\s+(?P<next>" + _NAME + rb")\s*=\s*[\"']|\s*(?P<empty_end>/)?>)"
)
_LESS, _GREATER, _MARK, _QUESTION = b"<>!?"
_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class MarkupPieces:
    """Markup pieces of rows, in order.

    Attributes:
        text: The rows, one after the other.
        begins: Where each piece begins.
        ends: Where it ends and its value begins, which ends where the next piece begins.
        rows: In which row it is: its number among those that are left.
        taken: The position that was given, for each row that is left.
    """

    text: bytes
    begins: Positions
    ends: Positions
    rows: Int32s
    taken: Positions

    def strings(self) -> pa.Array:
        """Return the pieces, without what is between them."""
        return slices(self.text, self.begins, self.ends)


def cut(texts: list[bytes]) -> MarkupPieces:
    """Cut rows; those that cannot be are left out.

    Args:
        texts: Rows without forbidden characters.
    """
    kept = np.arange(len(texts))
    while True:
        rows = texts if len(kept) == len(texts) else [texts[row] for row in kept.tolist()]
        found = _cut_all(rows)
        if isinstance(found, MarkupPieces):
            return MarkupPieces(found.text, found.begins, found.ends, found.rows, kept)
        kept = kept[~found]


def forbidden(text: bytes, begins: Positions, ends: Positions, *, checks_references: bool) -> Bools:
    """Rows with characters that XML does not have, or not in this place.

    Args:
        text: What the rows are in.
        begins: Where each row begins, ascending.
        ends: Where each ends, before the next begins.
        checks_references: Whether an `&` that begins no reference is one of them: values that
            nobody takes are not looked at later.
    """
    bad = np.zeros(len(begins), np.bool_)
    first, last = int(begins[0]), int(ends[-1])
    places = _controls(np.frombuffer(text, np.uint8)[first:last])
    for mark in _NO_CHARACTERS:
        # One byte is looked for many times faster than three, and is rarely there.
        if text.find(mark[:1], first, last) >= 0 and text.find(mark, first, last) >= 0:
            places += [found.start() for found in re.finditer(mark, text[first:last])]
    places = [first + place for place in places]
    if checks_references:
        places += not_references(text, first, last)
    if places:
        found = np.array(places)
        rows = np.searchsorted(begins, found, side="right") - 1
        bad[rows[found < ends[rows]]] = True
    if not is_utf8(text, first, last):
        spans = zip(begins.tolist(), ends.tolist(), strict=True)
        bad |= [not is_utf8(text, begin, end) for begin, end in spans]
    return bad


def _controls(characters: Bytes) -> list[int]:
    """Find control characters that are not white space."""
    # Counting them beats finding them.
    count = np.count_nonzero(characters < ord(" "))
    for allowed in b"\n\t":
        count -= np.count_nonzero(characters == allowed) if count else 0
    if not count:
        return []
    places: list[int] = np.flatnonzero(
        (characters < ord(" ")) & (characters != ord("\n")) & (characters != ord("\t"))
    ).tolist()
    return places


def _cut_all(texts: list[bytes]) -> MarkupPieces | Bools:
    """Cut rows, or tell which ones cannot be."""
    whole = b"".join(texts)
    characters = np.frombuffer(whole, np.uint8)
    firsts = np.cumsum([0, *map(len, texts)])[:-1]
    opens = np.flatnonzero(characters == _LESS)
    closes = np.flatnonzero(characters == _GREATER)
    ends = closes
    alternate = len(opens) == len(closes) and (opens < closes).all()
    if not alternate or not (closes[:-1] < opens[1:]).all():
        # The first one behind it ends a tag; others are text.
        ends = np.append(closes, len(whole))[np.searchsorted(closes, opens)]
    wrong = ends > np.append(opens[1:], len(whole) - 1)
    nexts = characters[np.minimum(opens + 1, len(whole) - 1)]
    wrong |= (nexts == _MARK) | (nexts == _QUESTION)
    quotes = _quotes(whole, characters) if len(opens) else _NONE
    if len(quotes):
        tags = np.searchsorted(opens, quotes, side="right") - 1
        inside = (tags >= 0) & (quotes < ends[tags])
        quotes = quotes[inside]
        wrong |= np.bincount(tags[inside], minlength=len(opens)) % 2 == 1
    if wrong.any():
        bad = np.zeros(len(texts), np.bool_)
        bad[np.searchsorted(firsts, opens[wrong], side="right") - 1] = True
        return bad
    begins, stops = opens, ends
    if len(quotes):
        begins = np.sort(np.concatenate([opens, quotes[1::2]]), kind="stable")
        stops = np.sort(np.concatenate([ends, quotes[0::2]]), kind="stable")
    counts = np.diff(np.append(np.searchsorted(begins, firsts), len(begins)))
    rows = np.repeat(np.arange(len(texts), dtype=np.int32), counts)
    return MarkupPieces(whole, begins, stops + 1, rows, np.arange(len(texts)))


def _quotes(whole: bytes, characters: Bytes) -> Positions:
    """Find where the quotes are that attributes of these rows have."""
    # One byte is looked for many times faster than two.
    has_apostrophes = b"'" in whole and b"='" in whole and b'="' not in whole
    quote = b"'" if has_apostrophes else b'"'
    return np.flatnonzero(characters == ord(quote)) if quote in whole else _NONE


class PieceTable:
    """What each different piece of markup says; learns as it meets them.

    Attributes:
        names: Names of elements by number, as they stand there.
        attributes: Names of attributes by number.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, int, int, int]] = {}
        self.names: dict[str, int] = {}
        self.attributes: dict[str, int] = {}

    def look_up(self, pieces: pa.Array) -> Meanings:
        """Understand pieces."""
        if len(self._known) > _MOST_PIECES:
            self.__init__()  # type: ignore[misc]
        encoded = pc.dictionary_encode(pieces)
        known = self._known
        meanings = [
            known[piece] if piece in known else known.setdefault(piece, self._understand(piece))
            for piece in encoded.dictionary.to_pylist()
        ]
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        columns = zip(*meanings, strict=True)
        opens, closes, names, attributes, odd = columns if meanings else ((),) * 5
        return Meanings(
            opens=np.array(opens, np.int8)[codes],
            closes=np.array(closes, np.int8)[codes],
            names=np.array(names, np.int32)[codes],
            attributes=np.array(attributes, np.int32)[codes],
            odd=np.array(odd, np.bool_)[codes] if any(odd) else None,
        )

    def _understand(self, piece: str) -> tuple[int, int, int, int, int]:
        found = _PIECE.fullmatch(piece.encode())
        if found is None or (found["end"] and (found["first"] or found["empty"])):
            return 0, 0, -1, -1, 1
        name = self._number(self.names, found["name"])
        attribute = self._number(self.attributes, found["first"] or found["next"])
        opens = found["name"] is not None and not found["end"]
        closes = bool(found["end"] or found["empty"] or found["empty_end"])
        return int(opens), int(closes), name, attribute, 0

    @staticmethod
    def _number(numbers: dict[str, int], name: bytes | None) -> int:
        return -1 if name is None else numbers.setdefault(name.decode(), len(numbers))


@dataclass(frozen=True, slots=True)
class Meanings:
    """What pieces say, one number each.

    Attributes:
        opens: 1 where an element begins.
        closes: 1 where an element ends, be it the same one.
        names: Number of the element that is named; -1 for none.
        attributes: Number of the attribute whose value follows; -1 where text follows.
        odd: Where nobody knows; `None` for nowhere.
    """

    opens: Int8s
    closes: Int8s
    names: Int32s
    attributes: Int32s
    odd: Bools | None


_MAX_DEPTH: Final = 32


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of rows, in the order in which they begin.

    Attributes:
        count: Of rows.
        taken: The position that was given, for each row.
        rows: The row of each element.
        parents: The element it is in; -1 for a row.
        levels: 1 for a row, 2 for what is in it, and so on.
        names: The number of its name.
        texts: The piece after which its text begins; -1 for an element without content (`<a/>`).
        is_leaf: Whether there is no element in it.
        between: Pieces with a text behind them that is not the text of a leaf.
        between_rows: The row of each.
        attributes: Pieces with the value of an attribute behind them.
        attribute_names: The number of its name.
        attribute_owners: The element it belongs to.
    """

    count: int
    taken: Positions
    rows: Positions
    parents: Positions
    levels: Int32s
    names: Int32s
    texts: Positions
    is_leaf: Bools
    between: Positions
    between_rows: Positions
    attributes: Positions
    attribute_names: Int32s
    attribute_owners: Positions


def find_elements(pieces: MarkupPieces, meanings: Meanings) -> Elements:
    """Make elements of pieces; rows that are not well-formed are left out."""
    count = len(pieces.taken)
    delta = meanings.opens - meanings.closes
    bad = np.zeros(count, np.bool_)
    if meanings.odd is not None:
        bad[pieces.rows[meanings.odd]] = True
    bad |= np.bincount(pieces.rows, weights=delta, minlength=count) != 0
    # Rows that are balanced begin and end at depth 0, whatever order the others are in.
    counted = np.where(bad[pieces.rows], 0, delta) if bad.any() else delta
    depths = np.cumsum(counted, dtype=np.int32)
    is_last = np.append(pieces.rows[1:] != pieces.rows[:-1], True)[: len(depths)]
    wrong = ((depths <= 0) != is_last) | (depths > _MAX_DEPTH)
    if wrong.any():
        bad[pieces.rows[wrong]] = True
    return _paired(pieces, meanings, depths, bad)


def _paired(pieces: MarkupPieces, meanings: Meanings, depths: Int32s, bad: Bools) -> Elements:
    """Find the end and the parent of each element."""
    opens, closes = meanings.opens == 1, meanings.closes == 1
    if bad.any():
        good = ~bad[pieces.rows]
        opens, closes = opens & good, closes & good
    begins, ends = np.flatnonzero(opens), np.flatnonzero(closes)
    levels = depths[begins] + meanings.closes[begins]
    end_levels = depths[ends] + 1
    stops = np.zeros(len(begins), np.int64)
    parents = np.full(len(begins), -1)
    above = np.empty(0, np.int64)
    for level in range(1, int(levels.max(initial=0)) + 1):
        here = np.flatnonzero(levels == level)
        stops[here] = ends[end_levels == level]
        if level > 1:
            # The last one above that begins before; counting them beats a search for each.
            parents[here] = above[np.cumsum(levels == level - 1)[here] - 1]
        above = here
    named = meanings.names[stops]
    wrong = (named >= 0) & (named != meanings.names[begins])
    if wrong.any():
        bad[pieces.rows[begins[wrong]]] = True
    return _kept(pieces, meanings, bad, (begins, stops, parents, levels))


def _kept(
    pieces: MarkupPieces,
    meanings: Meanings,
    bad: Bools,
    found: tuple[Positions, Positions, Positions, Int32s],
) -> Elements:
    """Describe the elements of the rows that are good."""
    begins, stops, parents, levels = found
    is_attribute = meanings.attributes >= 0
    is_text = ~is_attribute
    rows = np.arange(len(bad))
    if bad.any():
        keep = ~bad[pieces.rows[begins]]
        numbers = np.cumsum(keep) - 1
        begins, stops, levels = begins[keep], stops[keep], levels[keep]
        parents = np.where(parents[keep] < 0, -1, numbers[parents[keep]])
        good = ~bad[pieces.rows]
        is_attribute, is_text = is_attribute & good, is_text & good
        rows = np.cumsum(~bad) - 1
    attributes = np.flatnonzero(is_attribute)
    texts = begins
    if len(attributes):
        tag_ends = np.flatnonzero(is_text)
        texts = tag_ends[np.searchsorted(tag_ends, begins)] if len(begins) else begins
    is_empty = stops == texts
    is_leaf = is_empty | (stops == texts + 1)
    between = is_text
    between[texts[is_leaf & ~is_empty]] = False
    places = np.flatnonzero(between)
    return Elements(
        count=int(np.count_nonzero(~bad)),
        taken=pieces.taken[~bad],
        rows=rows[pieces.rows[begins]],
        parents=parents,
        levels=levels,
        names=meanings.names[begins],
        texts=np.where(is_empty, -1, texts),
        is_leaf=is_leaf,
        between=places,
        between_rows=rows[pieces.rows[places]],
        attributes=attributes,
        attribute_names=meanings.attributes[attributes],
        attribute_owners=np.searchsorted(begins, attributes, side="right") - 1,
    )
