"""Describe declared options for people and editors: documentation, default, type, Python's name.

All of it comes from the declarations. What is made of it: the reference of options, the methods of
`builders`, and the stub that shows these to editors and type checkers.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any, Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import Option, OptionGroup, options_of
from airflow_cloudfiles.engine.options.metadata_columns import metadata_columns, metadata_option
from airflow_cloudfiles.engine.options.values import GIB, option_text, place, ratio, share, size

_PREFIX: Final = "cloudFiles."
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\.")
_BEHAVIOR: Final = re.compile(r" ?\(B\d+(, B\d+)*\)")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_TYPES: Final = {
    "true or false": "bool",
    "number": "int",
    "0 or 1": "int",
    "size": "int | str",
    "interval": "str | timedelta",
    "time": "str | datetime",
    "names, separated by commas": "str | Sequence[str]",
    "columns": "str | Sequence[str] | Mapping[str, str]",
    "JSON object": "str | Mapping[str, str]",
}
"""What Python has for the kinds of values that are more than a text, by their labels."""


def docs_of(group: type) -> Mapping[str, str]:
    """Read the docstrings below the fields of a dataclass and of its bases, by field.

    Returns:
        Each in one line; nothing where the source is not at hand.
    """
    found: dict[str, str] = {}
    for kind in group.__mro__[-2::-1]:
        for node, text in pairwise(_bodies(kind.__module__).get(kind.__name__, ())):
            if isinstance(node, ast.AnnAssign) and isinstance(text, ast.Expr):
                doc = inspect.cleandoc(ast.literal_eval(text.value)).replace("\n", " ")
                found[ast.unparse(node.target)] = _BEHAVIOR.sub("", doc)
    return found


@cache
def _bodies(module: str) -> Mapping[str, list[ast.stmt]]:
    """Parse the classes of a module, by name; none where its source is not at hand."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # installed without it
        return {}
    return {each.name: each.body for each in tree.body if isinstance(each, ast.ClassDef)}


def public_options(group: type[OptionGroup]) -> Iterable[tuple[Option[Any], str]]:
    """Yield the options of a class that users may set, with their documentation.

    Its own come before those that it has in common with others.
    """
    docs, declared = docs_of(group), options_of(group)
    own = [each for each in vars(group).get("__annotations__", ()) if each in declared]
    for field in dict.fromkeys([*own, *declared]):
        if not declared[field].is_internal:
            yield declared[field], docs.get(field, "")
    for declaration in group.WITHOUT_FIELD:
        yield declaration, declaration.doc


def default_of(declaration: Option[Any]) -> str:
    """Write a default as one would write it in an option."""
    value = declaration.default
    if declaration.shown:
        return declaration.shown
    if declaration.required:
        return "required"
    if value is None or value in {"", ()}:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if declaration.kind is size and isinstance(value, int) and value % GIB == 0:
        return f"`{value // GIB}g`"
    return f"`{value}`"


def python_name(name: str) -> str:
    """Give what an option is called in Python: `max_files_per_trigger`."""
    return _WORD.sub("_", name.removeprefix(_PREFIX)).lower()


def python_type(declaration: Option[Any]) -> str:
    """Write the type that Python has for the values of an option."""
    kind = declaration.kind
    if kind in {ratio, share}:
        return "float"
    if kind is place:
        return "str | PathLike[str]"
    words = re.findall(r"`([^`]*)`", kind.label)
    if words:
        return f"Literal[{', '.join(json.dumps(word) for word in words)}]"
    return _TYPES.get(kind.label, "str")


def described(declaration: Option[Any], doc: str) -> str:
    """Write the documentation of an option: its name, its values, its default, its meaning."""
    label = declaration.kind.label.replace(" / ", ", ")
    head = f"Set `{declaration.name}`: {label}. Default: {default_of(declaration)}."
    meaning = _LINK.sub(r"\1", doc)
    return f"{head}\n\n{meaning}" if doc else head


def as_text(declaration: Option[Any], value: object) -> str:
    """Write a value of Python as the text of an option.

    Raises:
        OptionError: A name in a list has a comma, which separates names there.
    """
    if isinstance(value, timedelta):
        return f"{value.total_seconds():f}".rstrip("0").rstrip(".") + " seconds"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        return _of_several(declaration, value)
    return option_text(value)


def _of_several(declaration: Option[Any], value: Mapping[Any, Any] | Sequence[Any]) -> str:
    if declaration.kind is metadata_columns:
        return metadata_option(value)
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    names = [str(each) for each in value]
    odd = next((each for each in names if "," in each), None)
    if odd is not None:
        raise OptionError(
            f"{declaration.name} cannot name {odd!r}: a comma separates names. Rename it."
        )
    return ",".join(names)
