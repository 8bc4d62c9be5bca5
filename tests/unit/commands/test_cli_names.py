"""No name that somebody gave to a file, a folder or a field is obeyed by a terminal."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.commands.outcome import as_text
from airflow_cloudfiles.engine.messages import printable
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.landed import Stream

ODD = {
    "clear\x1b[2J.json": "clear\\x1b[2J.json",
    "title\x1b]0;x\x07.json": "title\\x1b]0;x\\x07.json",
    "c1\x9b31m.json": "c1\\x9b31m.json",
    "line\nbreak.json": "line\\nbreak.json",
    "back\rover.json": "back\\rover.json",
    "turned\u202enosj.json": "turned\\u202enosj.json",
    "back\\slash.json": "back\\slash.json",
    "long" * 60 + ".json": "long" * 60 + ".json",
}
"""Names of files, and how they are printed."""
OF_BUCKETS = {
    "a/../../etc/passwd": "",
    "a/../b.json": "",
    "/lead.json": "/lead.json",
    "k=\x1b[31m/x.json": "k=\\x1b[31m/x.json",
    "x" * 1000: "x" * 1000,
}
"""Keys that only an object store has; what is below `..` is hidden, as below any `.name`."""


class Shown:
    """What commands print on one stream."""

    def __init__(self, source: str, state: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._of_source = ["--source", source, "--format", "json"]
        self._of_state = ["--checkpoint-location", state]
        self._capsys = capsys

    def run(self, *command: str, code: int = 0) -> str:
        """Run a command; gives all that it prints, which is checked."""
        of_source = self._of_source if command[0] in {"discover", "infer"} else []
        assert cli.main([*command, *of_source, *self._of_state]) == code
        shown = self._capsys.readouterr()
        for text in (shown.out, shown.err):
            unsafe = {each for each in text if not each.isprintable() and each not in "\n\t"}
            assert unsafe == set()
        return shown.out + shown.err


def _check_lines(text: str, names: dict[str, str]) -> None:
    lines = text.splitlines()
    for shown in names.values():
        assert [line for line in lines if f"/{shown}" in line], shown


def test_names_on_a_disk_are_printed_as_they_are_or_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, state = tmp_path / "in", str(tmp_path / "state")
    source.mkdir()
    for name in ODD:
        (source / name).write_text('{"a": 1, "\\u202ered": 2}\n')
    Path(os.fsdecode(os.fsencode(source) + b"/not-utf8-\xff.json")).write_text('{"a": 1}\n')
    shown = Shown(str(source), state, capsys)
    shown.run("discover")
    _check_lines(shown.run("state", "files"), {**ODD, "not": "not-utf8-\\xff.json"})
    assert json.loads(shown.run("state", "files", "--json").splitlines()[0])
    shown.run("state", "show")
    Stream(source, Path(state), "json").run()
    assert "\\u202ered" in shown.run("schema", "show")
    (source / "zip\x1b[5m.json").write_bytes(b"PK\x03\x04\0\0")
    shown.run("discover")
    assert "zip\\x1b[5m.json" in shown.run("infer", "--again", code=cli.NOT_DONE)


def test_keys_of_a_bucket_are_printed_as_they_are_or_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bucket = uuid.uuid4().hex
    source = open_store(f"memory://{bucket}/in")
    assert isinstance(source, MemoryStore)
    for key in {**ODD, **OF_BUCKETS}:  # as in a bucket, where a key is any text
        source._space.objects[f"{source._root}{key}".encode()] = (b'{"a": 1}\n', 1, 1)
    shown = Shown(f"memory://{bucket}/in", f"memory://{bucket}/state", capsys)
    shown.run("discover")
    text = shown.run("state", "files")
    _check_lines(text, {**ODD, **{key: each for key, each in OF_BUCKETS.items() if each}})
    assert "/.." not in text


def test_an_error_and_a_log_line_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path / "gone\x1bc\x9b")
    shown = Shown(nowhere, str(tmp_path / "state"), capsys)
    assert "gone\\x1bc\\x9b" in shown.run("discover", code=cli.NOT_DONE)


def test_a_value_of_several_lines_stays_one_line() -> None:
    assert as_text({"a\nb": "c\nd", "e": ["f\ng"], "h": {"i": "\x1b"}}) == (
        "a\\nb: c\\nd\ne:\n  f\\ng\nh:\n  i: \\x1b"
    )
    assert printable("a\tb\udcff", but="\t") == "a\tb\\udcff"
