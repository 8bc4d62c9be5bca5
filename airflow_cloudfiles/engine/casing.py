"""Are `foo` and `Foo` one column?

They are, as everywhere in Spark, unless the session is case-sensitive (`spark.sql.caseSensitive`):
then they are two (B16). Names are compared in their folded form by whoever compares them; which
rule holds is said once, by who begins to work for a stream.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_is_sensitive: ContextVar[bool] = ContextVar("cloudfiles_case_sensitive", default=False)


def fold(name: str) -> str:
    """The form of a field name under which two spellings of one column are equal."""
    return name if _is_sensitive.get() else name.lower()


def is_case_sensitive() -> bool:
    """Whether two spellings are two columns in the work at hand."""
    return _is_sensitive.get()


def compare_case(*, sensitive: bool) -> None:
    """Say the rule for everything that this thread does from now on, as a task does."""
    _is_sensitive.set(sensitive)


@contextmanager
def comparing_case(*, sensitive: bool) -> Iterator[None]:
    """Say the rule for a while."""
    token = _is_sensitive.set(sensitive)
    try:
        yield
    finally:
        _is_sensitive.reset(token)
