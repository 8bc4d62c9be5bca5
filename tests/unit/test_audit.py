"""An audit that could not ask anybody does not pass."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def audit(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", repository / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _says(folder: Path, text: str, code: int = 0, complaint: str = "") -> list[str]:
    """A program that answers as `pip-audit` would."""
    program = folder / "program.py"
    program.write_text(
        f"import sys\nprint({text!r})\nprint({complaint!r}, file=sys.stderr)\nsys.exit({code})\n"
    )
    return [sys.executable, str(program)]


def _package(*known: str, **more: str) -> dict[str, object]:
    return {"name": "a", "version": "1", "vulns": [{"id": each} for each in known], **more}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([_package()], 0, "0 packages"),
        ([_package("CVE-1", "CVE-2"), _package()], 1, "a 1: CVE-1, CVE-2"),
        ([_package(), {"name": "b", "skip_reason": "not found"}], 2, "not looked at: b"),
        ([], 2, "not looked at: anything"),
    ],
)
def test_the_exit_code_says_what_is_known(audit, tmp_path, capsys, packages, code, said):
    command = _says(tmp_path, json.dumps({"dependencies": packages}), 1 if code == 1 else 0)
    assert audit.main([tmp_path / "x.lock"], command) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("answer", ["", "no JSON", "{}", "[]"])
def test_no_answer_is_not_a_pass(audit, tmp_path, capsys, answer):
    command = _says(tmp_path, answer, 1, "ConnectionError: no such host")
    assert audit.main([tmp_path / "x.lock"], command) == 2
    said = capsys.readouterr().out
    assert "NOT AUDITED" in said
    assert "no such host" in said
    assert "no clean bill" in said


def test_every_lock_is_audited(audit, repository):
    assert set(audit.LOCKS) == set((repository / "requirements").glob("*.lock"))
    assert len(audit.LOCKS) >= 4
