"""The schema log for people: who brought what, going back, staying where it is."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import airflow_cloudfiles
from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    OptionError,
    StateConflictError,
    StateError,
)
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.diff import SchemaChange, paths_of, type_text
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.storage import open_store

SOURCE = "file:///landing/orders"
GOLDEN = Path(__file__).parents[2] / "golden" / "schema_log_v1"
ONE = f"{SOURCE}/1.json"
TWO = f"{SOURCE}/2.json"


def write(location: Path, version: int, schema: str, **reason: object) -> None:
    SchemaLog(open_store(str(location)), SOURCE).append(
        version,
        data_schema=parse_schema(schema),
        partition_schema=parse_schema("day STRING"),
        reason=reason,
    )


@pytest.fixture
def history(tmp_path) -> SchemaHistory:
    """Three versions: inferred, a new column and a new nested field, a wider type."""
    write(
        tmp_path,
        0,
        "id INT, user STRUCT<name: STRING>",
        change="inferred",
        files=2,
        by="dag.infer",
        brought={ONE: ["id", "user", "user.name"]},
    )
    write(
        tmp_path,
        1,
        "id INT, user STRUCT<name: STRING, zip: STRING>, currency STRING",
        change="addNewColumns",
        fields=["currency", "user"],
        file=TWO,
        by="dag.ingest (run 1)",
        brought={ONE: ["user.zip"], TWO: ["currency"]},
    )
    write(
        tmp_path,
        2,
        "id BIGINT, user STRUCT<name: STRING, zip: STRING>, currency STRING",
        change="widened",
        by="dag.ingest (run 2)",
        widened={"id": {"from": "int", "to": "bigint", "file": TWO}},
    )
    return SchemaHistory(str(tmp_path))


def schema_of(history: SchemaHistory, version: int | None = None) -> dict[str, str]:
    return paths_of(history.show(version).data_schema)


def test_the_public_name_is_this_class() -> None:
    assert airflow_cloudfiles.SchemaHistory is SchemaHistory


def test_versions_are_listed_with_time_reason_and_author(history: SchemaHistory) -> None:
    versions = history.versions()
    assert [each.version for each in versions] == [0, 1, 2]
    assert [each.reason["change"] for each in versions] == ["inferred", "addNewColumns", "widened"]
    assert [each.created for each in versions] == sorted(each.created for each in versions)
    assert versions[1].reason["by"] == "dag.ingest (run 1)"
    assert history.show() == versions[-1]


def test_what_is_not_there_is_reported(tmp_path, history: SchemaHistory) -> None:
    with pytest.raises(StateError, match=r"no schema version 7 .* there are 0 to 2"):
        history.show(7)
    with pytest.raises(StateError, match=r"There is no schema in .*nowhere"):
        SchemaHistory(str(tmp_path / "nowhere")).rollback(0)
    assert SchemaHistory(str(tmp_path / "nowhere")).versions() == []


def test_two_versions_are_compared(history: SchemaHistory) -> None:
    assert history.diff() == [SchemaChange("retyped", "id", "int", "bigint")]
    assert history.diff(0, 1) == [
        SchemaChange("added", "user.zip", None, "string"),
        SchemaChange("added", "currency", None, "string"),
    ]
    assert [each.kind for each in history.diff(1, 0)] == ["removed", "removed"]
    assert {each.path for each in history.diff(new=0)} == {"id", "user", "day"}


def test_blame_names_version_and_file_of_every_column(history: SchemaHistory) -> None:
    found = {each.path: each for each in history.blame()}
    assert {path: (each.version, each.file) for path, each in found.items()} == {
        "id": (0, ONE),
        "user": (0, ONE),
        "user.name": (0, ONE),
        "user.zip": (1, ONE),
        "currency": (1, TWO),
        "day": (0, None),
    }
    assert (found["id"].type, found["id"].retyped_in) == ("bigint", (2,))
    assert found["user"].retyped_in == ()
    assert found["currency"].by == "dag.ingest (run 1)"
    assert found["currency"].created == history.show(1).created
    assert {each.path for each in history.blame(0)} == {"id", "user", "user.name", "day"}


def test_a_rollback_appends_a_version_and_rewrites_nothing(history: SchemaHistory) -> None:
    before = [(each.version, each.to_body()) for each in history.versions()]
    written = history.rollback(0, note="a wrong file")
    assert written.version == 3
    assert written.reason["change"] == "rolledBack"
    assert (written.reason["to"], written.reason["note"]) == (0, "a wrong file")
    assert "@" in written.reason["by"]
    assert schema_of(history) == schema_of(history, 0)
    assert [(each.version, each.to_body()) for each in history.versions()[:3]] == before
    origins = {each.path: each.version for each in history.blame()}
    assert origins == {"id": 0, "user": 0, "user.name": 0, "day": 0}
    history.rollback(2)
    assert {each.path: each.version for each in history.blame()}["currency"] == 1


def test_a_task_of_airflow_signs_with_its_name(history, monkeypatch) -> None:
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "orders")
    monkeypatch.setenv("AIRFLOW_CTX_TASK_ID", "mend")
    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "manual__1")
    assert history.rollback(0).reason["by"] == "orders.mend (manual__1)"


def test_a_pinned_schema_takes_no_version_until_it_is_unpinned(tmp_path, history) -> None:
    pinned = history.pin(1, new_fields="fail")
    assert (pinned.version, pinned.pin, pinned.reason["to"]) == (3, "fail", 1)
    assert schema_of(history) == schema_of(history, 1)
    log = SchemaLog(open_store(str(tmp_path)), SOURCE)
    assert log.latest().pin == "fail"
    with pytest.raises(StateConflictError, match=r"pinned .*_schemas/3.* cloudfiles schema unpin"):
        write(tmp_path, 4, "id INT, new STRING", change="addNewColumns")
    assert history.rollback(0).pin == "fail"
    assert history.pin().pin == "rescue"
    assert history.unpin().pin is None
    assert schema_of(history) == schema_of(history, 0)
    write(tmp_path, 7, "id INT, new STRING", change="addNewColumns")
    assert log.latest().version == 7
    with pytest.raises(StateError, match="is not pinned"):
        history.unpin()


def test_a_pin_must_say_what_new_fields_do(history: SchemaHistory) -> None:
    with pytest.raises(OptionError, match="rescue or fail, got 'drop'"):
        history.pin(new_fields="drop")  # type: ignore[arg-type]


def test_many_at_once_each_write_a_version_of_their_own(tmp_path, history) -> None:
    barrier = threading.Barrier(6)

    def roll(to: int) -> None:
        barrier.wait()
        SchemaHistory(str(tmp_path)).rollback(to % 3)

    threads = [threading.Thread(target=roll, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = history.versions()[3:]
    assert [each.version for each in written] == list(range(3, 9))
    assert sorted(each.reason["to"] for each in written) == [0, 0, 1, 1, 2, 2]


def test_versions_written_before_files_were_noted_are_read(tmp_path) -> None:
    store = open_store(str(tmp_path))
    for number in (0, 1):
        store.put(f"_schemas/{number}", (GOLDEN / str(number)).read_bytes())
    found = {each.path: each for each in SchemaHistory(str(tmp_path)).blame()}
    assert {path: (each.version, each.file, each.by) for path, each in found.items()} == {
        "a": (0, None, None),
        "b": (0, None, None),
        "b.c": (0, None, None),
        "event": (0, None, None),
        "date": (0, None, None),
        "d": (1, "file:///landing/flights/2026/3.json", None),
        "b.e": (1, "file:///landing/flights/2026/3.json", None),
    }


def test_a_pin_of_version_1_is_read(tmp_path) -> None:
    store = open_store(str(tmp_path))
    for number in (0, 1, 2):
        store.put(f"_schemas/{number}", (GOLDEN / str(number)).read_bytes())
    latest = SchemaHistory(str(tmp_path)).show()
    assert (latest.pin, latest.reason["to"], latest.reason["by"]) == ("rescue", 0, "ann@host")
    frozen = (GOLDEN / "2").read_bytes().split(b"\n", 2)[2]
    assert latest.to_body() == frozen


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"source":1}',
        b'{"source":"s","reason":{},"dataSchemaJson":{"fields":[1]},"partitionSchemaJson":{}}',
        b'{"source":"s","reason":{},"pin":{"newFields":"?"}}',
    ],
)
def test_what_is_no_version_is_named(tmp_path, body: bytes) -> None:
    open_store(str(tmp_path)).put("_schemas/0", encode_entry({"id": "x"}, body, format_version=1))
    with pytest.raises(CorruptedStateError, match=r"_schemas/0 is not a schema version"):
        SchemaHistory(str(tmp_path)).show()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["struct", "array", "map", "long"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["type", "fields", "name", "elementType", "keyType", "valueType", "newFields", "to"]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)
_BODIES = st.fixed_dictionaries(
    {"source": st.just("s"), "reason": _JSON | st.just({})},
    optional={
        "pin": _JSON,
        "dataSchemaJson": _JSON
        | st.fixed_dictionaries({"type": st.just("struct"), "fields": _JSON}),
        "partitionSchemaJson": st.just({"type": "struct", "fields": []}),
    },
)


@pytest.mark.law
@given(_BODIES)
def test_any_damage_is_reported_and_never_a_mistake_of_the_program(body: dict[str, object]) -> None:
    location = f"memory://{uuid.uuid4().hex}"
    text = json.dumps(body).encode()
    open_store(location).put("_schemas/0", encode_entry({"id": "x"}, text, format_version=1))
    history = SchemaHistory(location)
    found = None
    with contextlib.suppress(CorruptedStateError):
        found = history.show()
    if found is not None:
        assert {each.path for each in history.blame()} == set(paths_of(found.data_schema))
        assert len(history.diff()) <= len(found.data_schema["fields"])


@pytest.mark.parametrize(
    "ddl",
    [
        "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(5,2), h STRING",
        "a BOOLEAN, b BINARY, c DATE, d TIMESTAMP, e TIMESTAMP_NTZ",
        "a ARRAY<STRUCT<b: MAP<STRING, ARRAY<INT>>>>, c MAP<STRING, STRUCT<d: DATE>>",
    ],
)
def test_types_are_written_as_spark_writes_them(ddl: str) -> None:
    schema = parse_schema(ddl)
    assert type_text(schema.jsonValue()) == schema.simpleString()


def test_columns_that_differ_only_in_case_are_distinguished() -> None:
    schema = {"type": "struct", "fields": [{"name": n, "type": "string"} for n in ("a", "A")]}
    assert paths_of(schema) == {"a": "string", "A": "string"}
