"""How does what one process learned of JSON records reach another?

The evidence is all that an inference knows, not only the types it would settle on: whether a null
was met beside an empty object, say. So the records of a sample can be learned from in any number of
processes, and absorbing their evidence in the order of the records gives what one process would
have learned from all of them. The other half of `infer`, whose kinds it takes apart.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql.types import DataType, NullType

from airflow_cloudfiles.engine import worker_messages
from airflow_cloudfiles.engine.formats.json.infer import (
    _NULL,
    _UNSEEN,
    _Array,
    _clash,
    _Field,
    _Fixed,
    _Kind,
    _Map,
    _Object,
    _widen_leaf,
)
from airflow_cloudfiles.engine.formats.scalars.leaf_types import BOOLEAN, DOUBLE, LONG, STRING
from airflow_cloudfiles.engine.types import fold

_LEAVES: Final[dict[type, DataType]] = {
    type(leaf): leaf for leaf in (BOOLEAN, DOUBLE, LONG, _NULL, STRING, _UNSEEN)
}
"""Leaves are told apart by identity, which they lose on their way."""


def absorb(root: _Object, evidence: bytes) -> int:
    """Add what the records after one's own have shown to another process.

    Returns:
        How many spellings of names were new.
    """
    other: Any = worker_messages.decode(evidence)
    return _add_object(root, other)


def _add_object(known: _Object, other: _Object) -> int:
    """Add fields in the order of their first appearance; returns how many spellings were new."""
    new = 0
    for name, field in other.spellings.items():
        if name in known.spellings:
            continue
        known.spellings[name] = field and known.fields.setdefault(fold(name), _Field(name))
        new += 1
    for key, field in other.fields.items():
        mine = known.fields[key]
        mine.kind, count = _merged(mine.kind, field.kind)
        new += count
    known.was_null = known.was_null or other.was_null
    return new


def _merged(kind: _Kind, other: _Kind) -> tuple[_Kind, int]:
    """The kind that holds the values of both, and how many spellings were new inside."""
    if kind is STRING or isinstance(kind, _Fixed):
        return kind, 0
    if isinstance(other, NullType):
        return _with_null(kind, other), 0
    if isinstance(kind, NullType):
        kind = _empty(other, was_null=kind is _NULL)
    if isinstance(kind, DataType) and isinstance(other, DataType):
        return _widen_leaf(kind, other), 0
    new = _add_inside(kind, other)
    return (_clash(kind), 0) if new is None else (kind, new)


def _with_null(kind: _Kind, other: NullType) -> _Kind:
    """A kind where the other process met nothing but nulls, or nothing at all."""
    if isinstance(other, type(_UNSEEN)):
        return kind
    if isinstance(kind, _Object | _Array):
        kind.was_null = True
    return _NULL if kind is _UNSEEN else kind


def _add_inside(kind: _Kind, other: _Kind) -> int | None:
    """Add what is inside of another kind of the same shape; `None` when it has another shape."""
    if isinstance(kind, _Object) and isinstance(other, _Object):
        return _add_object(kind, other)
    new = None
    if isinstance(kind, _Array) and isinstance(other, _Array):
        kind.element, new = _merged(kind.element, other.element)
        kind.was_null = kind.was_null or other.was_null
    elif isinstance(kind, _Map) and isinstance(other, _Map):
        kind.value, new = _merged(kind.value, other.value)
    return new


def _empty(other: _Kind, *, was_null: bool) -> _Kind:
    """What is known of a place in which there was nothing but nulls, as the other kind begins."""
    if isinstance(other, _Object):
        return _Object(was_null=was_null)
    if isinstance(other, _Array):
        return _Array(was_null=was_null)
    assert isinstance(other, DataType), other  # noqa: S101 - maps and fixed kinds are on both sides
    return _LEAVES.get(type(other), other)
