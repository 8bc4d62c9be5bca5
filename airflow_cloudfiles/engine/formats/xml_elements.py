"""Which elements are in these rows, and are they well-formed?

From pieces of markup to elements, all rows at once: how deep each piece is, where each element
ends, which one it is in. A row whose tags do not match, or that is nested too deeply to be worth
it, is left out: somebody else tells what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from airflow_cloudfiles.engine.formats.xml_pieces import Bools, Meanings, Pieces, Positions

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
    levels: Positions
    names: Positions
    texts: Positions
    is_leaf: Bools
    between: Positions
    between_rows: Positions
    attributes: Positions
    attribute_names: Positions
    attribute_owners: Positions


def find_elements(pieces: Pieces, meanings: Meanings) -> Elements:
    """Make elements of pieces; rows that are not well-formed are left out."""
    count = len(pieces.taken)
    delta = meanings.opens - meanings.closes
    bad = np.zeros(count, np.bool_)
    bad[pieces.rows[meanings.odd == 1]] = True
    bad |= np.bincount(pieces.rows, weights=delta, minlength=count) != 0
    # Rows that are balanced begin and end at depth 0, whatever order the others are in.
    depths = np.cumsum(np.where(bad[pieces.rows], 0, delta))
    is_last = np.append(pieces.rows[1:] != pieces.rows[:-1], True)[: len(depths)]
    bad[pieces.rows[((depths <= 0) != is_last) | (depths > _MAX_DEPTH)]] = True
    return _paired(pieces, meanings, depths, bad)


def _paired(pieces: Pieces, meanings: Meanings, depths: Positions, bad: Bools) -> Elements:
    """Find the end and the parent of each element."""
    places = np.flatnonzero(~bad[pieces.rows])
    opens, closes = meanings.opens[places] == 1, meanings.closes[places] == 1
    after = depths[places]
    begins, ends = places[opens], places[closes]
    levels = after[opens] + meanings.closes[begins]
    end_levels = after[closes] + 1
    stops = np.zeros(len(begins), np.int64)
    parents = np.full(len(begins), -1)
    above = np.empty(0, np.int64)
    for level in range(1, int(levels.max(initial=0)) + 1):
        here = np.flatnonzero(levels == level)
        stops[here] = ends[end_levels == level]
        if level > 1:
            parents[here] = above[np.searchsorted(begins[above], begins[here], side="right") - 1]
        above = here
    named = meanings.names[stops]
    bad[pieces.rows[begins[(named >= 0) & (named != meanings.names[begins])]]] = True
    return _kept(pieces, meanings, bad, (begins, stops, parents, levels))


def _kept(
    pieces: Pieces,
    meanings: Meanings,
    bad: Bools,
    found: tuple[Positions, Positions, Positions, Positions],
) -> Elements:
    """Describe the elements of the rows that are good."""
    keep = ~bad[pieces.rows[found[0]]]
    numbers = np.cumsum(keep) - 1
    begins, stops, parents, levels = (each[keep] for each in found)
    parents = np.where(parents < 0, -1, numbers[parents])
    good = ~bad[pieces.rows]
    attributes = np.flatnonzero((meanings.attributes >= 0) & good)
    tag_ends = np.flatnonzero((meanings.attributes < 0) & good)
    texts = tag_ends[np.searchsorted(tag_ends, begins)] if len(begins) else begins
    is_empty = stops == texts
    is_leaf = is_empty | (stops == texts + 1)
    between = np.zeros(len(good), np.bool_)
    between[tag_ends] = True
    between[texts[is_leaf & ~is_empty]] = False
    rows = np.cumsum(~bad) - 1
    return Elements(
        count=int(np.count_nonzero(~bad)),
        taken=pieces.taken[~bad],
        rows=rows[pieces.rows[begins]],
        parents=parents,
        levels=levels,
        names=meanings.names[begins],
        texts=np.where(is_empty, -1, texts),
        is_leaf=is_leaf,
        between=np.flatnonzero(between),
        between_rows=rows[pieces.rows[between]],
        attributes=attributes,
        attribute_names=meanings.attributes[attributes],
        attribute_owners=np.searchsorted(begins, attributes, side="right") - 1,
    )
