"""What a record becomes: its row, its rescued data, or its error."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import CorruptRecordError, IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import ENOUGH_RECORDS
from airflow_cloudfiles.engine.formats.json.explain import JsonExplainer
from airflow_cloudfiles.engine.formats.json.reader import (
    JsonReader,
    LinePiece,
    ReadCounts,
    UnknownFields,
)
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

URI = "file:///landing/a b.json"


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


USER = columns(name=StringType(), age=IntegerType())


def reader(
    schema: StructType, *, given: bool = False, path_columns=(), **others: str
) -> JsonReader:
    options = {"cloudFiles.format": "json", "cloudFiles.schemaEvolutionMode": "rescue"}
    if given:
        options["cloudFiles.schemaEvolutionMode"] = "none"
    names = {"mode_": "cloudFiles.schemaEvolutionMode"}
    options |= {names.get(key, key): value for key, value in others.items()}
    parsed = CloudFilesOptions.parse(options, path="/landing", has_schema=given)
    return JsonReader(schema, replace(parsed, path_columns=path_columns))


def rows(data: str | bytes, schema: StructType, **others) -> list[dict[str, object]]:
    data = data.encode() if isinstance(data, str) else data
    batch = reader(schema, **others).read([LinePiece(URI, data)])
    batch.validate(full=True)
    return batch.to_pylist()


def rescued(data: str | bytes, schema: StructType, **others) -> dict[str, object] | None:
    (row,) = rows(data, schema, **others)
    text = row["_rescued_data"]
    if text is None:
        return None
    members = json.loads(text, object_pairs_hook=list)
    assert members[-1] == ("_file_path", URI)  # B80
    return json.loads(text[: text.rindex(',"_file_path"')] + "}")


def test_a_clean_row_has_no_rescued_data():  # B70
    assert rows('{"a":"x"}', columns(a=StringType())) == [{"a": "x", "_rescued_data": None}]


def test_a_value_that_does_not_fit_is_null_and_rescued_as_it_was_written():  # B49 B53 B69 B80
    row = rows('{"a":"$100.00","b":1.10}', columns(a=DoubleType(), b=LongType()))[0]
    assert row == {
        "a": None,
        "b": None,
        "_rescued_data": '{"a":"$100.00","b":1.10,"_file_path":"file:///landing/a b.json"}',
    }


def test_a_timestamp_finer_than_a_microsecond_is_rescued():
    schema = columns(a=TimestampType())
    for text in ("2024-01-31T12:30:59.123456789Z", "2024-01-31 12:30:59.1234567"):
        for others in ({}, {"timestampFormat": "yyyy-MM-dd[ ]['T']HH:mm:ss.SSSSSSSSS[XXX]"}):
            # Beside others of its shape that fit: what is cast at once, and what is not.
            whole = text.replace("789Z", "000Z").replace("567", "560")
            found = rows(f'{{"a":"{whole}"}}\n{{"a":"{text}"}}', schema, **others)
            assert str(found[0]["a"]) == "2024-01-31 12:30:59.123456+00:00"
            assert found[0]["_rescued_data"] is None
            assert found[1]["a"] is None
            assert json.loads(found[1]["_rescued_data"])["a"] == text


def test_an_integer_too_long_for_its_column_is_rescued():  # B58
    assert rescued('{"a":2147483648}', columns(a=IntegerType())) == {"a": 2147483648}


def test_a_missing_column_is_null():  # B65
    assert rows('{"a":1}\n{"b":2}', columns(a=LongType(), b=LongType())) == [
        {"a": 1, "b": None, "_rescued_data": None},
        {"a": None, "b": 2, "_rescued_data": None},
    ]


def test_a_string_column_keeps_the_text_of_whatever_comes():
    data = '{"a":1.10}\n{"a":{"b" : [1, 2.50]}}\n{"a":true}\n{"a":"x\\n"}\n{"a":null}'
    texts = [row["a"] for row in rows(data, columns(a=StringType()))]
    assert texts == ["1.10", '{"b" : [1, 2.50]}', "true", "x\n", None]


def test_a_key_in_another_case_is_rescued():  # B71 B73
    row = rows('{"Foo":1}', columns(foo=LongType()))[0]
    assert row["foo"] is None
    assert json.loads(row["_rescued_data"])["Foo"] == 1


def test_a_key_in_another_case_is_read_when_case_does_not_matter():  # B72
    data = '{"Foo":1}\n{"foo":2}\n{"FOO":"x"}'
    found = rows(data, columns(foo=LongType()), readerCaseSensitive="false")
    assert [row["foo"] for row in found] == [1, 2, None]
    assert found[2]["_rescued_data"] == '{"FOO":"x","_file_path":"file:///landing/a b.json"}'


def test_case_does_not_matter_without_rescued_data_either():  # B72
    schema = columns(foo=LongType())
    assert rows('{"Foo":1,"x":2}', schema, given=True, readerCaseSensitive="false") == [{"foo": 1}]


def test_unknown_fields_are_rescued_in_mode_rescue():  # B54
    assert rescued('{"a":1,"z":2,"b":{"c":1.0}}', columns(a=LongType())) == {
        "z": 2,
        "b": {"c": 1.0},
    }


def test_unknown_fields_are_dropped_in_mode_none_unless_there_is_a_column_for_them():  # B55
    data, schema = '{"a":1,"b":2}', columns(a=LongType())
    assert rows(data, schema, given=True) == [{"a": 1}]
    kept = rows(data, schema, given=True, rescuedDataColumn="rest")
    assert kept[0]["rest"] == '{"b":2,"_file_path":"file:///landing/a b.json"}'


@pytest.mark.parametrize("mode", ["addNewColumns", "failOnNewColumns"])
def test_new_fields_of_the_whole_block_are_reported(mode):  # B45 B47 B48 B52
    pieces = [
        LinePiece("file:///1", b'{"a":"1"}'),
        LinePiece("file:///2", b'{"a":"1","b":{"c":7}}\n{"user":{"zip":"x"}}'),
        LinePiece("file:///3", b'{"b":0,"d":null}\n'),
    ]
    with pytest.raises(UnknownFields) as caught:
        reader(columns(a=StringType(), user=USER), mode_=mode).read(pieces)
    found = pickle.loads(pickle.dumps(caught.value))
    assert found.fields == {"b": {"c": 7}, "user": {"zip": "x"}, "d": None}
    assert found.file_uri == "file:///2"


def test_a_block_is_not_read_to_its_end_once_a_new_field_is_found(monkeypatch):  # B45
    """Its rows will be thrown away; whoever reacts samples the files of the whole batch."""
    explained = []
    explain = JsonExplainer.explain

    def counted(self, line):
        explained.append(line)
        return explain(self, line)

    monkeypatch.setattr(JsonExplainer, "explain", counted)
    lines = b'{"a":"1"}\n' * 50 + b'{"a":"1","b":2}\n' * 5000
    with pytest.raises(UnknownFields) as caught:
        reader(columns(a=StringType()), mode_="addNewColumns").read([LinePiece("file:///1", lines)])
    assert caught.value.fields == {"b": 2}
    assert len(explained) == ENOUGH_RECORDS


@pytest.mark.parametrize("field", ['"e":{}', '"e":[{}]', '"e":{"f":{}}', '"":1', '"A":1'])
def test_what_cannot_become_a_column_is_rescued_not_new(field):  # B77
    row = rows("{" + field + "}", columns(a=StringType()), mode_="addNewColumns")[0]
    assert row["_rescued_data"].startswith("{" + field + ",")


def test_a_field_named_like_a_special_column_is_rescued_not_new():
    schema = columns(a=StringType())
    for name in ("_rescued_data", "_corrupt_record", "Day"):
        data, days = json.dumps({name: "x"}), ("day",)
        assert rescued(data, schema, mode_="addNewColumns", path_columns=days) == {name: "x"}


def test_nested_rescued_data_holds_the_path_and_the_offending_leaves_only():
    schema = columns(
        user=USER,
        tags=MapType(StringType(), LongType()),
        items=ArrayType(USER),
        days=ArrayType(DateType()),
    )
    data = {
        "user": {"name": "x", "age": "old", "zip": 1},
        "tags": {"k": 1, "l": "m"},
        "items": [{"name": "a"}, {"name": "b", "age": 1.5}, None],
        "days": ["2024-01-31", "never", "2024-02-01"],
    }
    assert rescued(json.dumps(data), schema) == {
        "user": {"age": "old", "zip": 1},
        "tags": {"l": "m"},
        "items": [None, {"age": 1.5}],
        "days": [None, "never"],
    }
    row = rows(json.dumps(data), schema)[0]
    assert row["user"] == {"name": "x", "age": None}
    assert row["tags"] == [("k", 1), ("l", None)]
    assert row["items"][1] == {"name": "b", "age": None}


def test_of_a_repeated_key_the_last_value_counts_and_the_others_are_rescued():
    schema = columns(a=LongType(), b=StringType(), user=USER)
    (row,) = rows('{"a":1,"a":2,"a":3}', schema)
    assert row["a"] == 3
    assert row["_rescued_data"].startswith('{"a":1,"a":2,"_file_path"')
    assert rescued('{"user":{"age":1,"age":2}}', schema) == {"user": {"age": 1}}
    assert rescued('{"user":{"name":"x"},"user":{"age":2}}', schema) == {"user": {"name": "x"}}
    # One field less and one repeated have as many quotation marks as a plain record.
    assert rescued('{"a":1,"a":2}', schema) == {"a": 1}


@pytest.mark.parametrize(
    "new", ['"e":"1","e":{}', '"e":{"f":1,"f":{}}', '"e":[[1],1],"e":[[]],"e":{}']
)
def test_a_repeated_key_is_new_only_if_its_last_value_makes_a_column(new):
    # Inference goes by the last value, too: otherwise the stream would fail for ever.
    schema = columns(a=LongType())
    (row,) = rows(f'{{"a":1,{new}}}', schema, mode_="addNewColumns")
    assert row["_rescued_data"].startswith(f'{{{new},"_file_path"')
    with pytest.raises(UnknownFields) as caught:
        rows(f'{{{new},"e":"x"}}', schema, mode_="addNewColumns")
    assert caught.value.fields == {"e": "x"}


def test_a_text_without_utf8_is_rescued():  # B80
    assert rescued(rb'{"a":"x\ud800"}', columns(a=StringType())) == {"a": "x\ud800"}
    assert rescued(rb'{"\ud800":1}', columns(a=StringType()), mode_="addNewColumns") == {
        "\ud800": 1
    }


def test_records_in_spark_s_own_spelling_are_read_and_rescued_as_strict_json():
    schema = columns(a=DoubleType(), b=StringType())
    data = "{'a':NaN,'b':'it\\'s \"x\"'}"
    (row,) = rows(data, schema)
    assert str(row["a"]) == "nan"
    assert row["b"] == 'it\'s "x"'
    assert rescued("{'z':['it\\'s \"x\"',-INF]}", schema) == {"z": ['it\'s "x"', "-INF"]}


def test_an_array_of_objects_is_several_rows():
    found = rows('[{"a":1},{"a":2}]\n[]\n{"a":3}', columns(a=LongType()))
    assert [row["a"] for row in found] == [1, 2, 3]


BROKEN = b'{"a":1}\n{"a":\n\xff\n{"a":2} {"a":3}\n{"a":4}\n'


def test_a_broken_record_is_kept_in_the_corrupt_record_column():  # B78
    schema = StructType([*columns(a=LongType()), *columns(_corrupt_record=StringType())])
    found = rows(BROKEN, schema)
    assert [row["a"] for row in found] == [1, None, None, None, 4]
    assert [row["_corrupt_record"] for row in found] == [
        None, '{"a":', "\\xff", '{"a":2} {"a":3}', None,
    ]  # fmt: skip
    assert {row["_rescued_data"] for row in found} == {None}


def test_a_broken_record_is_never_gone_without_a_column_for_it():  # B80
    found = rows(BROKEN, columns(a=LongType()))
    assert json.loads(found[3]["_rescued_data"]) == {
        "_corrupt_record": '{"a":2} {"a":3}',
        "_file_path": URI,
    }


def test_a_broken_record_is_dropped_and_counted_or_fails_as_the_mode_says():  # B75
    dropping = reader(columns(a=LongType()), mode="DROPMALFORMED")
    assert dropping.read([LinePiece(URI, BROKEN)]).num_rows == 2
    assert dropping.counts == ReadCounts(
        rows=2, rescued_rows=0, corrupt_records=3, dropped_records=3
    )
    with pytest.raises(CorruptRecordError, match=r'(?m)a b\.json: a record .* begins: {"a":$'):
        reader(columns(a=LongType()), mode="FAILFAST").read(
            [LinePiece("x", b""), LinePiece(URI, BROKEN)]
        )


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED"])
def test_with_rescued_data_a_value_that_does_not_fit_neither_fails_nor_drops(mode):  # B74
    assert rescued('{"a":"x"}', columns(a=LongType()), mode=mode) == {"a": "x"}


def test_without_rescued_data_a_value_that_does_not_fit_makes_a_bad_record_as_in_spark():
    data, schema = '{"a":1}\n{"a":"x"}\n{"a":["y"],"b":1}\n', columns(a=LongType())
    assert [row["a"] for row in rows(data, schema, given=True)] == [1, None, None]
    assert rows(data, schema, given=True, mode="DROPMALFORMED") == [{"a": 1}]
    with pytest.raises(CorruptRecordError, match=r'not fit its column.* begins: {"a":"x"}'):
        rows(data, schema, given=True, mode="FAILFAST")
    kept = StructType([*schema, *columns(_corrupt_record=StringType())])
    assert rows(data, kept, given=True)[1] == {"a": None, "_corrupt_record": '{"a":"x"}'}


@pytest.mark.parametrize("rescue", [{}, {"rescuedDataColumn": "_rescued_data"}])
def test_the_corrupt_column_holds_the_line_of_its_own_row(rescue):  # B78
    generator = random.Random(1)
    lines = generator.choices(
        ['{"a":1}', '{"a":"x"}', '{"a":"é😀"}', "{bad", '{"a":', "é{", '{"b":1}'], k=700
    )
    schema = StructType([*columns(a=LongType()), *columns(_corrupt_record=StringType())])
    found = rows("\n".join(lines), schema, given=True, **rescue)
    bad = {"{bad", '{"a":', "é{"} | (set() if rescue else {'{"a":"x"}', '{"a":"é😀"}'})
    assert [row["_corrupt_record"] for row in found] == [
        line if line in bad else None for line in lines
    ]


def test_rows_of_many_files_know_their_file():
    pieces = [LinePiece(f"file:///{n}", b'{"a":"x"}\n{"a":%d}' % n) for n in range(300)]
    pieces.insert(7, LinePiece("file:///empty", b""))
    batch = reader(columns(a=LongType())).read(pieces)
    paths = [json.loads(row["_rescued_data"])["_file_path"] for row in batch.to_pylist()[::2]]
    assert paths == [f"file:///{n}" for n in range(300)]


@pytest.mark.parametrize("data", ["", "\n", " \n\t\r\n\r"])
def test_blank_lines_are_no_records(data):
    assert rows(data, columns(a=LongType())) == []


def test_an_object_over_several_lines_is_not_mistaken_for_a_record():
    found = rows('{"a":1}\n{"a":\n2}\n{"a":3}{"a":4}\n', columns(a=LongType()))
    assert [row["a"] for row in found] == [1, None, None, None]


def test_nesting_beyond_any_reason_is_a_corrupt_record():
    for depth, is_corrupt in ((999, False), (1000, True), (10_000, True), (300_000, True)):
        data = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
        (row,) = rows(data, columns(a=StringType()))
        assert (row["a"] is None) == is_corrupt
        assert (row["_rescued_data"] is not None) == is_corrupt


def test_a_field_nested_too_deeply_for_a_column_is_rescued_not_new():
    data = b'{"b":' + b"[" * 990 + b"]" * 990 + b"}"
    (row,) = rows(data, columns(a=StringType()), mode_="addNewColumns")
    assert row["_rescued_data"].startswith('{"b":[[[')
    repeated = b'{"a":1,"a":' + b"[" * 990 + b"]" * 990 + b"}"
    (row,) = rows(repeated, columns(a=StringType()))
    assert row["_rescued_data"].startswith('{"a":1,')


@pytest.mark.slow
def test_a_line_of_twenty_megabytes_and_a_number_of_many_digits_are_read():
    text, digits = "x" * 20_000_000, "7" * 10_000
    data = json.dumps({"a": text}) + f'\n{{"a":{digits},"b":{digits}}}\n'
    first, second = rows(data, columns(a=StringType(), b=LongType()))
    assert first["a"] == text
    assert second["a"] == digits
    assert second["_rescued_data"].startswith(f'{{"b":{digits},')


def test_the_schema_of_a_batch_is_the_one_spark_expects():
    schema = StructType(
        [StructField("a", LongType(), metadata={"comment": "x"}), *columns(u=ArrayType(USER))]
    )
    expected = StructType([*schema.fields, StructField("_rescued_data", StringType())])
    batch = reader(schema).read([LinePiece(URI, b"{}")])
    expected_arrow = to_arrow_schema(expected, timezone="UTC")
    assert batch.schema.equals(expected_arrow, check_metadata=True)


def test_rows_without_any_column_are_counted():
    assert reader(StructType([]), given=True).read([LinePiece(URI, b'{"a":1}\n{}')]).num_rows == 2


@pytest.mark.parametrize(
    "schema",
    [columns(a=MapType(LongType(), StringType())), columns(_corrupt_record=LongType())],
    ids=["map keys", "corrupt record column"],
)
def test_a_schema_that_json_cannot_fill_is_refused(schema):
    with pytest.raises(IncompatibleSchemaError, match="string"):
        reader(schema)


@pytest.mark.law
def test_arbitrary_keys_in_every_record_do_not_slow_the_reader_for_ever():
    lines = "\n".join(f'{{"a":{n},"key{n}":1}}' for n in range(1000))
    found = rows(lines, columns(a=LongType()))
    assert [row["a"] for row in found] == list(range(1000))
    assert all(f'"key{n}":1' in row["_rescued_data"] for n, row in enumerate(found))


HALF = [
    rb'{"\uDFAA":0}',
    rb'{"a":1,"\ud800":0}',
    rb'{"a":1,"z":{"b":[{"\udc00x":0}]}}',
    rb'{"m":{"\ud83d":"x"},"a":1}',
    rb'[{"a":1,"\udfaa":2}]',
]


@pytest.mark.parametrize("line", HALF, ids=[line.decode() for line in HALF])
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
def test_a_key_that_is_no_text_makes_a_corrupt_record_where_nothing_is_rescued(line, mode):
    schema = columns(
        a=StringType(), m=MapType(StringType(), StringType()), _corrupt_record=StringType()
    )
    data = b'{"a":"1"}\n' + line + b'\n{"a":"\\ud83d\\ude00","z\\\\udfaa":1}\n'
    found = reader(schema, given=True, mode=mode)
    if mode == "FAILFAST":
        with pytest.raises(CorruptRecordError, match="is no Unicode text"):
            found.read([LinePiece(URI, data)])
        return
    batch = found.read([LinePiece(URI, data)]).to_pylist()
    lost = [{"a": None, "m": None, "_corrupt_record": line.decode()}]
    assert batch == [
        {"a": "1", "m": None, "_corrupt_record": None},
        *(lost if mode == "PERMISSIVE" else []),
        {"a": "😀", "m": None, "_corrupt_record": None},
    ]
    assert found.counts.corrupt_records == 1
