"""Which elements are in these rows, and are they well-formed?

From pieces of markup to elements, all rows at once: how deep each piece is, where each element
ends, which one it is in. A row whose tags do not match, or that is nested too deeply to be worth
it, is left out: somebody else tells what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.arrays import Bools, Int32s, Positions
    from airflow_cloudfiles.engine.formats.xml.pieces import MarkupPieces, Meanings

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
