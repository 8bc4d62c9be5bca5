"""The Java that Spark needs is found, or its absence is explained in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import JavaNotFoundError
from airflow_cloudfiles.engine.job import java


def _java(folder: Path, version: str, *, module: bool = True, home: Path | None = None) -> Path:
    """A program that answers as a Java of that version does."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refuse = "" if module else f'[ "$1" = {java.ADD_MODULE} ] && exit 1\n'
    reported = f"echo '    java.home = {home or folder}' >&2\n"
    binary.write_text(f"#!/bin/sh\n{refuse}{reported}echo 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)
    return folder


@pytest.fixture
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any Java but what a test makes."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "jdk" / "bin"))
    monkeypatch.setattr(java, "_FOLDERS", ((str(tmp_path / "jvm"), "*"),))


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_java_is_taken_from_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    home = _java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java() == str(home)


@pytest.mark.slow
def test_without_a_new_enough_java_the_error_says_what_was_found_and_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _java(tmp_path / "old", "1.8.0_412")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "JAVA_MINIMUM", 99)
    with pytest.raises(JavaNotFoundError, match="is Java 8") as caught:
        java.find_java()
    assert "apt-get install" in str(caught.value)


@pytest.mark.usefixtures("_alone")
def test_a_java_without_the_module_that_spark_starts_with_is_passed_over_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "small", "25", module=False)))
    with pytest.raises(JavaNotFoundError, match=r"is Java 25 without the module jdk\.incubator"):
        java.find_java()
    found = _java(tmp_path / "jvm" / "java-21", "21")
    assert java.find_java() == str(found)


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize(
    ("version", "modules", "is_started"),
    [
        ("21.0.1", f"java.base {java.MODULE}", False),
        ("21.0.1", "java.base", True),
        ("11.0.2", f"java.base {java.MODULE}", True),
    ],
)
def test_a_java_whose_release_file_says_enough_is_not_started(
    tmp_path: Path, version: str, modules: str, *, is_started: bool
) -> None:
    home = _java(tmp_path / "jdk", "21")
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    started = tmp_path / "started"
    binary = home / "bin" / "java"
    binary.write_text(f"{binary.read_text()}: > '{started}'\n")
    assert java.find_java() == str(home)
    assert started.exists() == is_started


@pytest.mark.usefixtures("_alone")
def test_a_java_on_the_path_reports_its_home(tmp_path: Path) -> None:
    _java(tmp_path / "jdk", "21", home=Path("/opt/real home"))
    assert java.find_java() == "/opt/real home"


def test_the_script_finds_what_the_package_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "jdk", "21")))
    script = repository / "scripts" / "find_java.py"
    ran = subprocess.run([sys.executable, "-S", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == java.find_java() == str(tmp_path / "jdk")
