"""How is a part of the tests run in a cell, and what does pytest say of it?"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from matrix.parts import Part

_SECONDS: Final = 900  # of one test, on a busy machine


@dataclass(slots=True)
class Counts:
    """What pytest said of a part."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def run(folder: Path, python: Path, part: Part) -> Counts:
    """Run a part of the tests; their output is in `<part>.log` in the folder of the cell."""
    name = part.name.replace(" ", "-")
    found, log = folder / f"{name}.xml", folder / f"{name}.log"
    found.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "--timeout", str(_SECONDS)]
    # The plugin of an older Airflow's anyio does not know today's pytest. The order is that of the
    # files: who compares two cells wants the same.
    command += ["-p", "no:anyio", "-p", "no:randomly", "--junitxml", str(found), *part.arguments]
    kept = {
        key: text for key, text in os.environ.items() if not key.startswith(("AIRFLOW", "PYTHON"))
    }
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    began = time.monotonic()
    with log.open("wb") as output:
        done = subprocess.run(
            command,
            cwd=folder / "tree",
            env=kept | {"PATH": path, "VIRTUAL_ENV": str(python.parents[1])},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    # Of a test in which pytest was interrupted, its file does not say that it has failed.
    counts = count(found) if done.returncode in {0, 1} else Counts()
    counts.seconds = round(time.monotonic() - began, 1)
    if done.returncode and not counts.failed:
        counts.failed = 1
        counts.failures.append(f"pytest ended with {done.returncode}; see {log}")
    return counts


def count(found: Path) -> Counts:
    """Count what a JUnit file of pytest has; nothing where there is none."""
    counts = Counts()
    if not found.exists():
        return counts
    for case in ET.parse(found).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            counts.failed += 1
            counts.failures.append(f"{case.get('classname')}.{case.get('name')}")
        elif case.find("skipped") is not None:
            counts.skipped += 1
        else:
            counts.passed += 1
    return counts
