"""The folder on a Spark Connect server in which Spark keeps its checkpoint of one run."""

from __future__ import annotations

import json
import os
import stat
import uuid
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import OptionError, StateError
from airflow_cloudfiles.engine.job.connect.query import query_id
from airflow_cloudfiles.engine.spark.server_checkpoint import HeldCheckpoint, new_folder, prepare
from airflow_cloudfiles.engine.state.metadata import open_metadata
from airflow_cloudfiles.engine.storage import open_store

ID = str(uuid.uuid4())


def _prepared(parent: Path) -> Path:
    folder = new_folder(str(parent))
    prepare(folder, ID)
    return Path(folder)


def test_spark_finds_the_id_of_the_query_in_a_folder_that_only_this_user_can_enter(tmp_path):
    folder = _prepared(tmp_path)
    prepare(str(folder), str(uuid.uuid4()))  # as when the source is defined again
    assert json.loads((folder / "metadata").read_text()) == {"id": ID}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_ends_with_its_query_and_one_left_behind_with_a_later_one(tmp_path):
    held = HeldCheckpoint(str(_prepared(tmp_path)))
    running, left_behind = (_prepared(tmp_path) for _ in "ab")
    other = HeldCheckpoint(str(running))
    for each in (running, left_behind):
        os.utime(each, (0, 0))
    held.remove()
    assert set(tmp_path.iterdir()) == {running, left_behind}
    young = _prepared(tmp_path)
    assert set(tmp_path.iterdir()) == {running, young}
    other.remove()
    assert set(tmp_path.iterdir()) == {young}


@pytest.mark.parametrize(
    "folder",
    [
        "relative/cloudfiles-checkpoint-00000000000000000000000000000000",
        "{}/other",
        "{}/x/../cloudfiles-checkpoint-00000000000000000000000000000000",
        "{}/cloudfiles-checkpoint-00000000000000000000000000000000/..",
        "{}/cloudfiles-checkpoint-short",
    ],
)
def test_no_other_folder_is_taken(tmp_path, folder):
    for use in (lambda name: prepare(name, ID), HeldCheckpoint):
        with pytest.raises(OptionError, match="remove it"):
            use(folder.format(tmp_path))
    assert not list(tmp_path.iterdir())


def test_an_id_is_only_an_id(tmp_path):
    with pytest.raises(OptionError, match="queryId"):
        prepare(new_folder(str(tmp_path)), '"}')


def test_a_temporary_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"java\.io\.tmpdir") as caught:
        prepare(new_folder(str(tmp_path / "file")), ID)
    assert str(tmp_path / "file") in caught.value.message


def test_the_query_of_a_stream_has_one_id_and_that_of_a_copy_another(tmp_path):
    for name in "ab":
        open_metadata(open_store(str(tmp_path / name)), f"file:///{name}", "json")
    assert query_id(str(tmp_path / "a")) == query_id(f"file://{tmp_path}/a")
    assert query_id(str(tmp_path / "a")) != query_id(str(tmp_path / "b"))
    copied = tmp_path / "c" / "_source"
    copied.mkdir(parents=True)
    (copied / "metadata.json").write_bytes((tmp_path / "a/_source/metadata.json").read_bytes())
    assert query_id(str(tmp_path / "a")) != query_id(str(tmp_path / "c"))
