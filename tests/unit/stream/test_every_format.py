"""Every format lands, evolves, rescues and is refused in the same way."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
import xlsxwriter

from airflow_cloudfiles.engine.errors import (
    FileUnreadableError,
    SchemaInferenceError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.reading import splits
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landed import Stream

Records = list[dict[str, Any]]
_AVRO = {str: "string", int: "long", float: "double"}


def _json(records: Records) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in records).encode()


def _csv(records: Records) -> bytes:
    text = io.StringIO()
    names = list(dict.fromkeys(name for each in records for name in each))
    writer = csv.DictWriter(text, names, escapechar="\\", doublequote=False)
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()


def _xml(records: Records) -> bytes:
    rows = (
        "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in each.items())
        for each in records
    )
    return ("<rows>" + "".join(f"<row>{row}</row>\n" for row in rows) + "</rows>").encode()


def _parquet(records: Records) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(records), sink)
    return sink.getvalue()


def _orc(records: Records) -> bytes:
    sink = io.BytesIO()
    pyarrow.orc.write_table(pa.Table.from_pylist(records), sink)
    return sink.getvalue()


def _avro(records: Records) -> bytes:
    fields = [
        {"name": name, "type": ["null", _AVRO[type(value)]]} for name, value in records[0].items()
    ]
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "row", "fields": fields}, records)
    return sink.getvalue()


def _excel(records: Records) -> bytes:
    sink = io.BytesIO()
    names = list(dict.fromkeys(name for each in records for name in each))
    with xlsxwriter.Workbook(sink, {"in_memory": True}) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, names)
        for row, each in enumerate(records, 1):
            for column, name in enumerate(names):
                if name in each:
                    sheet.write(row, column, each[name])
    return sink.getvalue()


WRITERS: dict[str, Callable[[Records], bytes]] = {
    "json": _json,
    "csv": _csv,
    "excel": _excel,
    "xml": _xml,
    "parquet": _parquet,
    "orc": _orc,
    "avro": _avro,
}
OPTIONS: dict[str, dict[str, object]] = {
    "excel": {"headerRows": "1"},
    "xml": {"rowTag": "row"},
}


@pytest.fixture(params=WRITERS)
def landing(request: pytest.FixtureRequest, tmp_path: Path) -> Landing:
    """A folder that takes records in one of the formats."""
    return Landing(request.param, tmp_path)


class Landing:
    """A folder that takes records in one format."""

    def __init__(self, name: str, folder: Path) -> None:
        self.format = name
        self.source = folder / "in"
        self.source.mkdir()
        self.state = folder / "state"

    def drop(self, name: str, records: Records) -> Path:
        """Land a file."""
        return self.put(name, WRITERS[self.format](records))

    def put(self, name: str, content: bytes) -> Path:
        """Land bytes."""
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def stream(self, **options: object) -> Stream:
        """The stream of that folder."""
        return Stream(
            self.source, self.state, self.format, **{**OPTIONS.get(self.format, {}), **options}
        )

    def versions(self) -> list[int]:
        """The schema versions there are."""
        source = open_store(str(self.source)).uri
        return SchemaLog(open_store(str(self.state)), source).versions()


TYPED = {"cloudFiles.inferColumnTypes": "true"}


@pytest.mark.slow
def test_records_land_once_each_and_a_new_column_heals(landing: Landing) -> None:
    landing.drop("1", [{"a": 1, "b": "x y"}, {"a": 2, "b": "é<&>"}])
    stream = landing.stream(**TYPED)
    assert [(row["a"], row["b"]) for row in stream.run()] == [(1, "x y"), (2, "é<&>")]
    assert stream.run() == []

    landing.drop("2", [{"a": 3, "b": "z", "c": 0.5}])
    landing.drop("3", [{"a": 4, "b": "z", "d": "new too"}])
    with pytest.raises(UnknownFieldException, match="automatic retry: true") as caught:  # B45, B66
        stream.run()
    assert set(caught.value.fields) & {"c", "d"}
    assert caught.value.file is not None
    assert landing.versions() == [0, 1]  # B47: one version for both

    found = sorted(stream.run(), key=lambda row: row["a"])  # B46
    assert [(row["a"], row["c"], row["d"]) for row in found] == [
        (3, 0.5, None),
        (4, None, "new too"),
    ]
    assert [row["_rescued_data"] for row in stream.rows] == [None] * 4  # B70
    assert stream.run() == []


def test_a_large_file_that_changed_before_it_was_cut_is_read_whole(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    landing.drop("1", [{"a": 0}])
    stream = landing.stream(**TYPED)
    stream.run()
    record = b'{"a":1}' + b" " * 1000 + b"\n"
    path = landing.put("2", record * 10_000)
    tasks = stream.tasks()  # discovers it
    assert len(tasks) == 1
    path.write_bytes(record * 12_345)  # its batch is planned: refused once, it would be for ever
    assert len(stream.run(parallelism=3)) == 12_345
    assert sum(each.fetched.changed_files for each in stream.counts) == 1
    landing.put("3", record * 10_000)
    assert len(stream.run(parallelism=3)) == 10_000
    assert len(stream.counts) == 2, "cut"


def test_a_column_that_is_missing_is_null_and_no_new_version(landing: Landing) -> None:  # B65
    landing.drop("1", [{"a": 1, "b": "x"}])
    stream = landing.stream(**TYPED)
    stream.run()
    landing.drop("2", [{"b": "y"}])
    assert [(row["a"], row["b"]) for row in stream.run()] == [(None, "y")]
    assert landing.versions() == [0]


def test_a_value_that_does_not_fit_is_null_and_rescued(landing: Landing) -> None:  # B49, B53
    landing.drop("1", [{"a": 1, "b": "x"}])
    stream = landing.stream(**TYPED)
    stream.run()
    path = landing.drop("2", [{"a": "$100.00", "b": "y"}])
    [row] = stream.run()
    assert (row["a"], row["b"]) == (None, "y")
    assert json.loads(row["_rescued_data"]) == {"a": "$100.00", "_file_path": path.as_uri()}
    assert sum(each.rescued_rows for each in stream.counts) == 1
    assert landing.versions() == [0]  # B50


def test_in_mode_rescue_new_fields_are_rescued(landing: Landing) -> None:  # B54
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**TYPED, **{"cloudFiles.schemaEvolutionMode": "rescue"})
    stream.run()
    path = landing.drop("2", [{"a": 2, "new": "n"}])
    [row] = stream.run()
    assert row["a"] == 2
    assert json.loads(row["_rescued_data"]) == {"new": "n", "_file_path": path.as_uri()}


def test_fail_on_new_columns_fails_again_and_again(landing: Landing) -> None:  # B52
    landing.drop("1", [{"a": 1}])
    stream = landing.stream(**{"cloudFiles.schemaEvolutionMode": "failOnNewColumns"})
    stream.run()
    new = landing.drop("2", [{"a": 2, "new": "n"}])
    for _ in range(2):
        with pytest.raises(UnknownFieldException, match="automatic retry: false"):
            stream.run()
    assert landing.versions() == [0]
    new.unlink()
    stream.given["ignoreMissingFiles"] = "true"
    assert stream.run() == []


def test_another_case_is_rescued_or_read_as_asked(landing: Landing) -> None:
    landing.drop("1", [{"foo": "x"}])
    stream = landing.stream()
    stream.run()
    landing.drop("2", [{"Foo": "y"}])
    stream.given["readerCaseSensitive"] = "false"
    assert [(row["foo"], row["_rescued_data"]) for row in stream.run()] == [("y", None)]  # B72
    stream.given["readerCaseSensitive"] = "true"
    landing.drop("3", [{"Foo": "z"}])
    [row] = stream.run()
    assert row["foo"] is None
    assert json.loads(row["_rescued_data"])["Foo"] == "z"  # B71
    assert landing.versions() == [0]


def test_partition_columns_are_found_in_paths(landing: Landing) -> None:  # B36
    landing.drop("event=click/date=2021-04-01/1", [{"a": "1"}])
    landing.drop("event=view/date=2021-04-02/1", [{"a": "2"}])
    found = sorted(landing.stream().run(), key=lambda row: row["a"])
    assert [list(row)[-3:] for row in found] == [["event", "date", "_rescued_data"]] * 2
    assert [(row["event"], row["date"]) for row in found] == [
        ("click", "2021-04-01"),
        ("view", "2021-04-02"),
    ]


def test_a_field_that_comes_later_does_not_take_the_place_of_a_partition(
    landing: Landing,
) -> None:  # B41
    landing.drop("event=click/1", [{"a": "1"}])
    stream = landing.stream()
    stream.run()
    path = landing.drop("event=view/2", [{"a": "2", "event": "other"}])
    landing.drop("event=view/3", [{"a": "3"}])
    found = sorted(stream.run(), key=lambda row: row["a"])
    assert [row["event"] for row in found] == ["view", "view"]
    assert json.loads(found[0]["_rescued_data"]) == {
        "event": "other",
        "_file_path": f"file://{path}",
    }
    assert found[1]["_rescued_data"] is None
    assert landing.versions() == [0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", [b"\x00\x01garbage\xff" * 50, b"PAR1", b"ORC", b"Obj\x01", b"\x1f\x8b\x08cut"]
)
def test_what_is_not_of_the_format_is_an_error_that_names_the_file_or_is_kept(
    landing: Landing, content: bytes
) -> None:
    landing.drop("1", [{"a": "1"}])
    stream = landing.stream(**{"cloudFiles.schemaEvolutionMode": "rescue"})
    stream.run()
    landing.put("2 bad+%41", content)
    found = _rows_or_error(stream)
    if isinstance(found, FileUnreadableError):
        assert "bad" in str(found)
        stream.given["ignoreCorruptFiles"] = "true"  # B115
        assert stream.run() == []
        assert sum(each.fetched.corrupt_files for each in stream.counts) == 1
    else:
        assert landing.format in {"json", "csv", "xml"}
        assert found or landing.format == "xml" or b"\n" not in content  # else a header


def _rows_or_error(stream: Stream) -> list[dict[str, Any]] | FileUnreadableError:
    try:
        return stream.run()
    except FileUnreadableError as error:
        return error


def test_a_large_file_that_cannot_be_cut_is_given_up_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "MIN_SPLIT_BYTES", 64)
    landing = Landing("text", tmp_path)
    landing.put("wide", "one\ntwo\n".encode("utf-16") * 100)
    stream = landing.stream(ignoreCorruptFiles="true", **{"cloudFiles.partitionColumns": ""})
    assert stream.run(parallelism=200) == []
    assert sum(each.fetched.corrupt_files for each in stream.counts) > 1  # one for each part


def test_an_empty_source_asks_for_a_schema(landing: Landing) -> None:  # B4
    with pytest.raises(SchemaInferenceError, match=r"no file in .* Give a schema"):
        landing.stream().run()


def test_an_empty_file_among_others_is_read_as_nothing_or_named(landing: Landing) -> None:
    landing.drop("1", [{"a": "1"}])
    stream = landing.stream()
    stream.run()
    landing.put("2", b"")
    found = _rows_or_error(stream)
    if isinstance(found, FileUnreadableError):
        assert landing.format in {"parquet", "orc", "avro"}
        assert str(landing.source / "2") in str(found)
    else:
        assert found == []
