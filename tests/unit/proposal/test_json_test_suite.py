"""Ingest files of the public suite JSONTestSuite, which lie in one folder, by what is proposed.

https://github.com/nst/JSONTestSuite: of a file whose name begins with `y` a parser has to take the
content, with `n` it has to refuse it, with `i` it may do either. Each file has one oddity, and the
folder has no two files of one table.
"""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.extensions.proposal.propose import propose
from airflow_cloudfiles.engine.extensions.proposal.proposed import (
    Limits,
    Places,
    ProposedStream,
    StreamsProposal,
    as_yaml,
)
from airflow_cloudfiles.engine.extensions.streams_file import read_streams
from tests.support.ingested import Ingested

RECORDS = {
    "y_object": b'{"asd":"sdf", "dfg":"fgh"}',
    "y_object_basic": b'{"asd":"sdf"}',
    "y_object_extreme_numbers": b'{ "min": -1.0e+28, "max": 1.0e+28 }',
    "y_object_long_strings": b'{"x":[{"id": "%s"}], "id": "%s"}' % (b"x" * 40, b"x" * 40),
    "y_object_simple": b'{"a":[]}',
    "y_object_string_unicode": rb'{"title":"\u041f\u043e\u043b\u0442\u043e\u0440\u0430" }',
    "y_object_with_newlines": b'{\n"a": "b"\n}',
}
"""One record each."""
NO_COLUMN = {
    "y_object_empty": b"{}",
    "y_object_empty_key": b'{"":0}',
    "y_object_escaped_null_in_key": rb'{"foo\u0000bar": 42}',
    "i_structure_UTF-8_BOM_empty_object": b"\xef\xbb\xbf{}",
}
"""Objects without a field that can be a column."""
DAMAGED = {
    "n_object_trailing_comma": b'{"id":0,}',
    "n_object_trailing_comment": b'{"a":"b"}/**/',
    "n_structure_object_with_trailing_garbage": b'{"a": true} "x"',
    "n_structure_open_array_object": b'[{"":' * 1000,
    "n_structure_unclosed_object": b'{"asd":"asd"',
}
NO_RECORD = {
    "y_array_empty": b"[]",
    "y_structure_lonely_string": b'"asd"',
    "i_string_UTF-16LE_with_BOM": '\ufeff["\u00e9"]'.encode("utf-16-le"),
    "i_structure_500_nested_arrays": b"[" * 500 + b"]" * 500,
    "n_object_unquoted_key": b'{a: "b"}',
    "n_string_invalid_utf8_after_escape": b'["\\u\xe5"]',
    "n_structure_angle_bracket_null": b"[<null>]",
}
"""Texts of which no record is an object."""
NOTHING = {
    "n_single_space": b" ",
    "n_structure_no_data": b"",
    "n_structure_null-byte-outside-string": b"[\x00]",
    "n_structure_UTF8_BOM_no_data": b"\xef\xbb\xbf",
}


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StreamsProposal]:
    """The folder, and what is proposed for it."""
    folder = tmp_path_factory.mktemp("json-test-suite")
    (folder / "in").mkdir()
    for name, content in (RECORDS | NO_COLUMN | DAMAGED | NO_RECORD | NOTHING).items():
        (folder / "in" / f"{name}.json").write_bytes(content)
    places = Places(state_root=str(folder / "states"), target_root=str(folder / "tables"))
    return folder, propose(str(folder / "in"), places, Limits())


def _of_file(found: StreamsProposal, name: str) -> ProposedStream:
    """The stream that takes a file; numbers in its name may be any numbers."""
    (stream,) = (
        each for each in found.streams if fnmatch(f"{name}.json", each.options["pathGlobFilter"])
    )
    return stream


def test_each_record_is_ingested_as_a_parser_reads_it(
    proposed: tuple[Path, StreamsProposal],
) -> None:
    folder, found = proposed
    (folder / "streams.yaml").write_text(as_yaml(found), encoding="utf-8")
    streams = read_streams(folder / "streams.yaml")
    for name, content in RECORDS.items():
        stream = streams[_of_file(found, name).name]
        (folder / name).mkdir()
        run = Ingested(folder / name, **stream["options"])
        run.source = Path(stream["source"].removeprefix("file://"))
        run.state, run.target = Path(stream["checkpoint_location"]), Path(stream["target"])
        run.format = stream["format"]
        run.run()
        table = run.table.to_pyarrow_dataset().to_table().drop_columns(["_rescued_data"])
        assert table.to_pylist() == [json.loads(content)], name


@pytest.mark.parametrize("name", [*NO_COLUMN, *DAMAGED])
def test_what_has_no_column_is_json_with_a_doubt(
    proposed: tuple[Path, StreamsProposal], name: str
) -> None:
    stream = _of_file(proposed[1], name)
    assert stream.format == "json"
    doubts = " ".join(stream.doubts)
    assert "The columns could not be inferred" in doubts
    assert ("not valid JSON" in doubts) == (name in DAMAGED)


@pytest.mark.parametrize("name", NO_RECORD)
def test_the_content_decides_against_the_name(
    proposed: tuple[Path, StreamsProposal], name: str
) -> None:
    stream = _of_file(proposed[1], name)
    assert stream.format == "text"
    assert "The names end in .json, but the content is text: the content decides." in stream.doubts


def test_no_stream_is_proposed_for_nothing(proposed: tuple[Path, StreamsProposal]) -> None:
    found = proposed[1]
    assert len(found.streams) == len(RECORDS | NO_COLUMN | DAMAGED | NO_RECORD)
    for name in NOTHING:
        assert any(f"{name}.json" in each for each in found.doubts), name
