"""What may happen to the bytes of an object that lies somewhere for years?"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.support.laws import ALL

_SHARE = 40


def damages(
    content: bytes, *, share: int = _SHARE, chance: random.Random
) -> Iterator[tuple[str, bytes]]:
    """Give what an object may have become, with what to call that: cut off, or one bit flipped.

    Without `EXAMPLES=all` each of many places is tried, other ones each time; the ends always.

    Args:
        content: Of the object.
        share: One of so many lengths and places is tried.
        chance: Where they begin.
    """
    step = 1 if ALL else share
    ends = {0, 1, 2, len(content) - 2, len(content) - 1}
    lengths = {*range(chance.randrange(step), len(content), step), *ends}
    for length in sorted(each for each in lengths if 0 <= each < len(content)):
        yield f"cut off at {length}", content[:length]
    for place in range(chance.randrange(step), len(content), step):
        for bit in range(8) if ALL else (chance.randrange(8),):
            flipped = bytes([content[place] ^ (1 << bit)])
            yield (
                f"bit {bit} of byte {place} flipped",
                (content[:place] + flipped + content[place + 1 :]),
            )
