"""Where files are known by their content, each content is read once, from whichever file has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import (
    FileChangedError,
    FileMissingError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.reading.missing_files import SameContent
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landed import Stream
from tests.support.lines import fetch


class ByContent(Stream):
    """A stream of which files are changed between discovery and reading."""

    def __init__(self, folder: Path, **options: object) -> None:
        given = {"cloudFiles.fileIdentity": "content", **options}
        super().__init__(folder / "in", folder / "state", "json", **given)
        self.source.mkdir()
        self.between: Callable[[], Any] = lambda: None

    def _planned(self) -> tuple[BatchContext, list[FileEntry]]:
        found = super()._planned()
        act, self.between = self.between, lambda: None
        act()
        return found

    def write(self, name: str, value: str) -> None:
        (self.source / name).write_text(f'{{"a": "{value}"}}\n')

    def touch(self, name: str) -> None:
        content = (self.source / name).read_bytes()
        (self.source / name).unlink()
        (self.source / name).write_bytes(content)

    def read(self) -> list[str]:
        """The values of one run."""
        return sorted(row["a"] for row in self.run())


@pytest.fixture
def stream(tmp_path: Path) -> ByContent:
    """A stream that has found one content in three files, and not read it."""
    found = ByContent(tmp_path)
    found.write("begin.json", "0")
    assert found.read() == ["0"]
    for name in ("a.json", "b.json", "c.json"):
        found.write(name, "1")
    return found


def test_one_of_the_files_is_read(stream: ByContent) -> None:
    assert stream.read() == ["1"]
    stream.write("later.json", "1")
    stream.touch("a.json")
    assert stream.read() == []


@pytest.mark.parametrize("then", ["is overwritten", "is deleted"])
def test_when_the_first_one_changes_another_one_is_read(stream: ByContent, then: str) -> None:
    def change() -> None:
        (stream.source / "b.json").unlink()  # a duplicate that is gone, too
        (stream.source / "a.json").unlink()
        if then == "is overwritten":
            stream.write("a.json", "2")

    stream.between = change
    assert stream.read() == ["1"]
    assert stream.read() == (["2"] if then == "is overwritten" else [])
    assert stream.read() == []


def test_a_file_that_was_touched_is_read_as_it_is(tmp_path: Path) -> None:
    stream = ByContent(tmp_path)
    stream.write("a.json", "1")
    stream.between = lambda: stream.touch("a.json")
    assert stream.read() == ["1"]
    assert stream.read() == []


def test_new_fields_of_a_file_that_is_read_in_the_place_of_another(tmp_path: Path) -> None:
    stream = ByContent(tmp_path)
    stream.write("begin.json", "0")
    assert stream.read() == ["0"]
    for name in ("a.json", "b.json"):
        (stream.source / name).write_text('{"a": "1", "c": "2"}\n')
    stream.between = (stream.source / "a.json").unlink
    with pytest.raises(UnknownFieldException):
        stream.read()
    (row,) = stream.run()
    assert (row["a"], row["c"]) == ("1", "2")


def test_a_content_that_is_gone_is_asked_for_and_read_wherever_it_comes_back(
    tmp_path: Path,
) -> None:
    stream = ByContent(tmp_path)
    stream.write("a.json", "1")
    stream.write("z.json", "3")
    stream.between = lambda: stream.write("a.json", "22")
    with pytest.raises(FileMissingError, match=r"a\.json was discovered with the content"):
        stream.read()
    stream.write("elsewhere.json", "1")
    assert stream.read() == ["1", "22", "3"]
    assert stream.read() == []


def test_a_content_that_is_gone_is_left_out_where_missing_files_are_ignored(
    tmp_path: Path,
) -> None:  # B96
    stream = ByContent(tmp_path, ignoreMissingFiles="true")
    stream.write("a.json", "1")
    stream.write("z.json", "3")
    stream.between = lambda: stream.write("a.json", "2")
    assert stream.read() == ["3"]
    assert sum(each.fetched.missing_files for each in stream.counts) == 1
    assert stream.read() == ["2"]


def test_a_part_of_a_file_that_is_gone_is_tried_again(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    gone = FileEntry("a", 10, 1, "", "0" * 64)
    counts = FetchCounts()

    def fetch_part(part: FileRange, _: object) -> Any:
        return fetch(store, part, counts, ignore_missing=False)

    same = SameContent(store, str(tmp_path / "state"), 0)
    with pytest.raises(FileChangedError, match="deleted after it was split"):
        list(same.fetch(FileRange(gone, 0, 5), None, fetch_part, counts, ignore_missing=True))
