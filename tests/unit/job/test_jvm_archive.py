"""An archive of classes is used when it is the one that was made; nothing else that is there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job import jvm, jvm_archive
from airflow_cloudfiles.engine.job.jvm_archive import Archive

COMMAND = ["/usr/bin/java", "-cp", "jars/*", "Main"]
KEY = "abc"


def _jvm(folder: Path, options: list[str], *, writes: int | None = 100) -> None:
    """End as a JVM does: it writes the archive that it was asked for."""
    made = [each.partition("=")[2] for each in options if "ArchiveClassesAtExit" in each]
    if made and writes is not None:
        Path(made[0]).write_bytes(b"c" * writes)


def _run(folder: Path, *, writes: int | None = 100, **conf: str) -> list[str]:
    """One run: what its JVM is started with."""
    archive = Archive(folder, KEY, conf)
    options = archive.options(COMMAND)
    _jvm(folder, options, writes=writes)
    if archive.is_wanted:
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            archive.keep(process)
    return options


def _uses(options: list[str]) -> bool:
    return any(each.startswith("-XX:SharedArchiveFile=") for each in options)


def _makes(options: list[str]) -> bool:
    return any(each.startswith("-XX:ArchiveClassesAtExit=") for each in options)


def test_the_second_run_makes_it_and_the_third_uses_it(tmp_path: Path) -> None:
    assert _run(tmp_path) == []
    assert _makes(_run(tmp_path))
    third = _run(tmp_path)
    assert f"-XX:SharedArchiveFile={tmp_path / KEY}.jsa" in third
    assert "-Xshare:auto" in third


@pytest.mark.parametrize("damage", ["shorter", "longer", "another", "missing", "note"])
def test_a_damaged_foreign_or_missing_archive_is_not_used_and_made_again(
    tmp_path: Path, damage: str
) -> None:
    for _ in range(3):
        _run(tmp_path)
    path, note = tmp_path / f"{KEY}.jsa", tmp_path / f"{KEY}.archive.json"
    if damage == "note":
        note.write_text("{not json")
    elif damage == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        changed = {"shorter": content[:-1], "longer": content + b"x", "another": b"d" * 100}
        other = tmp_path / "other"
        other.write_bytes(changed[damage])
        other.replace(path)
    runs = [_run(tmp_path) for _ in range(2)]
    assert not any(map(_uses, runs[:1]))
    assert sum(map(_makes, runs)) == 1
    assert _uses(_run(tmp_path))


def test_one_run_at_a_time_makes_it(tmp_path: Path) -> None:
    _run(tmp_path)
    first, second = (Archive(tmp_path, KEY, {}) for _ in range(2))
    assert _makes(first.options(COMMAND))
    assert second.options(COMMAND) == []
    assert not second.is_wanted


def test_a_jvm_that_never_writes_one_is_asked_twice_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        made = [_makes(_run(tmp_path, writes=None)) for _ in range(6)]
    assert made == [False, True, True, False, False, False]
    assert "The archive of classes was not made: " in caplog.text


def test_a_run_that_is_killed_while_it_makes_one_counts(tmp_path: Path) -> None:
    _run(tmp_path)
    for _ in range(2):
        killed = Archive(tmp_path, KEY, {})
        assert _makes(killed.options(COMMAND))
        killed._lock.release()  # as the kernel does
    assert _run(tmp_path) == []


def test_a_jvm_that_no_run_has_used_leaves_the_archive_to_the_next(tmp_path: Path) -> None:
    _run(tmp_path)
    for _ in range(3):
        unused = Archive(tmp_path, KEY, {})
        assert _makes(unused.options(COMMAND))
        unused.leave_to_next()
        assert not unused.is_wanted
    assert _makes(_run(tmp_path))
    assert _uses(_run(tmp_path))


def test_an_archive_that_is_too_large_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jvm_archive, "MAX_BYTES", 99)
    with caplog.at_level("INFO"):
        for _ in range(4):
            assert not _uses(_run(tmp_path))
    assert list(tmp_path.glob("*.jsa")) == []
    assert "The archive of 100 bytes is larger than 99: not kept" in caplog.text


def test_the_newest_archives_are_kept(tmp_path: Path) -> None:
    for number in range(6):
        path = tmp_path / f"old{number}.jsa"
        path.write_bytes(b"")
        os.utime(path, (number, number))
    for _ in range(2):
        _run(tmp_path)
    kept = {path.stem for path in tmp_path.glob("*.jsa")}
    assert kept == {KEY, "old5", "old4", "old3"}


@pytest.mark.parametrize("word", ["-Xshare:off", "-XX:SharedArchiveFile=/mine", "-XX:AOTCache=a"])
def test_what_the_user_says_of_class_data_is_left_alone(tmp_path: Path, word: str) -> None:
    for _ in range(3):
        archive = Archive(tmp_path, KEY, {})
        assert archive.options([*COMMAND, word]) == []


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    for _ in range(3):
        _run(tmp_path)
    assert _run(tmp_path, **{"spark.cloudFiles.jvmArchive": "false"}) == []


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    assert Archive(folder, KEY, {}).options(COMMAND) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '["java"]', "[1, 2]", "{not"])
def test_a_command_line_that_cannot_be_read_is_written_again(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert jvm._kept(path) is None
    path.write_text(json.dumps(COMMAND))
    assert jvm._kept(path) == COMMAND


def test_one_archive_serves_every_configuration_of_one_java_and_spark() -> None:
    def key(memory: str, conf: str, collector: str) -> list[str]:
        flags = [f"-Xmx{memory}", f"-XX:+Use{collector}GC", "--add-modules=a", f"-Dx={conf}"]
        return jvm._class_words(["java", "-cp", "jars/*", *flags, jvm._SUBMIT, "--conf", conf])

    assert key("1g", "a=1", "Serial") == key("2g", "a=2", "Serial")
    assert key("1g", "a=1", "Serial") != key("1g", "a=1", "G1")


def test_another_archive_of_java_itself_is_another_java(tmp_path: Path) -> None:
    """Java refuses an archive that was made with another one: so it is to be made again."""
    java, base = tmp_path / "bin" / "java", tmp_path / "lib" / "server" / "classes.jsa"
    for path in (java, base):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"first")
    first = jvm.software(java, tmp_path)
    assert jvm.software(java, tmp_path) == first
    base.write_bytes(b"another")
    second = jvm.software(java, tmp_path)
    base.unlink()
    assert len({str(each) for each in (first, second, jvm.software(java, tmp_path))}) == 3
