"""The hook for the messages of commits takes good ones and says what is wrong with others."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = "Read both kinds of footer by one function\n\nThey differed in a name only.\n"


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (GOOD, []),
        (f"{GOOD}\n# Please enter the commit message.\n", []),
        ("Merge branch 'main' into other\n", []),
        ("", ["is empty", "says why"]),
        ("Read both kinds of footer\n", ["says why"]),
        (f"{'R' * 73}\n\nWhy.\n", ["73 characters"]),
        ("read both\n\nWhy.\n", ["capital letter"]),
        ("Read both.\n\nWhy.\n", ["full stop"]),
        ("Read both\nWhy.\n", ["is blank"]),
    ],
)
def test_what_is_wrong_with_a_message_is_said(
    repository: Path, message: str, wrong: list[str]
) -> None:
    script = runpy.run_path(str(repository / "scripts" / "commit_message.py"))
    found = script["mistakes"](message)
    assert len(found) == len(wrong), found
    assert all(part in each for part, each in zip(wrong, found, strict=True))


def test_git_makes_no_commit_with_a_message_that_says_no_why(
    repository: Path, tmp_path: Path
) -> None:
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.com")
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert git("init", "-q").returncode == 0
    hook = tmp_path / ".git" / "hooks" / "commit-msg"
    hook.parent.mkdir(exist_ok=True)
    script = repository / "scripts" / "commit_message.py"
    hook.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$1"\n')
    hook.chmod(0o755)
    refused = git("commit", "--allow-empty", "-m", "Read both kinds of footer")
    assert refused.returncode != 0
    assert "A body says why." in refused.stderr
    assert git("commit", "--allow-empty", "-m", GOOD).returncode == 0
