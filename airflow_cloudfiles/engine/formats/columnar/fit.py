"""Fit the columns of a file into the columns of the stream.

A file's types and the stream's are compared once (`compile_file`); the plan that comes of it is
carried out for whole arrays. `fit` gives the array of the column and says which values leave
something over; only for these, `rest` says what, as JSON. What is left over looks like the value
with everything taken away that found its column:

- a value that is not exactly one of the column's type;
- a field the column's struct does not have, or has only in another case;
- nested, the path down to these. In arrays the elements that did fit are `null`, and what follows
  the last one that did not is left out. A map with a key that does not fit is left over whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from airflow_cloudfiles.engine.formats.base import Bools, Int32s, validity
from airflow_cloudfiles.engine.formats.columnar import strings as json_strings
from airflow_cloudfiles.engine.formats.columnar import types
from airflow_cloudfiles.engine.formats.columnar.casts import Cast, Rule, any_of, find_rule, without
from airflow_cloudfiles.engine.formats.columnar.strings import assemble
from airflow_cloudfiles.engine.formats.columnar.types import (
    column_type,
    has_variant_parts,
    is_list,
    is_variant,
    is_variant_unshredded,
    plain_type,
)
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, NameMatcher
from airflow_cloudfiles.engine.types import (
    NO_ROOM,
    ROOM,
    VARIANT,
    Room,
    canonical,
    is_column_name,
    seen_part,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_cloudfiles.engine.formats.columnar.strings import Strings

INSIDE: Final = -1
"""The step from an array to its elements, or from a map to its values."""


class Fit(Protocol):
    """How values of one type of a file fill a column."""

    def fit(self, array: pa.Array) -> Cast:
        """Fit the column's array, and find which values leave something over."""

    def rest(self, array: pa.Array) -> Strings:
        """Encode what each value leaves over."""


@dataclass(frozen=True, slots=True)
class Matching:
    """How fields find their columns.

    Attributes:
        case_sensitive: Whether `Foo` is another field than `foo`.
        rescues_unknown_fields: Whether fields without a column are rescued, rather than not read.
        reserved: Keys of top-level names that are never columns.
        matcher: How names of columns are compared.
        left_out: Fields that are never new, at any depth: the keys of the names to each.
    """

    case_sensitive: bool
    rescues_unknown_fields: bool
    reserved: frozenset[str]
    matcher: NameMatcher = CASE_INSENSITIVE
    left_out: frozenset[tuple[str, ...]] = frozenset()


@dataclass(frozen=True, slots=True)
class NewField:
    """A field that the schema does not have but could have.

    Attributes:
        names: Its path of field names; elements of arrays and values of maps have none.
        steps: Its path in the file: the position of the column, then positions of fields, and
            `INSIDE` for what an array or a map holds.
    """

    names: tuple[str, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeafFit:
    """Values with a rule."""

    rule: Rule

    def fit(self, array: pa.Array) -> Cast:
        """See `Fit`."""
        return self.rule(types.plain(array))

    def rest(self, array: pa.Array) -> Strings:
        """See `Fit`."""
        array = types.plain(array)
        return json_strings.json_of(_only(array, self.rule(array)[1]))


@dataclass(frozen=True, slots=True)
class NoFit:
    """Values of a type that has nothing in common with the column's."""

    target: pa.DataType

    def fit(self, array: pa.Array) -> Cast:
        """See `Fit`."""
        return pa.nulls(len(array), self.target), there(array)

    def rest(self, array: pa.Array) -> Strings:
        """See `Fit`."""
        return json_strings.json_of(array)


@dataclass(frozen=True, slots=True)
class VariantFit:
    """VARIANTs, which a file may have in parts (`variant`), in a column of that type.

    The column may also be a plain struct of `metadata` and `value`.
    """

    target: pa.DataType

    def fit(self, array: pa.Array) -> Cast:
        """See `Fit`."""
        found = assemble(types.plain(array))
        if not found.bad:
            return found.array(self.target), None
        bad = np.zeros(len(array), np.bool_)
        bad[list(found.bad)] = True
        return found.array(self.target), bad

    def rest(self, array: pa.Array) -> Strings:
        """See `Fit`: all of the parts, as it is unknown which of them is wrong."""
        array = types.plain(array)
        bad = assemble(array).bad
        parts = json_strings.json_of_structs(array)
        return [text if row in bad else None for row, text in enumerate(parts)]


@dataclass(frozen=True, slots=True)
class StructFit:
    """Structs, and the record itself.

    Attributes:
        target: The type of the column.
        names: Of the fields of the file.
        children: For each field of the column, its position in the file and how it fits; `None`
            when the file has no such field.
        unknown_fields: Positions of fields without a column that are to be rescued, by name.
    """

    target: pa.StructType
    names: tuple[str, ...]
    children: tuple[tuple[int, Fit] | None, ...]
    unknown_fields: tuple[int, ...]

    def fit(self, array: pa.Array) -> Cast:
        """See `Fit`."""
        array = types.plain(array)
        fields = array.flatten()
        arrays, bads = self.fit_fields(fields, len(array))
        bads += [there(fields[each]) for each in self.unknown_fields]
        buffers = [validity(array.is_valid().to_numpy(zero_copy_only=False))]
        # Not by `from_arrays`, which takes a struct without fields for one without rows.
        found = pa.Array.from_buffers(self.target, len(array), buffers, children=arrays)
        return found, any_of(bads)

    def fit_fields(
        self, fields: Sequence[pa.Array], rows: int
    ) -> tuple[list[pa.Array], list[Bools | None]]:
        """Fit the fields of the column, and find which values of each leave something over."""
        arrays: list[pa.Array] = []
        bads: list[Bools | None] = []
        for child, wanted in zip(self.children, self.target, strict=True):
            if child is None:
                arrays.append(pa.nulls(rows, wanted.type))
                bads.append(None)
                continue
            array, bad = child[1].fit(fields[child[0]])
            arrays.append(array)
            bads.append(bad)
        return arrays, bads

    def rest(self, array: pa.Array) -> Strings:
        """See `Fit`."""
        array = types.plain(array)
        fields = array.flatten()
        columns = [
            (self.names[child[0]], child[1].rest(fields[child[0]]))
            for child in self.children
            if child is not None
        ]
        columns += [
            (self.names[each], json_strings.json_of(fields[each])) for each in self.unknown_fields
        ]
        return [
            json_strings.object_text([(name, found[row]) for name, found in columns])
            for row in range(len(array))
        ]


@dataclass(frozen=True, slots=True)
class ListFit:
    """Lists."""

    target: pa.DataType
    element: Fit

    def fit(self, array: pa.Array) -> Cast:
        """See `Fit`."""
        array = types.listed(types.plain(array))
        offsets = types.offsets_of(array)
        found, bad = self.element.fit(types.elements(array))
        return types.nest(self.target, array, found), _holders(offsets, bad)

    def rest(self, array: pa.Array) -> Strings:
        """See `Fit`."""
        array = types.listed(types.plain(array))
        found = self.element.rest(types.elements(array))
        return [
            None if place is None else _list_text(found[place[0] : place[1]])
            for place in types.ranges(array)
        ]


@dataclass(frozen=True, slots=True)
class MapFit:
    """Maps."""

    target: pa.DataType
    key: Fit
    value: Fit

    def fit(self, array: pa.Array) -> Cast:
        """See `Fit`."""
        array = types.plain(array)
        offsets = types.offsets_of(array)
        keys, values = types.entries(array)
        key, bad_key = self.key.fit(keys)
        value, bad_value = self.value.fit(values)
        lost = any_of([_holders(offsets, bad_key), _holders(offsets, there(key, inverted=True))])
        if lost is not None:
            # A map of which a key does not fit is NULL: its other keys are no smaller map.
            fitting = pa.array(~lost)
            kept, bad = self.fit(array.filter(fitting))
            places = np.cumsum(~lost) - 1
            found = kept.take(pa.array(places, mask=lost))
            if bad is not None:
                lost = lost.copy()
                lost[np.flatnonzero(~lost)[bad]] = True
            return found, lost
        pairs = pa.StructArray.from_arrays(
            [key, value], fields=[self.target.key_field, self.target.item_field]
        )
        return types.nest(self.target, array, pairs), _holders(offsets, bad_value)

    def rest(self, array: pa.Array) -> Strings:
        """See `Fit`."""
        array = types.plain(array)
        keys, values = types.entries(array)
        key_rest, value_rest = self.key.rest(keys), self.value.rest(values)
        names, whole = json_strings.json_of(keys), json_strings.json_of(array)
        found: Strings = []
        for row, place in enumerate(types.ranges(array)):
            entries = range(*place) if place else range(0)
            if any(key_rest[each] is not None or names[each] is None for each in entries):
                found.append(whole[row])
                continue
            members = [
                f"{json_strings.key_text(names[each])}:{value_rest[each]}"
                for each in entries
                if value_rest[each] is not None
            ]
            found.append("{" + ",".join(members) + "}" if members else None)
        return found


@dataclass(slots=True)
class FilePlan:
    """How the columns of a file fill those of the stream.

    Attributes:
        root: The plan; its children and unknown fields are positions of columns of the file.
        new: Fields that the schema lacks and could have.
        columns: Positions of the columns of the file that must be read, ascending.
    """

    root: StructFit
    new: list[NewField] = field(default_factory=list)

    @property
    def columns(self) -> list[int]:
        """See the class."""
        known = {child[0] for child in self.root.children if child is not None}
        return sorted(known | set(self.root.unknown_fields))


def compile_file(source: pa.Schema, target: pa.Schema, matching: Matching) -> FilePlan:
    """Compare the columns of a file with those of the stream.

    Args:
        source: Of the file.
        target: Of the stream, as `types.to_arrow` makes it, without columns that no field fills.
        matching: How names are compared.
    """
    compiler = _Compiler(matching)
    root = compiler.struct(pa.struct(list(source)), pa.struct(list(target)), _FieldPlace())
    return FilePlan(root, compiler.new)


@dataclass(frozen=True, slots=True)
class _FieldPlace:
    """Where types are compared: as of `NewField`, and how deep they may be nested there."""

    names: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    room: Room = ROOM

    def field(self, name: str, place: int) -> _FieldPlace:
        """Give the place of a field of a struct."""
        return _FieldPlace((*self.names, name), (*self.steps, place), self.room)

    def inside(self, kind: type[DataType], *step: int) -> _FieldPlace:
        """Give the place of what a type holds."""
        return _FieldPlace(self.names, (*self.steps, *step), self.room.within(kind) or NO_ROOM)


@dataclass(slots=True)
class _Compiler:
    matching: Matching
    new: list[NewField] = field(default_factory=list)

    def compile(self, source: pa.DataType, target: pa.DataType, at: _FieldPlace) -> Fit:
        source = plain_type(source)
        if target.equals(VARIANT, check_metadata=True):
            return VariantFit(target) if has_variant_parts(source) else NoFit(target)
        if is_variant(source) and is_variant_unshredded(target):
            return VariantFit(target)
        if pa.types.is_struct(source) and pa.types.is_struct(target):
            return self.struct(source, target, at.inside(StructType))
        if is_list(source) and pa.types.is_list(target):
            inside = at.inside(ArrayType, INSIDE)
            element = self.compile(source.value_type, target.value_type, inside)
            return ListFit(target, element)
        if pa.types.is_map(source) and pa.types.is_map(target):
            # What is new in a key is rescued: a key cannot grow.
            key = _Compiler(self.matching).compile(source.key_type, target.key_type, _FieldPlace())
            inside = at.inside(MapType, INSIDE)
            value = self.compile(source.item_type, target.item_type, inside)
            return MapFit(target, key, value)
        rule = find_rule(source, target)
        return NoFit(target) if rule is None else LeafFit(rule)

    def struct(self, source: pa.StructType, target: pa.StructType, at: _FieldPlace) -> StructFit:
        places = self._places(source, target, is_root=not at.steps)
        children: list[tuple[int, Fit] | None] = []
        for wanted in target:
            place = places.get(wanted.name)
            if place is None:
                children.append(None)
                continue
            found = source.field(place)
            children.append(
                (place, self.compile(found.type, wanted.type, at.field(found.name, place)))
            )
        unknown_fields = sorted(
            set(range(source.num_fields)) - set(places.values()),
            key=lambda place: (source.field(place).name, place),
        )
        matcher = self.matching.matcher
        known = matcher.keys(each.name for each in target)
        if not at.steps:
            known |= self.matching.reserved
        for unknown in unknown_fields:
            each = source.field(unknown)
            if matcher.key(each.name) in known or not is_column_name(each.name):
                continue
            new = at.field(each.name, unknown)
            if tuple(map(matcher.key, new.names)) in self.matching.left_out:
                continue
            kind = column_type(each.type, matcher, len(at.steps))
            seen = None if kind is None else seen_part(kind)
            if seen is not None and canonical(seen, at.room) is not None:
                self.new.append(NewField(new.names, new.steps))
        return StructFit(
            target,
            tuple(each.name for each in source),
            tuple(children),
            tuple(unknown_fields) if self.matching.rescues_unknown_fields else (),
        )

    def _places(
        self, source: pa.StructType, target: pa.StructType, *, is_root: bool
    ) -> dict[str, int]:
        """Find which field of the file fills each field of the column; the first of several."""
        key = self.matching.matcher.key
        exact: dict[str, int] = {}
        folded: dict[str, int] = {}
        for place, each in enumerate(source):
            if is_root and key(each.name) in self.matching.reserved:
                continue
            exact.setdefault(each.name, place)
            folded.setdefault(key(each.name), place)
        found = {each.name: exact[each.name] for each in target if each.name in exact}
        if not self.matching.case_sensitive:
            for each in target:
                if key(each.name) in folded:
                    found.setdefault(each.name, folded[key(each.name)])
        return found


def there(array: pa.Array, *, inverted: bool = False) -> Bools | None:
    """Find which values are there, or, inverted, null; `None` when none is."""
    array = types.plain(array)
    found: Bools = (array.is_null() if inverted else array.is_valid()).to_numpy(
        zero_copy_only=False
    )
    return found if found.any() else None


def _only(array: pa.Array, bad: Bools | None) -> pa.Array:
    """Replace the elements except where `bad` is by null."""
    return pa.nulls(len(array), array.type) if bad is None else without(array, ~bad)


def _holders(offsets: Int32s, bad: Bools | None) -> Bools | None:
    """Find which lists hold one of these elements."""
    if bad is None:
        return None
    found = np.zeros(len(offsets) - 1, np.bool_)
    found[np.searchsorted(offsets, np.flatnonzero(bad), side="right") - 1] = True
    return found


def _list_text(found: Strings) -> str | None:
    """Format the elements up to the last that is left over; others are `null`."""
    while found and found[-1] is None:
        found = found[:-1]
    return "[" + ",".join(text or "null" for text in found) + "]" if found else None
