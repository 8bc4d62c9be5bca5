"""What is looked for in whole blocks at once is what is found row by row and value by value."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.formats.xml.rows import RowScanner
from tests.support.formats.xml_files import reader, rows_of, table_of, written
from tests.support.laws import examples

NUMBERS = [
    "7", "-7", "+7", "007", "-0", "0x1F", "0X1f", "-0x1", "1_000", "٣", "127", "128", "32768",
    "2147483648", "999999999999999999", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "5.", ".5", "-.5", "+.5", ".", "+", "--5",
    "1,2", "5/2", "1e5", "1E+5", "1e", "1e400", "9" * 400, "0" * 400 + "5", "5f", "nan", "NaN",
    "inf", "-Infinity", "\x7f",
]  # fmt: skip
FRAGMENTS = [
    "<row>", "</row>", "<row a='1'>", '<row a="1" >', "<row/>", "<row />", "<row a='1'/>",
    "</row >", "</row\n>", "<row\n>", "<rows>", "</rows>", "<row_id>1</row_id>", "<ro>", "</ro>",
    "<x:row>", "</x:row>", "<x:row/>", "<row", "</row", "<", ">", "x", " ", "<b/>", "/>",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "FLOAT"])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_the_same_among_numbers_among_words_and_alone(tmp_path, kind, number):
    row = f"<row><n>{number}</n></row>"
    ways = [
        (f"<r>{row}</r>", False),
        (f"<r>{row}<row><n>1</n></row></r>", False),
        (f"<r>{row}<row><n>word</n></row></r>", False),
        (f"<r>{row}</r>", True),
    ]
    found = []
    for content, is_thorough in ways:
        file = written(tmp_path, content)
        found.append(repr(rows_of(file, reader(f"n {kind}", is_thorough=is_thorough))[0]))
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    "row",
    [
        '<row k="it\'s"><n>1</n></row>',
        "<row k='say \"a\"'><n>1</n></row>",
        "<row k='1'><n>it's</n></row>",
        '<row><n>it\'s "1"</n></row>',
        '<row k="="><n>=\'</n></row>',
        "<row><n>]]</n></row>",
        "<row><n>]]></n></row>",
        "<row><n>\ufffd\uffff</n></row>",
        "<row><n>\ufffe</n></row>",
        "<row><n>\uff21</n></row>",
        "<row><n>a\tb\n</n></row>",
        "<row><n>\x0b</n></row>",
        "<row><n> \u00a0x\t</n></row>",
        "<row><n>&#32;x&#9;</n></row>",
    ],
)
def test_quotes_spaces_and_what_xml_has_not_are_the_same_in_blocks(tmp_path, row):
    file = written(tmp_path, f"<r><row><n>1</n></row>{row}<row><n>2</n></row></r>")
    ddl = "_k STRING, n STRING, _corrupt_record STRING"
    found = table_of(file, reader(ddl)).to_pylist()
    assert found == table_of(file, reader(ddl, is_thorough=True)).to_pylist()
    assert [each["n"] for each in found][::2] == ["1", "2"]


@pytest.mark.law
@pytest.mark.law
@given(parts=st.lists(st.sampled_from(FRAGMENTS), max_size=12), ignore_namespace=st.booleans())
@example(parts=["<row/>", "</row>"], ignore_namespace=False)
@example(parts=["<row a='1'/>", "x", "</row>"], ignore_namespace=False)
@example(parts=["<row>", "</row >", "<row>", "</row>"], ignore_namespace=False)
@example(parts=["</row >", "<row>", "</row>"], ignore_namespace=False)
@example(parts=["<x:row>", "</x:row>", "<row>", "</row>"], ignore_namespace=True)
@example(parts=["<x:row>", "</x:row>", "<x:row/>", "</x:row>"], ignore_namespace=True)
@settings(max_examples=examples(300))
def test_rows_are_those_that_a_search_tag_by_tag_finds(tmp_path_factory, parts, ignore_namespace):
    """Where there is a comment, tags are looked for one by one."""
    folder = tmp_path_factory.mktemp("rows", numbered=True)
    scanner = RowScanner("row", ignore_namespace=ignore_namespace)
    found = []
    for comment in ("", "<!-- -->"):
        file = written(folder, "<r><row>1</row>" + "".join(parts) + comment)
        rows = [(text, part.broken.get(n)) for part in scanner.rows(file, None)
                for n, text in enumerate(part.texts)]  # fmt: skip
        found.append(
            [(text.removesuffix(comment.encode()).strip(), reason) for text, reason in rows]
        )
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.law
def test_start_tags_without_an_end_take_no_quadratic_time(tmp_path):
    file = written(tmp_path, "<r>" + "<row a" * 50_000)
    found = reader("a INT, _corrupt_record STRING")
    assert sum(batch.num_rows for batch in found.read_file(file)) == 50_000
