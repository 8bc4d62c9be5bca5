"""Propose streams for messy folders: what is found, what is doubted, and what it costs."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.errors import OptionError, SourceNotFoundError
from airflow_cloudfiles.engine.extensions.proposal.propose import propose
from airflow_cloudfiles.engine.extensions.proposal.proposed import (
    Limits,
    Places,
    StreamsProposal,
    as_json,
    as_yaml,
    growth_of,
    monthly_cost,
)
from airflow_cloudfiles.engine.extensions.proposal.tables import name_pattern
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.storage import open_store
from tests.support.unprivileged import unprivileged

PLACES = Places(state_root="s3://state/streams", target_root="s3://lake/tables")
HOUR = 3600 * 10**6


def _propose(folder: Path | str, **limits: int) -> StreamsProposal:
    return propose(str(folder), PLACES, Limits(**limits))


def _streams(found: StreamsProposal) -> dict[str, Any]:
    """The streams of the YAML, read as plain YAML."""
    streams: dict[str, Any] = yaml.safe_load(as_yaml(found))["streams"]
    return streams


def _write(folder: Path, **files: str | bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("__", ".")).write_bytes(data)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a;b\n1;1,5\n2;2,5\n", {"sep": ";"}),
        ("a\tb\n1\tx\n", {"sep": "\t"}),
        ('a,b\n1,"x ""y"" z"\n', {"escape": '"'}),
        ('a,b\n1,"x\ny"\n', {"multiLine": "true"}),
        ("a,b\n1,'x, y'\n2,'z'\n", {"quote": "'"}),
        ("1,2\n3,4\n", {"header": "false"}),
        ("# made by hand\na,b\n1,x\n", {"comment": "#"}),
        ("Report of May\n\na,b\n1,x\n2,y\n3,z\n4,u\n", {"skipRows": "2"}),
        ("zip,n\n01234,1\n10115,2\n", {"cloudFiles.schemaHints": "zip STRING"}),
        ("nom,n\nRen\xe9,1\n".encode("latin-1"), {"encoding": "windows-1252"}),
        ("nom,n\nRen\xe9,1\n".encode("utf-16-le"), {"encoding": "UTF-16LE"}),
        ("nom,n\nRen\xe9,1\n".encode("utf-16"), {}),
        ("nom;n\n" + "Ren\xe9;1\n" * 30_000, {"sep": ";"}),
        (("nom;n\n" + "Ren\xe9;1\n" * 30_000).encode("utf-16"), {"sep": ";"}),
        (gzip.compress(b"a;b\n" + b"1;2\n" * 300_000, mtime=0), {"sep": ";"}),
        (gzip.compress(b"a;b\n1;2\n", mtime=0), {"sep": ";"}),
    ],
)
def test_a_dialect_is_recognized(tmp_path: Path, content: str | bytes, expected: Any) -> None:
    name = "t_1.csv.gz" if content[:2] == b"\x1f\x8b" else "t_1.csv"
    _write(tmp_path, **{name: content})
    found = _propose(tmp_path)
    [stream] = _streams(found).values()
    assert len(found.streams[0].columns) == 2
    assert stream["format"] == "csv"
    assert stream["options"] == {"cloudFiles.inferColumnTypes": "true", **expected}


@pytest.mark.parametrize(
    ("content", "format_name", "options"),
    [
        ('{"a":1}\n{"a":2}\n', "json", {}),
        ('[\n{"a":1},\n{"a":2}\n]\n', "json", {"multiLine": "true"}),
        ('{\n "a": 1\n}\n', "json", {"multiLine": "true"}),
        ('{"a":1}\nnot json\n{"a":2}\n', "json", {}),
        ("<r><x><a>1</a></x><x><a>2</a></x></r>", "xml", {"rowTag": "x"}),
        ("first words\nsecond, and more words\nthird\n", "text", None),
    ],
)
def test_content_decides(
    tmp_path: Path, content: str, format_name: str, options: dict[str, str] | None
) -> None:
    """The name says nothing here."""
    _write(tmp_path, **{"t_1.dat": content})
    [stream] = _streams(_propose(tmp_path)).values()
    assert stream["format"] == format_name
    known = {"cloudFiles.inferColumnTypes": "true"}
    assert stream.get("options") == (None if options is None else {**known, **options})


def test_a_name_that_contradicts_its_content_is_a_doubt(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t_1.csv")
    [stream] = _propose(tmp_path).streams
    assert stream.format == "parquet"
    assert any("end in .csv, but the content is parquet" in each for each in stream.doubts)


def test_what_is_no_table_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
    _write(
        tmp_path,
        picture_1__png=b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d",
        packed_1__csv=packed.getvalue(),
        cut_1__parquet=b"PAR1\x00\x00not whole",
        empty_1__json="",
        damaged_1__gz=b"\x1f\x8b\x08\x00 damaged",
        good_1__json='{"a": 1}\n',
        upload_1__part="half of",
    )
    (tmp_path / "lake" / "_delta_log").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "lake" / "part-0.parquet")
    found = _propose(tmp_path)
    assert {stream.name for stream in found.streams} == {"good", "cut"}
    said = "\n".join(found.doubts)
    for part in (
        "PNG is no format",
        "packed_1.csv: zip is no format",
        "empty_1.json: All files are empty",
        "damaged_1.gz is damaged",
        "lake is a Delta table",
        "1 file is left out: in inProgressNames",
    ):
        assert part in said, part
    [cut] = [stream for stream in found.streams if stream.name == "cut"]
    assert any("could not be inferred" in each and "cut_1.parquet" in each for each in cut.doubts)


def test_files_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    for number, content in enumerate(["a;b\n1;2\n", "a,b\n1,2\n", '{"a": 1}\n', "a,b\n3,4\n"]):
        _write(tmp_path, **{f"t_{number}.csv": content})
        os.utime(tmp_path / f"t_{number}.csv", (number, number))
    [stream] = _propose(tmp_path, sampled=4).streams
    assert stream.format == "csv"
    assert any("t_0.csv has sep=';'" in each for each in stream.doubts)
    assert any("t_2.csv is json, the others are csv" in each for each in stream.doubts)


def test_names_of_files_stay_values(tmp_path: Path) -> None:
    """Neither YAML nor a template, a glob or a comment is made of them."""
    folder = tmp_path / 'q"uote\n  evil: {{ var.value.secret }}'
    _write(folder, **{"a*[1]{x}\n# x.csv": "a,b\n1,2\n", "other_1.csv": "c,d\n1,2\n"})
    text = as_yaml(_propose(tmp_path))
    streams = yaml.safe_load(text)["streams"]
    assert len(streams) == 2
    assert set(yaml.safe_load(text)) == {"streams"}
    assert "{{" not in text
    bare = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
    assert yaml.safe_load(bare) == yaml.safe_load(text)


def test_a_name_that_is_not_utf8_is_selected(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9_1.csv")).write_text("a,b\n1,2\n")
    (tmp_path / "other_1.csv").write_text("c,d\n1,2\n")
    found = _propose(tmp_path)
    assert len(found.streams) == 2
    assert as_yaml(found).isascii()
    assert json.dumps(as_json(found))


def test_requests_and_bytes_are_bounded_and_counted(tmp_path: Path) -> None:
    """Of large files the beginning is read, of many tables those with most files."""
    line = '{"a": 1, "b": "' + "x" * 80 + '"}\n'
    for name, count in (("big", 5), ("mid", 4), ("tiny", 1)):
        for number in range(count):
            _write(tmp_path / name, **{f"f_{number}.json": line * (10_000 if name == "big" else 1)})
    found = _propose(tmp_path, tables=2, sampled=2)
    assert [stream.name for stream in found.streams] == ["big", "mid"]
    assert found.requests["get"] == 4
    assert found.requests["list"] == 4
    assert 0 < found.bytes <= 2 * 2**18 + 2 * len(line)
    assert any("1 more table with 1 file" in each for each in found.doubts)
    assert f"{found.requests.total():,} requests" in as_yaml(found)
    starved = _propose(tmp_path, bytes=1)
    assert not starved.streams
    assert starved.bytes == 0
    assert any("--most-bytes" in each for each in starved.doubts)
    assert any("Only the first 2 files" in each for each in _propose(tmp_path, files=2).doubts)


def test_ten_thousand_tables_give_a_short_answer(tmp_path: Path) -> None:
    store = open_store("memory://ten-thousand")
    for number in range(10_000):
        letters = "".join(chr(97 + int(digit)) for digit in f"{number:04}")
        store.put(f"{letters}/t.json", b'{"a": 1}\n')
    found = _propose("memory://ten-thousand", tables=5)
    assert found.tables == 10_000
    assert len(found.streams) == 5
    assert found.requests["get"] == 5
    assert len(as_yaml(found)) < 10_000


def test_nothing_is_written_to_the_source(tmp_path: Path) -> None:
    _write(tmp_path, t_1__csv="a,b\n1,2\n")
    before = sorted(tmp_path.rglob("*")), (tmp_path / "t_1.csv").stat()
    _propose(tmp_path)
    after = sorted(tmp_path.rglob("*")), (tmp_path / "t_1.csv").stat()
    assert after[0] == before[0]
    assert after[1].st_mtime_ns == before[1].st_mtime_ns


def test_what_may_not_be_read_is_named() -> None:
    with unprivileged() as folder:
        _write(folder / "closed", t_1__csv="a,b\n1,2\n")
        _write(folder, good_1__csv="a,b\n1,2\n", secret_1__json='{"a": 1}\n')
        (folder / "closed").chmod(0)
        (folder / "secret_1.json").chmod(0)
        found = _propose(folder)
    assert [stream.name for stream in found.streams] == ["good"]
    said = "\n".join(found.doubts)
    assert "may not be read are left out: closed." in said
    assert "secret_1.json cannot be read: Permission denied" in said


def test_an_empty_folder_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="There is no file in"):
        _propose(tmp_path)
    with pytest.raises(SourceNotFoundError, match="does not exist"):
        _propose(tmp_path / "missing")
    with pytest.raises(SourceNotFoundError, match="There is no file in memory://nothing"):
        _propose("memory://nothing")


def test_state_and_tables_in_the_source_are_refused(tmp_path: Path) -> None:
    _write(tmp_path, t_1__csv="a,b\n1,2\n")
    inside = Places(state_root=str(tmp_path / "state"), target_root="s3://lake/t")
    with pytest.raises(OptionError, match=r"--state-root .* is in the source"):
        propose(str(tmp_path), inside, Limits())
    above = Places(state_root="s3://lake/s", target_root=str(tmp_path.parent))
    with pytest.raises(OptionError, match=r"--target-root .* is a folder above the source"):
        propose(str(tmp_path), above, Limits())
    same = Places(state_root="s3://lake/s", target_root="s3://lake/s/")
    with pytest.raises(OptionError, match="are the same"):
        propose(str(tmp_path), same, Limits())


def _files(*names: str) -> list[FileEntry]:
    """Files that came one an hour, in this order."""
    return [FileEntry(name, 10, at * HOUR) for at, name in enumerate(names)]


def test_how_names_grow() -> None:
    assert growth_of(_files("a1", "a2", "a3", "a4")).kind == "last"
    by_shop = [f"{shop}/{day}" for day in range(9) for shop in ("x", "y")]
    assert growth_of(_files(*by_shop)).kind == "last in their folders"
    assert growth_of(_files("d", "a", "c", "b", "e")).kind == "anywhere"
    assert growth_of([FileEntry(name, 1, 5) for name in "abcd"]).kind == "unknown"


def test_what_a_month_costs() -> None:
    files = _files(*(f"{number:06}" for number in range(1000)))
    options = CloudFilesOptions.parse({"cloudFiles.format": "json"}, path="s3://bucket/in")
    growth = growth_of(files)
    hourly = monthly_cost("s3://bucket/in", options, files, growth, 1)
    often = monthly_cost("s3://bucket/in", options, files, growth, 4)
    assert hourly is not None
    assert often is not None
    assert hourly.new_files == 1
    assert often.requests["LIST"] == 4 * hourly.requests["LIST"] > 0
    assert monthly_cost("/a/disk", options, files, growth, 1) is None


@pytest.mark.parametrize(
    ("name", "glob"),
    [
        ("orders_2026-11-01.csv", "orders_*.csv"),
        ("part-00000-4b5f7a30-8f0c-4c55-9a2e-1f0e9d3c2b1a-c000.parquet", "part-*-c*.parquet"),
        ("20261101T120000Z.json", "*.json"),
        ("customers.csv", "customers.csv"),
        ("a*b1.csv", "a\\*b*.csv"),
        ("9f86d081884c7d65.avro", "*.avro"),
    ],
)
def test_patterns_of_names(name: str, glob: str) -> None:
    assert name_pattern(name).glob() == glob


def test_the_command_writes_a_file_and_overwrites_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in", tmp_path / "streams.yaml"
    _write(source, t_1__csv="a,b\n1,2\n")
    asked = ["propose", str(source), "--state-root", "s3://s/x", "--target-root", "s3://t/x"]
    assert cli.main([*asked, "--output", str(output)]) == 0
    assert "has 1 stream" in capsys.readouterr().out
    before = output.read_text()
    assert cli.main([*asked, "--output", str(output)]) == 2
    assert "--force" in capsys.readouterr().err
    assert output.read_text() == before
    assert cli.main([*asked, "--output", str(output), "--force"]) == 0
    assert cli.main([*asked, "--output", str(source / "streams.yaml")]) == 2
    capsys.readouterr()
    assert cli.main([*asked, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["streams"]["in"]["columns"] == [
        {"name": "a", "type": "int"},
        {"name": "b", "type": "int"},
    ]
