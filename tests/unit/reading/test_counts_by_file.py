"""What was read of each file, and where its first error is, however files are packed and cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.files import START, FileCounts, FileEntry, Offset, RecordError
from airflow_cloudfiles.engine.formats.record_policy import MISFIT_REASON, UNKNOWN_REASON
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.split_reader import SplitReader
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from tests.support.laws import examples

A = "a LONG, b STRING"
MODE = "cloudFiles.schemaEvolutionMode"


def _context(
    folder: Path, columns: str, options: dict[str, str], in_path: str = ""
) -> BatchContext:
    given_options = {"rescuedDataColumn": "_rescued_data", MODE: "rescue", **options}
    return BatchContext(
        source_uri=str(folder),
        source_name=str(folder),
        state_uri="",
        schema_uri=None,
        schema_version=-1,
        data_schema=parse_schema(columns).json(),
        partition_schema=(parse_schema(in_path) if in_path else StructType()).json(),
        start=START,
        end=Offset(1, 0),
        options=CloudFilesOptions.parse(given_options, path=str(folder)),
    )


def _read(
    folder: Path,
    files: dict[str, bytes],
    columns: str = A,
    cuts: dict[str, list[int]] | None = None,
    in_path: str = "",
    **options: str,
) -> dict[str, FileCounts]:
    """What is read of each file, in one split; some are cut at some bytes."""
    ranges = []
    for index, (name, content) in enumerate(files.items()):
        (folder / name).write_bytes(content)
        entry = FileEntry(name, len(content), (folder / name).stat().st_mtime_ns // 1000)
        edges = [0, *(cuts or {}).get(name, []), len(content)]
        ends: list[int | None] = [*edges[1:]]
        ends = [None] if len(ends) == 1 else ends
        ranges += [
            FileRange(entry, start, end, (0, index))
            for start, end in zip(edges, ends, strict=False)
        ]
    split = Split(_context(folder, columns, options, in_path), tuple(ranges))
    reader = SplitReader(split)
    rows = sum(batch.num_rows for batch in reader.read())
    found = {
        name: FileCounts(each) if isinstance(each, int) else each
        for name, each in zip(files, map(reader.read_files().get, _places(files)), strict=True)
        if each is not None
    }
    assert set(found) == set(files)
    assert sum(each.rows for each in found.values()) == rows == reader.counts.rows
    for name in ("rescued_rows", "corrupt_records", "dropped_records"):
        assert sum(getattr(each, name) for each in found.values()) == getattr(reader.counts, name)
    return found


def _places(files: dict[str, bytes]) -> list[tuple[int, int]]:
    return [(0, index) for index in range(len(files))]


JSON = {"cloudFiles.format": "json"}
CSV = {"cloudFiles.format": "csv", "header": "true"}
XML = {"cloudFiles.format": "xml", "rowTag": "r"}
TEXT = {"cloudFiles.format": "text"}


@pytest.mark.parametrize(
    ("options", "columns", "content", "wanted"),
    [
        pytest.param(
            JSON,
            A,
            b'{"a": 1}\n\n{"a": "x"}\n{"c": 1}\n{\n',
            FileCounts(4, 3, 1, 0, "", RecordError(MISFIT_REASON, "a", 3)),
            id="a value of JSON",
        ),
        pytest.param(
            JSON,
            "a STRUCT<b: STRUCT<c: LONG>>",
            b'{"a": {"b": {"c": 1}}}\r\n{"a": {"b": {"c": "x"}}}\r\n',
            FileCounts(2, 1, 0, 0, "", RecordError(MISFIT_REASON, "a.b.c", 2)),
            id="a nested value",
        ),
        pytest.param(
            JSON,
            A,
            b'{"a": 1}\r{"c": 1}\r{"b"\r',
            FileCounts(3, 2, 1, 0, "", RecordError(UNKNOWN_REASON, "c", 2)),
            id="a field without a column, behind carriage returns",
        ),
        pytest.param(
            {**JSON, "mode": "DROPMALFORMED"},
            A,
            b'{"a": 1}\n{"b"\n{"a": "x"}\n',
            FileCounts(2, 1, 1, 1, "", RecordError("", "", 2)),
            id="a record that is dropped",
        ),
        pytest.param(
            {**JSON, "lineSep": "|"},
            A,
            b'{"a": 1}|{"a":\n2}|{"a": "x"}|',
            FileCounts(3, 1, 0, 0, "", RecordError(MISFIT_REASON, "a", 3)),
            id="other ends of lines",
        ),
        pytest.param(
            {**JSON, "multiLine": "true"},
            A,
            b'[\n {"a": 1},\n {"a": 2},\n {\n  "a": "x"}\n]\n',
            FileCounts(3, 1, 0, 0, "", RecordError(MISFIT_REASON, "a", 4)),
            id="a document",
        ),
        pytest.param(
            CSV,
            f"{A}, _corrupt_record STRING",
            b'a,b\n1,x\n\n2,"open\n3,x\n',
            FileCounts(3, 0, 1, 0, "", RecordError("a quote that is not closed", "", 4)),
            id="an open quote",
        ),
        pytest.param(
            CSV,
            A,
            b"a,b\r\n1,x\r\nx,y\r\n",
            FileCounts(2, 1, 0, 0, "", RecordError(MISFIT_REASON, "a", 3)),
            id="a value of CSV",
        ),
        pytest.param(
            {**CSV, "multiLine": "true"},
            A,
            b'a,b\n1,"x\ny"\nx,y\n',
            FileCounts(2, 1, 0, 0, "", RecordError(MISFIT_REASON, "a", 4)),
            id="behind a value of two lines",
        ),
        pytest.param(
            {**CSV, "mode": "DROPMALFORMED"},
            A,
            b"a,b\n1,x,2\n2,y\n",
            FileCounts(1, 0, 1, 1, "", RecordError("3 values instead of 2", "", 2)),
            id="too many values, dropped",
        ),
        pytest.param(
            XML,
            A,
            b"<?xml version='1.0'?>\n<t>\n<r><a>1</a></r>\n<r>\n<a>x</a></r><r><a></t>",
            FileCounts(3, 2, 1, 0, "", RecordError(MISFIT_REASON, "a", 4)),
            id="a value of XML",
        ),
        pytest.param(
            TEXT,
            "value STRING",
            b"good\n\xff\n\xfe\n",
            FileCounts(3, 2, 2, 0, "", RecordError("bytes that are not UTF-8", "value", 2)),
            id="text",
        ),
    ],
)
def test_a_file_says_what_became_of_it_and_where_the_first_error_is(
    tmp_path: Path, options: dict[str, str], columns: str, content: bytes, wanted: FileCounts
) -> None:
    found = _read(tmp_path, {"f": content}, columns, **options)["f"]
    assert found.error is not None
    assert wanted.error is not None
    if not wanted.error.reason:
        wanted = FileCounts(
            wanted.rows, wanted.rescued_rows, wanted.corrupt_records, wanted.dropped_records,
            "", RecordError(found.error.reason, "", wanted.error.line),
        )  # fmt: skip
    assert found == wanted


def test_files_that_are_parsed_together_are_counted_apart(tmp_path: Path) -> None:
    files = {
        "one": b'{"a": 1}\n{"a": 2}',
        "empty": b"",
        "two": b'{"a": 1}\n{"b": 2, "c": 3}\n{"a"\n',
        "three": b'{"a": 1}\n',
        "blank": b"\n\n",
    }
    found = _read(tmp_path, files, **JSON)
    error = RecordError(UNKNOWN_REASON, "c", 2)
    assert found == {
        "one": FileCounts(2),
        "empty": FileCounts(),
        "two": FileCounts(3, 2, 1, error=error),
        "three": FileCounts(1),
        "blank": FileCounts(),
    }


def test_what_does_not_fit_of_a_path_comes_first(tmp_path: Path) -> None:
    (tmp_path / "k=x").mkdir()
    for format_options in (JSON, CSV):
        content = b'{"a": "x"}\n' if format_options is JSON else b"a\nx\n"
        files = {"k=x/f": content}
        found = _read(tmp_path, files, "a LONG", in_path="k LONG", **format_options)["k=x/f"]
        assert found.rescued_rows == 1
        assert found.error is not None
        assert (found.error.field, found.error.line, found.error.byte) == ("k", None, None)


def test_rows_of_parquet_have_numbers_in_every_part(tmp_path: Path) -> None:
    table = pa.table({"a": ["1"] * 30, "z": [None] * 25 + ["x"] * 5})
    pq.write_table(table, tmp_path / "f", row_group_size=10)
    content = (tmp_path / "f").read_bytes()
    for cuts in ([], [len(content) // 2]):
        found = _read(
            tmp_path, {"f": content}, "a STRING", {"f": cuts}, **{"cloudFiles.format": "parquet"}
        )
        error = RecordError(UNKNOWN_REASON, "z", 26)
        assert found["f"] == FileCounts(30, 5, error=error)


def test_a_file_that_is_gone_says_so(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    entry = FileEntry("gone", 9, 1)
    context = _context(tmp_path, A, {**JSON, "ignoreMissingFiles": "true"})
    reader = SplitReader(Split(context, (FileRange(entry, place=(3, 4)),)))
    assert not list(reader.read())
    assert reader.read_files() == {(3, 4): FileCounts(skipped="missing")}


_GOOD = [b'{"a": 1}', b'{"b": "x"}', b"{}"]
_BAD = [b'{"a": "x"}', b'{"c": 1}', b"{", b"\xff", b'{"a": 1} x']
_LINES = st.lists(st.sampled_from([*_GOOD, *_GOOD, b"", *_BAD]), max_size=12)
_ENDS = st.sampled_from([b"\n", b"\r\n"])


@pytest.mark.law
@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_file_is_the_sum_of_its_records_wherever_it_is_cut(
    data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every record alone says what becomes of it; a file says the sum, and the first of them."""
    folder = tmp_path_factory.mktemp("law")
    mode = data.draw(st.sampled_from(["PERMISSIVE", "DROPMALFORMED"]))
    lines = data.draw(st.lists(_LINES, min_size=1, max_size=4))
    end = data.draw(_ENDS)
    files = {f"f{number}": end.join([*each, b""]) for number, each in enumerate(lines)}
    cuts = {
        name: sorted(data.draw(st.sets(st.integers(1, max(1, len(content) - 1)), max_size=3)))
        for name, content in files.items()
        if len(content) > 1
    }
    found = _read(folder, files, cuts=cuts, **JSON, mode=mode)
    for name, each in zip(files, lines, strict=True):
        total, first = FileCounts(), None
        begin = 0
        for number, line in enumerate(each, 1):
            alone = _read(folder, {"alone": line + b"\n"}, **JSON, mode=mode)["alone"]
            total += FileCounts(
                alone.rows, alone.rescued_rows, alone.corrupt_records, alone.dropped_records
            )
            if alone.error is not None and first is None:
                first = alone.error, number, begin
            begin += len(line) + len(end)
        error = found[name].error
        numbers = ("rows", "rescued_rows", "corrupt_records", "dropped_records")
        assert [getattr(found[name], n) for n in numbers] == [getattr(total, n) for n in numbers]
        assert (error is None) == (first is None)
        if error is not None and first is not None:
            wanted, number, begin = first
            assert (error.reason, error.field) == (wanted.reason, wanted.field)
            # A part that does not begin the file knows bytes only.
            before = min(cuts.get(name, [len(files[name])]), default=len(files[name]))
            place = (number, None) if begin < before else (None, begin)
            assert (error.line, error.byte) == place


@pytest.mark.law
@settings(max_examples=examples(40))
@given(
    lines=st.lists(
        st.sampled_from([b"1,x", b"2,y", b"", b"z,x", b"1", b"1,2,3", b'1,"q']), max_size=20
    ),
    cut=st.integers(1, 60),
    end=_ENDS,
)
def test_csv_is_counted_alike_wherever_it_is_cut(
    lines: list[bytes], cut: int, end: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("law")
    content = end.join([b"a,b", *lines, b""])
    whole = _read(folder, {"f": content}, **CSV)["f"]
    parts = _read(folder, {"f": content}, cuts={"f": [cut] if cut < len(content) else []}, **CSV)[
        "f"
    ]
    assert (whole.rows, whole.rescued_rows, whole.corrupt_records) == (
        parts.rows, parts.rescued_rows, parts.corrupt_records,
    )  # fmt: skip
    assert (whole.error is None) == (parts.error is None)
    if whole.error is not None and parts.error is not None:
        assert whole.error.line is not None
        assert (whole.error.reason, whole.error.field) == (parts.error.reason, parts.error.field)
        begin = sum(len(each) + len(end) for each in [b"a,b", *lines][: whole.error.line - 1])
        place = (whole.error.line, None) if begin < cut or cut >= len(content) else (None, begin)
        assert (parts.error.line, parts.error.byte) == place


def test_lines_are_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_cloudfiles.engine.reading.opened.TEXT_BYTES", 64)
    monkeypatch.setattr("airflow_cloudfiles.engine.reading.opened.BLOCK_BYTES", 64)
    lines = [json.dumps({"a": number}).encode() for number in range(50)] + [b'{"a": "x"}']
    found = _read(tmp_path, {"f": b"\r\n".join(lines)}, **JSON)["f"]
    assert found == FileCounts(51, 1, error=RecordError(MISFIT_REASON, "a", 51))
    content = b"a,b\r\n" + b"1,x\r\n" * 50 + b"x,y\r\n"
    found = _read(tmp_path, {"f": content}, **CSV)["f"]
    assert found == FileCounts(51, 1, error=RecordError(MISFIT_REASON, "a", 52))
