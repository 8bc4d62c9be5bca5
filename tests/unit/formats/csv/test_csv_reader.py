"""What a CSV record becomes: its row, its rescued data, or its error."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import (
    CorruptRecordError,
    FileUnreadableError,
    IncompatibleSchemaError,
    OptionError,
)
from airflow_cloudfiles.engine.formats.base import ENOUGH_RECORDS, UnknownFields
from airflow_cloudfiles.engine.formats.csv.columns import PlainReader
from airflow_cloudfiles.engine.formats.csv.lines import Tokenizer
from airflow_cloudfiles.engine.formats.csv.reader import CsvReader
from tests.support.formats.csv_files import options, reader, rows_of, written

Read = Any


@pytest.fixture(params=[False, True], ids=["fast", "thorough"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Read:
    """Read a text; the rows by column, rescued data parsed without its path."""

    def read(content: str | bytes, ddl: str, **others: Any) -> list[dict[str, Any]]:
        found = reader(ddl, is_thorough=request.param, **others)
        file = written(tmp_path, content)
        rows = rows_of(file, found)
        read.reader = found
        for row in rows:
            if row.get("_rescued_data") is not None:
                row["_rescued_data"] = json.loads(row["_rescued_data"])
                path = row["_rescued_data"].popitem()
                assert path == ("_file_path", file.uri)  # B80: it comes last
        return rows

    return read


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]


def test_a_value_that_does_not_fit_is_null_and_rescued_as_it_stands(tmp_path: Path) -> None:
    file = written(tmp_path, "name,price\nx,$100.00\ny,7.5\n")
    first, second = rows_of(file, reader("name STRING, price DOUBLE"))
    # B69
    assert first["price"] is None
    assert first["_rescued_data"] == f'{{"price":"$100.00","_file_path":"{file.uri}"}}'
    # B70
    assert second == {"name": "y", "price": 7.5, "_rescued_data": None}


def test_columns_are_found_by_name_wherever_they_stand(read: Read) -> None:
    rows = read("b,a\n1,2\n", "a INT, b INT, c INT")
    assert rows == [{"a": 2, "b": 1, "c": None, "_rescued_data": None}]


def test_another_case_is_rescued_or_read(read: Read) -> None:
    (row,) = read("Foo,bar\n1,2\n", "foo STRING, bar STRING")
    assert values([row]) == [(None, "2", {"Foo": "1"})]  # B71, B73
    (row,) = read("Foo,bar\n1,2\n", "foo STRING, bar STRING", readerCaseSensitive=False)
    assert values([row]) == [("1", "2", None)]  # B72


def test_a_column_without_a_name_is_rescued_by_its_position(read: Read) -> None:
    rows = read(",b\n1,2\n", "b INT")
    assert values(rows) == [(2, {"_c0": "1"})]  # B79


def test_unknown_columns_are_rescued_dropped_or_told(read: Read) -> None:
    text = "a,new,b\n1,2,3\n4,,6\n"
    assert values(read(text, "a INT, b INT")) == [(1, 3, {"new": "2"}), (4, 6, None)]  # B54
    assert values(read(text, "a INT, b INT", given=True, header=True)) == [(1, 3), (4, 6)]  # B55
    kept = read(text, "a INT, b INT", given=True, header=True, rescuedDataColumn="_rescued_data")
    assert values(kept)[0] == (1, 3, {"new": "2"})
    for mode in ("addNewColumns", "failOnNewColumns", "addNewColumnsWithTypeWidening"):
        with pytest.raises(UnknownFields) as raised:
            read(text, "a INT, b INT", evolution=mode)
        assert raised.value.fields == {"new": "2"}
        assert raised.value.file_uri.endswith("/f.csv")


def test_new_columns_are_told_also_behind_a_broken_record(read: Read) -> None:
    with pytest.raises(UnknownFields) as raised:
        read(b"a,new\n\xff,1\n2,3\n", "a INT", evolution="addNewColumns")
    assert raised.value.fields == {"new": "3"}


def test_a_header_alone_tells_of_nothing_new(read: Read) -> None:
    assert read("a,new\n", "a INT", evolution="addNewColumns") == []
    assert read("", "a INT") == []
    assert read("\n\n", "a INT") == []


def test_names_of_special_columns_are_never_new(read: Read) -> None:
    rows = read("a,_corrupt_record,_rescued_data\n1,x,y\n", "a INT", evolution="addNewColumns")
    assert values(rows) == [(1, {"_corrupt_record": "x", "_rescued_data": "y"})]


def test_names_that_come_twice_are_numbered_as_in_spark(read: Read) -> None:
    rows = read("a,A,b\n1,2,3\n", "a0 INT, A1 INT, b INT")
    assert values(rows) == [(1, 2, 3, None)]


def test_a_file_without_header_is_read_by_position(read: Read) -> None:
    # B8: `_c0` and so on, also for values that are too many.
    rows = read("1,2\n3\n4,5,6\n", "_c0 INT, _c1 INT", header=False)
    assert values(rows) == [(1, 2, None), (3, None, None), (4, 5, {"_c2": "6"})]
    with pytest.raises(UnknownFields) as raised:
        read("1,2\n4,5,6\n", "_c0 INT, _c1 INT", header=False, evolution="addNewColumns")
    assert raised.value.fields == {"_c2": "6"}
    # A given schema names the columns, and there is no header unless it is said.
    assert values(read("1,2\n3,4\n", "x INT, y INT", given=True)) == [(1, 2), (3, 4)]


def test_wide_records_of_a_file_without_header_are_rescued_whole(read: Read) -> None:
    rows = read("1,2,3,4\n5,6,7,8\n9\n", "_c0 INT, _c2 INT", header=False)
    assert values(rows) == [
        (1, 3, {"_c1": "2", "_c3": "4"}),
        (5, 7, {"_c1": "6", "_c3": "8"}),
        (9, None, None),
    ]


RAGGED = "a,b\n1,2\n3\n4,5,6\nx,7\n8,9\n"


def test_ragged_records_are_filled_up_and_their_values_kept(read: Read) -> None:
    rows = read(RAGGED, "a INT, b INT, _corrupt_record STRING")
    # As in Spark, and what Spark drops is rescued.
    assert values(rows) == [
        (1, 2, None, None),
        (3, None, "3", None),
        (4, 5, "4,5,6", {"_c2": "6"}),
        (None, 7, None, {"a": "x"}),
        (8, 9, None, None),
    ]
    assert (read.reader.counts.rows, read.reader.counts.corrupt_records) == (5, 2)
    assert read.reader.counts.rescued_rows == 2


def test_modes_are_about_records_that_are_not_valid(read: Read) -> None:
    # B74, B75: with rescued data a value that does not fit drops no row and fails nothing.
    rows = read(RAGGED, "a INT, b INT", mode="DROPMALFORMED")
    assert values(rows) == [(1, 2, None), (None, 7, {"a": "x"}), (8, 9, None)]
    assert read.reader.counts.dropped_records == read.reader.counts.corrupt_records == 2
    with pytest.raises(
        CorruptRecordError, match=r"(?m)f\.csv: .*1 values instead of 2.* begins: 3$"
    ):
        read(RAGGED, "a INT, b INT", mode="FAILFAST")
    assert values(read("a\nx\n", "a INT", mode="FAILFAST")) == [(None, {"a": "x"})]


def test_without_rescued_data_a_misfit_makes_a_bad_record_as_in_spark(read: Read) -> None:
    given: dict[str, Any] = {"given": True, "header": True}
    rows = read(RAGGED, "a INT, _corrupt_record STRING, b INT", **given)
    assert values(rows)[3] == (None, "x,7", 7)
    assert values(read(RAGGED, "a INT, b INT", mode="DROPMALFORMED", **given)) == [(1, 2), (8, 9)]
    assert read.reader.counts.dropped_records == 3
    with pytest.raises(CorruptRecordError, match="a value does not fit its column"):
        read("a\nx\n", "a INT", mode="FAILFAST", **given)
    assert values(read("a,b\n1,2,3\nx,1\n", "a INT, b INT", **given)) == [(1, 2), (None, 1)]


def test_bad_records_path_takes_records_that_are_not_valid(read: Read) -> None:
    # B76: whatever the mode, and no values that do not fit.
    rows = read(RAGGED, "a INT, b INT", badRecordsPath="/bad", mode="FAILFAST")
    assert values(rows) == [(1, 2, None), (None, 7, {"a": "x"}), (8, 9, None)]
    assert [(each.record, each.reason) for each in read.reader.bad_records] == [
        ("3", "1 values instead of 2"),
        ("4,5,6", "3 values instead of 2"),
    ]
    assert read.reader.counts.dropped_records == read.reader.counts.corrupt_records == 2


def test_bytes_that_are_no_text_are_a_corrupt_record(read: Read) -> None:
    text = b"a,b\n1,2\n3,\xff\n4,5\n"
    rows = read(text, "a INT, b STRING, _corrupt_record STRING")
    assert values(rows)[1] == (None, None, "3,\\xff", None)  # B78
    rows = read(text, "a INT, b STRING")
    assert values(rows)[1] == (None, None, {"_corrupt_record": "3,\\xff"})
    with pytest.raises(CorruptRecordError, match="not UTF-8"):
        read(text, "a INT, b STRING", mode="FAILFAST")


def test_line_ends_marks_and_blank_lines(read: Read) -> None:
    for text in (
        "a,b\r\n1,2\r\n\r\n3,4\r\n",
        "a,b\r1,2\r3,4",
        "\ufeffa,b\n1,2\n \t \n3,4",
        "\n\na,b\n1,2\n3,4\n\n",
    ):
        assert values(read(text, "a INT, b INT")) == [(1, 2, None), (3, 4, None)], text
    assert values(read("a,b;1,2;3,4;", "a INT, b INT", lineSep=";"))[1] == (3, 4, None)
    assert values(read("a,b;1,x\ny;", "a INT, b STRING", lineSep=";")) == [(1, "x\ny", None)]
    assert values(read("a,b\n1,x\r\n", "a INT, b STRING", lineSep="\n")) == [(1, "x\r", None)]
    assert values(read("a,b||1,2||3,4", "a INT, b INT", lineSep="||"))[1] == (3, 4, None)


def test_a_byte_order_mark_inside_a_file_is_text(read: Read, tmp_path: Path) -> None:
    assert values(read("a\nx\n\ufeffy\n", "a STRING")) == [("x", None), ("\ufeffy", None)]
    file = written(tmp_path, "a\nx\n\ufeffy\n")
    (batch,) = reader("a STRING").read_file(file, 4, file.entry.size)
    assert batch.column("a").to_pylist() == ["\ufeffy"]


def test_comments_and_skipped_rows_come_before_the_header(read: Read) -> None:
    text = 'made by "x\n# day\n\na,b\n# no\n1,2\n'
    rows = read(text, "a INT, b INT", skipRows=1, comment="#")
    assert values(rows) == [(1, 2, None)]
    rows = read(text, "a INT, b INT", skipRows=1, comment="#", multiLine=True)
    assert values(rows) == [(1, 2, None)]
    assert read("a\n", "a INT", skipRows=5) == []


def test_other_encodings(read: Read) -> None:
    for encoding in ("UTF-16", "UTF-16LE", "ISO-8859-1", "windows-1252"):
        text = "a,b\n1,é\n".encode(encoding)
        assert values(read(text, "a INT, b STRING", encoding=encoding)) == [(1, "é", None)]


def test_values_may_hold_line_breaks_when_lines_are_not_records(read: Read) -> None:
    text = 'a,b\n1,"x\ny"\n2,"z""\n,\n"\n3,"q"\n'
    rows = read(text, "a INT, b STRING", multiLine=True, escape='"')
    assert values(rows) == [(1, "x\ny", None), (2, 'z"\n,\n', None), (3, "q", None)]
    rows = read('a,b\r\n1,"x\r\ny"\r\n', "a INT, b STRING", multiLine=True)
    assert values(rows) == [(1, "x\ny", None)]


@pytest.mark.parametrize(
    ("text", "given", "value"),
    [
        ('a,b\n1,"x\n2,y\n3,z', {"multiLine": True}, "x\n2,y\n3,z"),
        ('a,b\n1,"x', {}, "x"),
        ('a,b\n1,"', {}, '"'),
        ('a,b\n1,"x\\"', {}, 'x"'),
        ("a,b\n1,'x", {"quote": "'"}, "x"),
    ],
)
def test_a_quote_that_is_never_closed_marks_its_record(
    read: Read, text: str, given: dict[str, Any], value: str
) -> None:
    [row] = read(text, "a INT, b STRING", **given)
    assert (row["a"], row["b"]) == (1, value)
    assert row["_rescued_data"]["_corrupt_record"] == text.removeprefix("a,b\n")


def test_nulls_and_empty_values(read: Read) -> None:
    text = 'a,b\n,""\nNA,"NA"\n'
    assert values(read(text, "a STRING, b STRING"))[0] == (None, None, None)
    rows = read(text, "a STRING, b STRING", nullValue="NA")
    assert values(rows) == [(None, "", None), (None, None, None)]
    rows = read(text, "a STRING, b STRING", emptyValue="empty")
    assert values(rows)[0] == (None, "empty", None)


def test_blanks_around_values(read: Read) -> None:
    text = 'a,b,c\n 1 , x ," y "\n'
    trims = {"ignoreLeadingWhiteSpace": True, "ignoreTrailingWhiteSpace": True}
    assert values(read(text, "a INT, b STRING, c STRING"))[0][:3] == (None, " x ", " y ")
    assert values(read(text, "a INT, b STRING, c STRING", **trims)) == [(1, "x", " y ", None)]


def test_words_for_numbers_that_are_none(read: Read) -> None:
    found = {"nanValue": "?", "positiveInf": "top", "negativeInf": "low"}
    rows = read("a\ntop\nlow\n?\n", "a DOUBLE", **found)
    assert [repr(row["a"]) for row in rows] == ["inf", "-inf", "nan"]


def test_patterns_zones_and_languages(read: Read) -> None:
    given = {
        "dateFormat": "d. MMMM yyyy",
        "timestampFormat": "dd/MM/yyyy HH:mm",
        "timeZone": "Europe/Berlin",
        "locale": "de-DE",
    }
    rows = read('n\n"1.234,5"\n', "n DECIMAL(6, 1)", **given)
    assert [str(row["n"]) for row in rows] == ["1234.5"]
    (row,) = read("d,t\n3. März 2024,31/01/2024 12:30\n", "d DATE, t TIMESTAMP", **given)
    assert row["d"].isoformat() == "2024-03-03"
    assert row["t"].isoformat() == "2024-01-31T11:30:00+00:00"


def test_a_timestamp_finer_than_a_microsecond_is_rescued(read: Read) -> None:
    text, local = "2024-01-31T12:30:59.123456789Z", "2024-01-31 12:30:59.1234567"
    whole = "t,l\n2024-01-31T12:30:59.123456000Z,2024-01-31 12:30:59.1234560\n"
    for pattern in (None, "yyyy-MM-dd['T'][ ]HH:mm:ss.SSSSSSSSS[XXX]"):
        given = {} if pattern is None else {"timestampFormat": pattern}
        first, second = read(f"{whole}{text},{local}\n", "t TIMESTAMP, l TIMESTAMP_NTZ", **given)
        assert (first["t"].microsecond, first["l"].microsecond) == (123456, 123456)
        assert first["_rescued_data"] is None
        assert (second["t"], second["l"]) == (None, None)
        rescued = second["_rescued_data"]
        assert (rescued["t"], rescued["l"]) == (text, local)


def test_a_limit_makes_a_record_invalid_rather_than_the_file(read: Read) -> None:
    rows = read("a,b\n1,xyz\n2,y\n", "a INT, b STRING", maxCharsPerColumn=2)
    assert values(rows)[0] == (None, None, {"_corrupt_record": "1,xyz"})
    rows = read("a\n1,2,3,4\n", "a INT", maxColumns=3)
    assert values(rows) == [(None, {"_corrupt_record": "1,2,3,4"})]
    with pytest.raises(FileUnreadableError, match="the header cannot be read"):
        read("a,b,c,d\n1,2,3,4\n", "a INT", maxColumns=3)


def test_a_quote_that_is_not_escaped_can_be_an_error(read: Read) -> None:
    rows = read('a,b\n1,"x"y\n', "a INT, b STRING", unescapedQuoteHandling="RAISE_ERROR")
    assert values(rows) == [(None, None, {"_corrupt_record": '1,"x"y'})]


@pytest.mark.law
@pytest.mark.law
@pytest.mark.parametrize("multi_line", [False, True])
def test_ranges_of_a_file_give_each_row_once(tmp_path: Path, multi_line: bool) -> None:
    text = "# one\r\n\r\n" + "id,text\r\n" + "".join(f"{n},{'é' * n}\r\n" for n in range(60))
    file = written(tmp_path, ("\ufeff" + text).encode())
    found = reader("id INT, text STRING", comment="#", multiLine=multi_line)
    whole = rows_of(file, found)
    assert [row["id"] for row in whole] == [*range(60)]
    size = file.entry.size
    for step in (1, 7, 10, 50, 1000, size) if not multi_line else ():
        parts = [
            row
            for start in range(0, size, step)
            for batch in found.read_file(file, start, min(size, start + step))
            for row in batch.to_pylist()
        ]
        assert parts == whole, step


def test_columns_that_csv_cannot_have_are_refused() -> None:
    for ddl in ("a STRUCT<b: INT>", "a ARRAY<INT>", "a MAP<STRING, INT>"):
        with pytest.raises(IncompatibleSchemaError, match=r"Column a .*atomic type"):
            reader(ddl)
    with pytest.raises(IncompatibleSchemaError, match="takes corrupt records"):
        reader("_corrupt_record INT")
    with pytest.raises(OptionError, match="dateFormat"):
        reader("a DATE", dateFormat="what")


def test_reading_again_gives_the_same_and_options_travel(tmp_path: Path) -> None:
    file = written(tmp_path, RAGGED)
    found = reader("a INT, b INT")
    assert rows_of(file, found) == rows_of(file, found)
    travelled = pickle.loads(pickle.dumps(options(sep="||", header=False)))
    assert travelled == options(sep="||", header=False)
    assert isinstance(found, CsvReader)


def test_no_columns_at_all_still_gives_rows(tmp_path: Path) -> None:
    found = reader("", given=True, header=True)
    batches = list(found.read_file(written(tmp_path, "a,b\n1,2\n3,4\n")))
    assert sum(batch.num_rows for batch in batches) == 2


@pytest.fixture
def records_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records are taken apart at once, or one by one."""
    counts: list[int] = []
    values, plain = Tokenizer.values, PlainReader.read

    def counted(self: Tokenizer, text: str) -> list[str | None]:
        counts.append(1)
        return values(self, text)

    def counted_plain(self: PlainReader, text: bytes, *others: Any) -> Any:
        counts.append(text.count(b"\n"))
        return plain(self, text, *others)

    monkeypatch.setattr(Tokenizer, "values", counted)
    monkeypatch.setattr(PlainReader, "read", counted_plain)
    return counts


@pytest.mark.parametrize("record", ["1,2", '1,"2\\"3"'], ids=["plain", "odd"])
@pytest.mark.parametrize("mode", ["addNewColumns", "failOnNewColumns"])
def test_a_new_column_in_a_header_is_told_by_its_first_records(
    tmp_path: Path, records_read: list[int], record: str, mode: str
) -> None:  # B45
    """The others will be thrown away."""
    file = written(tmp_path, "a,b\n" + f"{record}\n" * 5000)
    with pytest.raises(UnknownFields) as caught:
        list(reader("a INT", evolution=mode).read_file(file))
    assert list(caught.value.fields) == ["b"]
    assert ENOUGH_RECORDS <= sum(records_read) <= ENOUGH_RECORDS + 2


def test_a_record_that_is_none_does_not_hide_a_new_column(tmp_path: Path) -> None:
    bad = "1,2,3\n" * (ENOUGH_RECORDS + 7)
    file = written(tmp_path, f"a,b\n{bad}1,2\n")
    with pytest.raises(UnknownFields) as caught:
        list(reader("a INT", evolution="addNewColumns", mode="DROPMALFORMED").read_file(file))
    assert caught.value.fields == {"b": "2"}
    only_bad = reader("a INT", evolution="addNewColumns", mode="DROPMALFORMED")
    assert list(only_bad.read_file(written(tmp_path, f"a,b\n{bad}"))) == []
    assert only_bad.counts.dropped_records == ENOUGH_RECORDS + 7


def test_wide_records_without_a_header_stop_once_enough_show_what_is_new(
    tmp_path: Path, records_read: list[int]
) -> None:
    file = written(tmp_path, "1\n" * 50 + "1,2\n" * 5000)
    with pytest.raises(UnknownFields) as caught:
        list(reader("_c0 INT", evolution="addNewColumns", header="false").read_file(file))
    assert caught.value.fields == {"_c1": "2"}
    one_by_one = [count for count in records_read if count == 1]
    assert ENOUGH_RECORDS <= len(one_by_one) <= ENOUGH_RECORDS + 2
