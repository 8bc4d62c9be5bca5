"""JSON Lines that were joined with `cat` are read as they were; names with control characters."""

from __future__ import annotations

import gzip
import json
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stream.test_every_format import Landing

JSON = [BOM_UTF8 + b'{"a": "1"}\n', BOM_UTF8 + b'{"a": "2"}\n', BOM_UTF8 + b"\n"]


@pytest.mark.parametrize(
    "options",
    [{}, {"multiLine": "true"}, {"lineSep": "\n"}, {"cloudFiles.inferColumnTypes": "true"}],
)
# Named, since gzip notes the second: processes that collect in different ones would not agree.
@pytest.mark.parametrize(
    "joined",
    [b"".join(JSON), b"".join(map(gzip.compress, JSON))],
    ids=["as they are", "each packed"],
)
def test_marks_between_records_of_json_are_passed_over(
    tmp_path: Path, options: dict[str, Any], joined: bytes
) -> None:
    landing = Landing("json", tmp_path)
    landing.put("1", joined)
    stream = landing.stream(**options)
    assert [(str(row["a"]), row["_rescued_data"]) for row in stream.run()] == [
        ("1", None),
        ("2", None),
    ]
    assert sum(each.corrupt_records for each in stream.counts) == 0


def test_marks_between_records_are_passed_over_in_variants(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    landing.put("1", b"".join(JSON))
    rows = landing.stream(singleVariantColumn="v").run()
    assert [(row["v"] is None, row["_rescued_data"]) for row in rows] == [(False, None)] * 2


def test_a_mark_within_a_string_stays(tmp_path: Path) -> None:
    landing = Landing("json", tmp_path)
    landing.put("1", b'{"a": "' + BOM_UTF8 + b'"}\n')
    assert landing.stream().run()[0]["a"] == "\ufeff"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("json", b'{"k": "1", "k\\u0000a": "2", "k\\u0000b": "3"}\n'),
        ("csv", b"k,k\0a,k\0b\n1,2,3\n"),
    ],
)
def test_names_with_control_characters_are_rescued(
    tmp_path: Path, name: str, content: bytes
) -> None:
    landing = Landing(name, tmp_path)
    landing.put("1", content)
    stream = landing.stream()
    [row] = stream.run()
    assert list(row) == ["k", "_rescued_data"]
    rescued = json.loads(row["_rescued_data"])
    assert (row["k"], rescued["k\0a"], rescued["k\0b"]) == ("1", "2", "3")
    landing.put("2", content)
    assert len(stream.run()) == 1
    assert landing.versions() == [0]
