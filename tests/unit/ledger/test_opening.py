"""An index can be lost, damaged or replaced at any time, and nobody notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from airflow_cloudfiles.engine.errors import LedgerError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake.ledger import opening
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder, open_ledger
from airflow_cloudfiles.engine.intake.ledger.rocksdb import MARK_KEY, RocksDBLedger
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.storage import open_store

STREAM = "0" * 32
PATHS = [f"f{number:04d}" for number in range(3000)]


@pytest.fixture
def log():
    files = FileLog(open_store(f"memory://{uuid.uuid4().hex}"))
    for number in range(3):
        some = PATHS[number * 1000 : (number + 1) * 1000]
        files.append(number, FileBatch(tuple(FileEntry(path, 1, 2) for path in some)))
    return files


@pytest.fixture
def folder():
    return cache_folder() / STREAM


def build(folder: Path) -> Path:
    """The directory of the index in slot 0."""
    (directory,) = (folder / "0").iterdir()
    return directory


def unseen(ledger) -> list[str]:
    asked = [FileEntry(path, 1, 2) for path in [*PATHS, "new"]]
    return [entry.path for entry in ledger.unseen(asked)]


def check_and_close(ledger):
    assert unseen(ledger) == ["new"]
    assert ledger.caught_up == 2
    ledger.close()


def test_an_index_is_built_from_the_file_log(log, folder):
    check_and_close(open_ledger(STREAM, log))
    assert (folder / "0").is_dir()


def test_an_index_is_found_again(log, folder, monkeypatch):
    check_and_close(open_ledger(STREAM, log))
    monkeypatch.setattr(RocksDBLedger, "record", None)  # nothing is recorded a second time
    check_and_close(open_ledger(STREAM, log))


def test_a_deleted_index_is_built_anew(log, folder):
    check_and_close(open_ledger(STREAM, log))
    shutil.rmtree(folder / "0")
    check_and_close(open_ledger(STREAM, log))
    shutil.rmtree(folder)
    check_and_close(open_ledger(STREAM, log))


def test_a_cache_deleted_while_in_use_harms_nobody(log, folder):
    one = open_ledger(STREAM, log)
    shutil.rmtree(folder)
    two = open_ledger(STREAM, log)
    assert unseen(one) == ["new"]
    one.clear()
    check_and_close(two)
    one.close()
    check_and_close(open_ledger(STREAM, log))
    assert build(folder).is_dir()


@pytest.mark.slow
def test_whichever_file_of_an_index_is_lost_or_damaged_it_is_right_in_the_end(log, folder):
    check_and_close(open_ledger(STREAM, log))
    names = sorted(path.name for path in build(folder).iterdir())
    assert {"CURRENT"} <= set(names)
    for name in names:
        for harm in ("lost", "emptied", "garbage", "cut"):
            path = build(folder) / name
            if not path.exists():
                continue
            content = path.read_bytes()
            if harm == "lost":
                path.unlink()
            else:
                left = {
                    "emptied": b"",
                    "garbage": os.urandom(512),
                    "cut": content[: len(content) // 2],
                }
                path.write_bytes(left[harm])
            check_and_close(open_ledger(STREAM, log))


def test_an_index_that_is_no_directory_is_built_anew(log, folder):
    folder.mkdir(parents=True)
    (folder / "0").write_text("what is this?")
    check_and_close(open_ledger(STREAM, log))
    directory = build(folder)
    shutil.rmtree(directory)
    directory.write_text("and this?")
    check_and_close(open_ledger(STREAM, log))


@pytest.mark.parametrize("mark", [None, b"", b"{}", b'{"version": 2, "entry": 2, "id": "x"}'])
def test_an_index_of_another_version_is_built_anew(log, folder, mark):
    (folder / "0").mkdir(parents=True)
    database = Rdict(str(folder / "0/x"), options=Options(raw_mode=True))
    database[b"fnew"] = b"whatever this means"
    if mark is not None:
        database[MARK_KEY] = mark
    database.close()
    check_and_close(open_ledger(STREAM, log))


def test_a_second_ledger_at_the_same_time_has_a_place_of_its_own(log, folder):
    one = open_ledger(STREAM, log)
    two = open_ledger(STREAM, log)
    assert {path.name for path in folder.iterdir()} == {"0", "0.lock", "1", "1.lock"}
    check_and_close(one)
    three = open_ledger(STREAM, log)
    check_and_close(two)
    check_and_close(three)
    assert not (folder / "2").exists()


@pytest.mark.slow
def test_a_process_killed_with_the_ledger_open_leaves_its_place_free(log, folder):
    script = """
import os, signal, sys
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.intake.ledger.opening import open_ledger
from airflow_cloudfiles.engine.storage import open_store
open_ledger(sys.argv[1], FileLog(open_store("memory://x")))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script, STREAM], check=False)
    check_and_close(open_ledger(STREAM, log))
    assert not (folder / "1").exists()


def test_a_cache_that_cannot_be_written_is_named(log, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(opening.CACHE_DIR, str(tmp_path / "file/cache"))
    with pytest.raises(LedgerError, match="CLOUDFILES_CACHE_DIR") as caught:
        open_ledger(STREAM, log)
    assert "file/cache" in str(caught.value)


def test_the_cache_is_where_the_user_says(tmp_path, monkeypatch):
    monkeypatch.setenv(opening.CACHE_DIR, str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv(opening.CACHE_DIR)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg/airflow_cloudfiles"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache/airflow_cloudfiles"


def test_a_user_without_a_home_gets_a_private_cache(tmp_path, monkeypatch):
    monkeypatch.delenv(opening.CACHE_DIR)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file/none"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = cache_folder()
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o077 == 0
    folder.rmdir()
    folder.symlink_to("/")
    with pytest.raises(LedgerError, match="not a folder of this user"):
        cache_folder()


@pytest.mark.slow
def test_damage_found_while_reading_is_an_error_never_an_unseen_file(tmp_path):
    directory = tmp_path / "index"
    files = tuple(FileEntry(f"f{number:07d}", 1, 2) for number in range(50_000))
    ledger = RocksDBLedger(directory)
    ledger.record(0, "id", FileBatch(files))
    ledger.close()
    for path in _tables(directory):
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 64] = os.urandom(64)
        path.write_bytes(bytes(content))
    with pytest.raises(LedgerError):
        _use(directory, files)


def _tables(directory: Path) -> list[Path]:
    """The sorted tables; closing has put the records there."""
    tables = list(directory.glob("*.sst"))
    assert tables
    return tables


def _use(directory: Path, files: tuple[FileEntry, ...]) -> None:
    ledger = RocksDBLedger(directory)
    assert list(ledger.unseen(files)) == []
