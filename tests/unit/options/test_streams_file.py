"""A file of streams: each mistake is found, with its line, and nothing is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.streams_file import read_streams

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
defaults:
  format: json
  options: {cloudFiles.inferColumnTypes: true, cloudFiles.maxFilesPerTrigger: 10}
streams:
  orders:
    source: /in
    checkpoint_location: /state/{{ params.name }}
    target: /table
    options:
      cloudFiles.maxFilesPerTrigger: 5
"""


def _read(folder: Path, text: str, **known: set[str]) -> dict[str, dict[str, object]]:
    file = folder / "streams.yaml"
    file.write_text(text)
    return read_streams(file, known)


def test_a_stream_wins_over_the_defaults_key_by_key(tmp_path: Path) -> None:
    assert _read(tmp_path, GOOD) == {
        "orders": {
            "source": "/in",
            "format": "json",
            "checkpoint_location": "/state/{{ params.name }}",
            "target": "/table",
            "options": {"cloudFiles.inferColumnTypes": True, "cloudFiles.maxFilesPerTrigger": 5},
        }
    }


def test_anchors_are_yaml(tmp_path: Path) -> None:
    text = (
        GOOD.replace("  orders:\n", "  orders: &it\n") + "  returns:\n    <<: *it\n    target: /b\n"
    )
    found = _read(tmp_path, text)
    assert (found["returns"]["source"], found["returns"]["target"]) == ("/in", "/b")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("defaults:", "default:", 1, "no section 'default'. Did you mean defaults?"),
        ("source:", "sorce:", 6, "no key 'sorce'. Did you mean source?"),
        ("source:", "sorce:", 5, "orders lacks source, and the defaults do, too."),
        ("target: /table", "target: 7", 8, "target must be a text, got 7."),
        ("PerTrigger: 5", "PerTriger: 5", 10, "cloudFiles.maxFilesPerTrigger"),
        ("PerTrigger: 5", "PerTrigger: many", 10, "'many'"),
        ("PerTrigger: 10", "PerTrigger: 10, cloudFiles.nothing: 1", 3, "cloudFiles.nothing"),
        ("target: /table", "infer_schema: 3\n    target: /t", 8, "must be true or false, got 3."),
        ("target: /table", "sensor: 60\n    target: /t", 8, "sensor must be a mapping, got 60."),
        ("target: /table", "target: /t\n    target: /t", 9, "target is there twice."),
        ("  orders:", "  or/ders:", 5, "The name of a stream must be letters"),
        ("  orders:", "  1:", 5, "in quotes"),
        ("target: /table", "target: !!python/name:os.system", 8, "no plain YAML"),
        ("target: /table", "target: [", 10, "no plain YAML"),
        ("target: /table", "target: /t\n    ingest: {kees: 1}", 9, "Did you mean keys?"),
    ],
)
def test_each_mistake_has_its_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    assert old in GOOD
    with pytest.raises(OptionError) as failure:
        _read(tmp_path, GOOD.replace(old, new, 1), ingest={"keys"})
    message = str(failure.value)
    assert "streams.yaml has " in message
    assert [each for each in message.splitlines() if f" line {line}: " in each and says in each], (
        message
    )


@pytest.mark.parametrize("text", ["", "- a\n", "defaults: {}\n", "streams: [a]\n"])
def test_a_file_without_streams_is_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(OptionError, match="`streams` must be a mapping"):
        _read(tmp_path, text)


def test_all_mistakes_are_found_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("source:", "sorce:").replace("target: /table", "target: 7")
    with pytest.raises(OptionError, match="has 3 mistakes"):
        _read(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none\.yaml cannot be read"):
        read_streams(tmp_path / "none.yaml")
