"""Find a Java that Spark can start.

Looked for in this order: the environment's `JAVA_HOME`; `java` on the `PATH`; the folders where
Debian, Fedora, macOS, Homebrew, container images and SDKMAN keep theirs. A Java that will do is
version 17 or newer and has the module that Spark starts every JVM with.

`scripts/find_java.py` uses this module before anything is installed: it and what it imports need
nothing but the standard library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from airflow_cloudfiles.engine.errors import JavaNotFoundError

JAVA_MINIMUM = 17
MODULE = "jdk.incubator.vector"
ADD_MODULE = f"--add-modules={MODULE}"
"""The argument with which Spark starts every JVM; one without the module does not start."""
_FOLDERS = (
    ("/usr/lib/jvm", "*"),
    ("/Library/Java/JavaVirtualMachines", "*/Contents/Home"),
    ("/opt/homebrew/opt", "openjdk*"),
    ("/usr/local/opt", "openjdk*"),
    ("/opt/java", "*"),
    ("~/.sdkman/candidates/java", "*"),
)


def find_java() -> str:
    """Find a Java for Spark.

    Returns:
        The `JAVA_HOME` to use.

    Raises:
        JavaNotFoundError: There is none; the text says what was found and how to get one.
    """
    refused = []
    for home, binary in _candidates():
        found, reason = usable_home(home, binary)
        if found is not None:
            return found
        if reason:
            refused.append(reason)
    but = f" Found: {'; '.join(dict.fromkeys(refused))}." if refused else ""
    raise JavaNotFoundError(
        f"Spark needs Java {JAVA_MINIMUM} or newer.{but} Install one (Debian, Ubuntu: apt-get "
        "install openjdk-17-jre-headless; Fedora: dnf install java-21-openjdk-headless; macOS: "
        "brew install openjdk@21) or set JAVA_HOME to it."
    )


def usable_home(home: Path | None, binary: Path) -> tuple[str | None, str | None]:
    """Check one Java.

    Args:
        home: The `JAVA_HOME` it belongs to; `None`: as it reports itself.
        binary: The program `java`.

    Returns:
        Its `JAVA_HOME` if Spark can use it, else `None` with the reason, unless it does not run.
    """
    declared = _declares_enough(home or binary.resolve().parents[1])
    if declared and os.access(binary, os.X_OK):
        return str(home or binary.resolve().parents[1]), None
    settings = _output(binary, ADD_MODULE, "-XshowSettings:properties", "-version")
    version = _version(settings or _output(binary, "-version"))
    if version is None:
        return None, None
    if version < JAVA_MINIMUM:
        return None, f"{binary} is Java {version}"
    if settings is None:
        return None, f"{binary} is Java {version} without the module {MODULE}"
    reported = re.search(r"java\.home = (.+)$", settings, re.MULTILINE)
    if home is None and reported is None:
        return None, f"{binary} does not report its java.home"
    return str(home or (reported and reported[1].strip())), None


def _declares_enough(home: Path) -> bool:
    """Tell whether the `release` file of a Java declares enough, which saves starting it."""
    try:
        text = (home / "release").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    facts = dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))
    version = _version(f'version "{facts.get("JAVA_VERSION", "")}"')
    return (version or 0) >= JAVA_MINIMUM and MODULE in facts.get("MODULES", "").split()


def _candidates() -> Iterator[tuple[Path | None, Path]]:
    """Yield every Java that may do, with its home where that is known."""
    if given := os.environ.get("JAVA_HOME"):
        yield Path(given), Path(given, "bin", "java")
    if on_path := shutil.which("java"):
        yield None, Path(on_path)
    for folder, pattern in _FOLDERS:
        for home in sorted(Path(folder).expanduser().glob(pattern), reverse=True):
            yield home, home / "bin" / "java"


def _output(binary: Path, *arguments: str) -> str | None:
    """Return what a Java prints about itself; `None` when it cannot be run so."""
    try:
        return subprocess.run(
            [binary, *arguments], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None


def _version(output: str | None) -> int | None:
    found = re.search(r'version "(?:1\.)?(\d+)', output or "")
    return int(found[1]) if found else None
