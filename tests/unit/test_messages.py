"""What every message has in common: no number of ours, and no more than a person reads."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    SchemaHintError,
    SchemaMismatchError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.messages import cut, few, few_members
from airflow_cloudfiles.engine.names import column_of, dotted, quoted
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_columns
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from tests.unit.stream.test_every_format import WRITERS, Landing

PACKAGE = Path(airflow_cloudfiles.__file__).parent
MOST = 900
"""Characters of a message, however much is wrong."""


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


@pytest.mark.slow
def test_no_message_has_the_number_of_a_behavior() -> None:
    found = [
        f"{path.name}:{line}: {text}"
        for path in PACKAGE.rglob("*.py")
        for line, text in _strings(path)
        if re.search(r"\bB[0-9]{1,3}\b", text)
    ]
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["addNewColumns", "failOnNewColumns"])
@pytest.mark.parametrize("name", WRITERS)
def test_many_new_columns_make_no_long_message(tmp_path: Path, name: str, mode: str) -> None:
    landing = Landing(name, tmp_path)
    landing.drop("1", [{"a": "x"}])
    stream = landing.stream(**{"cloudFiles.schemaEvolutionMode": mode})
    stream.run()
    landing.drop("2", [{"a": "y"} | {f"new_{number}": "v" * 500 for number in range(1500)}])
    with pytest.raises(UnknownFieldException) as caught:
        stream.run()
    error = caught.value
    assert len(error.message) < MOST
    assert len(error.fields) == 5
    assert " more, which can be fixed by an automatic retry" in error.message
    assert error.file is not None
    if mode == "addNewColumns":
        [_, version] = SchemaHistory(str(landing.state)).versions()
        assert len(version.reason["fields"]) == 1500, "all of them are in the schema log"


def test_many_columns_that_a_table_lacks_make_no_long_message(tmp_path: Path) -> None:
    target = str(tmp_path / "table")
    few_columns = pa.schema([("a", pa.string())])
    many = pa.schema([(f"column_{number}", pa.string()) for number in range(3000)])
    deltalake.write_deltalake(target, few_columns.empty_table())
    with pytest.raises(SchemaMismatchError, match="2,995 more") as caught:
        delta_commit.check_target(target, many, WriteRules(merge_schema=False, widened_bytes=None))
    assert len(caught.value.message) < MOST


def test_a_long_hint_is_shown_where_its_mistake_is() -> None:
    text = ", ".join(f"column_{number} INT" for number in range(3000)) + ", last INTT"
    with pytest.raises(SchemaHintError, match="last INTT") as caught:
        parse_columns(text)
    assert len(caught.value.message) < MOST


@pytest.mark.parametrize(
    "given",
    [
        {"cloudFiles.maxFilesPerTrigger": "x" * 5000},
        {"mode": "x" * 5000},
        {"x" * 5000: "1"},
        {"cloudFiles.format": "x" * 5000},
    ],
)
def test_a_long_option_makes_no_long_message(given: dict[str, object]) -> None:
    with pytest.raises(CloudFilesError) as caught:
        CloudFilesOptions.parse({"cloudFiles.format": "json", **given}, path="/in")
    assert len(caught.value.message) < MOST


def test_what_is_cut_off_is_counted() -> None:
    assert few(["a", "b"]) == "a, b"
    assert few([str(number) for number in range(1239)]) == "0, 1, 2, 3, 4 and 1,234 more"
    assert cut("x" * 61) == "x" * 57 + "..."
    nested = {"a": {"b": "x" * 100}, "c": 1.5, "d": None}
    shown = few_members(nested)
    assert shown["c"] == 1.5
    assert shown["d"] is None
    assert str(shown["a"]).startswith('{"b":"xxx')
    assert len(json.dumps(shown)) < 200


@pytest.mark.parametrize("name", ["a", "a.b", "a`b", "", "1a", "a b", "ä", "``", "."])
def test_a_quoted_name_is_read_back(name: str) -> None:
    path = dotted([name, "x.y"])
    if name:
        [column] = parse_columns(f"{path} INT")
        assert column.path == (name, "x.y")
    assert column_of(path) == name
    assert column_of(quoted(name)) == name
