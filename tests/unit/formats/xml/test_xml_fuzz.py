"""Whatever a file holds: rows or an error of ours, no record lost, no end of time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import CloudFilesError
from tests.support.formats.xml_files import inferred, reader, rows_of, table_of, written
from tests.support.laws import examples
from tests.unit.formats.xml.test_xml_law import SCHEMA, document

PIECES = [
    b"<", b">", b"&", b"</row>", b"<row>", b"<row ", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?",
    b"?>", b"<!DOCTYPE r [", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbf\xbf", b"&#0;",
    b"&#xFFFFFFFF;", b"'", b'"', b"/>", b"=", b"9" * 400, b"1e999999999", b"\r", b"<a " * 50,
]  # fmt: skip


def _damaged(generator: random.Random, data: bytes) -> bytes:
    """The same file, with some of it changed."""
    changed = bytearray(data)
    for _ in range(generator.randrange(1, 6)):
        place = generator.randrange(len(changed))
        way = generator.randrange(4)
        if way == 0:
            changed[place] = generator.randrange(256)
        elif way == 1:
            del changed[place : place + generator.randrange(60)]
        elif way == 2:
            changed[place:place] = generator.choice(PIECES)
        else:
            changed[place:place] = changed[place : place + generator.randrange(200)]
    return bytes(changed[: generator.randrange(len(changed))] if not place % 9 else changed)


@pytest.mark.law
@given(seed=st.integers(0, 2**40))
@settings(max_examples=examples(150))
def test_damaged_files_give_rows_or_an_error_of_ours(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("fuzz", numbered=True)
    generator = random.Random(seed)
    schema = StructType(generator.sample(SCHEMA.fields, 4))
    data = _damaged(generator, document(seed, schema, 30)[1])
    file = written(folder, data)
    found = reader(schema)
    try:
        rows = table_of(file, found).to_pylist()
        thorough = table_of(file, reader(schema, is_thorough=True)).to_pylist()
        inferred(file, typed=True)
    except CloudFilesError:
        return
    assert found.counts.rows == len(rows)
    assert repr(rows) == repr(thorough)


@pytest.mark.law
@given(seed=st.integers(0, 2**40))
@settings(max_examples=examples(60))
def test_rows_that_are_not_touched_are_not_lost(tmp_path_factory, seed):
    """One row is damaged inside; all others are read as ever."""
    folder = tmp_path_factory.mktemp("one", numbered=True)
    generator = random.Random(seed)
    rows = [f"<row><n>{n}</n><a>{'x' * generator.randrange(9)}</a></row>" for n in range(40)]
    victim = generator.randrange(40)
    inner = rows[victim][5:-6]
    place = generator.randrange(len(inner))
    wrong = generator.choice(["<", "&", "</b>", "<b>", "<row>", "\x00", "<a", "]]>", "<!--"])
    rows[victim] = f"<row>{inner[:place]}{wrong}{inner[place:]}</row>"
    file = written(folder, f"<r>{''.join(rows)}</r>")
    found = reader("n INT, a STRING, _corrupt_record STRING")
    numbers = [row["n"] for row in rows_of(file, found)]
    expected = set(range(40)) - {victim}
    if wrong == "<row>":
        expected = set(range(victim))  # balanced by an end behind it, or cut: see xml_rows
    assert expected <= set(numbers)


@pytest.mark.parametrize("depth", [150, 250, 100_000])
def test_deeply_nested(tmp_path, depth):
    content = f"<r><row>{'<a>' * depth}x{'</a>' * depth}</row><row><b>1</b></row></r>"
    rows = rows_of(written(tmp_path, content), reader("b INT, _corrupt_record STRING"))
    assert [row["b"] for row in rows] == [None, 1]
    assert (rows[0]["_corrupt_record"] is None) == (depth < 200)
    assert (rows[0]["_rescued_data"] is None) == (depth > 200)
    inferred(written(tmp_path, content))


@pytest.mark.law
def test_ten_thousand_columns(tmp_path):
    names = [f"c{n}" for n in range(10_000)]
    row = "".join(f"<{name}>1</{name}>" for name in names)
    file = written(tmp_path, f"<r><row>{row}</row><row>{row}</row></r>")
    schema = inferred(file)
    assert schema.names == names
    for row_read in rows_of(file, reader(schema)):
        assert set(row_read.values()) == {"1", None}
    rescued = rows_of(file, reader("c0 INT"))
    assert rescued[0]["_rescued_data"].count(":") > 9999


def test_names_that_are_data(tmp_path):
    rows = "".join(f'<row><n{n} id{n}="{n}">x</n{n}><a>{n}</a></row>' for n in range(3000))
    file = written(tmp_path, f"<r>{rows}</r>")
    found = rows_of(file, reader("a INT"))
    assert [row["a"] for row in found] == list(range(3000))
    assert all(row["_rescued_data"] for row in found)


@pytest.mark.law
def test_many_cut_rows_take_no_quadratic_time(tmp_path):
    rows = "<row><a>cut" * 20_000
    found = reader("a INT, _corrupt_record STRING")
    assert len(rows_of(written(tmp_path, f"<r>{rows}</r>"), found)) == 20_000
    assert found.counts.corrupt_records == 20_000
    comments = "<row><a><!-- </a></row>" * 5000
    found = reader("a INT, _corrupt_record STRING")
    assert len(rows_of(written(tmp_path, f"<r>{comments}</r>"), found)) == 5000
