"""Folders of this package are closed to others, and what is written by key stays in them."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import CorruptedStateError, LedgerError
from airflow_cloudfiles.engine.intake.ledger.opening import CACHE_DIR, cache_folder, open_ledger
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.checkpoint_mirror import CheckpointMirror
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage.local import make_private, path_below
from airflow_cloudfiles.engine.storage.memory import MemoryStore

OUTSIDE = ["../x", "a/../../x", "/x", "//x", "a//x", "./x", "a/.", "..", "", "a/\0", "a/b/../c"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def test_a_new_folder_is_closed_to_others_whatever_the_umask(umask, tmp_path):
    assert mode(make_private(tmp_path / "new")) == 0o700


def test_a_folder_that_was_open_is_closed(tmp_path):
    folder = tmp_path / "old"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    assert mode(make_private(folder)) == 0o700


@pytest.mark.parametrize("kind", ["link to a folder", "broken link", "file"])
def test_what_another_user_may_have_put_there_is_refused(kind, tmp_path):
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    if kind == "file":
        place.write_text("")
    else:
        place.symlink_to(elsewhere)
    if kind == "link to a folder":
        elsewhere.mkdir()
        elsewhere.chmod(0o755)
    with pytest.raises(PermissionError, match="not a folder of this user"):
        make_private(place)
    if elsewhere.exists():
        assert mode(elsewhere) == 0o755


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(PermissionError, match="not a folder of this user"):
        make_private(tmp_path)


@pytest.mark.parametrize("key", OUTSIDE)
def test_a_key_that_names_nothing_below_is_refused(key, tmp_path):
    with pytest.raises(ValueError, match="does not name a file"):
        path_below(tmp_path, key)


@given(st.text() | st.lists(st.sampled_from(["..", ".", "", "a", "\\", "~"])).map("/".join))
def test_a_path_of_a_key_is_below_its_folder(key):
    folder = Path("/cache/mirror")
    try:
        path = path_below(folder, key)
    except ValueError:
        return
    assert os.path.normpath(path) == str(path) == f"{folder}/{key}"  # it climbs nowhere


# Where they are used --------------------------------------------------------------------------


@pytest.fixture
def no_home(tmp_path, monkeypatch):
    """A user without a home that can be written, and a temporary folder that all share."""
    monkeypatch.delenv(CACHE_DIR, raising=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"airflow_cloudfiles-{os.getuid()}"


def test_the_cache_below_the_temporary_folder_is_private(no_home):
    assert cache_folder() == no_home
    assert mode(no_home) == 0o700
    no_home.chmod(0o777)
    cache_folder()
    assert mode(no_home) == 0o700


def test_a_link_in_the_temporary_folder_is_not_followed(no_home, tmp_path):
    (tmp_path / "theirs").mkdir()
    no_home.symlink_to(tmp_path / "theirs")
    with pytest.raises(LedgerError, match=CACHE_DIR):
        cache_folder()


def test_the_index_and_the_hand_over_are_private(umask, tmp_path, monkeypatch):
    if os.umask(0o022) == 0o777:
        pytest.skip("RocksDB itself cannot work with this umask")
    monkeypatch.setenv(CACHE_DIR, str(tmp_path / "cache"))
    stream = "0" * 32
    open_ledger(stream, FileLog(MemoryStore(f"memory://{tmp_path.name}"))).close()
    assert mode(tmp_path / "cache" / stream) == 0o700
    assert mode(Path(handoff.new_token()).parent) == 0o700


@pytest.mark.parametrize("key", ["../../outside", "..", "/outside", "a//b", "./outside"])
@pytest.mark.parametrize("folder", ["offsets", "commits", "state", "sources"])
def test_no_key_of_the_state_writes_outside_of_the_mirror(folder, key, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_DIR, str(tmp_path / "cache"))
    uri = f"memory://{tmp_path.name}/{folder}"
    number = f"{folder}/{key}/7" if folder in {"offsets", "commits"} else f"{folder}/{key}"
    store = MemoryStore(uri)
    # As in a bucket, where a key is any text.
    store._space.objects[f"{store._root}{number}".encode()] = (b"{}", 1, 1)
    with pytest.raises(CorruptedStateError, match="Spark did not write"):
        CheckpointMirror.create(uri)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all("mirrors" in path.parts and path.suffix in {".lock", ".json"} for path in written)


def test_the_mirror_is_private(umask, tmp_path, monkeypatch):
    if os.umask(0o022) == 0o777:
        pytest.skip("files of this user could not be read back")
    monkeypatch.setenv(CACHE_DIR, str(tmp_path / "cache"))
    mirror = CheckpointMirror.create(f"memory://{tmp_path.name}")
    assert mode(mirror.folder.parent) == 0o700
    assert mode(mirror.folder) == 0o700
    mirror.finish()
