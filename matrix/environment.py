"""How does a cell get what it tests: a Python, a wheel, an environment, and tests to run?

Everything is below build/matrix. What is tested is the wheel: the folder of a cell has the tests of
the checkout, and the package as the wheel has it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from matrix.declared import ROOT, Cell, Matrix

FOLDER: Final = ROOT / "build" / "matrix"
PACKAGE: Final = "airflow_cloudfiles"
NAMED: Final = (
    "apache-airflow",
    "apache-airflow-providers-common-compat",
    "apache-airflow-providers-standard",
    "pyspark",
    "pyarrow",
    "deltalake",
    "numpy",
    "pandas",
)
"""Distributions whose version is kept."""
_UV: Final = ROOT / ".venv" / "bin" / "uv"
_OF_AIRFLOW: Final = ("airflow", "openlineage", "all")
_WANTED: Final = "wanted.json"


def find_python(version: str) -> str | None:
    """Find a Python of a minor version that runs: by uv, of pyenv, or by its name."""
    found = subprocess.run(
        [_UV, "python", "find", "--system", "--no-python-downloads", "--quiet", version],
        capture_output=True,
        text=True,
        check=False,
    )
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    asked = (
        *found.stdout.split("\n")[:1],
        *map(str, sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True)),
        f"python{version}",
        sys.executable,
    )
    return next((each for each in asked if each and _is(each, version)), None)


def _is(python: str, version: str) -> bool:
    """Whether a program is this Python; a shim of a version that is not installed does not run."""
    code = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def how_to_get(version: str) -> str:
    """Say how a missing Python is installed."""
    return (
        f"Python {version} was not found (by uv, in pyenv's folder, as python{version}). "
        f"Install it: .venv/bin/uv python install {version}, or pyenv install {version}."
    )


def _build_wheel(folder: Path) -> Path:
    """Build the wheel of the checkout, with the pinned back-end of the development environment."""
    shutil.rmtree(folder, ignore_errors=True)
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel"]
    subprocess.run(
        [*build, "--outdir", str(folder), str(ROOT)], check=True, stdout=subprocess.DEVNULL
    )
    [wheel] = folder.glob("*.whl")
    return wheel


def prepare(cell: Cell, matrix: Matrix, python: str) -> Path:
    """Make what a cell needs, or bring it up to date.

    Returns:
        The Python of its environment. The tests are in the folder `tree` of the cell.

    Raises:
        CalledProcessError: The wheel cannot be built, or the environment cannot be made.
    """
    folder = FOLDER / cell.name
    wheel = _build_wheel(folder / "wheel")
    installed = folder / "env" / "bin" / "python"
    wanted = _wanted(cell, matrix, python)
    mark = folder / _WANTED
    if not mark.exists() or json.loads(mark.read_text()) != wanted:
        mark.unlink(missing_ok=True)
        _make(folder, wanted, wheel)
        mark.write_text(json.dumps(wanted, indent=1))
    _uv_pip(installed, "--no-deps", "--reinstall", str(wheel))
    _plant(folder / "tree", wheel)
    return installed


def _wanted(cell: Cell, matrix: Matrix, python: str) -> dict[str, Any]:
    """What an environment is made from; as long as it is the same, the environment is kept."""
    release = matrix.airflow[cell.airflow]
    return {
        "python": python,
        "pins": [
            f"apache-airflow=={release.version}",
            f"pyspark=={matrix.spark[cell.spark].version}",
            *matrix.spark[cell.spark].beside,
        ],
        "until": release.dependencies_until,
        "pyproject": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
    }


def _make(folder: Path, wanted: dict[str, Any], wheel: Path) -> None:
    shutil.rmtree(folder / "env", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    python = str(wanted["python"])
    subprocess.run([_UV, "venv", "--quiet", "--python", python, folder / "env"], check=True)
    until = []
    if wanted["until"]:
        # Airflow leaves its dependencies open, and its older releases do not start with today's.
        until = ["--exclude-newer", wanted["until"]]
        until += [
            word for each in _asked() for word in ("--exclude-newer-package", f"{each}=false")
        ]
    package = f"{_distribution(wheel)}[all] @ {wheel.as_uri()}"
    _uv_pip(
        folder / "env" / "bin" / "python", *until, "--group", "dev", "uv", package, *wanted["pins"]
    )


def _uv_pip(python: Path, *arguments: str) -> None:
    command = [_UV, "pip", "install", "--quiet", "--python", python, *arguments]
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True)


def _distribution(wheel: Path) -> str:
    return wheel.name.split("-")[0].replace("_", "-")


def _asked() -> Iterator[str]:
    """What this package and its tests ask for themselves, but for Airflow: as new as it is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    asked = [
        "uv",
        *project["project"]["dependencies"],
        *(each for name, extra in extras.items() if name not in _OF_AIRFLOW for each in extra),
        *(each for name in ("dev", "dist", "docs") for each in groups[name]),
    ]
    for each in asked:
        if isinstance(each, str) and not each.startswith("apache-airflow"):
            yield re.split(r"[<>=\[ ]", each, maxsplit=1)[0]


def _plant(tree: Path, wheel: Path) -> None:
    """Copy the checkout, with the package as the wheel has it in place of its source."""
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if name.startswith(f"{PACKAGE}/") or not source.is_file():
            continue
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tree / name)
    with zipfile.ZipFile(wheel) as archive:
        members = [each for each in archive.namelist() if each.startswith(f"{PACKAGE}/")]
        archive.extractall(tree, members)


def versions(python: Path) -> dict[str, str]:
    """What is installed in an environment."""
    code = f"""
import importlib.metadata, json, platform
found = {{each: importlib.metadata.version(each) for each in {NAMED!r}}}
print(json.dumps({{"python": platform.python_version(), **found}}))
"""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found | {"java": java_version()}


def java_version() -> str:
    """The version of the Java that the tests get; empty where it does not say."""
    release = Path(os.environ.get("JAVA_HOME", "")) / "release"
    if not release.is_file():
        return ""
    found = re.search(r'^JAVA_VERSION="(.*)"$', release.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def commit() -> str:
    """The newest commit that changes more than the page, and whether there is more than that."""
    page = ":(exclude)docs/reference/tested-versions.md"
    found = _git("log", "-1", "--format=%h", "--", ".", page)
    return f"{found} with changes" if _git("status", "--porcelain", "--", ".", page) else found


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()
