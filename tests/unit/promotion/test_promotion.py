"""A field of the rescued data becomes a column that holds what the stream would have read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake
from pyspark.sql.types import LongType, StringType

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    IncompatibleSchemaError,
    OptionError,
    SinkError,
    StateConflictError,
    StateError,
    TargetNotDeltaError,
)
from airflow_cloudfiles.engine.extensions.promotion.promote import promote
from airflow_cloudfiles.engine.extensions.promotion.values import (
    Converter,
    _converters,
    reading_options,
)
from airflow_cloudfiles.engine.formats.scalars import MISFIT
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_columns, parse_schema
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from tests.support.promoted import FILE, Landed, read

IDS = "id BIGINT, user STRUCT<name: STRING>"


@pytest.fixture
def landed(tmp_path: Path) -> Landed:
    return Landed.create(tmp_path, IDS)


def test_a_new_column_gets_its_values_and_only_files_with_them_are_replaced(landed: Landed) -> None:
    landed.land({"id": 1, "zip": "01", "other": 1.50}, {"id": 2})
    landed.land({"id": 3}, {"id": 4, "other": 2})
    landed.land({"id": 5, "zip": None})
    before = landed.live()
    told = landed.promote(["zip"])
    assert (told.rows, told.files_rewritten, told.columns) == (2, 2, {"zip": "string"})
    assert told.values == {"zip": {"promoted": 2, "partly": 0, "unfit": 0, "occupied": 0}}
    assert len(before & landed.live()) == 1, "the file without the field is untouched"
    empty = {"user": None, "zip": None, "_rescued_data": None}
    assert landed.rows() == [
        {"id": 1, **empty, "zip": "01", "_rescued_data": {"other": 1.5, "_file_path": FILE}},
        {"id": 2, **empty},
        {"id": 3, **empty},
        {"id": 4, **empty, "_rescued_data": {"other": 2, "_file_path": FILE}},
        {"id": 5, **empty},
    ]
    assert '"other":1.5,' in str(_texts(landed)), "what stays keeps its text"


def _texts(landed: Landed) -> list[str]:
    """Rescued data as it is written."""
    column = landed.table.to_pyarrow_dataset().to_table().column("_rescued_data")
    return [text for text in column.to_pylist() if text is not None]


def test_doing_it_again_changes_nothing(landed: Landed) -> None:
    landed.land({"id": 1, "zip": 1}, {"id": 2, "zip": "x"})
    first = landed.promote({"zip": "INT"})
    assert first.values["zip"]["unfit"] == 1
    again = landed.promote({"zip": "INT"})
    assert (again.rows, again.files_rewritten, again.values["zip"]["unfit"]) == (0, 0, 1)
    assert again.target_version == first.target_version
    assert landed.log.versions() == [0, 1]
    assert [row["zip"] for row in landed.rows()] == [1, None]
    assert landed.rows()[1]["_rescued_data"] == {"zip": "x", "_file_path": FILE}


def test_the_next_run_of_the_stream_knows_the_column(landed: Landed) -> None:
    landed.land({"id": 1, "zip": 7, "user": {"name": "a", "age": 3}})
    told = landed.promote({"zip": "BIGINT", "user.age": "INT"})
    version = landed.log.latest()
    assert version is not None
    assert told.schema_version == version.version == 1
    text = "struct<id:bigint,user:struct<name:string,age:int>,zip:bigint>"
    assert version.data_schema.simpleString() == text
    assert version.reason["change"] == "promoted"
    assert version.reason["fields"] == ["user.age", "zip"]
    assert [each.path for each in SchemaHistory(landed.state).diff()] == ["user.age", "zip"]
    landed.land({"id": 2, "zip": 8, "user": {"age": 4}}, schema=version.data_schema)
    assert [(row["zip"], row["user"]) for row in landed.rows()] == [
        (7, {"name": "a", "age": 3}),
        (8, {"name": None, "age": 4}),
    ]
    assert _texts(landed) == []


def test_nested_fields_of_structs_are_filled_and_their_rest_stays(landed: Landed) -> None:
    landed.land(
        {"id": 1, "user": {"name": "a", "zip": "1", "x": 1}},
        {"id": 2, "user": None},
        {"id": 3, "user": {"zip": "3"}},
        {"id": 4, "user": "none"},
        {"id": 5, "new": {"deep": {"leaf": [1, 2]}, "y": 0}},
    )
    landed.promote({"user.zip": "STRING", "new.deep.leaf": "ARRAY<INT>"})
    assert [(row["user"], row["new"], row["_rescued_data"]) for row in landed.rows()] == [
        ({"name": "a", "zip": "1"}, None, {"user": {"x": 1}, "_file_path": FILE}),
        (None, None, None),
        ({"name": None, "zip": "3"}, None, None),
        (None, None, {"user": "none", "_file_path": FILE}),
        (None, {"deep": {"leaf": [1, 2]}}, {"new": {"y": 0}, "_file_path": FILE}),
    ]


def test_a_value_that_fits_in_part_gives_that_part(landed: Landed) -> None:
    landed.land({"id": 1, "tags": [1, "x", 3]}, {"id": 2, "tags": [4]})
    told = landed.promote({"tags": "ARRAY<INT>"})
    assert told.values["tags"] == {"promoted": 2, "partly": 1, "unfit": 0, "occupied": 0}
    assert [row["tags"] for row in landed.rows()] == [[1, None, 3], [4]]
    assert landed.rows()[0]["_rescued_data"] == {"tags": [None, "x"], "_file_path": FILE}
    assert landed.promote({"tags": "ARRAY<INT>"}).rows == 0


@pytest.mark.parametrize(
    ("typed", "values", "kind"),
    [
        ("false", [1, 2.5], "string"),
        ("true", [1, 2], "bigint"),
        ("true", [1, 2.5], "double"),
        ("true", [1, "x"], "string"),
        ("true", [{"a": 1}, {"b": "x"}], "struct<a:bigint,b:string>"),
        ("false", [{"a": 1}], "struct<a:string>"),
        ("true", [None], "string"),
    ],
)
def test_a_type_that_nobody_gives_is_inferred_by_the_rules_of_the_stream(
    landed: Landed, typed: str, values: list[Any], kind: str
) -> None:
    landed.land(*({"id": number, "x": value} for number, value in enumerate(values)))
    told = landed.promote(["x"], **{"cloudFiles.inferColumnTypes": typed})
    assert told.columns == {"x": kind}
    assert _texts(landed) == [], "by definition everything fits"


def test_texts_of_csv_become_what_the_column_asks_for(tmp_path: Path) -> None:
    landed = Landed.create(tmp_path, "id STRING", "csv")
    texts = ["007", "+1", "1.5", "true", "", "31.01.2024", "NaN"]
    for number, text in enumerate(texts):
        landed.land({"id": str(number), "i": text, "d": text, "b": text, "t": text, "s": text})
    options = {"dateFormat": "dd.MM.yyyy"}
    landed.promote(
        {"i": "INT", "d": "DOUBLE", "b": "BOOLEAN", "t": "DATE", "s": "STRING"}, **options
    )
    rows = landed.rows()
    assert [row["i"] for row in rows] == [7, 1, None, None, None, None, None]
    assert [row["d"] for row in rows[:5]] == [7.0, 1.0, 1.5, None, None]
    assert [row["b"] for row in rows] == [None, None, None, True, None, None, None]
    assert [str(row["t"]) for row in rows if row["t"]] == ["2024-01-31"]
    assert [row["s"] for row in rows] == texts
    assert set(rows[2]["_rescued_data"]) == {"i", "b", "t", "_file_path"}


TEXTS = [
    *("", "x", "0", "-0", "007", "+1", "1.50", ".5", "1.", "1e3", "1E-3", "1d", "0x1p3", "1,5"),
    *("NaN", "Inf", "-Inf", "Infinity", "TRUE", "false", "9" * 25, "1e400", "3.4e39"),
    *("2024-01-31", "31.01.2024", "2024-01-31 01:02:03", "2024-01-31T01:02:03.5+01:00"),
    *("+12024-01-31", "ff", "YWJj", 'q"\\', "é", " 1 "),
]
KINDS = "TINYINT INT BIGINT FLOAT DOUBLE DECIMAL(10,2) BOOLEAN DATE TIMESTAMP TIMESTAMP_NTZ BINARY"


@pytest.mark.parametrize("given", [{}, {"dateFormat": "dd.MM.yyyy", "locale": "de-DE"}], ids=str)
@pytest.mark.parametrize("name", ["csv", "xml"])
def test_a_text_becomes_what_the_reader_of_its_format_makes_of_it(
    name: str, given: dict[str, str]
) -> None:
    row_tag = {"rowTag": "r"} if name == "xml" else {}
    options = {"cloudFiles.format": name, **given, **row_tag}
    stream = CloudFilesOptions.parse(options, path="landing")
    converters = _converters(stream)
    for kind in (column.data_type for column in parse_columns(_listed(KINDS))):
        convert = converters(kind)
        column, left = Converter(kind, reading_options(stream, options), stream).read(
            [json.dumps(text).encode() for text in TEXTS]
        )
        wanted = [convert(text) for text in TEXTS]
        misfits = [
            json.dumps(text).encode() if value is MISFIT else None
            for text, value in zip(TEXTS, wanted, strict=True)
        ]
        assert left == misfits, kind
        values = pa.array([None if v is MISFIT else v for v in wanted], column.type)
        assert str(column) == str(values), kind


def _listed(kinds: str) -> str:
    return ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds.split()))


def test_texts_inside_structs_of_xml_are_converted_where_they_are(tmp_path: Path) -> None:
    landed = Landed.create(tmp_path, "id STRING", "xml")
    landed.land({"id": "1", "p": {"n": "07", "l": ["1", "x"], "m": {"k": "true"}, "s": "07"}})
    kind = "STRUCT<n: INT, l: ARRAY<INT>, m: MAP<STRING, BOOLEAN>, s: STRING>"
    landed.promote({"p": kind}, rowTag="r")
    [row] = landed.rows()
    assert row["p"] == {"n": 7, "l": [1, None], "m": [("k", True)], "s": "07"}
    assert row["_rescued_data"]["p"] == {"l": [None, "x"]}


def test_types_of_texts_are_inferred_as_their_format_does(tmp_path: Path) -> None:
    options = {"cloudFiles.inferColumnTypes": "true"}
    landed = Landed.create(tmp_path / "csv", "id STRING", "csv")
    landed.land({"id": "1", "i": "5", "d": "2024-01-31", "x": "1.5"})
    kinds = landed.promote(["i", "d", "x"], **options).columns
    assert kinds == {"i": "int", "d": "date", "x": "double"}
    landed = Landed.create(tmp_path / "xml", "id STRING", "xml")
    landed.land({"id": "1", "p": {"i": "5", "b": "True", "l": ["1.5"]}})
    kinds = landed.promote(["p"], rowTag="r", **options).columns
    assert kinds == {"p": "struct<i:bigint,b:boolean,l:array<double>>"}


def test_values_of_formats_with_types_keep_what_json_tells_of_them(tmp_path: Path) -> None:
    landed = Landed.create(tmp_path, "id STRING", "parquet")
    landed.land({"id": "1", "i": 5, "b": "YWJj", "t": "2024-01-31T01:02:03Z", "d": 1.50})
    fields = {"i": None, "b": "BINARY", "t": "TIMESTAMP", "d": "DECIMAL(5,2)"}
    assert landed.promote(fields).columns["i"] == "bigint"
    [row] = landed.rows()
    assert (row["i"], row["b"], row["t"].hour, str(row["d"])) == (5, b"abc", 1, "1.50")


def test_a_type_that_the_format_cannot_have_is_refused(tmp_path: Path) -> None:
    landed = Landed.create(tmp_path, "id STRING", "csv")
    landed.land({"id": "1", "a": "5"})
    with pytest.raises(IncompatibleSchemaError, match="a value of a CSV file is one"):
        landed.promote({"a": "ARRAY<INT>"})
    assert [field.name for field in landed.table.schema().fields] == ["id", "_rescued_data"]


def test_a_column_that_is_there_is_filled_where_it_is_null(tmp_path: Path) -> None:
    landed = Landed.create(tmp_path, "id BIGINT, price DOUBLE")
    landed.land(
        {"id": 1, "price": "$100.00"},
        {"id": 2, "Price": 2.5},  # spelled otherwise, so rescued (B71)
        {"id": 3, "price": 3.5, "Price": 4},
    )
    told = landed.promote(["price"])
    assert told.values["price"] == {"promoted": 0, "partly": 0, "unfit": 1, "occupied": 0}
    told = landed.promote(["Price"])
    assert told.values["Price"] == {"promoted": 1, "partly": 0, "unfit": 0, "occupied": 1}
    assert told.columns == {"price": "double"}
    assert [row["price"] for row in landed.rows()] == [None, 2.5, 3.5]
    assert [bool(row["_rescued_data"]) for row in landed.rows()] == [True, False, True]
    assert landed.log.versions() == [0], "the schema has the column already"
    with pytest.raises(IncompatibleSchemaError, match=r"price is a column of type double.*string"):
        landed.promote({"price": "STRING"})


def test_a_column_is_widened_for_values_that_are_too_large(tmp_path: Path) -> None:  # B58
    landed = Landed.create(tmp_path, "id BIGINT, n INT")
    landed.land({"id": 1, "n": 5}, {"id": 2, "n": 2147483648}, {"id": 3, "n": "x"})
    told = landed.promote({"n": "BIGINT"})
    assert told.values["n"] == {"promoted": 1, "partly": 0, "unfit": 1, "occupied": 0}
    assert [row["n"] for row in landed.rows()] == [5, 2147483648, None]
    assert landed.table.schema().fields[1].type.type == "long"
    latest = landed.log.latest()
    assert latest is not None
    assert latest.data_schema["n"].dataType == LongType()
    with pytest.raises(CloudFilesError, match="typeWideningMaxBytes"):
        landed.promote({"n": "DECIMAL(20,0)"}, typeWideningMaxBytes="1")


@pytest.mark.parametrize("sensitive", ["true", "false"])
def test_names_are_told_apart_as_the_stream_does(landed: Landed, sensitive: str) -> None:
    landed.land({"id": 1, "zip": "a"}, {"id": 2, "ZIP": "b"})
    landed.promote({"zip": "STRING"}, readerCaseSensitive=sensitive)
    wanted = ["a", "b"] if sensitive == "false" else ["a", None]
    assert [row["zip"] for row in landed.rows()] == wanted


@pytest.mark.parametrize("name", ["a b", "ä", 'q"', "back\\", "sl/ash", "tab\t", "dot.ted", "`"])
def test_any_name_can_be_promoted(landed: Landed, name: str) -> None:
    landed.land({"id": 1, name: "v", "_other": "w"})
    landed.promote([f"`{name.replace('`', '``')}`"])
    assert landed.rows()[0][name] == "v"
    assert landed.rows()[0]["_rescued_data"] == {"_other": "w", "_file_path": FILE}


def test_of_a_key_that_is_there_twice_the_last_one_counts(landed: Landed) -> None:
    landed.land(b'{"id":1,"x":"first","x":"last"}')
    landed.promote(["x"])
    assert landed.rows()[0]["x"] == "last"
    assert landed.rows()[0]["_rescued_data"] == {"x": "first", "_file_path": FILE}
    assert landed.promote(["x"]).values["x"]["occupied"] == 1


def test_large_files_go_through_in_batches_and_groups(
    landed: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cloudfiles.engine.extensions.promotion.promote.GROUP_BYTES", 1)
    for first in (0, 1000):
        landed.land(*({"id": first + i, "x": i} for i in range(1000)))
    version = landed.table.version()
    told = landed.promote({"x": "INT"})
    assert told.rows == 2000
    assert told.target_version == version + 3, "the column, and a commit for each group"
    assert {row["id"] % 1000 == row["x"] for row in landed.rows()} == {True}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "no field to promote"),
        (["a", "A.b"], "the same, or one is inside the other"),
        (["a,b"], "cannot be read"),
        (["a b c"], "cannot be read"),
        ({"a": "NUMBER"}, "'NUMBER' is not a type"),
        (["_rescued_data"], "part of the rescued data itself"),
        (["_file_path"], "part of the rescued data itself"),
        (["id.x"], "id is of type bigint, and only what is inside structs"),
        (["nowhere"], "No value of the field nowhere is in the rescued data"),
        (["empty"], "No value with a type of the field empty"),
    ],
)
def test_what_cannot_be_promoted_is_said(landed: Landed, fields: Any, message: str) -> None:
    landed.land({"id": 1, "empty": {}})
    version = landed.table.version()
    with pytest.raises(OptionError, match=message):
        landed.promote(fields)
    assert landed.table.version() == version, "nothing was changed"
    assert landed.log.versions() == [0]


def test_a_column_without_a_value_yet_needs_a_type(landed: Landed) -> None:
    landed.land({"id": 1})
    told = landed.promote({"later": "DATE"})
    assert (told.columns, told.rows) == ({"later": "date"}, 0)
    assert landed.rows()[0]["later"] is None


def test_the_places_are_checked(landed: Landed, tmp_path: Path) -> None:
    with pytest.raises(TargetNotDeltaError, match="no Delta table"):
        landed.promote(["x"])
    landed.land({"id": 1, "x": 1})
    with pytest.raises(SinkError, match="has no column _other"):
        landed.promote(["x"], rescuedDataColumn="_other")
    other = Landed(str(tmp_path / "other"), landed.schema)
    with pytest.raises(StateError, match="no stream in"):
        promote(other.promotion(["x"]))
    SchemaHistory(landed.state).pin()
    with pytest.raises(StateConflictError, match=r"pinned at version 1.*unpin"):
        landed.promote(["x"])
    assert "x" not in landed.rows()[0]


def test_a_stream_whose_schema_was_given_is_told_to_add_the_column(landed: Landed) -> None:
    landed.land({"id": 1, "x": 1})
    for path in (Path(landed.state) / "_schemas").iterdir():
        path.unlink()
    told = landed.promote({"x": "INT"})
    assert told.schema_version is None
    assert "schema was given" in told.warnings[0]
    assert landed.rows()[0]["x"] == 1


def test_append_only_tables_and_deletion_vectors_are_refused(landed: Landed) -> None:
    landed.land({"id": 1, "x": 1})
    landed.table.alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(SinkError, match=r"delta\.appendOnly=true"):
        landed.promote(["x"])


def test_a_damaged_file_is_named_and_nothing_is_lost(landed: Landed) -> None:
    landed.land({"id": 1, "x": 1})
    name = landed.live().pop()
    path = Path(landed.target) / name
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(SinkError, match=name):
        landed.promote(["x"])
    path.write_bytes(content)
    assert landed.promote(["x"]).rows == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *('{"x":1', '{"x":1}more', '{"x":', '{"x"}', "{}", "[]", '"x"', "x", "", '{"y":{"x":1}}'),
        '{"x":' + "[" * 5000 + "]" * 5000 + "}",
        '{"x":{"\\"":' + "[" * 5000 + "]" * 5000 + "}}",
    ],
    ids=lambda text: text[:12],
)
def test_what_is_no_rescued_data_is_left_alone(landed: Landed, text: str) -> None:
    landed.land({"id": 1, "x": 1})
    theirs = {"id": pa.array([2]), "_rescued_data": pa.array([text])}
    landed.land_batch(pa.record_batch(theirs), app="somebody else")
    assert landed.promote({"x": "INT"}).rows == 1
    assert _texts(landed) == [text]


def test_corrupt_records_can_get_a_column_of_their_own(landed: Landed) -> None:  # B78
    landed.land({"id": 1}, b'{"id": broken')
    landed.promote({"_corrupt_record": "STRING"})
    assert [row["_corrupt_record"] for row in landed.rows()] == [None, '{"id": broken']
    latest = landed.log.latest()
    assert latest is not None
    assert latest.data_schema["_corrupt_record"].dataType == StringType()


def test_statistics_of_new_files_are_those_of_their_rows(landed: Landed) -> None:
    landed.land(*({"id": i, "n": i} for i in range(10)))
    landed.promote({"n": "INT"})
    actions = pa.table(landed.table.get_add_actions(flatten=True)).to_pylist()
    assert [(each["min.n"], each["max.n"], each["null_count.n"]) for each in actions] == [(0, 9, 0)]
    note = json.dumps(landed.table.history(1)[0]["cloudfilesPromotion"])
    assert json.loads(note) == {"fields": {"n": "n"}, "rows": 10}


def test_a_field_of_the_name_that_names_the_file_stays(landed: Landed) -> None:
    landed.land({"id": 1, "zip": 5, "_file_path": "mine"})
    landed.promote({"zip": "INT"})
    [row] = landed.table.to_pyarrow_dataset().to_table().to_pylist()
    assert row["zip"] == 5
    assert row["_rescued_data"] == f'{{"_file_path":"mine","_file_path":"{FILE}"}}'


def test_a_point_in_a_name_is_no_path(landed: Landed) -> None:
    landed.land({"id": 1, "x.y": 5, "x": {"y": "inside"}})
    promoted = landed.promote({"`x.y`": "INT", "x.y": "STRING"})
    assert promoted.columns == {"`x.y`": "int", "x.y": "string"}
    [row] = landed.rows()
    assert (row["x.y"], row["x"], row["_rescued_data"]) == (5, {"y": "inside"}, None)


@pytest.mark.parametrize("is_logged", [True, False])
def test_a_partition_column_stays_one(landed: Landed, is_logged: bool) -> None:
    # As a column of the records, it would have been null in every new row.
    landed.land({"id": 1, "year": "no year"})
    options = {} if is_logged else {"cloudFiles.partitionColumns": "year"}
    if is_logged:
        partitions = parse_schema("year INT")
        landed.log.append(1, data_schema=landed.schema, partition_schema=partitions, reason={})
    with pytest.raises(OptionError, match="Year is a partition column"):
        landed.promote({"Year": "INT"}, **options)


def test_a_file_of_an_odd_name_is_replaced(landed: Landed) -> None:
    Path(landed.target).mkdir()
    batch = read([{"id": 1, "zip": 5}], landed.schema)
    pq.write_table(pa.Table.from_batches([batch]), f"{landed.target}/a b.parquet")
    convert_to_deltalake(landed.target)
    assert landed.promote({"zip": "INT"}).rows == 1
    assert [row["zip"] for row in landed.rows()] == [5], "deltalake would leave it there twice"
    assert "a b.parquet" not in landed.live()


def test_a_name_that_is_written_with_escapes_is_found(landed: Landed) -> None:
    landed.land(b'{"id":1,"new":{"z\\u0069p":5}}', {"id": 2, "new": {"zip": 6}})
    landed.promote({"new.zip": "INT"})
    assert [(row["new"], row["_rescued_data"]) for row in landed.rows()] == [
        ({"zip": 5}, None),
        ({"zip": 6}, None),
    ]
