"""How are new fields reported: with which samples, and how deep?"""

from __future__ import annotations

from typing import Final

MAX_COLUMN_DEPTH: Final = 100
"""A field that is nested deeper is never a column."""
SAMPLE_CHARACTERS: Final = 1000
"""A message shows no longer value."""


def cut_sample(text: str) -> str:
    """A value for a message, cut off when it is long."""
    return text if len(text) <= SAMPLE_CHARACTERS else text[:SAMPLE_CHARACTERS] + "…"


def merge_samples(into: dict[str, object], sample: object) -> None:
    """Add what is new in a nested sample."""
    if not isinstance(sample, dict):
        return
    for name, value in sample.items():
        known = into.get(name)
        if name not in into:
            into[name] = value
        elif isinstance(known, dict) and isinstance(value, dict):
            merge_samples(known, value)
