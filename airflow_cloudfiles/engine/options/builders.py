"""Build options by methods, with the names, types, defaults and documentation of each.

A builder is a dict of strings, for `.options(**...)` of PySpark and the argument `options` of
tasks. A value is read when it is set, so that a wrong one is refused there. Its methods are made
from the declarations when it is imported; `builders.pyi` is generated from them (`make generate`),
for editors and type checkers.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Any, ClassVar, Final

from airflow_cloudfiles.engine.options.cloud_files import GROUPS
from airflow_cloudfiles.engine.options.declared import Option, OptionGroup
from airflow_cloudfiles.engine.options.explained import (
    as_text,
    described,
    public_options,
    python_name,
    python_type,
)
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.registry import FORMATS
from airflow_cloudfiles.engine.options.sink import (
    BatchWriteOptions,
    SinkOptions,
    TableOptions,
    TaskSinkOptions,
)
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions

FORMAT: Final = "cloudFiles.format"
_TEMPLATE_MARKS: Final = ("{{", "{%")


class OptionBuilder(dict[str, str]):
    """Options as a dict of strings; each method gives a new one that has one option more."""

    BEGIN: ClassVar[Mapping[str, str]] = {}
    """What every one of its kind has."""

    def __init__(self, given: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        super().__init__({**self.BEGIN, **dict(given)})

    def __getattr__(self, name: str) -> Any:
        """Refuse a name that is no option, with the nearest that is one."""
        if name.startswith("_"):
            raise AttributeError(name)
        meant = python_name(name)
        others = [f"Options.{kind}" for kind, each in KINDS.items() if hasattr(each, meant)]
        if others and not hasattr(type(self), meant):
            hint = f" It is one of {', '.join(others)}."
        else:
            near = difflib.get_close_matches(meant, self.names(), n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
        raise AttributeError(f"{type(self).__name__} has no option {name}.{hint}")

    @classmethod
    def names(cls) -> list[str]:
        """List its methods that set an option."""
        return [each for each in dir(cls) if hasattr(getattr(cls, each), OPTION)]


OPTION: Final = "option"
"""The attribute of a method that has the declaration of its option."""


def _method(owner: str, declaration: Option[Any], doc: str) -> Callable[..., OptionBuilder]:
    def method(self: OptionBuilder, value: Any) -> OptionBuilder:
        text = as_text(declaration, value)
        if not any(mark in text for mark in _TEMPLATE_MARKS):  # what Airflow renders is read later
            declaration.value_in({declaration.name.lower(): text})
        return type(self)({**self, declaration.name: text})

    method.__name__ = python_name(declaration.name)
    method.__qualname__ = f"{owner}.{method.__name__}"
    method.__doc__ = described(declaration, doc)
    method.__annotations__ = {"value": python_type(declaration), "return": "Self"}
    setattr(method, OPTION, declaration)
    return method


_OF_SOURCES: Final = [
    each for group in GROUPS for each in public_options(group) if each[0].name != FORMAT
]
_NAMED: Final[Mapping[type[OptionGroup], tuple[str, str]]] = {
    FormatOptions: ("Source", "Options of every source of files."),
    TableStreamOptions: ("TableSource", "Options of a stream from a Delta table."),
    TableOptions: ("Table", "Options of whatever writes to a table."),
    TaskSinkOptions: ("TaskSink", "Options of what tasks write."),
    SinkOptions: ("Sink", "Options of `writeStream`, and of a task for its table."),
    BatchWriteOptions: ("Write", "Options of `DataFrame.write`."),
}
"""Name and documentation of the builders, but for those of formats."""


@cache
def _builder(group: type[OptionGroup]) -> type[OptionBuilder]:
    """Make the builder of a class of options; it inherits as that class does."""
    parent = group.__base__
    is_first = parent is None or parent is OptionGroup
    base = OptionBuilder if is_first else _builder(parent)
    inherited = [] if is_first else _options(parent)
    own = [each for each in _options(group) if each not in inherited]
    formats = _formats(group)
    format_name = next((name for name in formats if FORMATS[name] is group), "")
    kind = format_name or group.__name__.removesuffix("Options")
    of_formats = (
        f"{kind[:1].upper()}{kind[1:]}Source",
        f"Options of sources of {', '.join(formats)}.",
    )
    name, doc = _NAMED.get(group, of_formats)
    begin = {FORMAT: format_name} if format_name else {}
    methods = {python_name(each.name): _method(name, each, meaning) for each, meaning in own}
    body = {"__doc__": doc, "__module__": __name__, "BEGIN": begin, **methods}
    return type(name, (base,), body)


def _formats(group: type[OptionGroup]) -> list[str]:
    """List the formats that have a class of options, or one that inherits from it."""
    return [name for name, kind in FORMATS.items() if issubclass(kind, group)]


def _options(group: type[OptionGroup]) -> list[tuple[Option[Any], str]]:
    """List the options of a class; those of sources that all of its formats have besides."""
    formats = _formats(group)
    of_sources = [
        each
        for each in _OF_SOURCES
        if issubclass(group, FormatOptions)
        if not each[0].formats or set(formats) <= set(each[0].formats)
    ]
    own = public_options(group) if is_dataclass(group) else ()
    # Options of rules for rows have names of the user's, so no method sets one.
    return [*of_sources, *(each for each in own if each[0].read_all is None)]


class Options:
    """Options with names, types and documentation, for PySpark and for tasks.

    Each kind begins empty, but for the format, and gives a dict of strings:
    `Options.json().schema_hints("id BIGINT").max_files_per_trigger(500)`.
    """


KINDS: Final[Mapping[str, type[OptionBuilder]]] = {
    **{python_name(name): _builder(group) for name, group in FORMATS.items()},
    "table": _builder(TableStreamOptions),
    "sink": _builder(SinkOptions),
    "write": _builder(BatchWriteOptions),
}
"""The builders, by their names in `Options`."""

for _name, _kind in KINDS.items():
    setattr(Options, _name, _kind)
    globals()[_kind.__name__] = _kind
