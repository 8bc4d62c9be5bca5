"""An archive of classes is used when it is the one that was made; nothing else that is there is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from airflow_cloudfiles.engine.job import jvm
from airflow_cloudfiles.engine.job.jvm import ClassArchive
from tests.support.waiting import until

COMMAND = ["/usr/bin/java", "-cp", "jars/*", "Main"]
KEY = "abc"
_JAVA = """#!/bin/sh
# Makes an archive as Java does, or says why not.
echo "$@" > {folder}/asked
for word in "$@"; do
    case "$word" in -XX:SharedArchiveFile=*) made="${{word#*=}}" ;; esac
done
{does}
"""


def _java(folder: Path, does: str) -> str:
    """A Java that makes archives of 100 bytes, or does something else."""
    java = folder / "java"
    java.write_text(_JAVA.format(folder=folder, does=does))
    java.chmod(0o755)
    return str(java)


def _run(folder: Path, *, does: str = 'printf "%100s" > "$made"', **conf: str) -> list[str]:
    """One run: what its JVM is started with. Its end makes what is to be made, and waits for it."""
    archive = ClassArchive(folder, KEY, conf)
    java = _java(folder, does)
    options = archive.options([java, *COMMAND[1:]], COMMAND[1:3])
    for each in options:
        if each.startswith(_LISTS):
            classes = Path(each.removeprefix(_LISTS))
            classes.write_text("java/lang/Object\njava/lang/Str")  # it was ended there
            archive.make(classes, [java, *COMMAND[1:3]])
            assert not classes.exists()
    return options


_LISTS = "-XX:DumpLoadedClassList="


def _uses(options: list[str]) -> bool:
    return any(each.startswith("-XX:SharedArchiveFile=") for each in options)


def _makes(options: list[str]) -> bool:
    return any(each.startswith(_LISTS) for each in options)


def test_the_second_run_lists_its_classes_and_the_third_uses_them(tmp_path: Path) -> None:
    assert _run(tmp_path) == []
    assert _makes(_run(tmp_path, does='cp "${3#*=}" "$made"; cp "${2#*=}" "$made"'))
    third = _run(tmp_path)
    assert f"-XX:SharedArchiveFile={tmp_path / KEY}.jsa" in third
    assert "-Xshare:auto" in third
    assert (tmp_path / f"{KEY}.jsa").read_text() == "java/lang/Object\n"
    asked = (tmp_path / "asked").read_text().split()
    assert asked[0] == "-Xshare:dump"
    assert asked[3:5] == COMMAND[1:3]
    assert not list(tmp_path.glob("*.classes"))


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


def test_one_process_at_a_time_makes_it(tmp_path: Path) -> None:
    _run(tmp_path)
    first, second = (ClassArchive(tmp_path, KEY, {}) for _ in range(2))
    lists = tmp_path / "1.classes"
    lists.write_text("java/lang/Object\n")
    assert first._lock.try_acquire()  # as while it is made
    second.make(lists, [_java(tmp_path, "exit 1")])
    assert not (tmp_path / "asked").exists()
    assert second.options(COMMAND) == []
    assert not second.is_wanted
    first._lock.release()
    assert _uses([each for _ in range(2) for each in _run(tmp_path)])


def test_a_java_that_never_makes_one_is_asked_twice_only(tmp_path: Path) -> None:
    made = [_makes(_run(tmp_path, does="echo 'no such class'; exit 3")) for _ in range(6)]
    assert made == [False, True, True, False, False, False]
    note = json.loads((tmp_path / f"{KEY}.archive.json").read_text())
    assert note["failures"] == 2
    assert note["reason"] == "Java ended with exit code 3: no such class"


def test_one_that_is_cut_short_counts(tmp_path: Path) -> None:
    _run(tmp_path)
    for _ in range(2):
        _kill_while_it_makes(tmp_path)
    assert _run(tmp_path) == []


def _kill_while_it_makes(folder: Path) -> None:
    """The process in the background is killed with the Java that it has started."""
    archive = ClassArchive(folder, KEY, {})
    options = archive.options([_java(folder, "exec sleep 600")], [])
    lists = next(each.removeprefix(_LISTS) for each in options if each.startswith(_LISTS))
    Path(lists).write_text("java/lang/Object\n")
    (folder / "asked").unlink(missing_ok=True)
    archive.make_in_background()
    until((folder / "asked").exists)
    [maker] = [each for each in psutil.Process().children() if _command(each).count(lists)]
    assert maker.nice() == 19
    assert os.getsid(maker.pid) != os.getsid(0)
    for each in (*maker.children(), maker):
        each.kill()
    maker.wait()


def _command(process: psutil.Process) -> list[str]:
    return [] if process.status() == psutil.STATUS_ZOMBIE else process.cmdline()


def test_what_outlives_a_run_has_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("CLOUDFILES_ACCESS", "secret")
    _run(tmp_path)
    archive = ClassArchive(tmp_path, KEY, {})
    options = archive.options([_java(tmp_path, f'env > {tmp_path}/env; printf 1 > "$made"')], [])
    lists = next(each.removeprefix(_LISTS) for each in options if each.startswith(_LISTS))
    Path(lists).write_text("java/lang/Object\n")
    archive.make_in_background()
    until(lambda: _uses(ClassArchive(tmp_path, KEY, {}).options(COMMAND)))
    assert "PATH=" in (tmp_path / "env").read_text()
    assert "secret" not in (tmp_path / "env").read_text()


def test_a_jvm_that_no_run_has_used_leaves_the_archive_to_the_next(tmp_path: Path) -> None:
    _run(tmp_path)
    for _ in range(3):
        unused = ClassArchive(tmp_path, KEY, {})
        assert _makes(unused.options(COMMAND))
        unused.leave_to_next()
        assert not unused.is_wanted
    assert _makes(_run(tmp_path))
    assert _uses(_run(tmp_path))


def test_an_archive_that_is_too_large_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "MAX_BYTES", 99)
    for _ in range(4):
        assert not _uses(_run(tmp_path))
    assert list(tmp_path.glob("*.jsa")) == []
    note = json.loads((tmp_path / f"{KEY}.archive.json").read_text())
    assert note["reason"] == "the archive of 100 bytes is larger than 99"


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
        archive = ClassArchive(tmp_path, KEY, {})
        assert archive.options([*COMMAND, word]) == []


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    for _ in range(3):
        _run(tmp_path)
    assert _run(tmp_path, **{"spark.cloudFiles.jvmArchive": "false"}) == []


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    assert ClassArchive(folder, KEY, {}).options(COMMAND) == []


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
