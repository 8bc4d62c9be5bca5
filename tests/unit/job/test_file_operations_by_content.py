"""Operations on single files that are known by their content (`cloudFiles.fileIdentity`)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.operated import ODD, asked, started


def test_a_file_that_is_put_aside_before_it_is_found_is_known_by_its_content(
    tmp_path: Path,
) -> None:
    stream = started(tmp_path, **{"cloudFiles.fileIdentity": "content"})
    stream.add("x")
    asked(stream, "quarantine", "x")
    log = FileLog(open_store(str(stream.state)))
    (file,) = log.read(log.latest()).files
    assert file.content == hashlib.sha256(b'{"a": "x"}\n').hexdigest()
    stream.run()
    assert stream.rows() == sorted(ODD)
    asked(stream, "release", "x")
    (stream.source / "same.json").write_bytes((stream.source / "x.json").read_bytes())
    stream.run()
    assert stream.rows() == sorted([*ODD, "x"])


def test_a_duplicate_is_never_ingested_itself(tmp_path: Path) -> None:
    stream = started(tmp_path, **{"cloudFiles.fileIdentity": "content"})
    (stream.source / "same.json").write_bytes((stream.source / f"{ODD[3]}.json").read_bytes())
    stream.run()
    with pytest.raises(StateError, match=rf"same\.json has the content of .*{ODD[3]}\.json, which"):
        asked(stream, "replay", "same")
    (why,) = asked(stream, "skip", "same").unchanged.values()
    assert why == "it has the content of another file, and is never ingested itself"
    asked(stream, "replay", ODD[3])
    stream.run()
    assert stream.rows() == sorted(ODD)
