"""Read the streams that a YAML file describes, and say what is wrong with it.

`streams` has the arguments of each by its name, `defaults` those that all have. Nothing is executed
and nothing is made of the text but plain values; templates are left to Airflow. Every mistake is
found at once, each with its line.

PyYAML is imported when a file is read: it comes with Airflow.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.engine.storage.vendors import import_with_extra

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

REQUIRED: Final = ("source", "format", "checkpoint_location", "target")
KEYS: Final = (
    *REQUIRED,
    "schema_location",
    "options",
    "conn_id",
    "infer_schema",
    "sensor",
    "ingest",
    "tooltip",
    "dag",
)
"""Keys of a stream: arguments of `CloudFilesTaskGroup`; and `dag`, those of a DAG of its own."""
MAPPINGS: Final = ("options", "sensor", "ingest", "dag")
"""Keys whose values are mappings, which a stream adds to those of the defaults."""
_SECTIONS: Final = ("defaults", "streams")
_TEXTS: Final = (*REQUIRED, "schema_location", "conn_id", "tooltip")
_TEMPLATE_MARKS: Final = ("{{", "{%")
_MOST_NAME = 200


@dataclass(frozen=True, slots=True)
class NamedStream:
    """What is known of a stream.

    Attributes:
        name: Its name.
        arguments: Its source, format and locations, by their names in a file of streams.
        options: Its options.
        access: How its cloud is reached, which holds secrets; `None` for the environment's own way.
    """

    name: str
    arguments: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)
    access: Access | None = None


@dataclass(slots=True)
class _Mistakes:
    """What is wrong with a file, by line."""

    file: str
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, what: str) -> None:
        self.found.append((line, what))

    def raise_any(self) -> None:
        if not self.found:
            return
        lines = "\n".join(f"  line {line}: {what}" for line, what in sorted(self.found))
        has = counted(len(self.found), "mistake")
        raise OptionError(f"{self.file} has {has}:\n{lines}")


def read_streams(
    path: str | PathLike[str], known: Mapping[str, Collection[str]] | None = None
) -> dict[str, dict[str, Any]]:
    """Read a file of streams.

    Args:
        path: The file.
        known: The keys that `sensor`, `ingest` and `dag` may have; of one that is not here, any.

    Returns:
        The keys of each stream (`KEYS`) with those of the defaults, by its name, in their order.

    Raises:
        OptionError: The file cannot be read, or has mistakes; each is in the message, with its
            line.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"The file of streams {file.absolute()} cannot be read: {error}. Beside the file of a "
            "DAG it is Path(__file__).with_name(...)."
        ) from error
    mistakes = _Mistakes(str(file))
    found = _StreamsFileReader(mistakes, known or {}).read(_document(text, mistakes))
    mistakes.raise_any()
    return found


def _document(text: str, mistakes: _Mistakes) -> Any:
    """Parse a YAML text into nodes; only plain values are made of them."""
    yaml = import_with_extra("yaml", "airflow", needed_for=mistakes.file)

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return {}, {}
        lines: dict[tuple[str, ...], int] = {}
        _note_lines(node, (), lines, mistakes)
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        mistakes.add(line, f"this is no plain YAML: {error.problem}")
    except (yaml.YAMLError, ValueError) as error:
        mistakes.add(1, f"this is no plain YAML: {error}")
    finally:
        loader.dispose()
    mistakes.raise_any()
    raise AssertionError


def _note_lines(
    node: Any, path: tuple[str, ...], lines: dict[tuple[str, ...], int], mistakes: _Mistakes
) -> None:
    """Note the line of each key, and keys that are there twice; one level below those we know."""
    lines.setdefault(path, node.start_mark.line + 1)
    if node.id != "mapping" or len(path) > len(("streams", "name", "options")):
        return
    seen: set[str] = set()
    for key, value in node.value:
        name = str(key.value)
        if name in seen and name != "<<":
            mistakes.add(key.start_mark.line + 1, f"{name} is there twice. Remove one.")
        seen.add(name)
        lines[(*path, name)] = key.start_mark.line + 1
        _note_lines(value, (*path, name), lines, mistakes)


class _StreamsFileReader:
    """Checks the values of a file, and adds the defaults to each stream."""

    def __init__(self, mistakes: _Mistakes, known: Mapping[str, Collection[str]]) -> None:
        self._mistakes = mistakes
        self._known = known
        self._lines: dict[tuple[str, ...], int] = {}

    def read(self, document: tuple[Any, dict[tuple[str, ...], int]]) -> dict[str, dict[str, Any]]:
        """Read the streams of a document."""
        value, self._lines = document
        if not isinstance(value, dict) or not isinstance(value.get("streams"), dict):
            self._add(("streams",), "`streams` must be a mapping of names to their arguments.")
            return {}
        self._keys(value, (), _SECTIONS)
        defaults = value.get("defaults") or {}
        if not self._section(defaults, ("defaults",)):
            defaults = {}
        return {
            name: self._stream(name, given, defaults)
            for name, given in value["streams"].items()
            if self._is_name(name) and self._section(given or {}, ("streams", name))
        }

    def _stream(self, name: str, given: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
        stream = {**defaults, **(given or {})}
        for key in MAPPINGS:
            ours, all_have = (given or {}).get(key), defaults.get(key)
            if isinstance(ours, dict) and isinstance(all_have, dict):
                stream[key] = {**all_have, **ours}
        path = ("streams", name)
        missing = [key for key in REQUIRED if stream.get(key) is None]
        if missing:
            self._add(path, f"{name} lacks {', '.join(missing)}, and the defaults do, too.")
        else:
            self._options(stream, path)
        return stream

    def _section(self, value: Any, path: tuple[str, ...]) -> bool:
        """Check the keys of a stream, or of the defaults; whether it is one."""
        if not isinstance(value, dict):
            self._add(path, f"{path[-1]} must be a mapping of arguments, got {value!r}.")
            return False
        self._keys(value, path, KEYS)
        for key, each in value.items():
            here = (*path, str(key))
            if key in MAPPINGS and each is not None:
                if not isinstance(each, dict):
                    self._add(here, f"{key} must be a mapping, got {each!r}.")
                elif key in self._known:
                    self._keys(each, here, self._known[key])
            elif key in _TEXTS and not isinstance(each, str | None):
                self._add(here, f"{key} must be a text, got {each!r}.")
            elif key == "infer_schema" and not isinstance(each, bool):
                self._add(here, f"infer_schema must be true or false, got {each!r}.")
        return all(isinstance(value.get(key) or {}, dict) for key in MAPPINGS)

    def _keys(
        self, value: Mapping[Any, Any], path: tuple[str, ...], known: Collection[str]
    ) -> None:
        for key in value:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f" Did you mean {near[0]}?" if near else f" Known are {_listed(known)}."
                where = f"{'.'.join(path)} has no key" if path else "There is no section"
                self._add((*path, str(key)), f"{where} {key!r}.{hint}")

    def _options(self, stream: Mapping[str, Any], path: tuple[str, ...]) -> None:
        """Check the options of a stream, each at its line, but for those that are templates."""
        plain = {
            str(name): value
            for name, value in (stream.get("options") or {}).items()
            if not (isinstance(value, str) and any(mark in value for mark in _TEMPLATE_MARKS))
        }
        if error := _wrong(stream, plain):
            alone = next((name for name in plain if _wrong(stream, {name: plain[name]})), None)
            places = [(*path, "options"), path]
            if alone is not None:
                places = [(*path, "options", alone), ("defaults", "options", alone), *places]
            place = next(each for each in (*places, ()) if each in self._lines)
            self._add(place, f"{path[-1]}: {error}")

    def _is_name(self, name: Any) -> bool:
        """Tell whether a stream has a name that Airflow takes for a task group and a DAG."""
        is_one = isinstance(name, str) and 0 < len(name) <= _MOST_NAME
        if is_one and all(each.isalnum() or each in "_-" for each in name):
            return True
        what = "must be letters, digits, - and _ (in quotes, where YAML sees something else in it)"
        self._add(("streams", str(name)), f"The name of a stream {what}, got {name!r}.")
        return False

    def _add(self, path: tuple[str, ...], what: str) -> None:
        places = (path[:length] for length in range(len(path), -1, -1))
        line = next((self._lines[each] for each in places if each in self._lines), 1)
        self._mistakes.add(line, what)


def _wrong(stream: Mapping[str, Any], options: Mapping[str, Any]) -> OptionError | None:
    """Say what is wrong with options; `None` if nothing is."""
    try:
        source_of(str(stream["format"])).check(options, str(stream["source"]))
    except OptionError as error:
        return error
    return None


def _listed(known: Collection[str]) -> str:
    return ", ".join(sorted(known))
