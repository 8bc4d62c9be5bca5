"""How much does a run of all tests try of what has many examples?

A third of the examples of a law, some of the points at which a run can be killed: other ones each
time. `EXAMPLES=all` tries all of them, and `EXAMPLES_SEED=...`, which the head of the run shows,
the same ones again.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Collection, Sequence
from typing import TypeVar

ALL = os.environ.get("EXAMPLES") == "all"

SHARE = 1 if ALL else 3
"""By how much numbers are divided."""

# In the environment, for the workers of the run: they collect the same tests, so they choose alike.
SEED = os.environ.setdefault("EXAMPLES_SEED", uuid.uuid4().hex)

Tried = TypeVar("Tried")


def examples(count: int) -> int:
    """A share of a number of examples."""
    return count // SHARE


def some(
    whole: Sequence[Tried], count: int, *, name: str, always: Collection[Tried] = ()
) -> list[Tried]:
    """Choose what this run tries: `always`, and `count` of the others, in their order.

    Args:
        whole: Everything there is to try.
        count: How many of those that are not in `always`.
        name: Of what is chosen, so that each place chooses for itself.
        always: Those that matter most.
    """
    if ALL:
        return list(whole)
    places = [place for place, each in enumerate(whole) if each not in always]
    chosen = set(random.Random(f"{SEED}/{name}").sample(places, min(count, len(places))))
    return [each for place, each in enumerate(whole) if place in chosen or each in always]
