"""The schema of XML files: fields, arrays, structs, types."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.base import UnknownFields
from airflow_cloudfiles.engine.types import canonical_struct
from tests.support.formats.xml_files import columns, inferred, options, reader, rows_of, written
from tests.unit.formats.xml.test_xml_law import SCHEMA, document


def schema_of(folder, content: str, **others) -> str:
    found = canonical_struct(inferred(written(folder, content), **others))
    return found.simpleString().removeprefix("struct<").removesuffix(">")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("<row><a>1</a><b>x</b></row>", "a:string,b:string"),  # B5
        ('<row id="1">t</row>', "_id:string,_VALUE:string"),
        ("<row><a>1</a><a>2</a></row><row><a>3</a></row>", "a:array<string>"),
        ("<row><a/></row><row><a><b/></a></row>", "a:struct<b:string>"),
        ('<row><a>1</a></row><row><a k="2"/></row>', "a:string"),
        ('<row><a>1</a></row><row><a k="2">3</a></row>', "a:struct<_k:string,_VALUE:string>"),
        ("<row><a>1</a></row><row><a><b/></a></row>", "a:string"),
        ("<row><a>x<b/>y</a></row>", "a:struct<_VALUE:array<string>,b:string>"),
        ("<row><z/><b/></row><row><a/></row>", "z:string,b:string,a:string"),
        ("<row><Foo/></row><row><foo/></row>", "Foo:string"),  # B15
        ("<row><a></row><row><b/></row>", "b:string"),
    ],
)
def test_shapes(tmp_path, rows, expected):
    assert schema_of(tmp_path, f"<r>{rows}</r>") == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-7", ""], "bigint"),  # B6
        (["1", "2.5"], "double"),
        (["12345678901234567890"], "double"),
        (["true", "FALSE"], "boolean"),
        (["2024-01-31"], "date"),
        (["2024-01-31", "2024-01-31T08:00:00Z"], "timestamp"),
        (["1", "true"], "string"),
        (["1d"], "string"),
        (["NaN"], "string"),
        (["12:30:59"], "string"),
        (["2024-01-31T08:00:00.123456789Z"], "string"),
        ([" 5 "], "bigint"),
        ([""], "string"),
    ],
)
def test_types(tmp_path, values, expected):
    rows = "".join(f"<row><a>{value}</a></row>" for value in values)
    assert schema_of(tmp_path, f"<r>{rows}</r>", typed=True) == f"a:{expected}"


@pytest.mark.parametrize(
    ("values", "expected", "others"),
    [
        (["", "1"], "string", {}),
        (["1", " "], "string", {}),
        (["2024-01-31", ""], "string", {}),
        (["", "1"], "bigint", {"nullValue": ""}),
        (["1", " "], "string", {"ignoreSurroundingSpaces": "false"}),
    ],
)
def test_an_empty_attribute_is_a_string_wherever_it_is(tmp_path, values, expected, others):
    outer = "".join(f'<row a="{value}"/>' for value in values)
    assert schema_of(tmp_path, f"<r>{outer}</r>", typed=True, **others) == f"_a:{expected}"
    inner = "".join(f'<row><c a="{value}">1</c></row>' for value in values)
    found = schema_of(tmp_path, f"<r>{inner}</r>", typed=True, **others)
    assert found == f"c:struct<_a:{expected},_VALUE:bigint>"


def test_options_of_types(tmp_path):
    content = "<r><row><a>1.50</a><n>-</n></row><row><a>12</a></row></r>"
    assert schema_of(tmp_path, content, typed=True, nullValue="-") == "a:double,n:string"
    found = schema_of(tmp_path, content, typed=True, prefersDecimal=True)
    assert found == "a:decimal(22,2),n:string"
    assert schema_of(tmp_path, content, typed=True, inferSchema=False) == "a:string,n:string"
    dates = "<r><row><a>31.01.2024</a></row></r>"
    assert schema_of(tmp_path, dates, typed=True, dateFormat="dd.MM.yyyy") == "a:date"


def test_decimals_of_a_language(tmp_path):
    content = "<r><row><a>1.234,50</a></row></r>"
    given = {"prefersDecimal": True, "locale": "de-DE"}
    assert schema_of(tmp_path, content, typed=True, **given) == "a:decimal(6,2)"
    rows = rows_of(written(tmp_path, content), reader("a DECIMAL(6,2)", locale="de-DE"))
    assert str(rows[0]["a"]) == "1234.50"


def test_names_and_cases(tmp_path):
    content = '<r><row><x:a k="1">2</x:a><foo/><Foo/></row></r>'
    found = schema_of(tmp_path, content, ignoreNamespace=True)
    assert found == "a:struct<_k:string,_VALUE:string>,foo:string"
    found = schema_of(tmp_path, content, readerCaseSensitive=False, excludeAttribute=True)
    assert found == "x:a:string,foo:array<string>"


def test_a_known_schema_only_learns_what_is_new(tmp_path):
    known = columns("a BIGINT, s STRUCT<k: BIGINT>, l ARRAY<STRUCT<k: BIGINT>>, m MAP<STRING, INT>")
    content = """<r><row><a>x</a><a><q/></a><s>t</s><s><n>1</n></s><l><k>x</k><n/></l>
        <m><any/></m><b>1</b></row></r>"""
    found = inferred(written(tmp_path, content), known=known, typed=True)
    assert canonical_struct(found).simpleString() == (
        "struct<a:bigint,s:struct<k:bigint,_VALUE:string,n:bigint>,"
        "l:array<struct<k:bigint,n:string>>,m:map<string,int>,b:bigint>"
    )


def test_a_share_of_the_rows_is_looked_at(tmp_path):
    rows = "".join(f"<row><c{n}/></row>" for n in range(1000))
    found = inferred(written(tmp_path, f"<r>{rows}</r>"), samplingRatio="0.1")
    assert len(found.fields) == 100


def test_a_damaged_file_is_unreadable(tmp_path):
    with pytest.raises(FileUnreadableError, match=r"f\.xml\.gz"):
        inferred(written(tmp_path, b"\x1f\x8b\x08\x00cut", "f.xml.gz"))


@pytest.mark.law
@given(seed=st.integers(0, 2**40), typed=st.booleans())
@settings(max_examples=40)
def test_what_is_new_to_the_reader_is_learnt_at_once(tmp_path_factory, seed, typed):
    """A stream that fails for new fields succeeds when it is started again."""
    folder = tmp_path_factory.mktemp("heal", numbered=True)
    schema = StructType(random.Random(seed).sample(SCHEMA.fields[:-1], 3))
    file = written(folder, document(seed, schema, 60)[1])
    known = columns("name STRING, user STRUCT<_vip: BOOLEAN>, items ARRAY<STRUCT<count: INT>>")
    given_options = {"evolution": "addNewColumns", "typed": typed}
    with_new = canonical_struct(inferred(file, known=known, typed=typed))
    rows = rows_of(file, reader(with_new, **given_options))
    assert len(rows) == 60
    if with_new != known:
        with pytest.raises(UnknownFields):
            rows_of(file, reader(known, **given_options))
    assert options(**given_options).infer_column_types == typed
