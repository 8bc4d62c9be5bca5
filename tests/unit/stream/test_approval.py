"""A change of the schema that waits for somebody to decide, in every format."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    SchemaHintError,
    SchemaProposedError,
    SchemaRefusedError,
    StateConflictError,
    StateError,
)
from airflow_cloudfiles.engine.schema.diff import paths_of
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.schema.proposals import SchemaProposals
from airflow_cloudfiles.engine.stream.approval import undecided
from airflow_cloudfiles.engine.stream.definition import resolve_schema
from airflow_cloudfiles.engine.stream.schema_change import TaskReader
from tests.support.landed import Stream
from tests.unit.stream.test_every_format import WRITERS, Landing

ASKS: dict[str, object] = {"cloudFiles.requireApproval": "true"}
WIDENING: dict[str, object] = {
    **ASKS,
    "cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening",
    "cloudFiles.inferColumnTypes": "true",
}


@pytest.fixture(params=WRITERS)
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    """A folder that takes records in one of the formats."""
    return Landing(request.param, tmp_path)


def types(landing: Landing) -> dict[str, str]:
    return paths_of(SchemaHistory(str(landing.state)).show().data_schema)


def proposals(landing: Landing) -> SchemaProposals:
    return SchemaProposals(str(landing.state))


def rescued(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row["_rescued_data"])
    del found["_file_path"]
    return found


def proposed(landing: Landing, **options: object) -> Stream:
    """A stream of one file, for which a column `b` waits in another."""
    landing.drop("1", [{"a": "x"}])
    stream = landing.stream(**{**ASKS, **options})
    stream.run()
    landing.drop("2", [{"a": "y", "b": "one"}, {"a": "z", "b": "two"}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    return stream


def test_a_new_column_waits_with_its_type_file_and_values(landing: Landing) -> None:
    stream = proposed(landing)
    assert landing.versions() == [0]
    found = proposals(landing).waiting()
    assert found is not None
    [change] = found.changes
    assert (found.number, found.refused_by) == (0, None)
    assert (change.kind, change.path, change.after) == ("added", "b", "string")
    assert change.in_words() == "b string added"
    assert change.samples == ('"one"', '"two"')
    assert change.file == (landing.source / "2").as_uri()
    with pytest.raises(SchemaProposedError) as caught:
        stream.run()
    assert not caught.value.is_retryable
    assert "b string added" in caught.value.message
    assert "cloudfiles schema accept" in caught.value.message
    assert "one" not in caught.value.message.replace("somebody", "")  # no value of a record
    assert proposals(landing).waiting() == found  # written once


def test_what_is_accepted_is_read_once(landing: Landing) -> None:
    stream = proposed(landing)
    entry = proposals(landing).accept(by="ann", note="fine")
    assert (entry.version, entry.reason["change"]) == (1, "accepted")
    assert (entry.reason["by"], entry.reason["note"], entry.reason["fields"]) == (
        "ann",
        "fine",
        ["b"],
    )
    assert proposals(landing).waiting() is None
    stream.run()
    assert [(row["a"], row.get("b")) for row in stream.rows] == [
        ("x", None),
        ("y", "one"),
        ("z", "two"),
    ]
    [origin] = [each for each in SchemaHistory(str(landing.state)).blame() if each.path == "b"]
    assert (origin.version, origin.file) == (1, (landing.source / "2").as_uri())


def test_what_is_rescued_stays_rescued_and_other_fields_are_proposed(landing: Landing) -> None:
    stream = proposed(landing)
    entry = proposals(landing).rescue(by="ann")
    assert (entry.reason["change"], entry.stay_rescued) == ("rescued", ("b",))
    stream.run()
    assert [rescued(row) for row in stream.rows[1:]] == [{"b": "one"}, {"b": "two"}]
    landing.drop("3", [{"a": "u", "b": "three", "c": "new"}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    found = proposals(landing).waiting()
    assert found is not None
    assert [each.path for each in found.changes] == ["c"]
    assert proposals(landing).accept().stay_rescued == ("b",)
    [row] = stream.run()
    assert (row["c"], rescued(row)) == ("new", {"b": "three"})
    assert list(types(landing)) == ["a", "c"]


def test_what_is_refused_fails_until_it_is_removed_or_decided_anew(landing: Landing) -> None:
    stream = proposed(landing)
    proposals(landing).refuse(by="ann", note="a typo")
    with pytest.raises(SchemaRefusedError, match="ann has refused") as caught:
        stream.run()
    assert not caught.value.is_retryable
    again = proposals(landing).waiting()
    assert again is not None
    assert (again.refused_by, again.note) == ("ann", "a typo")
    with pytest.raises(StateConflictError, match="ann has refused proposal 0 already"):
        proposals(landing).refuse()
    (landing.source / "2").unlink()
    assert stream.run() == []  # the stream goes on without it
    landing.drop("3", [{"a": "v", "b": "three"}])
    with pytest.raises(SchemaRefusedError):
        stream.run()
    assert proposals(landing).accept().version == 2
    assert [row["b"] for row in stream.run()] == ["three"]


def test_more_than_was_refused_is_proposed_anew(landing: Landing) -> None:
    stream = proposed(landing)
    proposals(landing).refuse()
    landing.drop("2", [{"a": "y", "b": "one", "c": "two"}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    found = proposals(landing).waiting()
    assert found is not None
    assert (found.number, [each.path for each in found.changes]) == (1, ["b", "c"])


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_hints_give_other_types_to_what_is_new_and_only_to_that(landing: Landing) -> None:
    stream = proposed(landing)
    found = proposals(landing)
    with pytest.raises(SchemaHintError, match="name c, which this change does not have"):
        found.accept("b INT, c INT")
    with pytest.raises(SchemaHintError, match="change a, which the schema has already"):
        found.accept("a INT")
    with pytest.raises(SchemaHintError):
        found.accept("b NONSENSE")
    assert landing.versions() == [0]
    assert found.accept("b BINARY").reason["hints"] == "b BINARY"
    assert types(landing) == {"a": "string", "b": "binary"}
    stream.run()
    assert len(stream.rows) == 3


@pytest.mark.parametrize("landing", ["csv", "parquet"], indirect=True)
def test_each_column_is_decided_by_itself(landing: Landing) -> None:
    landing.drop("1", [{"a": "x"}])
    stream = landing.stream(**ASKS)
    stream.run()
    landing.drop("2", [{"a": "y", "b": "1", "c": "2", "d": "3", "e": "4"}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    found = proposals(landing)
    with pytest.raises(SchemaHintError, match="names f, which this change does not have"):
        found.decide({"f": "rescue"})
    for wrong in ("NONSENSE", "INT, a INT"):
        with pytest.raises(SchemaHintError):
            found.check({"b": wrong})
    with pytest.raises(SchemaHintError, match=r"The text there: c DECIMAL\(9\n"):
        found.check({"b": "BINARY", "c": "DECIMAL(9", "d": "INT"})
    found.check({"b": "BINARY"})
    assert landing.versions() == [0]
    chosen = {"b": "BINARY", "c": "string", "d": "rescue", "e": "refuse"}
    entry = found.decide(chosen, proposal=0, by="ann")
    assert (entry.version, entry.reason["change"], entry.reason["by"]) == (1, "accepted", "ann")
    assert (entry.reason["hints"], entry.stay_rescued) == ("b BINARY", ("d",))
    assert types(landing) == {"a": "string", "b": "binary", "c": "string"}
    assert landing.versions() == [0, 1, 2]  # the last one refuses
    with pytest.raises(SchemaRefusedError, match=r"ann has refused .* e string added"):
        stream.run()
    rest = found.waiting()
    assert rest is not None
    assert (rest.number, rest.paths, rest.refused_by) == (1, ["e"], "ann")
    found.accept(by="bob")
    [row] = stream.run()
    assert (row["b"], row["c"], row["e"], rescued(row)) == (b"1", "2", "4", {"d": "3"})


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_nested_fields_are_decided_by_themselves(landing: Landing) -> None:
    landing.drop("1", [{"s": {"x": "1"}, "l": [{"x": "1"}]}])
    stream = landing.stream(**ASKS)
    stream.run()
    landing.drop("2", [{"s": {"x": "1", "y": 2, "z": 3}, "l": [{"x": "1", "y": 3}], "t": {"u": 1}}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    entry = proposals(landing).decide({"s.z": "INT", "l.element.y": "rescue", "s.y": "rescue"})
    assert entry.stay_rescued == ("s.y", "l.element.y")
    assert types(landing)["s"] == "struct<x:string,z:int>"
    assert types(landing)["l"] == "array<struct<x:string>>"
    [row] = stream.run()
    assert (row["s"], row["t"]) == ({"x": "1", "z": 3}, {"u": "1"})
    assert rescued(row) == {"s": {"y": 2}, "l": [{"y": 3}]}


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_a_wider_type_is_left_out_while_a_new_column_is_accepted(landing: Landing) -> None:
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**WIDENING)
    stream.run()
    landing.drop("2", [{"a": 2**40, "b": 1}, {"a": 1.5, "b": 2}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    found = proposals(landing).waiting()
    assert found is not None
    widened = next(each.path for each in found.changes if each.kind == "retyped")
    before = types(landing)["a"]
    entry = proposals(landing).decide({widened: "rescue"})
    assert (entry.reason["rescued"], types(landing)) == (["a"], {"a": before, "b": "bigint"})
    assert len(stream.run()) == 2


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_all_that_is_refused_or_rescued_by_itself_is_as_if_at_once(landing: Landing) -> None:
    proposed(landing)
    assert proposals(landing).decide({"b": "refuse"}).reason["change"] == "refused"
    assert landing.versions() == [0, 1]
    assert proposals(landing).decide({"b": "rescue"}).reason["change"] == "rescued"
    assert types(landing) == {"a": "string"}


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_nested_fields_stay_rescued_in_structs_arrays_and_maps(landing: Landing) -> None:
    hints = {"cloudFiles.schemaHints": "m MAP<STRING, STRUCT<x: STRING>>"}
    landing.drop("1", [{"s": {"x": "1"}, "l": [{"x": "1"}], "m": {"k": {"x": "1"}}}])
    stream = landing.stream(**{**ASKS, **hints})
    stream.run()
    record = {"s": {"x": "1", "y": 2}, "l": [{"x": "1", "y": 3}], "m": {"k": {"x": "1", "y": 4}}}
    landing.drop("2", [record])
    with pytest.raises(SchemaProposedError):
        stream.run()
    found = proposals(landing).waiting()
    assert found is not None
    samples = {each.path: each.samples for each in found.changes}
    assert samples == {"s.y": ("2",), "l.element.y": ("3",), "m.value.y": ("4",)}
    proposals(landing).rescue()
    [row] = stream.run()
    assert rescued(row) == {"s": {"y": 2}, "l": [{"y": 3}], "m": {"k": {"y": 4}}}
    landing.drop("3", [{**record, "s": {"x": "1", "y": 2, "z": 5}}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    again = proposals(landing).waiting()
    assert again is not None
    assert again.paths == ["s.z"]


@pytest.mark.parametrize("landing", ["parquet", "orc"], indirect=True)
def test_nested_fields_of_columnar_files_stay_rescued(landing: Landing) -> None:
    landing.drop("1", [{"s": {"x": "1"}, "l": [{"x": "1"}]}])
    stream = landing.stream(**ASKS)
    stream.run()
    landing.drop("2", [{"s": {"x": "1", "y": "2"}, "l": [{"x": "1", "y": "3"}]}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    proposals(landing).rescue()
    [row] = stream.run()
    assert rescued(row) == {"s": {"y": "2"}, "l": [{"y": "3"}]}


@pytest.mark.parametrize("landing", ["json", "csv", "xml", "parquet"], indirect=True)
def test_a_wider_type_waits_and_is_accepted_or_stays_rescued(landing: Landing) -> None:
    landing.drop("1", [{"a": 1, "b": 1}])
    stream = landing.stream(**WIDENING)
    stream.run()
    before = types(landing)
    landing.drop("2", [{"a": 2**70 if landing.format != "parquet" else 2.5, "b": 1}])
    if landing.format == "parquet":  # its matrix has nothing for a double in a bigint column
        assert len(stream.run()) == 1
        return
    with pytest.raises(SchemaProposedError, match="a retyped from"):
        stream.run()
    found = proposals(landing).waiting()
    assert found is not None
    assert found.changes[0].samples[0].strip('"') == str(2**70)
    proposals(landing).rescue()
    [row] = stream.run()
    assert str(rescued(row)["a"]) == str(2**70)
    assert types(landing) == before
    landing.drop("3", [{"a": 3, "b": 2**70}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    again = proposals(landing).waiting()
    assert again is not None
    assert again.paths == ["b"]
    proposals(landing).accept()
    [row] = stream.run()
    assert row["b"] == 2**70


@pytest.mark.parametrize("landing", ["csv"], indirect=True)
def test_columns_of_files_without_names_stay_rescued(landing: Landing) -> None:
    landing.put("1", b"1,2\n")
    stream = landing.stream(**ASKS, header="false")
    stream.run()
    landing.put("2", b"3,4,5\n")
    with pytest.raises(SchemaProposedError):
        stream.run()
    proposals(landing).rescue()
    [row] = stream.run()
    assert (row["_c0"], rescued(row)) == ("3", {"_c2": "5"})


@pytest.mark.parametrize("landing", ["json", "parquet"], indirect=True)
def test_evolving_ahead_proposes_before_anything_is_read(landing: Landing) -> None:
    stream = proposed(landing, **{"cloudFiles.evolveAhead": "true"})
    found = proposals(landing).waiting()
    assert found is not None
    assert found.reason["ahead"] is True
    assert found.changes[0].samples == ('"one"', '"two"')
    proposals(landing).accept()
    assert len(stream.run()) == 2


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_values_are_cut_made_printable_or_left_out(landing: Landing) -> None:
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**ASKS)
    stream.run()
    landing.drop("2", [{"long": "x" * 1000, "odd": "\u202e\u0007<b>`|`"}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    found = proposals(landing).waiting()
    assert found is not None
    long, odd = (each.samples[0] for each in found.changes)
    assert (len(long), long[-1]) == (101, "…")
    assert odd == '"\\u202e\\u0007<b>`|`"'
    proposals(landing).accept()
    stream.run()
    landing.drop("3", [{"secret": "hush"}])
    with pytest.raises(SchemaProposedError):
        landing.stream(**ASKS, **{"cloudFiles.approvalSamples": "0"}).run()
    again = proposals(landing).waiting()
    assert again is not None
    assert again.changes[0].samples == ()
    assert b"hush" not in (landing.state / "_schemas" / "proposed" / "1").read_bytes()


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_a_run_learns_at_its_start_that_a_change_waits(landing: Landing) -> None:
    stream = proposed(landing)
    resolved = resolve_schema(stream.options)
    assert isinstance(undecided(stream.options, resolved), SchemaProposedError)
    free = landing.stream()  # without the option
    assert undecided(free.options, resolved) is None
    proposals(landing).refuse()
    assert undecided(stream.options, resolve_schema(stream.options)) is None


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_another_version_ends_the_waiting(landing: Landing) -> None:
    stream = proposed(landing)
    hinted = landing.stream(**ASKS, **{"cloudFiles.schemaHints": "b STRING"})
    assert undecided(hinted.options, resolve_schema(hinted.options)) is None
    assert proposals(landing).waiting() is None
    with pytest.raises(StateError, match="No change of the schema waits"):
        proposals(landing).accept()
    assert len(stream.run()) == 2


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_a_rolled_back_rescue_is_asked_for_again(landing: Landing) -> None:
    stream = proposed(landing)
    proposals(landing).rescue()
    history = SchemaHistory(str(landing.state))
    assert history.pin().stay_rescued == ("b",)
    history.rollback(0)
    history.unpin()
    with pytest.raises(SchemaProposedError):
        stream.run()


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_tasks_at_once_write_one_proposal(landing: Landing) -> None:
    landing.drop("0", [{"a": "x"}])
    stream = landing.stream(**ASKS)
    stream.run()
    for number in range(1, 9):
        landing.drop(str(number), [{"a": "y", f"new{number}": number}])
    tasks = stream.tasks()
    gate = threading.Barrier(len(tasks))

    def read(task: TaskReader) -> str:
        gate.wait(30)
        with pytest.raises(SchemaProposedError) as caught:
            list(task.read())
        return caught.value.message

    with ThreadPoolExecutor(len(tasks)) as pool:
        [message] = set(pool.map(read, tasks))
    assert "Proposal 0 waits" in message
    assert [path.name for path in (landing.state / "_schemas" / "proposed").iterdir()] == ["0"]
    found = proposals(landing).waiting()
    assert found is not None
    assert sorted(found.paths) == [f"new{number}" for number in range(1, 9)]


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_of_two_people_who_decide_at_once_one_does(landing: Landing) -> None:
    proposed(landing)
    gate = threading.Barrier(6)

    def decide(number: int) -> str:
        found = proposals(landing)
        gate.wait(30)
        decides = found.rescue if number % 2 else found.accept
        try:
            return str(decides(proposal=0, by=f"user {number}").reason["by"])
        except StateConflictError as error:
            return error.message[:46]

    with ThreadPoolExecutor(6) as pool:
        said = set(pool.map(decide, range(6)))
    [winner] = said - {"This was decided meanwhile: schema version 1 is"[:46]}
    entry = SchemaHistory(str(landing.state)).show()
    assert (entry.version, entry.reason["by"]) == (1, winner)


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_a_decision_is_about_the_proposal_that_was_looked_at(landing: Landing) -> None:
    stream = proposed(landing)
    proposals(landing).accept(proposal=0, by="ann")
    stream.run()
    with pytest.raises(StateConflictError, match=r"version 1 is there \(accepted, by ann\)"):
        proposals(landing).rescue(proposal=0)
    landing.drop("3", [{"c": 1}])
    with pytest.raises(SchemaProposedError):
        stream.run()
    with pytest.raises(StateConflictError):
        proposals(landing).accept(proposal=0)
    with pytest.raises(StateError, match=r"No proposal 7 waits for a decision in .*; proposal 1"):
        proposals(landing).accept(proposal=7)
    assert landing.versions() == [0, 1]


@pytest.mark.parametrize("landing", ["json"], indirect=True)
def test_a_damaged_proposal_is_named(landing: Landing) -> None:
    proposed(landing)
    path = landing.state / "_schemas" / "proposed" / "0"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CloudFilesError, match="_schemas/proposed/0"):
        proposals(landing).waiting()
