"""Check the message of a commit, as the hook `commit-msg` of git does with its file.

A subject of at most 72 characters that says what the commit does, then a blank line and a body that
says why. Comments of git, and merges and reverts that git words itself, are left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

MOST = 72
_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ")


def mistakes(message: str) -> list[str]:
    """Say what is wrong with a message, each in a sentence; empty for nothing."""
    text = message.partition("\n# ------------------------ >8 ------------------------")[0]
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("#")]
    subject, *rest = "\n".join(lines).strip().split("\n")
    if subject.startswith(_BY_GIT):
        return []
    checks = {
        "The message is empty.": not subject,
        f"The subject has {len(subject)} characters; {MOST} are the most.": len(subject) > MOST,
        "The subject begins with a capital letter: 'Read both kinds of footer by one function'.": (
            bool(subject) and not subject[0].isupper()
        ),
        "The subject is no sentence: leave out the full stop.": subject.endswith("."),
        "The line behind the subject is blank.": bool(rest) and bool(rest[0]),
        "A body says why.": not any(rest),
    }
    return [sentence for sentence, is_wrong in checks.items() if is_wrong]


if __name__ == "__main__":
    found = mistakes(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if found:
        sys.exit("\n".join(["This commit is not made:", *found]))
