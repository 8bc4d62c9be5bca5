"""How does what one process learned of JSON records reach another?

The evidence is all that an inference knows, not only the types it would come to: whether a null
was met beside an empty object, say. So the records of a sample can be learned from in any number of
processes, and absorbing their evidence in the order of the records gives what one process would
have learned from all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.types import DataType, NullType

from airflow_cloudfiles.engine import worker_messages
from airflow_cloudfiles.engine.casing import NameMatcher
from airflow_cloudfiles.engine.formats.json.evidence import (
    NULL,
    UNSEEN,
    ArrayEvidence,
    Evidence,
    FieldEvidence,
    FixedType,
    MapEvidence,
    ObjectEvidence,
    clash,
    widen_leaf,
)
from airflow_cloudfiles.engine.formats.json.leaf_types import BOOLEAN, DOUBLE, LONG, STRING

_LEAVES: Final[dict[type, DataType]] = {
    type(leaf): leaf for leaf in (BOOLEAN, DOUBLE, LONG, NULL, STRING, UNSEEN)
}
"""Leaves are distinguished by identity, which they lose on their way."""
KeyOf = Callable[[str], str]
"""`NameMatcher.key`."""


def merge(root: ObjectEvidence, evidence: bytes, matcher: NameMatcher) -> int:
    """Add what the records after one's own have shown to another process.

    Returns:
        How many spellings of names were new.
    """
    other: Any = worker_messages.decode(evidence)
    return _add_object(root, other, matcher.key)


def _add_object(known: ObjectEvidence, other: ObjectEvidence, key_of: KeyOf) -> int:
    """Add fields in the order of their first appearance; returns how many spellings were new."""
    new = 0
    for name, field in other.spellings.items():
        if name in known.spellings:
            continue
        known.spellings[name] = field and known.fields.setdefault(key_of(name), FieldEvidence(name))
        new += 1
    for key, field in other.fields.items():
        mine = known.fields[key]
        mine.kind, count = _merged(mine.kind, field.kind, key_of)
        new += count
    known.was_null = known.was_null or other.was_null
    return new


def _merged(kind: Evidence, other: Evidence, key_of: KeyOf) -> tuple[Evidence, int]:
    """The kind that holds the values of both, and how many spellings were new inside."""
    if kind is STRING or isinstance(kind, FixedType):
        return kind, 0
    if isinstance(other, NullType):
        return _with_null(kind, other), 0
    if isinstance(kind, NullType):
        kind = _empty(other, was_null=kind is NULL)
    if isinstance(kind, DataType) and isinstance(other, DataType):
        return widen_leaf(kind, other), 0
    new = _add_inside(kind, other, key_of)
    return (clash(kind), 0) if new is None else (kind, new)


def _with_null(kind: Evidence, other: NullType) -> Evidence:
    """A kind where the other process met nothing but nulls, or nothing at all."""
    if isinstance(other, type(UNSEEN)):
        return kind
    if isinstance(kind, ObjectEvidence | ArrayEvidence):
        kind.was_null = True
    return NULL if kind is UNSEEN else kind


def _add_inside(kind: Evidence, other: Evidence, key_of: KeyOf) -> int | None:
    """Add what is inside of another kind of the same shape; `None` when it has another shape."""
    if isinstance(kind, ObjectEvidence) and isinstance(other, ObjectEvidence):
        return _add_object(kind, other, key_of)
    new = None
    if isinstance(kind, ArrayEvidence) and isinstance(other, ArrayEvidence):
        kind.element, new = _merged(kind.element, other.element, key_of)
        kind.was_null = kind.was_null or other.was_null
    elif isinstance(kind, MapEvidence) and isinstance(other, MapEvidence):
        kind.value, new = _merged(kind.value, other.value, key_of)
    return new


def _empty(other: Evidence, *, was_null: bool) -> Evidence:
    """What is known of a place in which there was nothing but nulls, as the other kind begins."""
    if isinstance(other, ObjectEvidence):
        return ObjectEvidence(was_null=was_null)
    if isinstance(other, ArrayEvidence):
        return ArrayEvidence(was_null=was_null)
    assert isinstance(other, DataType), other  # noqa: S101 - maps and fixed kinds are on both sides
    return _LEAVES.get(type(other), other)
