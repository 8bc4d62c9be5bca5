"""Every format on disk has golden bytes: read today, written today, and refused when newer.

When a test here fails because bytes differ: before a release, `make golden` writes what has
changed; after one, see `write`.
"""

from __future__ import annotations

import ast
import json
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.errors import IncompatibleStateError
from airflow_cloudfiles.engine.extensions.iceberg.lineage import PROPERTY
from tests.golden.elsewhere import NOTED, _iceberg, _read_iceberg
from tests.golden.in_state import format_of
from tests.golden.kinds import FOLDER, ID, Format
from tests.golden.write import FORMATS
from tests.golden.writers import NO_FORMAT, WRITERS
from tests.support.ingested import Ingested

PACKAGE = Path(airflow_cloudfiles.__file__).parent
_METHODS = {
    "put",
    "put_if_absent",
    "put_if_match",
    "put_if_unchanged",
    "pwrite",
    "write_bytes",
    "write_note",
    "write_text",
}
by_name = pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.path.name)


@by_name
def test_golden_bytes_are_read(each: Format) -> None:
    assert each.read(each.path.read_bytes()) == each.expected


@by_name
def test_golden_bytes_are_still_written(each: Format) -> None:
    assert each.write() == each.path.read_bytes(), "see the docstring of this module"


@by_name
def test_a_newer_version_is_refused_by_name(each: Format, caplog: pytest.LogCaptureFixture) -> None:
    newer = each.newer_bytes()
    with caplog.at_level(logging.INFO):
        if each.newer == "passed over":
            assert each.read(newer) == each.nothing != each.expected
            return
        if each.newer == "read":
            each.read(newer)
            return
        with pytest.raises(IncompatibleStateError) as caught:
            each.read(newer)
    message = caught.value.message
    assert re.search(rf"\bv?{each.newest + 1}\b.*understands\D* v?{each.newest}\b", message)
    assert re.search(r"Upgrade|Update|Install", message), "what to do"
    assert not each.keys or re.search(each.keys, message), "which file"


def test_a_newer_property_of_an_iceberg_table_is_refused_by_name() -> None:
    [(name, text)] = NOTED.properties(ID).items()
    table = _iceberg({}, {name: text.replace('"version": 1', '"version": 2')})
    with pytest.raises(IncompatibleStateError, match=f"{PROPERTY}{ID} .*file:///table.* version 2"):
        _read_iceberg(json.dumps(table).encode())


def test_each_golden_file_belongs_to_a_format() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {each.path.name for each in FORMATS}


# No format without golden bytes ----------------------------------------------------------------


def _writes(call: ast.Call) -> bool:
    """Whether a call writes something somewhere."""
    function = call.func
    if isinstance(function, ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        if function.attr in _METHODS or (owner, function.attr) in {
            ("os", "write"),
            ("os", "fdopen"),
        }:
            return True
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    modes = [each.value for each in call.args if isinstance(each, ast.Constant)]
    modes += [word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)]
    return name == "open" and any(
        isinstance(mode, str) and len(mode) < 4 and set(mode) & set("wax+") for mode in modes
    )


def _writers(node: ast.AST, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The functions of a module that write something."""
    for child in ast.iter_child_nodes(node):
        inner = path
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*path, child.name)
        if isinstance(child, ast.Call) and _writes(child):
            yield ".".join(path)
        yield from _writers(child, inner)


@pytest.mark.slow
def test_whatever_writes_has_golden_bytes_or_a_reason_for_none() -> None:
    found = {
        f"{path.relative_to(PACKAGE / 'engine').as_posix()}:{function}"
        for path in (PACKAGE / "engine").rglob("*.py")
        for function in _writers(ast.parse(path.read_text(encoding="utf-8")))
    }
    outside = {
        path.name
        for folder in ("commands", "hooks", "operators", "sensors", "triggers")
        for path in (PACKAGE / folder).rglob("*.py")
        if list(_writers(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert not outside, "files are written in the engine"
    known = set(WRITERS) | set(NO_FORMAT)
    assert sorted(found - known) == [], (
        "a new writer: give its format golden bytes, and add it to `writers`"
    )
    assert sorted(known - found) == [], "these are gone"
    assert {name for names in WRITERS.values() for name in names} <= {each.name for each in FORMATS}


def test_every_key_of_a_state_is_of_a_known_format(tmp_path: Path) -> None:
    stream = Ingested(tmp_path)
    stream.add("1", "2", "3")
    stream.run()
    shutil.rmtree(stream.target)
    stream.replay(0)
    assert stream.rows() == ["1", "2", "3"]
    keys = {
        path.relative_to(stream.state).as_posix()
        for path in stream.state.rglob("*")
        if path.is_file()
    }
    formats = {key: format_of(key) for key in keys}
    assert {key for key, known in formats.items() if known is None} == set()
    assert {"metadata", "files", "plans", "sink", "replays", "schemas", "batch", "head"} <= {
        known.name for known in formats.values() if known is not None
    }
