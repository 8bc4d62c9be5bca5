"""What only a local disk can do to us."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.storage.local import LocalStore

NOBODY = 65534


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def keys(root):
    return [entry.path for entry in LocalStore(str(root)).list()]


@contextmanager
def without_privileges():
    """Be somebody whom permissions bind, as the superuser is not."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_root_that_is_missing_or_a_file_is_no_folder(root):
    assert LocalStore(str(root)).is_folder()
    (root / "file").write_text("")
    assert not LocalStore(str(root / "file")).is_folder()
    assert not LocalStore(str(root / "file/below")).is_folder()
    assert not LocalStore(str(root / "none")).is_folder()
    assert keys(root / "none") == keys(root / "file") == []


def test_modification_times_are_microseconds(root):
    (root / "a").write_text("")
    os.utime(root / "a", ns=(0, 1_700_000_000_123_456_789))
    (entry,) = LocalStore(str(root)).list()
    assert entry.modification_time_us == 1_700_000_000_123_456
    assert entry.etag == ""


def test_links_are_followed_and_loops_are_not(root, tmp_path):
    (tmp_path / "else").mkdir()
    (tmp_path / "else/inside").write_text("x")
    (root / "file").write_text("xy")
    (root / "to-file").symlink_to("file")
    (root / "to-folder").symlink_to(tmp_path / "else")
    (root / "to-parent").symlink_to("..")
    (root / "to-itself").symlink_to("to-itself")
    (root / "sub").mkdir()
    (root / "sub/up").symlink_to("../sub")
    (root / "sub/file").write_text("")
    assert "to-file" in keys(root)
    assert "to-folder/inside" in keys(root)
    assert [key for key in keys(root) if key.startswith("sub/")] == ["sub/file"]
    assert not any(key.startswith(("to-itself", "to-parent/root")) for key in keys(root))


def test_a_broken_link_is_no_file_until_its_target_comes(root):
    (root / "link").symlink_to("later")
    assert keys(root) == []
    assert LocalStore(str(root)).head("link") is None
    (root / "later").write_text("")
    assert keys(root) == ["later", "link"]


def test_pipes_and_sockets_are_no_files(root):
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
        assert keys(root) == []


def test_a_folder_that_cannot_be_read_is_an_error_never_a_gap():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "open").mkdir()
        (folder / "shut").mkdir()
        (folder / "open/a").write_text("")
        (folder / "shut/b").write_text("")
        (folder / "shut").chmod(0o000)
        with without_privileges(), pytest.raises(PermissionError, match="shut"):
            keys(folder)
        (folder / "shut").chmod(0o700)


@pytest.mark.slow
def test_a_deep_tree_is_listed(root):
    key = "/".join(["d"] * 400) + "/file"
    LocalStore(str(root)).put(key, b"")
    assert keys(root) == [key]


def test_a_file_that_goes_while_listing_is_left_out(root):
    for name in ("a", "b", "c", "d/e"):
        LocalStore(str(root)).put(name, b"")
    listing = LocalStore(str(root)).list()
    assert next(listing).path == "a"
    (root / "b").unlink()
    (root / "d/e").unlink()
    (root / "d").rmdir()
    assert [entry.path for entry in listing] == ["c"]


def test_new_files_obey_the_umask_and_new_folders_too(root):
    LocalStore(str(root)).put("sub/a", b"")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((root / "sub/a").stat().st_mode) == 0o666 & ~umask


def test_nothing_is_left_beside_what_is_written(root):
    store = LocalStore(str(root))
    store.put("a", b"1")
    store.put("a", b"2")
    store.put_if_absent("b", b"1")
    store.put_if_absent("b", b"2")
    assert sorted(os.listdir(root)) == ["a", "b"]  # noqa: PTH208 - names as they are


KILL_AT = """
import os, signal, stat, sys
from airflow_cloudfiles.engine.storage.local import LocalStore
def die(*args):
    if sys.argv[2] == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode):
        return  # of a folder above
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[2], die)
getattr(LocalStore(sys.argv[1]), sys.argv[3])("log/0", b"x" * 100_000)
"""


@pytest.mark.parametrize(
    ("step", "call"),
    [
        ("fsync", "put_if_absent"),
        ("link", "put_if_absent"),
        ("unlink", "put_if_absent"),
        ("fsync", "put"),
        ("replace", "put"),
    ],
)
def test_a_kill_while_writing_leaves_the_whole_object_or_none(root, step, call):
    (root / "log").mkdir()
    child = subprocess.run([sys.executable, "-c", KILL_AT, root, step, call], check=False)
    assert child.returncode == -signal.SIGKILL
    store = LocalStore(str(root))
    there = step == "unlink"
    assert keys(root) == (["log/0"] if there else [])
    assert len(os.listdir(root / "log")) == (2 if there else 1)  # noqa: PTH208 - the hidden rest
    assert store.put_if_absent("log/0", b"next") is not there
    assert store.get("log/0") == (b"x" * 100_000 if there else b"next")


RACE = """
import sys
from airflow_cloudfiles.engine.storage.local import LocalStore
store = LocalStore(sys.argv[1])
print(*(n for n in range(200) if store.put_if_absent(f"log/{n}", sys.argv[2].encode())))
"""


def test_of_two_processes_one_creates_each_object(root):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, root, name], stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    created = {
        name: {int(number) for number in child.communicate()[0].split()}
        for name, child in zip(("one", "two"), children, strict=True)
    }
    assert created["one"] | created["two"] == set(range(200))
    assert not created["one"] & created["two"]
    store = LocalStore(str(root))
    for name, numbers in created.items():
        assert all(store.get(f"log/{number}") == name.encode() for number in numbers)


def test_a_file_system_without_hard_links_is_refused_with_a_reason(root, monkeypatch):
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StateError, match="hard links"):
        LocalStore(str(root)).put_if_absent("a", b"")
    assert os.listdir(root) == []  # noqa: PTH208 - names as they are


def test_a_location_is_recognised_through_links(root, tmp_path):
    (root / "state").mkdir()
    (tmp_path / "alias").symlink_to(root)
    assert LocalStore(str(root)).key_of(str(tmp_path / "alias/state")) == "state"
    assert LocalStore(str(tmp_path / "alias")).key_of(str(root)) == ""
