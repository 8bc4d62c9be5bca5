"""XML rows: what becomes a column, what is rescued, what is corrupt."""

from __future__ import annotations

import bz2
import gzip
import json

import pytest
from pyspark.sql.types import StringType, StructField, StructType, VariantVal

from airflow_cloudfiles.engine.errors import (
    CorruptRecordError,
    FileUnreadableError,
    IncompatibleSchemaError,
    OptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.formats.base import ENOUGH_RECORDS, UnknownFields
from airflow_cloudfiles.engine.formats.xml import rows as xml_rows
from airflow_cloudfiles.engine.formats.xml.explain import XmlExplainer
from airflow_cloudfiles.engine.types import VariantType
from tests.support.formats.xml_files import options, reader, rows_of, written


def rescued(row: dict) -> dict | None:
    """Rescued data without the path."""
    if row["_rescued_data"] is None:
        return None
    found = json.loads(row["_rescued_data"])
    assert list(found)[-1] == "_file_path"
    assert found.pop("_file_path").startswith("file:")
    return found


def read(folder, content: str | bytes, ddl: str, **others):
    """The rows of a file, which are the same on both paths."""
    file = written(folder, content)
    found = reader(ddl, **others)
    rows = rows_of(file, found)
    thorough = reader(ddl, is_thorough=True, **others)
    assert rows_of(file, thorough) == rows
    assert thorough.counts == found.counts
    return rows, found


def test_row_tag_is_required():  # B25
    with pytest.raises(OptionError, match="rowTag is required"):
        options(rowTag="")
    with pytest.raises(OptionError, match="without angle brackets"):
        options(rowTag="<row>")


@pytest.mark.parametrize("name", ["rootTag", "declaration", "arrayElementName", "wildcardColName"])
def test_options_of_writing_are_refused_by_name(name):
    with pytest.raises(UnsupportedOptionError, match=rf"{name}(=x)? is refused for format xml"):
        options(**{name: "x"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attributePrefix": "_VALUE"}, "attributePrefix and valueTag"),
        ({"encoding": "rot13"}, "no encoding of text"),
        ({"encoding": "utf-8", "charset": "latin-1"}, "two names of one option"),
        ({"samplingRatio": "0"}, "samplingRatio"),
        ({"samplingRatio": "1.5"}, "samplingRatio"),
        ({"ignoreNamespace": "perhaps"}, "ignoreNamespace must be true or false"),
    ],
)
def test_values_of_options_are_checked(given, message):
    with pytest.raises(OptionError, match=message):
        options(**given)


def test_patterns_are_checked_when_a_reader_is_built():
    with pytest.raises(OptionError, match="dateFormat"):
        reader("a DATE", dateFormat="bbbb")
    with pytest.raises(OptionError, match="timeZone"):
        reader("a DATE", timeZone="Mars/Olympus")


def test_attributes_texts_and_elements_are_fields(tmp_path):
    rows, _ = read(
        tmp_path,
        '<r><row id="7">hello</row><row id="8"><a k="v">1</a><a>2</a><s><b>x</b></s></row></r>',
        "_id INT, _VALUE STRING, a ARRAY<STRUCT<_VALUE: INT, _k: STRING>>, s STRUCT<b: STRING>",
    )
    first = {"_id": 7, "_VALUE": "hello", "a": None, "s": None, "_rescued_data": None}
    second = {
        "_id": 8,
        "_VALUE": None,
        "a": [{"_VALUE": 1, "_k": "v"}, {"_VALUE": 2, "_k": None}],
        "s": {"b": "x"},
        "_rescued_data": None,
    }
    assert rows == [first, second]


def test_what_does_not_fit_is_rescued_with_its_path(tmp_path):
    rows, found = read(
        tmp_path,
        '<r><row id="x"><n>1.5</n><s><b>2</b><c>y</c></s><l>1</l><l>z</l><l>3</l></row></r>',
        "_id INT, n INT, s STRUCT<b: INT, c: INT>, l ARRAY<INT>",
    )
    assert rescued(rows[0]) == {"_id": "x", "n": "1.5", "s": {"c": "y"}, "l": [None, "z"]}
    del rows[0]["_rescued_data"]
    assert rows == [{"_id": None, "n": None, "s": {"b": 2, "c": None}, "l": [1, None, 3]}]
    assert found.counts.rescued_rows == 1
    assert found.counts.corrupt_records == 0


def test_a_timestamp_finer_than_a_microsecond_is_rescued(tmp_path):
    text = "2024-01-31T12:30:59.123456789Z"
    content = f"<r><row><t>{text[:-4]}000Z</t></row><row><t>{text}</t></row></r>"
    for others in ({}, {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSSX"}):
        (first, second), _ = read(tmp_path, content, "t TIMESTAMP", **others)
        assert (first["t"].microsecond, rescued(first)) == (123456, None)
        assert (second["t"], rescued(second)) == (None, {"t": text})


def test_maps_take_attributes_elements_and_texts(tmp_path):
    rows, _ = read(
        tmp_path,
        '<r><row><m k="1"><a>2</a><b>x</b></m></row><row><m/></row><row><m>5</m></row></r>',
        "m MAP<STRING, INT>",
    )
    assert [row["m"] for row in rows] == [
        [("_k", 1), ("a", 2), ("b", None)],
        None,
        [("_VALUE", 5)],
    ]
    assert rescued(rows[0]) == {"m": {"b": "x"}}


def test_all_but_the_last_of_what_comes_again_is_rescued(tmp_path):
    rows, _ = read(tmp_path, "<r><row><a>1</a><a>2</a><a>3</a></row></r>", "a INT")
    assert rows[0]["a"] == 3
    assert rescued(rows[0]) == {"a": ["1", "2"]}
    rows, _ = read(tmp_path, "<r><row>x<a>1</a>y</row></r>", "a INT, _VALUE STRING")
    assert rows[0]["_VALUE"] == "y"
    assert rescued(rows[0]) == {"_VALUE": ["x"]}


def test_what_a_column_cannot_show_of_an_element_is_rescued(tmp_path):
    rows, _ = read(
        tmp_path,
        '<r><row><a k="1">x</a></row><row><s>text</s></row><row><n>5<b/></n></row></r>',
        "a STRING, s STRUCT<b: STRING>, n INT",
    )
    assert rows[0]["a"] == "x"
    found = [rescued(row) for row in rows]
    assert found[0] == {"a": {"_k": "1"}}
    assert found[1] == {"s": {"_VALUE": "text"}}
    assert found[2] == {"n": {"_VALUE": "5", "b": ""}}


def test_a_string_column_takes_elements_as_xml(tmp_path):
    source = '<a> one <b k="&quot;">&lt;</b><c/> two </a>'
    rows, _ = read(tmp_path, f"<r><row>{source}</row></r>", "a STRING")
    assert rows[0]["a"] == 'one <b k="&quot;">&lt;</b><c></c> two'


def test_empty_is_an_empty_string_and_null_elsewhere(tmp_path):
    content = "<r><row><a/><n/></row><row><a> </a><n> </n></row><row x=''/><row/></r>"
    rows, _ = read(tmp_path, content, "a STRING, n INT, _x INT")
    assert [row["a"] for row in rows] == ["", "", None, None]
    assert [row["n"] for row in rows] == [None] * 4
    assert [rescued(row) for row in rows] == [None, None, {"_x": ""}, None]
    rows, _ = read(tmp_path, content, "a STRING, n INT, _x INT", nullValue="")
    assert [row["a"] for row in rows] == [None] * 4
    assert [rescued(row) for row in rows] == [None] * 4


def test_null_value_is_null_and_never_rescued(tmp_path):
    rows, _ = read(tmp_path, "<r><row a='-'><n>-</n><x>-</x></row></r>", "_a INT, n INT",
                   nullValue="-")  # fmt: skip
    assert (rows[0]["_a"], rows[0]["n"]) == (None, None)
    assert rescued(rows[0]) == {"x": None}


def test_surrounding_spaces_stay_when_they_shall(tmp_path):
    content = "<r><row><a> x </a><n> 5 </n></row></r>"
    rows, _ = read(tmp_path, content, "a STRING, n INT")
    assert rows == [{"a": "x", "n": 5, "_rescued_data": None}]
    rows, _ = read(tmp_path, content, "a STRING, n INT", ignoreSurroundingSpaces=False)
    assert (rows[0]["a"], rows[0]["n"]) == (" x ", None)
    assert rescued(rows[0]) == {"n": " 5 "}


def test_names_of_attributes_and_texts_can_be_chosen(tmp_path):
    content = '<r><row id="1"><a k="2">x</a></row></r>'
    rows, _ = read(
        tmp_path, content, "`@id` INT, a STRUCT<`@k`: INT, `#`: STRING>",
        attributePrefix="@", valueTag="#",
    )  # fmt: skip
    assert rows[0]["@id"] == 1
    assert rows[0]["a"] == {"@k": 2, "#": "x"}
    rows, _ = read(tmp_path, content, "a STRING, _id INT", excludeAttribute=True)
    assert rows == [{"a": "x", "_id": None, "_rescued_data": None}]


def test_namespaces_are_part_of_names_or_not(tmp_path):
    content = '<r xmlns:n="u"><n:row n:k="1"><n:a>x</n:a></n:row></r>'
    rows, _ = read(tmp_path, content, "`n:a` STRING, `_n:k` INT", rowTag="n:row")
    assert rows == [{"n:a": "x", "_n:k": 1, "_rescued_data": None}]
    rows, _ = read(tmp_path, content, "a STRING, _k INT", ignoreNamespace=True)
    assert rows == [{"a": "x", "_k": 1, "_rescued_data": None}]


def test_a_name_in_another_case_is_rescued_or_read(tmp_path):  # B38
    content = "<r><row><Name>x</Name></row></r>"
    rows, _ = read(tmp_path, content, "name STRING", evolution="addNewColumns")
    assert rows[0]["name"] is None
    assert rescued(rows[0]) == {"Name": "x"}
    rows, _ = read(tmp_path, content, "name STRING", readerCaseSensitive=False)
    assert rows == [{"name": "x", "_rescued_data": None}]


def test_a_block_is_not_read_to_its_end_once_a_new_field_is_found(tmp_path, monkeypatch):  # B45
    """Its rows will be thrown away; whoever reacts samples the files of the whole batch."""
    explained = []
    explain = XmlExplainer.explain

    def counted(self, node):
        explained.append(node)
        return explain(self, node)

    monkeypatch.setattr(XmlExplainer, "explain", counted)
    content = "<row><a>1</a></row>" * 50 + "<row><a>1</a><b>2</b></row>" * 5000
    file = written(tmp_path, f"<r>{content}</r>")
    with pytest.raises(UnknownFields) as caught:
        list(reader("a INT", evolution="addNewColumns").read_file(file))
    assert caught.value.fields == {"b": "2"}
    assert len(explained) == ENOUGH_RECORDS


def test_rescued_fields_stop_nothing(tmp_path):
    content = "<row><a>1</a><b>2</b></row>" * 500
    rows, _ = read(tmp_path, f"<r>{content}</r>", "a INT", evolution="rescue")
    assert [(row["a"], rescued(row)) for row in rows] == [(1, {"b": "2"})] * 500


@pytest.mark.parametrize(
    "mode", ["addNewColumns", "addNewColumnsWithTypeWidening", "failOnNewColumns"]
)
def test_new_fields_are_told(tmp_path, mode):
    file = written(tmp_path, "<r><row><a>1</a></row><row><s><y>2</y></s><x>3</x></row></r>")
    found = reader("a INT, s STRUCT<z: INT>", evolution=mode)
    with pytest.raises(UnknownFields) as caught:
        rows_of(file, found)
    assert caught.value.fields == {"s": {"y": "2"}, "x": "3"}
    assert caught.value.file_uri == file.uri


def test_unknown_fields_are_rescued_or_dropped(tmp_path):
    content = "<r><row><a>1</a><x>2</x><x k='3'/></row></r>"
    rows, _ = read(tmp_path, content, "a INT", evolution="rescue")
    assert rescued(rows[0]) == {"x": ["2", {"_k": "3"}]}
    rows, _ = read(tmp_path, content, "a INT", evolution="none", rescuedDataColumn="_rescued_data")
    assert rescued(rows[0]) == {"x": ["2", {"_k": "3"}]}
    rows, _ = read(tmp_path, content, "a INT", given=True)
    assert rows == [{"a": 1}]


def test_reserved_names_are_never_new_columns(tmp_path):
    rows, _ = read(
        tmp_path,
        "<r><row><_corrupt_record>x</_corrupt_record><_rescued_data>y</_rescued_data></row></r>",
        "a INT",
        evolution="addNewColumns",
    )
    assert rescued(rows[0]) == {"_corrupt_record": "x", "_rescued_data": "y"}


BROKEN = (
    "<r><row><a>1</a></row><row><a>2</b></row><row><a>&bogus;</a></row><a>3</a></row>"
    "<row><a>4<row><a>5</a></row><row><a>6</a></row><row><a>7</a>"
)
BAD = ["<row><a>2</b></row>", "<row><a>&bogus;</a></row>", "<a>3</a></row>", "<row><a>4",
       "<row><a>7</a>"]  # fmt: skip


def test_an_error_costs_its_row_and_none_behind_it(tmp_path):
    rows, found = read(tmp_path, BROKEN, "a INT, _corrupt_record STRING")
    assert [row["a"] for row in rows] == [1, None, None, None, None, 5, 6, None]
    assert [row["_corrupt_record"] for row in rows if row["_corrupt_record"]] == BAD
    assert (found.counts.corrupt_records, found.counts.dropped_records) == (5, 0)


def test_a_corrupt_record_without_a_column_is_rescued(tmp_path):
    rows, found = read(tmp_path, BROKEN, "a INT")
    assert [rescued(row) for row in rows if row["a"] is None] == [
        {"_corrupt_record": text} for text in BAD
    ]
    assert found.counts.rescued_rows == 5


def test_a_broken_row_with_rows_in_it_stays_whole(tmp_path):
    content = "<r><row><a>1</b><row><a>2</a></row></row><row><a>3</a></row></r>"
    rows, _ = read(tmp_path, content, "a INT")
    assert rescued(rows[0]) == {"_corrupt_record": content[3:41]}
    assert rows[1]["a"] == 3


def test_corrupt_records_are_dropped_or_fail(tmp_path):
    rows, found = read(tmp_path, BROKEN, "a INT", mode="DROPMALFORMED")
    assert [row["a"] for row in rows] == [1, 5, 6]
    assert (found.counts.corrupt_records, found.counts.dropped_records) == (5, 5)
    with pytest.raises(CorruptRecordError, match=r"f\.xml.*mismatched tag.*FAILFAST.*<row><a>2"):
        rows_of(written(tmp_path, BROKEN), reader("a INT", mode="FAILFAST"))


def test_bad_records_are_handed_over(tmp_path):
    file = written(tmp_path, BROKEN)
    found = reader("a INT", badRecordsPath="/bad", mode="FAILFAST")
    assert [row["a"] for row in rows_of(file, found)] == [1, 5, 6]
    assert [each.record for each in found.bad_records] == BAD
    assert {each.file_uri for each in found.bad_records} == {file.uri}
    assert (found.counts.corrupt_records, found.counts.dropped_records) == (5, 5)


def test_without_rescued_data_what_does_not_fit_is_a_bad_record(tmp_path):
    content = "<r><row><a>1</a><b>x</b></row></r>"
    rows, _ = read(tmp_path, content, "a INT, b INT, _corrupt_record STRING", given=True)
    assert rows == [{"a": 1, "b": None, "_corrupt_record": "<row><a>1</a><b>x</b></row>"}]
    rows, found = read(tmp_path, content, "a INT, b INT", given=True, mode="DROPMALFORMED")
    assert rows == []
    assert found.counts.dropped_records == 1
    with pytest.raises(CorruptRecordError, match="does not fit"):
        rows_of(written(tmp_path, content), reader("b INT", given=True, mode="FAILFAST"))


def test_comments_sections_and_types_are_stepped_over(tmp_path):
    content = """<?xml version="1.0"?>
        <!DOCTYPE r [<!ENTITY e "<row><a>0</a></row>"> <!-- '<row>' -->]>
        <r><!-- <row><a>0</a></row> --><?pi <row>?><row><a>1<!-- 0 -->2</a></row>
        <row><a><![CDATA[</row><3]]></a></row><row><a>x<![CDATA[y]]>z</a></row></r>"""
    rows, found = read(tmp_path, content, "a STRING")
    assert [row["a"] for row in rows] == ["12", "</row><3", "xyz"]
    assert found.counts.corrupt_records == 0


def test_entities_are_neither_fetched_nor_grown(tmp_path):
    bomb = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x" * 10}">' for n in range(10))
    secret = tmp_path / "secret"
    secret.write_text("secret")
    content = (
        f'<!DOCTYPE r [{bomb}<!ENTITY file SYSTEM "file://{secret}">]>'
        "<r><row><a>&e9;</a></row><row><a>&file;</a></row><row><a>1</a></row></r>"
    )
    rows, found = read(tmp_path, content, "a STRING")
    assert [row["a"] for row in rows] == [None, None, "1"]
    assert rescued(rows[0]) == {"_corrupt_record": "<row><a>&e9;</a></row>"}
    assert rescued(rows[1]) == {"_corrupt_record": "<row><a>&file;</a></row>"}
    assert found.counts.corrupt_records == 2


def test_rows_may_hold_elements_of_their_own_name(tmp_path):
    content = "<r><row><a>1</a><row><a>2</a></row></row><row><a>3</a></row></r>"
    rows, _ = read(tmp_path, content, "a INT, row STRUCT<a: INT>")
    assert [(row["a"], row["row"]) for row in rows] == [(1, {"a": 2}), (3, None)]


def test_empty_rows_and_longer_names(tmp_path):
    content = "<rows><row/><row ></row><row a='1'/><rowing><a>0</a></rowing><row a='2' /></rows>"
    rows, _ = read(tmp_path, content, "_a INT")
    assert [row["_a"] for row in rows] == [None, None, 1, 2]


TEXT = "<r>\r\n<row><a>été\r\n€</a></row></r>"


@pytest.mark.parametrize(
    ("content", "given"),
    [
        (TEXT.encode(), None),
        (b"\xef\xbb\xbf" + TEXT.encode(), "latin-1"),
        (b"\xef\xbb\xbf" * 2 + TEXT.encode(), None),
        (b"\xff\xfe" * 3 + TEXT.encode("utf-16-le"), None),
        (TEXT.encode("utf-16"), None),
        (TEXT.encode("utf-16-be"), None),
        (TEXT.encode("utf-16-le"), "UTF-16"),
        (TEXT.encode("utf-16-be"), "UTF-16"),
        (b"\xff\xfe\x00\x00" + TEXT.encode("utf-32-le"), None),
        (f'<?xml version="1.0" encoding="windows-1252"?>{TEXT}'.encode("cp1252"), None),
        (TEXT.encode("cp1252"), "windows-1252"),
        (f"<?xml version='1.0' encoding='UTF-16'?>{TEXT}".encode("utf-16"), None),
        (f"<?xml version='1.0' encoding='UTF-16'?>{TEXT}".encode(), None),
        (f"<?xml version='1.0' encoding='UTF-8'?>{TEXT}".encode("cp1252"), "cp1252"),
    ],
)
def test_encodings(tmp_path, content, given):
    others = {} if given is None else {"encoding": given}
    rows, _ = read(tmp_path, content, "a STRING", **others)
    assert rows == [{"a": "été\n€", "_rescued_data": None}]


def test_charset_is_another_name_of_encoding(tmp_path):
    rows, _ = read(tmp_path, TEXT.encode("cp1252"), "a STRING", charset="cp1252")
    assert rows[0]["a"] == "été\n€"


def test_bytes_that_are_no_text_make_a_corrupt_record(tmp_path):
    content = b"<r><row><a>\xe9</a></row><row><a>1</a></row></r>"
    rows, _ = read(tmp_path, content, "a STRING")
    assert rescued(rows[0]) == {"_corrupt_record": "<row><a>\\xe9</a></row>"}
    assert rows[1]["a"] == "1"
    odd = (
        "<r><row><a>".encode("utf-16-le") + b"\x00\xd8" + "</a></row><row/></r>".encode("utf-16-le")
    )
    rows, _ = read(tmp_path, odd, "a STRING", encoding="utf-16-le")
    assert rescued(rows[0]) == {"_corrupt_record": "<row><a>\\x00\\xd8</a></row>"}
    assert len(rows) == 2


def test_an_unknown_encoding_is_told(tmp_path):
    content = b'<?xml version="1.0" encoding="klingon"?><r/>'
    with pytest.raises(FileUnreadableError, match=r"f\.xml.*'klingon'.*option encoding"):
        rows_of(written(tmp_path, content), reader("a STRING"))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_compressed_files(tmp_path, compress):
    suffix = ".gz" if compress is gzip.compress else ".bz2"
    file = written(tmp_path, compress(TEXT.encode()), f"f.xml{suffix}")
    assert [row["a"] for row in rows_of(file, reader("a STRING"))] == ["été\n€"]


def test_a_cut_archive_is_unreadable(tmp_path):
    whole = gzip.compress("".join(f"<row><a>{n}</a></row>" for n in range(9999)).encode())
    file = written(tmp_path, whole[:-100], "f.xml.gz")
    with pytest.raises(FileUnreadableError, match=r"f\.xml\.gz"):
        rows_of(file, reader("a STRING"))


def test_what_is_no_xml_is_a_corrupt_record(tmp_path):
    rows, _ = read(tmp_path, '{"a": 1}', "a STRING, _corrupt_record STRING")
    assert rows == [{"a": None, "_corrupt_record": '{"a": 1}', "_rescued_data": None}]
    assert read(tmp_path, "", "a STRING")[0] == []
    assert read(tmp_path, "<r><other/></r>", "a STRING")[0] == []


@pytest.mark.law
def test_however_a_file_is_cut_into_pieces_its_rows_are_the_same(tmp_path, monkeypatch):
    content = BROKEN + "</row><row k='1'/><!-- <row> --><row><a>8</a>\r\n</row></r>"
    content += "<row><a>é" * 3 + "</a></row>"
    whole, _ = read(tmp_path, content, "a STRING, _k STRING, _corrupt_record STRING")
    for size in (*range(1, 40), 64, 100):
        monkeypatch.setattr(xml_rows, "CHUNK_BYTES", size)
        found = reader("a STRING, _k STRING, _corrupt_record STRING")
        assert rows_of(written(tmp_path, content), found) == whole


def test_a_cut_row_does_not_hold_up_the_rest_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(xml_rows, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(xml_rows, "MAX_ROW_BYTES", 5000)
    content = "<r><row><a>cut" + "".join(f"<row><a>{n}</a></row>" for n in range(2000)) + "</r>"
    rows = rows_of(written(tmp_path, content), reader("a INT, _corrupt_record STRING"))
    assert rows[0]["_corrupt_record"] == "<row><a>cut"
    assert [row["a"] for row in rows[1:]] == list(range(2000))
    endless = "<r><row><a>" + "x" * 10_000 + "</a></row></r>"
    with pytest.raises(FileUnreadableError, match=r"f\.xml has a row of more than"):
        rows_of(written(tmp_path, endless), reader("a STRING"))


XSD = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="row">
<xs:complexType><xs:sequence><xs:element name="a" type="xs:int"/></xs:sequence></xs:complexType>
</xs:element></xs:schema>"""


def test_rows_that_are_not_valid_are_corrupt_records(tmp_path):
    schema = tmp_path / "row.xsd"
    schema.write_text(XSD)
    content = "<r><row><a>1</a></row><row><a>x</a></row><row><b/></row><row><a>2</a></row></r>"
    given = {"rowValidationXSDPath": str(schema)}
    rows, found = read(tmp_path, content, "a INT, _corrupt_record STRING", **given)
    assert [row["a"] for row in rows] == [1, None, None, 2]
    assert rows[1]["_corrupt_record"] == "<row><a>x</a></row>"
    assert found.counts.corrupt_records == 2
    with pytest.raises(CorruptRecordError, match=r"not valid: .*'x'"):
        rows_of(written(tmp_path, content), reader("a INT", mode="FAILFAST", **given))


def test_a_schema_of_a_namespace_sees_what_is_declared_around(tmp_path):
    schema = tmp_path / "row.xsd"
    target = XSD.replace(">", ' targetNamespace="urn:x" elementFormDefault="qualified">', 1)
    schema.write_text(target)
    content = '<x:r xmlns:x="urn:x"><x:row><x:a>1</x:a></x:row><row><a>1</a></row></x:r>'
    rows, _ = read(
        tmp_path, content, "a INT", ignoreNamespace=True, rowValidationXSDPath=schema.as_uri()
    )
    assert [row["a"] for row in rows] == [1, None]


def test_a_schema_that_is_none_is_told(tmp_path):
    with pytest.raises(OptionError, match=r"rowValidationXSDPath='/nowhere\.xsd' is no file"):
        reader("a INT", rowValidationXSDPath="/nowhere.xsd")
    odd = tmp_path / "odd.xsd"
    odd.write_text("<nothing/>")
    with pytest.raises(OptionError, match="is no XML schema"):
        reader("a INT", rowValidationXSDPath=str(odd))


@pytest.mark.parametrize("ddl", ["a ARRAY<ARRAY<INT>>", "a MAP<INT, INT>"])
def test_types_that_xml_cannot_have_are_refused(ddl):
    with pytest.raises(IncompatibleSchemaError):
        reader(ddl)


def test_the_corrupt_record_column_is_a_string():
    with pytest.raises(IncompatibleSchemaError, match="must be a string"):
        reader("a INT, _corrupt_record INT")


def test_patterns_and_zones(tmp_path):
    content = (
        "<r><row><d>31.01.2024</d><t>31/01/2024 08:00</t></row><row><d>2024-01-31</d></row></r>"
    )
    rows, _ = read(
        tmp_path, content, "d DATE, t TIMESTAMP", dateFormat="dd.MM.yyyy",
        timestampFormat="dd/MM/yyyy HH:mm", timeZone="Europe/Paris",
    )  # fmt: skip
    assert str(rows[0]["d"]) == "2024-01-31"
    assert rows[0]["t"].isoformat() == "2024-01-31T07:00:00+00:00"
    assert rescued(rows[1]) == {"d": "2024-01-31"}


def test_whole_rows_in_one_variant_column(tmp_path):
    schema = StructType(
        [StructField("v", VariantType()), StructField("_corrupt_record", StringType())]
    )
    content = '<r><row id="7"><a>1.50</a><a>x</a><n/></row><row><a></row><row/></r>'
    found = reader(schema, singleVariantColumn="v")
    rows = rows_of(written(tmp_path, content), found)
    variants = [row["v"] and VariantVal(**row["v"]).toJson() for row in rows]
    assert variants == ['{"_id":7,"a":[1.50,"x"],"n":null}', None, "null"]
    assert [row["_corrupt_record"] for row in rows] == [None, "<row><a></row>", None]
    with pytest.raises(IncompatibleSchemaError, match="singleVariantColumn names 'v'"):
        reader("a INT", singleVariantColumn="v")
