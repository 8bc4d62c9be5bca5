"""With tracking, a stream goes on over every change of the schema, one after another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import (
    BlockedSchemaChangeError,
    CorruptedStateError,
    IncompatibleStateError,
    OptionError,
    StaleSchemaError,
    StateConflictError,
    TableEvolvedError,
)
from tests.support.delta_tables import MAPPED, column, features, removed
from tests.support.table_streams import CONFIGURED, GrowingTable, Query

PREFIX = "spark.databricks.delta.streaming.allowSourceColumn"


@pytest.fixture
def table(tmp_path: Path) -> GrowingTable:
    """Columns a and b, and a row of each version."""
    found = GrowingTable(tmp_path / "t", "a", "b")
    found.append(1)
    return found


@pytest.fixture
def query(table: GrowingTable, tmp_path: Path) -> Query:
    """A stream with tracking that has read all."""
    found = Query(table.folder, tmp_path / "checkpoint", track=True)
    assert found.run() == [{"a": 1, "b": 1}]
    return found


def test_a_drop_as_the_documentation_tells_it(  # B134
    table: GrowingTable, query: Query
) -> None:
    table.append(2)
    version = table.drop("b")
    table.append(3)
    # What is before the change is served with the old schema, then the log has the new one.
    message = query.failing(TableEvolvedError)
    assert query.batches[-1] == [{"a": 2, "b": 2}]
    assert query.offsets[-1] == {
        "sourceVersion": 3,
        "reservoirId": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "reservoirVersion": version,
        "index": -20,
        "isStartingVersion": False,
    }
    assert message.startswith("[DELTA_STREAMING_METADATA_EVOLUTION]")
    assert message.endswith(
        "Updated table configurations: delta.columnMapping.mode:name.\nUpdated table protocol: 2,5"
    )
    # The next start is refused until it is allowed.
    for _ in range(2):
        message = query.failing(BlockedSchemaChangeError)
    assert "(DROP COLUMN) between Delta version 1 and 3 in the Delta streaming source." in message
    query.settings = {f"{PREFIX}Drop": "always"}
    assert query.run() == [{"a": 3}]
    assert [entry["deltaCommitVersion"] for entry in query.log()] == [1, 3]


def test_the_log_is_written_as_delta_does(table: GrowingTable, query: Query) -> None:
    table.rename("b", "c")
    query.failing(TableEvolvedError)
    entry = query.log()[1]
    assert list(entry) == [
        "tableId",
        "deltaCommitVersion",
        "dataSchemaJson",
        "partitionSchemaJson",
        "sourceMetadataPath",
        "tableConfigurations",
        "protocolJson",
    ]
    assert entry["partitionSchemaJson"] == '{"type":"struct","fields":[]}'
    assert entry["sourceMetadataPath"] == f"file:{query.checkpoint}/sources/0"
    assert json.loads(entry["protocolJson"]) == {"protocol": MAPPED}
    assert json.loads(entry["dataSchemaJson"])["fields"] == table.columns


def test_an_additive_change_needs_only_the_restart(  # B135
    table: GrowingTable, query: Query
) -> None:
    table.append(2)
    table.add("c", 3)
    table.append(3)
    query.failing(TableEvolvedError)
    assert query.run() == [{"a": 3, "b": 3, "c": 3}]
    assert query.batches[1] == [{"a": 2, "b": 2}]


def test_several_changes_in_a_backlog_come_one_after_another(
    table: GrowingTable, query: Query
) -> None:
    query.options |= {"allowsourcecolumnrename": "always", "allowsourcecolumndrop": "always"}
    table.rename("a", "x")
    table.append(2)
    table.add("c", 3)
    table.append(3)
    table.drop("b")
    table.append(4)
    for _ in range(3):
        query.failing(TableEvolvedError)
    assert query.run() == [{"x": 4, "c": 4}]
    assert [row for row in query.rows if row] == [
        {"a": 1, "b": 1},
        {"x": 2, "b": 2},
        {"x": 3, "b": 3, "c": 3},
        {"x": 4, "c": 4},
    ]


def test_changes_without_data_between_them_are_one(table: GrowingTable, query: Query) -> None:
    table.rename("a", "x")
    table.commit({"commitInfo": {"operation": "VACUUM END"}})
    table.rename("x", "y")
    last = table.drop("b")
    table.append(2)
    query.failing(TableEvolvedError)
    assert [entry["deltaCommitVersion"] for entry in query.log()] == [1, last]
    query.options |= {"allowsourcecolumnrename": str(last), "allowsourcecolumndrop": str(last)}
    assert query.run() == [{"y": 2}]


def test_a_change_that_follows_before_the_restart_is_merged(  # B138
    table: GrowingTable, query: Query
) -> None:
    table.rename("a", "x")
    query.failing(TableEvolvedError)
    last = table.rename("x", "y")
    message = query.failing(BlockedSchemaChangeError)
    assert f"between Delta version 1 and {last}" in message
    assert query.log()[2]["previousMetadataSeqNum"] == 0
    table.append(2)
    query.options["allowsourcecolumnrename"] = str(last)
    assert query.run() == [{"y": 2, "b": 2}]


def test_what_a_commit_has_beside_its_change_is_read_with_the_new_schema(
    table: GrowingTable, query: Query
) -> None:
    add = table.file("new.parquet", {"col-1": [2], "col-2": [2], "col-3": [2]})
    table.evolve(lambda columns: columns.append(column("c", "long", 3)), add)
    table.drop("c")
    query.failing(TableEvolvedError)
    # The second change is not merged into the first, which has data.
    assert "DROP" in (query.failing(TableEvolvedError) and query.failing(BlockedSchemaChangeError))
    assert query.batches[-1] == [{"a": 2, "b": 2, "c": 2}]


def swap(columns: list[dict[str, Any]]) -> None:
    columns[0]["name"], columns[1]["name"] = columns[1]["name"], columns[0]["name"]


def replaced(columns: list[dict[str, Any]]) -> None:
    """Drop a and b, and rename nothing: an overwrite with other columns."""
    columns[:] = [column("n", "string", 9)]


def dropped_then_renamed(columns: list[dict[str, Any]]) -> None:
    del columns[0]
    columns[0]["name"] = "a"


def retyped(kind: str) -> Any:
    return lambda columns: columns[1].update(type=kind)


def renamed_and_retyped(columns: list[dict[str, Any]]) -> None:
    columns[1].update(name="c", type="double")


def nested(columns: list[dict[str, Any]]) -> None:
    columns[1].update(name="c")


RENAME, DROP, TYPE = "allowSourceColumnRename", "allowSourceColumnDrop", "allowSourceColumnType"


@pytest.mark.parametrize(
    ("change", "operation", "needed"),
    [
        (nested, "RENAME COLUMN", {RENAME}),
        (swap, "RENAME COLUMN", {RENAME}),
        (replaced, "DROP COLUMN", {DROP}),
        (dropped_then_renamed, "RENAME AND DROP COLUMN", {RENAME, DROP}),
        (retyped("double"), "TYPE CHANGE", {TYPE}),
        (retyped("short"), "TYPE CHANGE", {TYPE}),
        (renamed_and_retyped, "RENAME COLUMN AND TYPE CHANGE", {RENAME, TYPE}),
    ],
)
def test_what_is_not_additive_needs_each_of_its_settings(
    table: GrowingTable, query: Query, change: Any, operation: str, needed: set[str]
) -> None:
    version = table.evolve(change)
    query.failing(TableEvolvedError)
    assert f"({operation})" in query.failing(BlockedSchemaChangeError)
    for missing in needed:
        query.options |= {
            f"{name}{'Change' if name == TYPE else ''}".lower(): "always"
            for name in needed - {missing}
        }
        query.failing(BlockedSchemaChangeError)
        query.options = {k: v for k, v in query.options.items() if not k.startswith("allow")}
    query.settings = {f"{PREFIX}RenameAndDrop": str(version), f"{PREFIX}TypeChange": "always"}
    assert query.run() == []


def test_widening_inside_of_structs_arrays_and_maps_is_a_change_of_type(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "t", "a")
    for number, (before, after, path) in enumerate(
        [
            (
                {"type": "struct", "fields": [column("x", "integer", 12)]},
                {"type": "struct", "fields": [column("x", "long", 12)]},
                "n.x from int to bigint",
            ),
            (
                {"type": "array", "elementType": "integer", "containsNull": True},
                {"type": "array", "elementType": "long", "containsNull": True},
                "n.element from int to bigint",
            ),
            (
                {"type": "map", "keyType": "string", "valueType": "short",
                 "valueContainsNull": True},
                {"type": "map", "keyType": "string", "valueType": "integer",
                 "valueContainsNull": True},
                "n.value from smallint to int",
            ),
        ]
    ):  # fmt: skip
        table.add("n", 20 + number, before)
        query = Query(table.folder, tmp_path / f"c-{number}", track=True)
        query.run()
        table.retype("n", after)
        query.failing(TableEvolvedError)
        assert f"TYPE CHANGE {path}" in query.failing(BlockedSchemaChangeError)
        query.options["allowsourcecolumntypechange"] = "always"
        assert query.run() == []
        table.drop("n")


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: columns[0].update(nullable=False),
        lambda columns: columns[0]["metadata"].update(comment="c"),
    ],
)
def test_nullability_and_comments_need_only_the_restart(
    table: GrowingTable, query: Query, change: Any
) -> None:
    table.evolve(change)
    table.append(2)
    query.failing(TableEvolvedError)
    assert query.run() == [{"a": 2, "b": 2}]


def test_relaxed_nullability_needs_only_the_restart(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "t", "a")
    table.evolve(lambda columns: columns[0].update(nullable=False))
    table.append(1)
    query = Query(table.folder, tmp_path / "checkpoint", track=True)
    query.run()
    table.evolve(lambda columns: columns[0].update(nullable=True))
    table.append(None)
    query.failing(TableEvolvedError)
    assert query.run() == [{"a": None}]


def test_the_high_water_mark_of_an_identity_column_is_no_change(  # B137
    table: GrowingTable, tmp_path: Path
) -> None:
    mark = "delta.identity.highWaterMark"
    table.evolve(lambda columns: columns[0]["metadata"].update({mark: 1}))
    query = Query(table.folder, tmp_path / "another", track=True)
    query.run()
    table.evolve(lambda columns: columns[0]["metadata"].update({mark: 99}))
    table.append(2)
    assert query.run() == [{"a": 2, "b": 2}]


def test_configuration_and_protocol_are_tracked_by_deltas_own_names(
    table: GrowingTable, query: Query
) -> None:
    table.commit(table.metadata(table.columns, (), {**CONFIGURED, "mine": "x"}))
    table.append(2)
    assert query.run() == [{"a": 2, "b": 2}]
    table.commit(table.metadata(table.columns, (), {**CONFIGURED, "delta.appendOnly": "true"}))
    table.append(3)
    query.failing(TableEvolvedError)
    assert query.run() == [{"a": 3, "b": 3}]
    # A tail of protocol changes only: an upgrade, and then a downgrade.
    table.commit({"protocol": features("columnMapping", "deletionVectors")})
    query.failing(TableEvolvedError)
    assert query.run() == []
    table.append(4)
    table.commit({"protocol": MAPPED})
    table.append(5)
    query.failing(TableEvolvedError)
    assert query.run() == [{"a": 5, "b": 5}]


def test_a_table_is_upgraded_to_column_mapping_in_mid_stream(tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "t", "a")
    plain = [column("a", "long")]
    table.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
                 table.metadata(plain), table.file("0.parquet", {"a": [1]}))  # fmt: skip
    query = Query(table.folder, tmp_path / "checkpoint", track=True)
    assert query.run() == [{"a": 1}]
    mapped = column("a", "long", 1)
    mapped["metadata"]["delta.columnMapping.physicalName"] = "a"
    table.commit({"protocol": MAPPED}, table.metadata([mapped], (), CONFIGURED))
    table.commit(table.file("1.parquet", {"a": [2]}))
    query.failing(TableEvolvedError)
    assert query.run() == [{"a": 2}]
    table.columns = [mapped]
    table.rename("a", "z")
    table.commit(table.file("2.parquet", {"a": [3]}))
    query.failing(TableEvolvedError)
    query.options["allowsourcecolumnrename"] = "always"
    assert query.run() == [{"z": 3}]


def test_other_partition_columns_are_read_as_each_version_has_them(
    table: GrowingTable, query: Query
) -> None:
    table.append(2)
    file = table.file("b=3/p.parquet", {"col-1": [3]}, partition={"col-2": "3"})
    metadata = table.metadata(table.columns, ("b",), CONFIGURED)
    table.commit(metadata, file)
    query.failing(TableEvolvedError)
    assert query.run() == [{"a": 3, "b": 3}]
    assert json.loads(query.log()[1]["partitionSchemaJson"])["fields"] == [table.columns[1]]


def test_an_overwrite_with_another_type_needs_both_kinds_of_option(
    table: GrowingTable, query: Query
) -> None:
    replaced_file = table.file("new.parquet", {"col-1": ["x"], "col-2": [2]})
    table.evolve(
        lambda columns: columns[0].update(type="string"), replaced_file, removed(table.files[0])
    )
    query.failing(TableEvolvedError)
    query.options |= {"allowsourcecolumntypechange": "always", "ignorechanges": "true"}
    assert query.run() == [{"a": "x", "b": 2}]


def test_a_kill_at_any_step_of_a_change_is_harmless(table: GrowingTable, query: Query) -> None:
    table.append(2)
    table.add("c", 3)
    table.append(3)
    query.start()
    assert query.plan()  # up to the change, and killed before it is run
    query.start()  # runs it, and is killed before the log is written
    assert query.batches[-1] == [{"a": 2, "b": 2}]
    query.failing(TableEvolvedError)
    query.start()  # killed again
    assert query.run() == [{"a": 3, "b": 3, "c": 3}]
    assert len(query.log()) == 2


def test_the_latest_offset_never_passes_a_change(table: GrowingTable, query: Query) -> None:
    query.options["maxfilespertrigger"] = "1"
    for value in (2, 3):
        table.append(value)
    version = table.add("c", 3)
    table.append(4)
    query.start(available_now=False)
    ends = []
    for _ in range(2):
        assert query.plan()
        ends.append((query.offsets[-1]["reservoirVersion"], query.offsets[-1]["index"]))
        query.execute()
        table.append(5)
    assert ends == [(3, -1), (version, -20)]
    with pytest.raises(TableEvolvedError):
        query.plan()


def test_a_frame_that_was_defined_before_is_refused_and_says_so(
    table: GrowingTable, query: Query
) -> None:
    table.add("c", 3)
    query.failing(TableEvolvedError)
    assert "load()" in query.failing(StaleSchemaError, reload=False)
    assert query.run() == []


def test_a_new_stream_begins_with_the_schema_of_the_version_it_starts_at(
    table: GrowingTable, tmp_path: Path
) -> None:
    table.rename("b", "c")
    table.append(2)
    query = Query(table.folder, tmp_path / "another", track=True, startingVersion=1)
    query.failing(TableEvolvedError)
    assert query.rows == [{"a": 1, "b": 1}]
    query.options["allowsourcecolumnrename"] = "2"
    assert query.run() == [{"a": 2, "c": 2}]


def test_tracking_can_begin_in_mid_stream(table: GrowingTable, tmp_path: Path) -> None:
    query = Query(table.folder, tmp_path / "another")
    query.run()
    query.options["schematrackinglocation"] = str(query.checkpoint / "schemas")
    table.append(2)
    table.rename("b", "c")
    table.append(3)
    # The DataFrame has the newest schema; the log begins with that of the version to read next.
    query.failing(TableEvolvedError)
    query.failing(TableEvolvedError)
    assert query.rows[1:] == [{"a": 2, "b": 2}]
    query.options["allowsourcecolumnrename"] = "always"
    assert query.run() == [{"a": 3, "c": 3}]


@pytest.mark.parametrize("incompatible", [False, True])
def test_tracking_begins_where_a_micro_batch_was_planned_without(
    table: GrowingTable, tmp_path: Path, *, incompatible: bool
) -> None:
    query = Query(table.folder, tmp_path / "another")
    query.run()
    table.append(2)
    table.add("c", 3)
    table.append(3)
    query.start()
    assert query.plan()
    query.options["schematrackinglocation"] = str(query.checkpoint / "schemas")
    if incompatible:
        path = table.log / f"{3:020}.json"
        path.write_text(path.read_text().replace('\\"name\\": \\"b\\"', '\\"name\\": \\"z\\"'))
        assert "INIT_FAILED" in query.failing(BlockedSchemaChangeError)
        return
    # The most encompassing schema serves all of it.
    query.run()
    assert query.rows[1:] == [{"a": 2, "b": 2, "c": None}, {"a": 3, "b": 3, "c": 3}]
    assert query.log()[0]["deltaCommitVersion"] == 4


def test_the_log_must_be_below_the_checkpoint(  # B136
    table: GrowingTable, tmp_path: Path
) -> None:
    query = Query(table.folder, tmp_path / "another")
    for place in (tmp_path, tmp_path / "another2", "memory://schemas/another/x"):
        query.options["schematrackinglocation"] = str(place)
        assert "NOT_UNDER_CHECKPOINT" in query.failing(OptionError)
    for place in (query.checkpoint, f"file://{query.checkpoint}/x/y"):
        query.options["schematrackinglocation"] = str(place)
        query.run()


def test_a_log_is_refused_to_another_stream_or_table(  # B136
    table: GrowingTable, query: Query, tmp_path: Path
) -> None:
    query.ordinal = 1
    assert "LOCATION_CONFLICT" in query.failing(StateConflictError)
    query.options["streamingsourcetrackingid"] = "second"
    query.run()
    query.ordinal = 0
    del query.options["streamingsourcetrackingid"]
    [folder] = [each for each in (query.checkpoint / "schemas").iterdir() if "second" not in
                each.name]  # fmt: skip
    entry = folder / "0"
    entry.write_text(entry.read_text().replace('"tableId":"5fba', '"tableId":"0000'))
    assert "INCOMPATIBLE_DELTA_TABLE_ID" in query.failing(StateConflictError)


def test_two_writers_of_one_log_do_not_overwrite_each_other(
    table: GrowingTable, query: Query
) -> None:
    other = Query(table.folder, query.checkpoint, track=True)
    other.offsets, other.committed = list(query.offsets), query.committed
    table.rename("a", "x")
    query.start()
    other.start()
    assert query.plan()
    query.execute()
    table.rename("x", "y")  # seen by one of them
    with pytest.raises(TableEvolvedError):
        query.plan()
    entry = query.checkpoint / "schemas" / f"_schema_log_{table.metadata([])['metaData']['id']}/1"
    entry.write_text(entry.read_text().replace('"deltaCommitVersion":3', '"deltaCommitVersion":9'))
    assert other.plan()
    other.execute()
    with pytest.raises(StateConflictError, match="LOCATION_CONFLICT"):
        other.plan()


@pytest.mark.parametrize(
    ("content", "error", "what"),
    [
        ("", CorruptedStateError, "DESERIALIZE_FAILED"),
        ("v1", CorruptedStateError, "DESERIALIZE_FAILED"),
        ('v1\n{"tableId":', CorruptedStateError, "DESERIALIZE_FAILED"),
        ("v2\n{}", IncompatibleStateError, "version v2"),
        (None, CorruptedStateError, "PARSE_SCHEMA_FAILED"),
    ],
)
def test_a_log_that_is_damaged_says_so(  # B136
    query: Query, content: str | None, error: type[Any], what: str
) -> None:
    [folder] = (query.checkpoint / "schemas").iterdir()
    if content is None:
        whole = json.loads((folder / "0").read_text()[3:])
        content = "v1\n" + json.dumps({**whole, "dataSchemaJson": "columns"})
    (folder / "0").write_text(content)
    assert what in query.failing(error)


def test_entries_of_older_and_newer_versions_of_delta_are_read(
    table: GrowingTable, query: Query
) -> None:
    [folder] = (query.checkpoint / "schemas").iterdir()
    whole = json.loads((folder / "0").read_text()[3:])
    table.append(2)
    older = {k: v for k, v in whole.items() if k not in {"tableConfigurations", "protocolJson"}}
    for value, form in enumerate((older, {**whole, "somethingNew": [1]}), 3):
        (folder / "0").write_text("v1\n" + json.dumps(form))
        table.append(value)
        assert query.run()[-1] == {"a": value, "b": value}


def test_the_setting_of_another_stream_or_version_unblocks_nothing(
    table: GrowingTable, query: Query
) -> None:
    table.rename("a", "x")
    query.failing(TableEvolvedError)
    key = query.failing(BlockedSchemaChangeError).partition("RenameAndDrop.")[2].partition(" ")[0]
    assert key.startswith("ckpt_")
    for settings in (
        {f"{PREFIX}Rename.ckpt_1": "always"},
        {f"{PREFIX}Rename": "1"},
        {f"{PREFIX}Drop": "always"},
        {f"{PREFIX}TypeChange": "always"},
    ):
        query.settings = settings
        query.failing(BlockedSchemaChangeError)
    query.settings = {f"{PREFIX}RenameAndDrop.{key}": "2"}
    assert query.run() == []
