"""`make test-matrix`: do the tests pass with the other supported versions?

Makes an environment below .venv/matrix for each combination of Python, Airflow and Spark, installs
the newest dependencies that fit, runs a part of the tests there, and writes what passed to
docs/reference/tested-versions.md. The versions of the lock are what `make test` tests, as a whole.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).resolve().parents[1]
ENVIRONMENTS: Final = ROOT / ".venv" / "matrix"
RESULTS: Final = ENVIRONMENTS / "results.json"
PAGE: Final = ROOT / "docs" / "reference" / "tested-versions.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->"


@dataclass(frozen=True, slots=True, order=True)
class Combination:
    """Versions that are tested together."""

    python: str
    airflow: str
    spark: str

    @property
    def name(self) -> str:
        """Of its environment."""
        return f"python{self.python}-airflow{self.airflow}-spark{self.spark}"


COMBINATIONS: Final = (
    Combination("3.11", "3.1", "4.2"),
    Combination("3.11", "3.2", "4.3"),
    Combination("3.12", "3.1", "4.3"),
    Combination("3.12", "3.3", "4.2"),
    Combination("3.13", "3.2", "4.2"),
    Combination("3.13", "3.3", "4.3"),
)
"""Each version with each version of another part at least once; the lock adds 3.11, 3.3 and 4.3."""

RELEASED_BY: Final = {"3.1": "2026-04-07", "3.2": "2026-06-30"}
"""Airflow leaves its dependencies open, and its older releases do not start with today's. As with
its constraints, they get those that were out when the next minor version came."""

PARTS: Final[Mapping[str, Sequence[str]]] = {
    "without Spark and Airflow": (
        "tests/unit",
        "-m",
        "not spark and not airflow and not emulator and not cluster and not law and not slow",
    ),
    "Airflow": ("tests/provider", "-m", "airflow and not slow and not spark"),
    "Spark": ("tests/spark/test_plain_pyspark.py", "tests/spark/test_evolution.py"),
    "scheduler, API server and triggerer": (
        "tests/provider/test_real_airflow.py",
        "-k",
        "schema_change_fails or deferred_sensor",
    ),
}
"""What is run of each combination: arguments of pytest."""
_OF_AIRFLOW: Final = ("airflow", "openlineage", "all")
_NAMED: Final = ("apache-airflow", "pyspark", "pyarrow", "deltalake", "numpy")
"""Distributions whose version is kept."""


@dataclass(slots=True)
class Counts:
    """What pytest said of a part."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def main() -> int:
    """Test the combinations that are asked for.

    Returns:
        The exit code: 0 if all passed, 1 if not, 2 if a Python is missing.
    """
    given = _arguments()
    wanted = [each for each in COMBINATIONS if _is_wanted(each, given)] or [_asked(given)]
    pythons = {each.python: _python(each.python) for each in wanted}
    if missing := sorted(version for version, found in pythons.items() if found is None):
        _say(f"No Python {', '.join(missing)} was found. Install it, or leave it out: --python.")
        if not given.skip_missing:
            return 2
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for each in wanted:
        python = pythons[each.python]
        if python is None:
            continue
        results[each.name] = _test(each, python, given.part)
        ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1))
        if not given.keep:
            shutil.rmtree(ENVIRONMENTS / each.name)
    if given.report:
        _write(results)
    tested = [results[each.name] for each in wanted if each.name in results]
    return int(any(part["failed"] for each in tested for part in each["parts"].values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='make test-matrix ARGS="..."', description=__doc__)
    for name in ("python", "airflow", "spark"):
        parser.add_argument(f"--{name}", help=f"only this version, such as {COMBINATIONS[0]}")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part")
    parser.add_argument("--keep", action="store_true", help="keep the environments: 1.6 GB each")
    parser.add_argument("--report", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--skip-missing", action="store_true", help="go on without a Python")
    return parser.parse_args()


def _is_wanted(each: Combination, given: argparse.Namespace) -> bool:
    pairs = ((each.python, given.python), (each.airflow, given.airflow), (each.spark, given.spark))
    return all(asked in (None, version) for version, asked in pairs)


def _asked(given: argparse.Namespace) -> Combination:
    """A combination that is not among ours, with all three named."""
    if None in (given.python, given.airflow, given.spark):
        names = ", ".join(each.name for each in COMBINATIONS)
        sys.exit(f"No such combination; give --python, --airflow and --spark. Ours: {names}.")
    return Combination(given.python, given.airflow, given.spark)


def _python(version: str) -> str | None:
    """A Python of this version that runs; a shim of a version that is not installed does not."""
    asked: tuple[str | Path, ...] = (
        f"python{version}",
        *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    )
    for each in (*asked, sys.executable):
        code = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
        try:
            done = subprocess.run([each, "-c", code], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.strip() == version:
            return str(each)
    return None


def _test(combination: Combination, python: str, parts: Sequence[str] | None) -> dict[str, Any]:
    """Make the environment of a combination, and run the tests in it."""
    folder = ENVIRONMENTS / combination.name
    _say(f"{combination.name}: installing")
    _install(combination, python, folder)
    found: dict[str, Any] = {
        "date": datetime.now(tz=UTC).date().isoformat(),
        "commit": _output("git", "rev-parse", "--short", "HEAD"),
        "versions": dict(_versions(folder)),
        "parts": {},
    }
    for name in parts or PARTS:
        counts = _run(folder, PARTS[name])
        found["parts"][name] = asdict(counts)
        _say(
            f"{combination.name}: {name}: {counts.passed} passed, {counts.failed} failed, "
            f"{counts.skipped} skipped in {counts.seconds:.0f} s"
        )
        for each in counts.failures:
            _say(f"    {each}")
    return found


def _install(combination: Combination, python: str, folder: Path) -> None:
    uv = str(ROOT / ".venv" / "bin" / "uv")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", python, folder], check=True)
    wanted = folder / "constraints.txt"
    wanted.write_text(f"apache-airflow=={combination.airflow}.*\npyspark=={combination.spark}.*\n")
    command = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    if combination.airflow in RELEASED_BY:
        command += ["--exclude-newer", RELEASED_BY[combination.airflow]]
        command += [
            word for each in _ours() for word in ("--exclude-newer-package", f"{each}=false")
        ]
    subprocess.run(
        [*command, "--group", "dev", "-e", ".[all]", "-c", str(wanted)], cwd=ROOT, check=True
    )


def _ours() -> Iterator[str]:
    """What this package and its tests ask for themselves, but for Airflow."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    asked = [
        *project["project"]["dependencies"],
        *(each for name, extra in extras.items() if name not in _OF_AIRFLOW for each in extra),
        *(each for name in ("dev", "dist", "docs") for each in groups[name]),
    ]
    for each in asked:
        if isinstance(each, str) and not each.startswith(("apache-airflow", "airflow-provider")):
            yield re.split(r"[<>=\[ ]", each, maxsplit=1)[0]


def _versions(folder: Path) -> Iterator[tuple[str, str]]:
    """The versions that were installed."""
    code = f"""
import importlib.metadata, platform
print("python", platform.python_version())
for each in {_NAMED!r}:
    print(each, importlib.metadata.version(each))
"""
    for line in _output(str(folder / "bin" / "python"), "-c", code).splitlines():
        name, _, version = line.partition(" ")
        yield name, version


def _run(folder: Path, arguments: Sequence[str]) -> Counts:
    """Run a part of the tests."""
    found = folder / "found.xml"
    found.unlink(missing_ok=True)
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-q", "-n", "2"]
    command += ["-p", "no:anyio"]  # that of older Airflows does not know the newest pytest
    command += ["--junitxml", str(found)]
    began = time.monotonic()
    with (folder / "pytest.log").open("ab") as log:
        subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            env=os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    seconds = round(time.monotonic() - began, 1)
    if not found.exists():
        return Counts(failed=1, seconds=seconds, failures=["pytest did not run; see pytest.log"])
    return _counts(found, seconds)


def _counts(found: Path, seconds: float) -> Counts:
    """Read what pytest wrote."""
    counts = Counts(seconds=seconds)
    for case in ET.parse(found).iter("testcase"):  # noqa: S314 - pytest wrote it
        if case.find("failure") is not None or case.find("error") is not None:
            counts.failed += 1
            counts.failures.append(f"{case.get('classname')}.{case.get('name')}")
        elif case.find("skipped") is not None:
            counts.skipped += 1
        else:
            counts.passed += 1
    return counts


def _write(results: Mapping[str, Any]) -> None:
    """Write the results into their page, between its marks."""
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8")


def table(results: Mapping[str, Any]) -> str:
    """Write the results as a table: a line for each combination."""
    heads = ("Python", "Airflow", "Spark", *(f"tests: {name}" for name in PARTS), "when", "commit")
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for each in (results[name] for name in sorted(results)):
        versions = each["versions"]
        cells = (
            versions["python"],
            versions["apache-airflow"],
            versions["pyspark"],
            *(_cell(each["parts"].get(name)) for name in PARTS),
            each["date"],
            each["commit"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(part: Mapping[str, Any] | None) -> str:
    if part is None:
        return "not run"
    counts = ((part[name], name) for name in ("passed", "failed", "skipped"))
    return ", ".join(f"{count:,} {name}" for count, name in counts if count or name == "passed")


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
