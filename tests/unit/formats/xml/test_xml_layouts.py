"""Rows that have the markup of another row are what they are alone."""

from __future__ import annotations

import json
import random
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.formats.xml import columns
from airflow_cloudfiles.engine.formats.xml.columns import MOST_PIECES
from airflow_cloudfiles.engine.formats.xml.explain import XmlExplainer
from tests.support.formats.xml_files import reader, table_of, written
from tests.support.laws import examples
from tests.unit.formats.xml.test_xml_law import ATTRIBUTES, NAMES, SCHEMA, TEXTS

RAW = [
    "<", ">", "<b>1</b>", "</a>", "<!-- c -->", "<![CDATA[<a>]]>", "<?p?>", '"', "'", '" x="1',
    '">', "' id='2", "]]>", "&", "&amp;", "&#32;7", "&#0;", "\x00", "\t", "\n ", "\ufffe", "\uff21",
    "</row>", "<row>", "</row><row>", "/>", " 7 ", "=",
]  # fmt: skip
SLOT = "\x01"


def markup(generator: random.Random, name: str, depth: int = 0) -> str:
    """An element with a slot for each value."""
    quote = generator.choice('"""\'')
    names = generator.sample(ATTRIBUTES, generator.choice([0, 0, 0, 1, 2]))
    start = name + "".join(f" {each}={quote}{SLOT}{quote}" for each in names)
    if depth and generator.random() < 0.1:
        return f"<{start}/>"
    space = generator.choice(["", "", "\n    "])
    inside = SLOT
    if depth < 3 and generator.random() < (0.95, 0.2, 0.1)[depth]:
        children = generator.choices(NAMES, k=generator.randrange(5))
        inside = space.join(["", *(markup(generator, each, depth + 1) for each in children), ""])
    return f"<{start}>{inside}</{name}>"


def filled(generator: random.Random, layout: str, raw: float) -> str:
    """A row of a layout: one in so many values is put in as it is."""
    parts = layout.split(SLOT)
    values = [
        generator.choice(RAW)
        if generator.random() < raw
        else escape(generator.choice(TEXTS), {'"': "&quot;", "'": "&apos;"})
        for _ in parts[1:]
    ]
    return parts[0] + "".join(value + part for value, part in zip(values, parts[1:], strict=True))


@pytest.mark.law
@given(seed=st.integers(0, 2**40))
@settings(max_examples=examples(400))
def test_rows_of_few_layouts_are_those_that_are_explained(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("layouts", numbered=True)
    generator = random.Random(seed)
    schema = StructType(generator.sample(SCHEMA.fields, 6))
    layouts = [markup(generator, "row") for _ in range(generator.randrange(1, 5))]
    raw = generator.choice([0.0, 0.0, 0.02, 0.2])
    rows = [filled(generator, generator.choice(layouts), raw) for _ in range(60)]
    between = generator.choice(["", "\n", "<other a='1'>x</other>"])
    end = generator.choice(["", "\n</rows>\n"])
    file = written(folder, f"<rows>{between.join(rows)}{end}")
    given = {
        "ignoreSurroundingSpaces": generator.choice(["true", "false"]),
        "evolution": generator.choice(["rescue", "rescue", "none"]),
        "mode": generator.choice(["PERMISSIVE", "DROPMALFORMED"]),
        "readerCaseSensitive": generator.choice(["true", "false"]),
        "excludeAttribute": generator.choice(["false", "false", "true"]),
        "ignoreNamespace": generator.choice(["false", "false", "true"]),
        "nullValue": generator.choice(["null", "0"]),
    }
    found = [
        table_of(file, reader(schema, is_thorough=is_thorough, **given))
        for is_thorough in (False, True)
    ]
    assert repr(found[0].to_pylist()) == repr(found[1].to_pylist())


@pytest.mark.parametrize(
    "other",
    [
        '<row><n a="1>2</n><n a=">3</n></row>',
        '<row><n a="1>2">3</n></row>',
        '<row><n a="1" >2</n></row>',
        "<row><n a='1'>2</n></row>",
        '<row><n a="1">"2"</n></row>',
        '<row><n a="1"></n></row>',
        '<row>x<n a="1">2</n></row>',
        '<row><n a="1">2</n> </row>',
        '<row><n a="1">2</n>x</row>',
        '<row><m a="1">2</m></row>',
        '<row><n a="1">2</n></row >',
        '<row><n a="<">2</n></row>',
        '<row><n a="1" b="2">2</n></row>',
        '<row><n a="&quot;>">2</n></row>',
        '<row><n a="\n1"> 2\n</n></row>',
        '<row><n a="1>2</n></row><row>"><n a="1">2</n></row>',
        '<row><n a="1"/>2</n></row>',
    ],
)
def test_a_row_that_is_nearly_of_a_layout_is_read_as_what_it_is(tmp_path, other):
    rows = [f'<row><n a="{n}">{n}</n></row>' for n in range(20)]
    rows.insert(7, other)
    file = written(tmp_path, f"<r>{''.join(rows)}")
    ddl = "n STRUCT<_a: STRING, _VALUE: STRING>, _corrupt_record STRING"
    found = table_of(file, reader(ddl))
    assert found.equals(table_of(file, reader(ddl, is_thorough=True)))
    values = found["n"].to_pylist()
    assert values[:7] + values[-13:] == [{"_a": str(n), "_VALUE": str(n)} for n in range(20)]


@pytest.mark.parametrize("others", ["measurement", "measurement_of_a_long_name"])
@pytest.mark.parametrize("name", ["measuremens", "measurement_of_a_long_nams", "measure", "m"])
def test_names_are_compared_to_their_last_letter(tmp_path, name, others):
    rows = [f"<row><{each}>7</{each}></row>" for each in [others] * 5 + [name] + [others] * 5]
    file = written(tmp_path, f"<r>{''.join(rows)}</r>")
    found = table_of(file, reader(f"{others} INT, {name} INT"))
    assert found[others].to_pylist() == [7] * 5 + [None] + [7] * 5
    assert found[name].to_pylist() == [None] * 5 + [7] + [None] * 5


@pytest.mark.parametrize("row", ['<row a="{0}"/>', "<row a='{0}' />", '<row a="{0}"></row>'])
def test_the_last_row_may_be_the_end_of_the_file(tmp_path, row):
    file = written(tmp_path, "".join(row.format(n) for n in range(9)))
    assert table_of(file, reader("_a INT"))["_a"].to_pylist() == list(range(9))


def test_a_layout_is_understood_once_for_all_blocks(tmp_path, monkeypatch):
    """Of rows that are alike, one is taken apart, not one of each block."""
    monkeypatch.setattr("airflow_cloudfiles.engine.formats.xml.rows.CHUNK_BYTES", 4096)
    taken_apart = []
    find_elements = columns.find_elements

    def counted(pieces, meanings):
        taken_apart.append(len(pieces.taken))
        return find_elements(pieces, meanings)

    monkeypatch.setattr(columns, "find_elements", counted)
    short, long = "<row><n>{0}</n></row>", "<row><n>{0}</n><t>{0}</t></row>"
    rows = [(short, long)[n % 2].format(n) for n in range(2000)]
    found = reader("n INT, t STRING")
    blocks = list(found.read_file(written(tmp_path, f"<r>{''.join(rows)}</r>")))
    assert len(blocks) > 5
    assert [n for block in blocks for n in block["n"].to_pylist()] == list(range(2000))
    assert taken_apart == [1, 1]


@pytest.mark.parametrize("value", ["&", "&x;", "&#0;", "&amp", "a & b;", "&#x110000;"])
@pytest.mark.parametrize(
    "row", ['<row k="{0}"><n>{1}</n></row>', "<row><n>{1}</n><x>{0}</x></row>"]
)
def test_a_value_that_nobody_takes_must_be_xml_all_the_same(tmp_path, row, value):
    rows = [row.format("1 &lt; 2" if n != 3 else value, n) for n in range(6)]
    file = written(tmp_path, f"<r>{''.join(rows)}</r>")
    given = {"evolution": "none", "excludeAttribute": "true"}
    found = table_of(file, reader("n INT, _corrupt_record STRING", **given))
    assert found["n"].to_pylist() == [0, 1, 2, None, 4, 5]
    assert found["_corrupt_record"].to_pylist() == [None] * 3 + [rows[3]] + [None] * 2


def test_rows_with_rescued_values_are_read_at_once(tmp_path, monkeypatch):
    """Not one by one: neither for a column that takes no value, nor for a field nobody knows."""
    explained = []
    monkeypatch.setattr(XmlExplainer, "explain", lambda _, node: explained.append(node))
    rows = [f"<row><n>{n}</n><t>'{n}\" é&amp;</t><x> {n} </x><b/></row>" for n in range(50)]
    file = written(tmp_path, f"<r>{''.join(rows)}</r>")
    found = reader("n INT, t INT")
    table = table_of(file, found)
    assert explained == []
    assert table["n"].to_pylist() == list(range(50))
    assert table["t"].to_pylist() == [None] * 50
    assert [json.loads(each) for each in table["_rescued_data"].to_pylist()] == [
        {"t": f"'{n}\" é&", "b": "", "x": str(n), "_file_path": file.uri} for n in range(50)
    ]
    assert found.counts.rescued_rows == 50


def test_a_row_of_many_pieces_makes_no_layout(tmp_path, monkeypatch):
    """It is read by columns, whose cost grows with its bytes alone."""
    made = []
    monkeypatch.setattr(columns, "Layout", lambda *_, **__: made.append(1))
    row = f"<row>{'<n>7</n>' * (MOST_PIECES // 2)}</row>"
    file = written(tmp_path, f"<r>{row * 4}</r>")
    assert table_of(file, reader("n ARRAY<INT>"))["n"].to_pylist() == [[7] * (MOST_PIECES // 2)] * 4
    assert made == []
