"""How many generated examples does a law have?

A run of all tests has a third of them, other ones each time. `make test-unit EXAMPLES=all` has all.
"""

from __future__ import annotations

import os

SHARE = 1 if os.environ.get("EXAMPLES") == "all" else 3
"""By how much numbers are divided."""


def examples(count: int) -> int:
    """A share of a number of examples."""
    return count // SHARE
