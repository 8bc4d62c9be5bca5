"""Why a value was rescued: which field, which value, which type of which version, what helps."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import airflow_cloudfiles
from airflow_cloudfiles.cli import main
from airflow_cloudfiles.engine.errors import OptionError, StateError
from airflow_cloudfiles.engine.extensions.overview.rescued import RescuedReason, why_rescued
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from tests.support.ingested import Ingested

HINTS = "n INT, d DECIMAL(5,2), user STRUCT<age: INT>, t DATE"


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    found = Ingested(
        tmp_path,
        **{"cloudFiles.schemaHints": HINTS, "cloudFiles.schemaEvolutionMode": "rescue"},
    )
    found.add("one", n=1, d=1.5, user={"age": 1}, t="2026-01-01")
    found.run()
    return found


def reason(stream: Ingested, field: str, **asked: Any) -> RescuedReason:
    [found] = why_rescued(str(stream.state), field=field, **asked)
    return found


@pytest.mark.parametrize(
    ("fields", "field", "value", "expected", "why", "helps"),
    [
        ({"n": 3000000000}, "n", "3000000000", "int", "a number that does not fit", "n=BIGINT"),
        ({"d": 1.555}, "d", "1.555", "decimal(5,2)", "a number", "'d=DECIMAL(6,3)'"),
        ({"n": "many"}, "n", '"many"', "int", "n is INT, and the record has a string", "replay"),
        ({"t": "soon"}, "t", '"soon"', "date", "t is DATE", "schemaHints='t STRING'"),
        ({"t": True}, "t", "true", "date", "the record has true", "schemaHints='t STRING'"),
        ({"user": "Ada"}, "user", '"Ada"', "struct<age:int>", "a string", "user STRING"),
        ({"user": {"age": "old"}}, "user.age", '"old"', "int", "user.age is INT", "user.age"),
        ({"user": {"zip": 1}}, "user.zip", "1", None, "It is no column", "--field user.zip"),
        ({"n": {"x": 1}}, "n.x", "1", "int", "n is INT, and the record has an object", "n STRING"),
        ({"N": 5}, "N", "5", "int", "otherwise than the column n", "readerCaseSensitive=false"),
        ({"more": 1}, "more", "1", None, "the stream adds none for it", "--field more"),
    ],
)
def test_each_kind_of_misfit_is_explained(
    stream: Ingested,
    fields: dict[str, Any],
    field: str,
    value: str,
    expected: str | None,
    why: str,
    helps: str,
) -> None:
    stream.add("two", **fields)
    stream.run()
    found = reason(stream, field)
    assert (found.field, found.value, found.expected) == (field, value, expected)
    assert found.file == f"file://{stream.source}/two.json"
    assert (found.rows, found.schema_version) == (1, 0)
    assert why in found.why
    assert helps in found.what_to_do
    assert airflow_cloudfiles.why_rescued is why_rescued


def test_what_it_says_to_run_takes_the_values_out_of_the_rescued_data(stream: Ingested) -> None:
    stream.add("two", n=3000000000, more="x")
    stream.run()
    for field in ("n", "more"):
        _, _, command = reason(stream, field).what_to_do.partition("cloudfiles ")
        words = shlex.split(command.partition(";")[0])
        where = ["--checkpoint-location", str(stream.state), "--target", str(stream.target)]
        given = [f"--option={name}={value}" for name, value in stream.given.items()
                 if name != "cloudFiles.maxFilesPerTrigger"]  # fmt: skip
        source = ["--source", str(stream.source), "--format", "json"]
        parts = [each for each in (*where, *given) if each]
        assert main([*words, *parts]) == 0, (words, source)
        assert why_rescued(str(stream.state), field=field) == ()
    rows = DeltaTable(str(stream.target)).to_pyarrow_table().to_pylist()
    assert {row["n"]: row["more"] for row in rows} == {1: None, 3000000000: "x"}


def test_a_record_that_is_not_valid_is_explained(stream: Ingested) -> None:
    (stream.source / "cut.json").write_text('{"a": ')
    stream.run()
    found = reason(stream, "_corrupt_record")
    assert found.why == "The record is not valid: none of its values was read."
    assert "cloudfiles file replay" in found.what_to_do


def test_rows_are_those_of_one_file_one_field_or_one_row(stream: Ingested) -> None:
    stream.add("two", n="many", more=1)
    stream.add("three", n="few")
    stream.run()
    every = why_rescued(str(stream.state))
    assert [(each.field, each.rows) for each in every] == [("n", 2), ("more", 1)]
    for name in ("two.json", "tw?.json", f"file://{stream.source}/two.json"):
        assert {each.field for each in why_rescued(str(stream.state), file=name)} == {"n", "more"}
    row = next(
        row["_rescued_data"]
        for row in DeltaTable(str(stream.target)).to_pyarrow_table().to_pylist()
        if "few" in (row["_rescued_data"] or "")
    )
    [of_row] = why_rescued(str(stream.state), rescued=row)
    assert (of_row.field, of_row.value, of_row.rows) == ("n", '"few"', 1)
    assert why_rescued(str(stream.state), field="nothing") == ()


def test_the_version_is_the_one_that_the_file_was_read_with(tmp_path: Path) -> None:
    stream = Ingested(tmp_path, **{"cloudFiles.schemaEvolutionMode": "rescue"})
    stream.add("one")
    stream.run()
    stream.add("two", more="x")
    stream.run()
    where = ["--checkpoint-location", str(stream.state), "--target", str(stream.target)]
    assert main(["promote", *where, "--field", "more=INT"]) == 0
    stream.add("three", more="y")
    stream.run()
    old, new = why_rescued(str(stream.state), field="more")
    assert {old.schema_version, new.schema_version} == {0, 1}
    [before] = [each for each in (old, new) if each.schema_version == 0]
    [after] = [each for each in (old, new) if each.schema_version == 1]
    assert before.why == "It was no column yet; it is one since version 1 or before."
    assert (after.expected, after.value) == ("int", '"y"')


def test_a_pinned_schema_is_named(stream: Ingested) -> None:
    SchemaHistory(str(stream.state)).pin(new_fields="rescue")
    stream.add("two", more=1)
    stream.run()
    assert "the schema is pinned at version" in reason(stream, "more").why


def test_names_and_values_of_files_are_text_in_a_page_and_one_word_in_a_shell(
    stream: Ingested,
) -> None:
    name = "<b>'; rm -rf ~; '"
    stream.add("two", **{name: "<script>\x1b[31m"})
    stream.run()
    [found] = why_rescued(str(stream.state))
    _, _, command = found.what_to_do.partition("cloudfiles ")
    assert shlex.split(command)[:2] == ["promote", "--field"]
    assert len(shlex.split(command)) == 3
    page = why_rescued(str(stream.state))._repr_html_()
    assert "<b>" not in page
    assert "<script>" not in page
    assert "\x1b" not in page + str(why_rescued(str(stream.state)))


def test_nothing_rescued_is_said(stream: Ingested) -> None:
    found = why_rescued(str(stream.state))
    assert (found, str(found)) == ((), "Nothing is rescued.")
    assert found._repr_html_() == "<p>Nothing is rescued.</p>"


def test_a_stream_without_a_schema_or_a_table_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="There is no schema"):
        why_rescued(str(tmp_path / "none"))
    stream = Ingested(tmp_path)
    stream.add("one")
    stream.infer()
    with pytest.raises(OptionError, match=r"names no table. Give it as target"):
        why_rescued(str(stream.state))


def test_from_a_shell(stream: Ingested, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["rescued", "--checkpoint-location", str(stream.state)]
    assert main(command) == 0
    assert capsys.readouterr().out == "Nothing is rescued.\n"
    stream.add("two", n="many", more=1)
    stream.run()
    assert main([*command, "--field", "n"]) == 0
    said = capsys.readouterr().out
    assert 'value: "many"' in said
    assert "more" not in said
    assert main([*command, "--file", "two.json", "--json"]) == 0
    assert [each["field"] for each in json.loads(capsys.readouterr().out)] == ["more", "n"]
