"""Compare two schemas, and name their columns.

Works on Spark's schema JSON as it stands in the schema log, so that a reader of the log needs no
Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Json = Any
"""A schema or a type in Spark's schema JSON."""

_SHORT_NAMES: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference between two schemas.

    Attributes:
        kind: What happened to the column.
        path: Which column: `a`, `a.b`, `a.element.b`, `a.value.b`; names that are not letters,
            digits and `_` in backquotes.
        before: Its type before, as Spark writes it; `None` when it was added.
        after: Its type after; `None` when it was removed.
    """

    kind: Literal["added", "removed", "retyped", "respelled"]
    path: str
    before: str | None
    after: str | None

    @property
    def is_additive(self) -> bool:
        """Whether readers of the old schema find everything as it was."""
        return self.kind == "added"


def diff_json(old: Json, new: Json) -> list[SchemaChange]:
    """List how two schemas differ, in the order of the old one, additions last in each struct."""
    return list(_struct(old, new, ""))


def in_words(change: SchemaChange) -> str:
    """Say for people what has changed."""
    if change.kind == "added":
        return f"{change.path} {change.after} added"
    if change.kind == "removed":
        return f"{change.path} {change.before} removed"
    return f"{change.path} {change.kind} from {change.before} to {change.after}"


def paths_of(schema: Json) -> dict[str, str]:
    """Map the path of every column and every field inside one to its type as Spark writes it."""
    return dict(_paths(schema, ""))


def type_text(kind: Json) -> str:
    """Write a type as Spark does, names quoted where needed: `array<struct<a:bigint>>`."""
    if isinstance(kind, str):
        return _SHORT_NAMES.get(kind, kind)
    if kind["type"] == "struct":
        fields = (f"{quoted(each['name'])}:{type_text(each['type'])}" for each in kind["fields"])
        return f"struct<{','.join(fields)}>"
    if kind["type"] == "array":
        return f"array<{type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_text(kind['keyType'])},{type_text(kind['valueType'])}>"
    return str(kind["type"])


def without(new: Json, old: Json, paths: Collection[str]) -> Json:
    """Build a schema in which some of what differs from another one does not.

    Args:
        new: The schema.
        old: The other one.
        paths: Of changes between them that are not made.
    """
    return _without(new, old, paths, "")


def _without(new: Json, old: Json, paths: Collection[str], path: str) -> Json:
    """Build a type, or the old one where its path is among those that stay."""
    if path in paths:
        return old
    insides = _insides(new), _insides(old)
    if insides[0]:
        keys = {"element": "elementType", "key": "keyType", "value": "valueType"}
        inner = {
            keys[name]: _without(each, insides[1].get(name), paths, f"{path}.{name}")
            for name, each in insides[0].items()
        }
        return {**new, **inner}
    if not _is_struct(new):
        return new
    known = {each["name"]: each for each in old["fields"]} if _is_struct(old) else {}
    fields = []
    for field in new["fields"]:
        inside = f"{path}.{quoted(field['name'])}" if path else quoted(field["name"])
        before = known.get(field["name"])
        if before is not None or inside not in paths:
            kind = _without(field["type"], before and before["type"], paths, inside)
            fields.append({**field, "type": kind})
    return {**new, "fields": fields}


def _insides(kind: Json) -> dict[str, Json]:
    """Return what is inside an array or a map."""
    if isinstance(kind, dict) and kind["type"] == "array":
        return {"element": kind["elementType"]}
    if isinstance(kind, dict) and kind["type"] == "map":
        return {"key": kind["keyType"], "value": kind["valueType"]}
    return {}


def _is_struct(kind: Json) -> bool:
    return isinstance(kind, dict) and kind["type"] == "struct"


def _paths(schema: Json, within: str) -> Iterator[tuple[str, str]]:
    for field in schema["fields"]:
        path = within + quoted(field["name"])
        yield path, type_text(field["type"])
        yield from _paths_inside(field["type"], path)


def _paths_inside(kind: Json, path: str) -> Iterator[tuple[str, str]]:
    if _is_struct(kind):
        yield from _paths(kind, f"{path}.")
    for name, inside in _insides(kind).items():
        yield from _paths_inside(inside, f"{path}.{name}")


def _struct(old: Json, new: Json, within: str) -> Iterator[SchemaChange]:
    partner = _partners(old, new)
    for field in old["fields"]:
        path, other = within + quoted(field["name"]), partner.get(field["name"])
        if other is None:
            yield SchemaChange("removed", path, type_text(field["type"]), None)
            continue
        if other["name"] != field["name"]:
            yield SchemaChange("respelled", path, field["name"], other["name"])
        yield from _type(field["type"], other["type"], path)
    met = {field["name"] for field in partner.values()}
    for field in new["fields"]:
        if field["name"] not in met:
            yield SchemaChange(
                "added", within + quoted(field["name"]), None, type_text(field["type"])
            )


def _partners(old: Json, new: Json) -> dict[str, Json]:
    """Map names of the old schema to fields of the new one.

    A name that is only in one of them is another spelling of one that is only in the other.
    """
    exact = {field["name"]: field for field in new["fields"]}
    names = {field["name"] for field in old["fields"]}
    respelled = {
        CASE_INSENSITIVE.key(name): field for name, field in exact.items() if name not in names
    }
    return {
        name: field
        for name in names
        if (field := exact.get(name) or respelled.get(CASE_INSENSITIVE.key(name))) is not None
    }


def _type(old: Json, new: Json, path: str) -> Iterator[SchemaChange]:
    insides = _insides(old), _insides(new)
    if _is_struct(old) and _is_struct(new):
        yield from _struct(old, new, f"{path}.")
    elif insides[0] and insides[0].keys() == insides[1].keys():
        for name, inside in insides[0].items():
            yield from _type(inside, insides[1][name], f"{path}.{name}")
    elif type_text(old) != type_text(new):
        yield SchemaChange("retyped", path, type_text(old), type_text(new))
