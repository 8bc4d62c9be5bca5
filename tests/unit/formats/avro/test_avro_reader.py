"""Avro files: types, what is new, what does not fit, in parts and by case."""

from __future__ import annotations

import importlib
import json
import random
import sys
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import (
    FileUnreadableError,
    OptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.formats.avro.reader import AvroReader
from airflow_cloudfiles.engine.formats.base import UnknownFields
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.types import simple_ddl
from tests.support.formats.avro_files import (
    URI,
    Opened,
    encode,
    infer,
    logical,
    options,
    read,
    record,
    some_record,
)

USER = record(("name", "string"), ("age", "int"), name="User")


def _rescued(data: bytes, ddl: str, **given: str) -> list[tuple[dict[str, Any], Any]]:
    """Rows, each with its rescued data."""
    found = []
    for row in read(data, parse_schema(ddl), **given).to_pylist():
        text = row.pop("_rescued_data")
        rest = None if text is None else json.loads(text, parse_float=Decimal)
        assert rest is None or rest.pop("_file_path") == URI
        found.append((row, rest))
    return found


# Inference -----------------------------------------------------------------------------------


def test_types_are_those_of_the_file() -> None:  # B12
    schema = record(
        ("i", "int"),
        ("when", ["null", logical("long", "timestamp-millis")]),
        ("local", logical("long", "local-timestamp-micros")),
        ("amount", logical("bytes", "decimal", precision=12, scale=3)),
        ("kind", {"type": "enum", "name": "K", "symbols": ["A"]}),
        ("id", logical("string", "uuid")),
        ("at", logical("int", "time-millis")),
        ("raw", {"type": "fixed", "name": "F", "size": 4}),
        ("user", USER),
        ("friends", {"type": "array", "items": "User"}),
        ("by", {"type": "map", "values": ["null", "float"]}),
        ("either", ["int", "long"]),
        ("any", ["null", "int", "User"]),
        ("none", "null"),
        ("empty", record(name="Empty")),
    )
    assert simple_ddl(infer(encode(schema, []))) == (
        "i INT, when TIMESTAMP, local TIMESTAMP_NTZ, amount DECIMAL(12,3), kind STRING, id STRING, "
        "at INT, raw BINARY, user STRUCT<name: STRING, age: INT>, "
        "friends ARRAY<STRUCT<name: STRING, age: INT>>, by MAP<STRING, FLOAT>, either BIGINT, "
        "any STRUCT<member0: INT, member1: STRUCT<name: STRING, age: INT>>"
    )


def test_branches_of_a_union_may_be_named_after_their_types() -> None:
    data = encode(
        record(("u", ["null", "int", USER])),
        [{"u": 1}, {"u": {"name": "x", "age": 2}}, {"u": None}],
    )
    stable = {"enableStableIdentifiersForUnionType": "true"}
    table = read(data, infer(data, **stable), **stable)
    assert table["u"].to_pylist() == [
        {"member_int": 1, "member_User": None},
        {"member_int": None, "member_User": {"name": "x", "age": 2}},
        None,
    ]
    stable["stableIdentifierPrefixForUnionType"] = ""
    assert simple_ddl(infer(data, **stable)).startswith("u STRUCT<int: INT, User:")


def test_files_add_fields_and_never_relax_types() -> None:  # B12
    newest = encode(record(("a", "int"), ("u", record(("x", "int"), name="U"))), [])
    older = encode(
        record(("A", "long"), ("b", "string"), ("u", record(("y", "int"), name="U"))), []
    )
    both = "a INT, u STRUCT<x: INT, y: INT>, b STRING"
    assert simple_ddl(infer(newest, older)) == both
    assert simple_ddl(infer(newest, older, mergeSchema="false")) == "a INT, u STRUCT<x: INT>"
    # What a running stream meets is learnt whatever the option says (B47).
    known = parse_schema("a STRING")
    assert simple_ddl(infer(newest, older, known=known, mergeSchema="false")) == both.replace(
        "a INT", "a STRING"
    )


# What does not fit ---------------------------------------------------------------------------


def test_values_of_a_wider_type_fit_where_they_are_exact() -> None:
    data = encode(record(("n", "long")), [{"n": 7}, {"n": 2**31}, {"n": 2**53 + 1}])
    assert _rescued(data, "n INT") == [
        ({"n": 7}, None),
        ({"n": None}, {"n": 2**31}),
        ({"n": None}, {"n": 2**53 + 1}),
    ]
    assert _rescued(data, "n DOUBLE")[1:] == [
        ({"n": 2.0**31}, None),
        ({"n": None}, {"n": 2**53 + 1}),
    ]
    assert _rescued(data, "n DECIMAL(12,2)")[1] == ({"n": Decimal(2**31)}, None)


def test_a_hint_is_no_cast() -> None:  # B11, as for Parquet
    data = encode(record(("n", "int"), ("s", "string")), [{"n": 5, "s": "6"}])
    assert _rescued(data, "n STRING, s INT") == [({"n": None, "s": None}, {"n": 5, "s": "6"})]


def test_strings_and_bytes_are_each_others_where_they_are_text() -> None:
    data = encode(record(("b", "bytes"), ("s", "string")), [{"b": b"ok", "s": "é"},
                                                            {"b": b"\xff", "s": ""}])  # fmt: skip
    assert _rescued(data, "b STRING, s BINARY") == [
        ({"b": "ok", "s": "é".encode()}, None),
        ({"b": None, "s": b""}, {"b": "/w=="}),
    ]


def test_a_string_that_is_no_utf_8_is_rescued_with_its_bytes_escaped() -> None:
    data = encode(record(("s", "bytes"), ("m", {"type": "map", "values": "int"})),
                  [{"s": b"a\xffb", "m": {"k": 1}}])  # fmt: skip
    data = data.replace(b'"bytes"', b'"string"')
    assert _rescued(_resized(data), "s STRING, m MAP<STRING, INT>") == [
        ({"s": None, "m": [("k", 1)]}, {"s": "a\\xffb"})
    ]


def _resized(data: bytes) -> bytes:
    """Correct the length of a schema that was changed in its place."""
    begin = data.index(b'{"type"')
    size = data.index(b"]}\x00", begin) + 2 - begin
    at = data.index(b"avro.schema") + len(b"avro.schema")
    number = size << 1
    return data[:at] + bytes([number & 0x7F | 0x80, number >> 7]) + data[begin:]


def test_timestamps_beyond_spark_s_are_rescued() -> None:
    schema = record(("t", logical("long", "timestamp-millis")))
    data = encode(schema, [{"t": 0}, {"t": 2**62}, {"t": -1}])
    found = _rescued(data, "t TIMESTAMP")
    assert [rest for _, rest in found][0::2] == [None, None]
    assert found[1][0] == {"t": None}
    assert found[1][1]["t"].startswith("146140482-04-24T15:36:27.904Z")


def test_null_is_no_mismatch_and_a_clean_row_has_nothing_rescued() -> None:  # B70
    data = encode(record(("a", ["null", "int"]), ("n", "null")), [{"a": None, "n": None}])
    assert _rescued(data, "a STRING, n STRING") == [({"a": None, "n": None}, None)]


def test_an_empty_struct_is_rescued() -> None:  # B77
    data = encode(record(("a", "int"), ("e", record(name="E"))), [{"a": 1, "e": {}}])
    assert simple_ddl(infer(data)) == "a INT"
    assert _rescued(data, "a INT") == [({"a": 1}, {"e": {}})]


def test_nested_leaves_are_rescued_under_their_path() -> None:
    data = encode(
        record(("u", USER), ("l", {"type": "array", "items": "int"})),
        [{"u": {"name": "x", "age": 3}, "l": [1, 2**31 - 1, 2]}],
    )
    ddl = "u STRUCT<name: STRING, age: STRING>, l ARRAY<SMALLINT>"
    assert _rescued(data, ddl, schemaEvolutionMode="rescue") == [
        ({"u": {"name": "x", "age": None}, "l": [1, None, 2]},
         {"u": {"age": 3}, "l": [None, 2**31 - 1]})
    ]  # fmt: skip


# Names ---------------------------------------------------------------------------------------

FOO = encode(record(("Foo", "int")), [{"Foo": 1}])


def test_another_case_is_rescued() -> None:  # B71
    assert _rescued(FOO, "foo INT") == [({"foo": None}, {"Foo": 1})]


def test_another_case_is_read_when_asked_for() -> None:  # B72
    assert _rescued(FOO, "foo INT", readerCaseSensitive="false") == [({"foo": 1}, None)]


@pytest.mark.parametrize("mode", ["addNewColumns", "failOnNewColumns"])
def test_new_fields_are_told_with_a_value_before_any_row(mode: str) -> None:  # B45, B48, B52
    data = encode(record(("a", "int"), ("u", USER)), [{"a": 1, "u": {"name": "x", "age": 2}}])
    reader = AvroReader(parse_schema("u STRUCT<name: STRING>"), options(schemaEvolutionMode=mode))
    with pytest.raises(UnknownFields) as caught:
        next(reader.read_file(Opened(data)))
    assert caught.value.fields == {"a": 1, "u": {"age": 2}}
    assert caught.value.file_uri == URI
    assert reader.counts.rows == 0


def test_new_fields_are_rescued_or_dropped_as_the_mode_says() -> None:  # B54, B55
    data = encode(record(("a", "int"), ("b", "int")), [{"a": 1, "b": 2}])
    schema = parse_schema("a INT")
    assert read(data, schema, schemaEvolutionMode="rescue")["_rescued_data"].to_pylist() == [
        f'{{"b":2,"_file_path":"{URI}"}}'
    ]
    given = CloudFilesOptions.parse({"cloudFiles.format": "avro", "path": "/in"}, has_schema=True)
    [batch] = AvroReader(schema, given).read_file(Opened(data))
    assert batch.to_pylist() == [{"a": 1}]


def test_a_column_the_file_lacks_is_null() -> None:  # B65
    assert _rescued(FOO, "Foo INT, later STRING") == [({"Foo": 1, "later": None}, None)]


# Parts ---------------------------------------------------------------------------------------


@pytest.mark.law
@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_parts_of_a_file_give_each_row_once(codec: str) -> None:
    generator = random.Random(9)
    schema, make = some_record(generator, 2)
    records = [make(generator) for _ in range(700)]
    data = encode(schema, records, codec=codec, sync_interval=400)
    fits = infer(data)
    whole = read(data, fits).to_pylist()
    assert len(whole) == 700
    for _ in range(25):
        cuts = sorted(generator.sample(range(1, len(data)), generator.randrange(1, 9)))
        rows = []
        for start, end in zip(
            [0, *cuts], [*cuts, generator.choice([None, len(data)])], strict=True
        ):
            for batch in AvroReader(fits, options()).read_file(Opened(data), start, end):
                rows += batch.to_pylist()
        assert rows == whole


@pytest.mark.law
def test_every_cut_of_a_small_file_gives_each_row_once() -> None:
    data = encode(record(("n", "int")), [{"n": n} for n in range(40)], sync_interval=16)
    fits = infer(data)
    for cut in range(len(data) + 1):
        rows = []
        for start, end in ((0, cut), (cut, len(data))):
            if end > start:
                for batch in AvroReader(fits, options()).read_file(Opened(data), start, end):
                    rows += batch["n"].to_pylist()
        assert rows == list(range(40)), cut


@pytest.mark.law
def test_batches_are_bounded() -> None:
    data = encode(record(("n", "int")), [{"n": n} for n in range(50_000)])
    batches = list(AvroReader(infer(data), options()).read_file(Opened(data)))
    assert max(batch.num_rows for batch in batches) == 2**14
    big = encode(record(("s", "string")), [{"s": "x" * 2**20} for _ in range(20)])
    assert len(list(AvroReader(infer(big), options()).read_file(Opened(big)))) == 10


def test_a_file_without_rows_gives_none() -> None:
    assert read(encode(record(("a", "int")), [])).num_rows == 0


@pytest.mark.law
def test_ten_thousand_columns() -> None:
    schema = record(*((f"c{n}", ["null", "int"]) for n in range(10_000)))
    data = encode(schema, [{f"c{n}": n for n in range(10_000)}] * 3)
    table = read(data)
    assert table.num_columns == 10_001
    assert table["c9999"].to_pylist() == [9999] * 3


# Options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["avroSchema", "avroSchemaUrl", "positionalFieldMatching", "recursiveFieldMaxDepth"]
)
def test_options_that_would_lose_values_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=f"{name} is refused for format avro"):
        options(**{name: "1"})


def test_recursive_types_are_refused() -> None:
    node = record(("next", ["null", "Node"]), name="Node")
    with pytest.raises(FileUnreadableError, match="Node is recursive"):
        infer(encode(node, []))


def test_an_unknown_mode_of_dates_is_refused() -> None:
    with pytest.raises(OptionError, match="datetimeRebaseMode"):
        options(datetimeRebaseMode="PROLEPTIC")


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.delitem(sys.modules, "airflow_cloudfiles.engine.formats.avro.reader")
    with pytest.raises(OptionError, match=r"with the extra avro, .*\[avro\]'"):
        importlib.import_module("airflow_cloudfiles.engine.formats.avro.reader")


def test_no_schema_at_all_is_no_schema() -> None:
    assert infer() == StructType()
