"""Which columns and types CSV files show."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import NullType

from airflow_cloudfiles.engine.errors import FileUnreadableError, OptionError
from airflow_cloudfiles.engine.formats.csv.infer import StringTypeFinder
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from tests.support.formats.csv_files import inferred, written

TEXTS = [
    "1", "-5", "+3", "2147483648", "9223372036854775808", "1" * 38, "1" * 39, "1.5", "1.", "1e5",
    "1e400", "NaN", "Inf", "0x1p3", "2024-01-31", "2024-1-31", "2024", "2024-01-31T12:30:59Z",
    "true", "False", "x", "12:30:59", "", " 1", "1,234",
]  # fmt: skip


def test_columns_are_the_header_and_strings(tmp_path: Path) -> None:  # B7
    file = written(tmp_path, "id,price,day\n1,2.5,2024-01-31\n")
    assert inferred(file) == {"id": "string", "price": "string", "day": "string"}


def test_a_file_without_header_is_said_to_have_none(tmp_path: Path) -> None:  # B8
    file = written(tmp_path, "1,2\n3\n4,5,6\n")
    assert inferred(file) == {"1": "string", "2": "string"}
    assert inferred(file, header=False) == dict.fromkeys(["_c0", "_c1", "_c2"], "string")
    assert inferred(file, header=False, typed=True) == dict.fromkeys(["_c0", "_c1", "_c2"], "int")


def test_files_are_merged_in_the_order_of_appearance(tmp_path: Path) -> None:  # B9
    first = written(tmp_path, "a,b\n1,x\n", "1.csv")
    second = written(tmp_path, "c,a\ntrue,2.5\n", "2.csv")
    assert inferred(first, second) == {"a": "string", "b": "string", "c": "string"}
    found = inferred(first, second, typed=True)
    assert found == {"a": "double", "b": "string", "c": "boolean"}


def test_names_are_one_column_whatever_their_case(tmp_path: Path) -> None:  # B15
    first = written(tmp_path, "Foo\n1\n", "1.csv")
    second = written(tmp_path, "FOO\n3000000000\n", "2.csv")
    assert inferred(first, second, typed=True) == {"Foo": "bigint"}


def test_names_are_made_up_where_they_are_missing_or_come_twice(tmp_path: Path) -> None:
    file = written(tmp_path, ",a,A,b\n1,2,3,4\n")
    assert list(inferred(file)) == ["_c0", "a1", "A2", "b"]  # B79, and Spark's numbers


def test_every_type_and_what_they_merge_to(tmp_path: Path) -> None:
    columns = {
        "int": ["1", "", "-2"],
        "bigint": ["1", "2147483648"],
        "decimal(20,0)": ["1", "12345678901234567890"],
        "double": ["1", "2.5", "NaN", "1e400"],
        "date": ["2024-01-31", "0001-01-01"],
        "timestamp": ["2024-01-31", "2024-01-31T12:30:59Z"],
        "boolean": ["true", "FALSE"],
        "string": ["1", "true"],
        "string (nanoseconds)": ["2024-01-31T12:30:59.123456789Z", ""],
        "void": ["", '""'],
    }
    lines = [",".join(f"[{kind.split('(')[0]}]" for kind in columns)]
    lines += [",".join(texts[row % len(texts)] for texts in columns.values()) for row in range(300)]
    found = inferred(written(tmp_path, "\n".join(lines)), typed=True)
    assert list(found.values()) == [kind.removesuffix(" (nanoseconds)") for kind in columns]


def test_what_comes_late_counts(tmp_path: Path) -> None:
    for late, kind in [("x", "string"), ("2.5", "double"), ("3000000000", "bigint")]:
        text = "a\n" + "1\n" * 5000 + f'"{late}"\n' + "1\n" * 10
        assert inferred(written(tmp_path, text), typed=True) == {"a": kind}
        odd = "a,b\n" + "1,1\n" * 500 + f'{late},x"y"\n'
        assert inferred(written(tmp_path, odd), typed=True)["a"] == kind


def test_ragged_and_broken_records_teach_what_they_hold(tmp_path: Path) -> None:
    file = written(tmp_path, b"a,b\n1\n2,3,4\n\xff,\xff\n5,2.5\n")
    assert inferred(file, typed=True) == {"a": "int", "b": "double"}


def test_what_is_known_stays_and_is_not_looked_at(tmp_path: Path) -> None:
    file = written(tmp_path, "A,b,c\nx,1,2.5\n")
    found = inferred(file, typed=True, known="a INT, z DATE")
    assert found == {"a": "int", "z": "date", "b": "int", "c": "double"}


def test_numbers_are_written_as_the_language_has_them(tmp_path: Path) -> None:
    file = written(tmp_path, "a;b\n1.234;1,234\n")
    assert inferred(file, typed=True, sep=";") == {"a": "double", "b": "string"}
    found = inferred(file, typed=True, sep=";", locale="de-DE")
    assert found == {"a": "decimal(4,0)", "b": "string"}


def test_empty_files_and_headers_alone(tmp_path: Path) -> None:
    assert inferred(written(tmp_path, "")) == {}
    assert inferred(written(tmp_path, "\n \n")) == {}
    assert inferred(written(tmp_path, "a,b\n"), typed=True) == {"a": "void", "b": "void"}
    with pytest.raises(FileUnreadableError, match="the header cannot be read"):
        inferred(written(tmp_path, b"a,\xff\n1,2\n"))


def test_dates_can_be_timestamps_or_follow_a_pattern(tmp_path: Path) -> None:
    file = written(tmp_path, "d,t\n2024-01-31,31/01/2024\n")
    assert inferred(file, typed=True, preferDate=False)["d"] == "timestamp"
    assert inferred(file, typed=True, dateFormat="dd/MM/yyyy")["t"] == "date"
    mixed = written(tmp_path, "d\n2024-01-31\n2024-01-31 12:30\n")
    assert inferred(mixed, typed=True) == {"d": "timestamp"}
    assert inferred(mixed, typed=True, timestampFormat="yyyy-MM-dd HH:mm") == {"d": "string"}
    with pytest.raises(OptionError, match="timeZone"):
        inferred(file, typed=True, timeZone="Mars/X")


@pytest.mark.law
@given(st.lists(st.sampled_from(TEXTS), max_size=250), st.randoms())
def test_the_type_does_not_depend_on_the_order_or_the_pieces(texts, generator) -> None:
    finder = StringTypeFinder(CsvOptions())
    one_by_one = NullType()
    for text in filter(None, texts):
        one_by_one = finder.merge(one_by_one, finder.of_one(text))
    generator.shuffle(texts)
    cut = generator.randrange(len(texts) + 1)
    found = NullType()
    for piece in (texts[:cut], texts[cut:]):
        found = finder.of(pa.array(piece, pa.string()), found)
    assert found == one_by_one
