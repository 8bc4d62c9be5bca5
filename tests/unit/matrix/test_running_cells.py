"""What is still to be run of a cell, what pytest says of it, and what the exit code says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from matrix import __main__ as command
from matrix import environment, page
from matrix.declared import Cell, read
from matrix.parts import PARTS, Part
from matrix.running import count, run

PASSED = {"passed": 3, "failed": 0, "skipped": 1, "seconds": 1.0, "failures": []}
FAILED = {**PASSED, "failed": 1, "failures": ["tests.a.test_b"]}
EMPTY = {**PASSED, "passed": 0}
CELL = Cell("3.11", "3.1", "4.2")
A, B = PARTS[:2]


def _result(commit: str = "1a2b3c", **parts: Any) -> dict[str, Any]:
    given = {A.name: PASSED, B.name: PASSED, **parts}
    return {"commit": commit, "parts": given}


def test_what_has_passed_for_the_same_commit_is_not_run_again() -> None:
    assert page.left([A, B], _result(), "1a2b3c") == []
    assert page.left([A, B], _result(), "4d5e6f") == [A, B]
    assert page.left([A, B], None, "1a2b3c") == [A, B]
    for bad in (FAILED, EMPTY, None):
        assert page.left([A, B], _result(**{B.name: bad}), "1a2b3c") == [B]


def test_a_checkout_with_changes_is_always_tested() -> None:
    changed = "1a2b3c with changes"
    assert page.left([A, B], _result(changed), changed) == [A, B]


def test_pytests_own_counts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # of the tests that this is one of
    tree, python = tmp_path / "tree", Path(sys.executable)
    tree.mkdir()
    (tree / "test_it.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "@pytest.mark.skip\n"
        "def test_skipped(): pass\n"
        "@pytest.fixture\n"
        "def broken(): raise OSError\n"
        "def test_error(broken): pass\n"
    )
    counts = run(tmp_path, python, Part("one part", "", ("test_it.py",)))
    assert (counts.passed, counts.failed, counts.skipped) == (1, 2, 1)
    assert sorted(each.rpartition(".")[2] for each in counts.failures) == ["test_bad", "test_error"]
    assert "assert False" in (tmp_path / "one-part.log").read_text()

    # No test, no pytest: not passed, and nothing of the run before counts.
    nothing = run(tmp_path, python, Part("one part", "", ("test_it.py", "-k", "nowhere")))
    assert (nothing.passed, nothing.failed) == (0, 1)
    assert "pytest ended with 5" in nothing.failures[0]
    assert count(tmp_path / "nowhere.xml").passed == 0

    (tree / "test_it.py").write_text(
        "def test_good(): pass\ndef test_interrupted(): raise KeyboardInterrupt\n"
    )
    interrupted = run(tmp_path, python, Part("one part", "", ("test_it.py",)))
    assert (interrupted.passed, interrupted.failed) == (0, 1)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command with a folder of its own, and without a page."""
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(environment, "commit", lambda: "1a2b3c")
    return tmp_path


def _write(folder: Path, cell: Cell, part: dict[str, Any]) -> None:
    (folder / cell.name).mkdir()
    result = {"commit": "1a2b3c", "parts": {each.name: part for each in PARTS}}
    (folder / cell.name / command.RESULT).write_text(json.dumps(result))


def test_the_exit_code_says_whether_a_cell_has_failed_or_could_not_be_run(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = read().covering
    others = [cell for cell in rest if cell.python != first.python]
    alike = [cell for cell in rest if cell.python == first.python]
    for cell in others:
        _write(alone, cell, PASSED)
    pythons = {cell.python: sys.executable for cell in others}
    monkeypatch.setattr(environment, "find_python", pythons.get)
    assert command.main(["--no-page"]) == 2
    told = capsys.readouterr().out
    assert f"{others[0].name}: has passed for 1a2b3c" in told
    assert f"{first.name}: not run, there is no Python {first.python}" in told
    assert f"Python {first.python} was not found" in told
    assert f"uv python install {first.python}" in told

    monkeypatch.setattr(environment, "find_python", lambda _: sys.executable)

    def nothing_is_installed(*_: object) -> Path:
        raise subprocess.CalledProcessError(1, ["uv"])

    monkeypatch.setattr(environment, "prepare", nothing_is_installed)
    assert command.main(["--no-page"]) == 1
    assert f"{first.name}: the environment cannot be made" in capsys.readouterr().out
    for cell in (first, *alike):
        _write_again(alone, cell)
    assert command.main(["--no-page"]) == 0
    assert command.main(["--no-page", "--again", "--cell", first.name]) == 1


def _write_again(folder: Path, cell: Cell) -> None:
    (folder / cell.name).mkdir(exist_ok=True)
    result = {"commit": "1a2b3c", "parts": {each.name: PASSED for each in PARTS}}
    (folder / cell.name / command.RESULT).write_text(json.dumps(result))


def test_a_second_run_of_the_same_cell_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "cell" / "lock"
    with (
        command._locked(lock, "a cell"),
        pytest.raises(SystemExit, match=r"Another .* on a cell"),
        command._locked(lock, "a cell"),
    ):
        pass


def test_what_nobody_has_declared_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--python", "2.7", "--list"]) == 1
    assert "--python 2.7 is not declared" in capsys.readouterr().err
