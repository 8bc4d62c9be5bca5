from __future__ import annotations

import functools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from airflow_cloudfiles.engine.formats.json import infer as json_infer
from airflow_cloudfiles.engine.formats.json.infer import MAX_DEPTH, JsonInference, parse_line
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.inference import evolve
from airflow_cloudfiles.engine.types import (
    canonical_struct,
    merge_structs,
    merge_types,
    simple_ddl,
)
from tests.support.formats.json_files import typed_options

_NAMES = st.sampled_from(["a", "A", "b", "ü", 'q"', "back\\slash", "d d"])
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**40), max_value=10**40),
    st.sampled_from([0, 2**63 - 1, -(2**63), 2**63, 10**38 - 1, 10**38]),
    st.floats(),
    st.sampled_from(["", "x", "ü", "\ud800", "NaN"]),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, min_size=1, max_size=3)
    ),
    max_leaves=6,
)
_RECORDS = st.lists(st.dictionaries(_NAMES, _VALUES, max_size=4), max_size=8)


@pytest.fixture
def _eager_checks(monkeypatch):
    """Compile a check after every record that taught something, not after dozens."""
    monkeypatch.setattr(json_infer, "_WALKED_BEFORE_COMPILING", 1)


def _infer(*lines, typed=True, known=None):
    inference = JsonInference(typed_options(typed), known)
    inference.add("\n".join(lines).encode())
    return inference.result()


def _lines(records):
    return [json.dumps(each) for each in records]


def _type_of(value, *, typed):
    """The type of one value by itself: the rules without the machinery."""
    if value is None or value == "":
        return NullType()
    if isinstance(value, dict):
        found = StructType([])
        for name, child in value.items():
            field = StructField(name, _type_of(child, typed=typed))
            found = merge_structs(found, StructType([field]))
        return found
    if isinstance(value, list):
        kinds = [_type_of(child, typed=typed) for child in value]
        return ArrayType(functools.reduce(merge_types, kinds, NullType()))
    return _leaf_type(value) if typed else StringType()


def _leaf_type(value):
    if isinstance(value, str):
        return StringType()
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, float) or abs(value) >= 10**38:
        return DoubleType()
    fits = -(2**63) <= value < 2**63
    return LongType() if fits else DecimalType(len(str(abs(value))), 0)


class TestLaws:
    @pytest.mark.law
    @pytest.mark.usefixtures("_eager_checks")
    @pytest.mark.parametrize("typed", [False, True])
    @given(records=_RECORDS, repeated=st.integers(1, 3))
    def test_what_is_inferred_is_the_merged_type_of_all_records(self, typed, records, repeated):
        expected = StructType([])
        for record in records:
            expected = merge_structs(expected, _type_of(record, typed=typed))
        assert _infer(*_lines(records) * repeated, typed=typed) == expected

    @pytest.mark.law
    @pytest.mark.usefixtures("_eager_checks")
    @given(records=_RECORDS, cut=st.integers(0, 8))
    def test_how_records_are_cut_into_blocks_does_not_matter(self, records, cut):
        inference = JsonInference(typed_options(True))
        for part in (records[:cut], records[cut:]):
            inference.add("\n".join(_lines(part)).encode())
        assert inference.result() == _infer(*_lines(records))

    @pytest.mark.law
    @pytest.mark.usefixtures("_eager_checks")
    @given(known=_RECORDS, records=_RECORDS)
    def test_no_new_field_is_hidden_by_what_is_known(self, known, records):
        schema = canonical_struct(_infer(*_lines(known)))
        found = _infer(*_lines(records), known=schema)
        names = {CASE_INSENSITIVE.key(name) for record in records for name in record}
        assert CASE_INSENSITIVE.keys(found.names) >= names
        assert evolve(schema, schema) == schema
        assert evolve(schema, found) == found


class TestTypes:
    def test_every_leaf_is_a_string_by_default(self):  # B5
        found = _infer('{"a":1,"b":{"c":2.5},"d":[true]}', typed=False)
        assert found == parse_schema("a STRING, b STRUCT<c: STRING>, d ARRAY<STRING>")

    def test_types_are_sparks_when_asked_for(self):  # B6
        found = _infer('{"a":1,"b":{"c":2.5},"d":[true]}')
        assert found == parse_schema("a BIGINT, b STRUCT<c: DOUBLE>, d ARRAY<BOOLEAN>")

    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            (["1", "2.0"], "DOUBLE"),
            (["1", "true"], "STRING"),
            (["1", '"x"'], "STRING"),
            (["1", '""', "null"], "BIGINT"),
            (["9223372036854775807"], "BIGINT"),
            (["9223372036854775808"], "DECIMAL(19,0)"),
            (["9223372036854775808", "1"], "DECIMAL(20,0)"),
            (["1" * 38], "DECIMAL(38,0)"),
            (["1" * 39], "DOUBLE"),
            (["1" * 5000], "DOUBLE"),
            (["1e400"], "DOUBLE"),
            (["NaN"], "DOUBLE"),
            (["-INF", "1"], "DOUBLE"),
            (['{"b":1}', "1"], "STRING"),
            (["[1]", '{"b":1}'], "STRING"),
            (["[1]", '[null,"",2.5]'], "ARRAY<DOUBLE>"),
            (['[{"b":1}]', '[{"c":"x"}]'], "ARRAY<STRUCT<b: BIGINT, c: STRING>>"),
        ],
    )
    def test_values_of_one_field_meet_in_one_type(self, values, kind):
        found = _infer(*(f'{{"a":{value}}}' for value in values))
        assert simple_ddl(found) == f"a {kind}"

    def test_columns_keep_the_order_of_their_first_appearance(self):
        found = _infer('{"z":1,"b":2}', '{"a":1,"z":{"y":1,"x":2}}')
        assert found.names == ["z", "b", "a"]

    def test_spellings_of_one_name_are_one_column(self):  # B15
        found = _infer('{"foo":1}', '{"Foo":2.5}', '{"FOO":null,"Bar":1,"bar":1}')
        assert found == parse_schema("foo DOUBLE, Bar BIGINT")

    def test_a_name_that_is_no_column_name_is_left_to_the_reader(self):
        assert _infer('{"":1,"\\ud800":2,"a":3}') == parse_schema("a BIGINT")

    @pytest.mark.usefixtures("_eager_checks")
    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            (["{}", "{}"], None),
            (["{}", "null"], "STRING"),
            (["null", "{}"], "STRING"),
            (["{}", '""'], "STRING"),
            (["[{}]", "[{}]"], None),
            (["[{}]", "null"], "STRING"),
            (["[{}]", "[]"], "ARRAY<STRING>"),
            (["[]", "[{}]"], "ARRAY<STRING>"),
            (["[{}]", "[{}, null]"], "ARRAY<STRING>"),
            (['{"b":{}}', "null"], "STRING"),
            (['{"b":{}}', '{"b":null}'], "STRUCT<b: STRING>"),
            (["{}", "null", '{"b":1}'], "STRUCT<b: BIGINT>"),
        ],
    )
    def test_a_field_that_was_null_once_is_a_column_though_it_holds_nothing(self, values, kind):
        # The reader calls a null field new, and an empty struct not (B77): they must not disagree.
        expected = parse_schema(f"a {kind}" if kind else "")
        for repeated in (1, 2):
            lines = [f'{{"a":{value}}}' for value in values] * repeated
            assert canonical_struct(_infer(*lines)) == expected

    def test_what_is_nested_too_deep_is_kept_as_text(self):
        deep = '{"a":' * (MAX_DEPTH + 5) + "1" + "}" * (MAX_DEPTH + 5)
        kind, depth = _infer(deep), 0
        while isinstance(kind, StructType):
            kind, depth = kind.fields[0].dataType, depth + 1
        assert kind == StringType()
        assert depth == MAX_DEPTH

    def test_nesting_no_parser_can_follow_is_no_record(self):
        assert _infer('{"a":' * 100_000, '{"b":1}', "[" * 100_000) == parse_schema("b BIGINT")


class TestRecords:
    def test_lines_that_are_no_records_teach_nothing(self):
        lines = ['{"a":1}', "", "  ", '{"b":', "null", "5", '"x"', '[{"c":1},2]', '{"d":1} {"e":1}']
        assert _infer(*lines, '{"f":1}') == parse_schema("a BIGINT, f BIGINT")

    def test_bytes_that_are_not_utf8_teach_nothing(self):
        inference = JsonInference(typed_options(True))
        inference.add(b'{"\xff":1}\n{"a":"\xff"}\n{"b":1}')
        assert "b" in inference.result().names

    def test_an_array_of_objects_is_several_records(self):
        assert _infer('[{"a":1},{"b":2.5}]', "[]") == parse_schema("a BIGINT, b DOUBLE")

    def test_every_line_ending_ends_a_line(self):
        assert _infer('{"a":1}\r{"b":1}\r\n{"c":1}').names == ["a", "b", "c"]

    def test_the_readers_tolerance_holds_here_too(self):
        found = _infer("{'a':1,\"b\":[NaN,'x'],'c':{'d':+Infinity}}")
        assert found == parse_schema("a BIGINT, b ARRAY<STRING>, c STRUCT<d: DOUBLE>")

    def test_the_last_of_equal_keys_counts(self):
        assert _infer('{"a":1,"a":"x"}') == parse_schema("a STRING")

    @pytest.mark.parametrize("line", ["", "nope", "{", '{"a":1}}', "{'a'"])
    def test_what_is_not_json_parses_to_nothing(self, line):
        assert parse_line(line.encode()) is None


class TestKnownSchema:
    def test_a_clash_with_a_known_type_does_not_hide_what_is_new_beside_it(self):  # B48, B49
        known = parse_schema("a STRUCT<b: BIGINT>, c ARRAY<STRUCT<d: STRING>>, e INT")
        lines = ['{"a":"text","c":5,"e":"x"}', '{"a":{"b":"x","new":1},"c":[7,{"n":[1]}],"z":1}']
        found = _infer(*lines, known=known)
        assert found == parse_schema(
            "a STRUCT<b: BIGINT, new: BIGINT>, c ARRAY<STRUCT<d: STRING, n: ARRAY<BIGINT>>>, "
            "e INT, z BIGINT"
        )

    def test_keys_of_a_known_map_are_not_new_but_fields_of_its_values_are(self):
        known = parse_schema("m MAP<STRING, STRUCT<a: INT>>, n MAP<STRING, STRING>")
        found = _infer('{"m":{"k":{"a":1,"b":2}},"n":{"x":{"y":1}}}', "{}", known=known)
        assert found == parse_schema(
            "m MAP<STRING, STRUCT<a: INT, b: BIGINT>>, n MAP<STRING, STRING>"
        )


def test_many_uniform_records_pass_the_compiled_check_unwalked(monkeypatch):
    walked = []
    original = JsonInference._walk
    monkeypatch.setattr(
        JsonInference, "_walk", lambda self, record: walked.append(1) or original(self, record)
    )
    _infer(*(f'{{"a":{n},"b":"x{n}","c":[{n}.5],"d":{{"e":null}}}}' for n in range(20_000)))
    assert len(walked) <= 128


def test_keys_that_are_data_stay_within_memory_and_time():
    lines = [f'{{"id{n}":1}}' for n in range(6000)]
    assert len(_infer(*lines).names) == 6000
