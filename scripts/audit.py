"""Are there known vulnerabilities in what is pinned here?

Asks OSV (https://osv.dev) for every version in requirements/*.lock, through `pip-audit`. Names and
versions of public packages leave this machine, nothing else. Exit codes: 0 nothing is known, 1
something is, 2 nobody could be asked, which is no answer at all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOCKS = sorted(Path(__file__).parent.parent.joinpath("requirements").glob("*.lock"))
FOUND, NOT_ASKED = 1, 2
_MODULE = (sys.executable, "-m", "pip_audit")
_ARGUMENTS = ("--vulnerability-service=osv", "--no-deps", "--disable-pip", "--format=json")
_SECONDS = "20"


def ask(lock: Path, command: Sequence[str] = _MODULE) -> list[dict[str, Any]]:
    """Give the packages of a lock that have known vulnerabilities.

    Raises:
        ConnectionError: There is no answer; with the last line of what was said instead.
    """
    arguments = [*_ARGUMENTS, f"--timeout={_SECONDS}", "--progress-spinner=off", "-r", str(lock)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise ConnectionError(said[-1] if said else f"exit code {done.returncode}") from None
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped or not packages:
        raise ConnectionError(f"not looked at: {', '.join(skipped) or 'anything'}")
    return [package for package in packages if package["vulns"]]


def main(locks: Sequence[Path] = LOCKS, command: Sequence[str] = _MODULE) -> int:
    """Ask for every lock, and tell a person."""
    code = 0
    for lock in locks:
        try:
            found = ask(lock, command)
        except ConnectionError as failure:
            print(f"{lock.name}: NOT AUDITED, the advisory service gave no answer: {failure}")
            code = max(code, NOT_ASKED)
            continue
        for package in found:
            known = ", ".join(each["id"] for each in package["vulns"])
            print(f"{lock.name}: {package['name']} {package['version']}: {known}")
        print(f"{lock.name}: {len(found)} packages with known vulnerabilities")
        code = max(code, FOUND if found else 0)
    if code == NOT_ASKED:
        print("This is no clean bill: run it again where api.osv.dev can be reached.")
    return code


if __name__ == "__main__":
    sys.exit(main())
