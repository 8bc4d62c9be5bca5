"""What is known of JSON records, place by place?

An object, an array, a map or a leaf: what values have shown so far, which is more than the type it
comes to (whether a null was met beside an empty object, say).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.casing import NameMatcher
from airflow_cloudfiles.engine.formats.json.leaf_types import STRING
from airflow_cloudfiles.engine.types import canonical, merge_types


class UnseenType(NullType):
    """No value yet, not even null. A class of its own, since leaf types are singletons."""


UNSEEN: Final = UnseenType()
NULL: Final = NullType()
"""No value yet but null or the empty string."""


class FixedType:
    """A column whose type is known beforehand and has nothing inside that could be new."""

    __slots__ = ("data_type",)

    def __init__(self, data_type: DataType) -> None:
        self.data_type = data_type


class FieldEvidence:
    """What is known of one field: the first spelling of its name, and its kind."""

    __slots__ = ("kind", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind: Evidence = UNSEEN


class ObjectEvidence:
    """What is known of the objects in one place: their fields by every spelling met."""

    __slots__ = ("fields", "is_fixed", "spellings", "was_null")

    def __init__(self, *, was_null: bool = False, is_fixed: bool = False) -> None:
        self.fields: dict[str, FieldEvidence] = {}
        self.spellings: dict[str, FieldEvidence | None] = {}
        self.was_null = was_null
        self.is_fixed = is_fixed


class ArrayEvidence:
    """What is known of the elements of the arrays in one place."""

    __slots__ = ("element", "is_fixed", "was_null")

    def __init__(
        self, element: Evidence = UNSEEN, *, was_null: bool = False, is_fixed: bool = False
    ) -> None:
        self.element = element
        self.was_null = was_null
        self.is_fixed = is_fixed


class MapEvidence:
    """What is known of the values of a column that is known to be a map."""

    __slots__ = ("key_type", "value")

    def __init__(self, key_type: DataType, value: Evidence) -> None:
        self.key_type = key_type
        self.value = value


Evidence = DataType | FixedType | ObjectEvidence | ArrayEvidence | MapEvidence
"""What is known in one place; a `DataType` is a leaf that values may still widen."""


def clash(kind: Evidence) -> Evidence:
    """A value of another shape: a string holds both, unless the type is known beforehand."""
    fixed = isinstance(kind, MapEvidence) or (
        isinstance(kind, ObjectEvidence | ArrayEvidence) and kind.is_fixed
    )
    return kind if fixed else STRING


def widen_leaf(kind: DataType, leaf: DataType) -> DataType:
    """Merge two leaves; the very same object when nothing changes, and for all strings."""
    merged = merge_types(kind, leaf)
    if merged == kind:
        return kind
    return STRING if isinstance(merged, StringType) else merged


def known_object(schema: StructType, matcher: NameMatcher) -> ObjectEvidence:
    """What is known beforehand of records that have a schema."""
    known = ObjectEvidence(is_fixed=True)
    for column in schema.fields:
        field = known.fields.setdefault(matcher.key(column.name), FieldEvidence(column.name))
        field.kind = known_type(column.dataType, matcher)
        known.spellings[column.name] = field
    return known


def known_type(kind: DataType, matcher: NameMatcher) -> Evidence:
    """What is known beforehand of a column of a type."""
    if isinstance(kind, StructType):
        return known_object(kind, matcher)
    if isinstance(kind, ArrayType):
        return ArrayEvidence(known_type(kind.elementType, matcher), is_fixed=True)
    if isinstance(kind, MapType):
        return MapEvidence(kind.keyType, known_type(kind.valueType, matcher))
    return FixedType(kind)


def struct_type(known: ObjectEvidence) -> StructType:
    """The type that objects come to."""
    return StructType(
        [StructField(field.name, data_type(field.kind)) for field in known.fields.values()]
    )


def data_type(kind: Evidence) -> DataType:
    """The type that values come to; `NullType` where none has shown any."""
    found: DataType
    if isinstance(kind, ObjectEvidence):
        found = struct_type(kind)
    elif isinstance(kind, ArrayEvidence):
        found = ArrayType(data_type(kind.element))
    elif isinstance(kind, MapEvidence):
        return MapType(kind.key_type, data_type(kind.value))
    else:
        found = kind.data_type if isinstance(kind, FixedType) else kind
        return NULL if found is UNSEEN else found
    return NULL if kind.was_null and canonical(found) is None else found
