"""The cells of `make test-matrix`: what is declared, and which of them somebody asks for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from matrix.declared import Cell, DeclarationError, SparkRelease, choose, parse, read

DECLARED: dict[str, Any] = {
    "python": ["3.11", "3.12"],
    "airflow": {"3.1": {"version": "3.1.8", "dependencies-until": "2026-04-07"}},
    "spark": {"4.2": {"version": "4.2.0", "with": ["numpy<2"]}, "4.3": {"version": "4.3.0"}},
    "covering": ["3.11 3.1 4.2", "3.12 3.1 4.3"],
}


def test_a_declaration_is_read() -> None:
    matrix = parse(DECLARED)
    assert matrix.covering == (Cell("3.11", "3.1", "4.2"), Cell("3.12", "3.1", "4.3"))
    assert matrix.airflow["3.1"].version == "3.1.8"
    assert matrix.airflow["3.1"].dependencies_until == "2026-04-07"
    assert matrix.spark["4.2"] == SparkRelease("4.2.0", ("numpy<2",))
    assert matrix.spark["4.3"] == SparkRelease("4.3.0")
    assert len(matrix.all) == len(set(matrix.all)) == 4
    assert matrix.all[0].name == "python3.11-airflow3.1-spark4.2"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"covering": ["3.11 3.1 4.2"]}, r"No cell of covering names python \['3.12'\]"),
        (
            {"covering": [*DECLARED["covering"], "3.13 3.1 4.2"]},
            r"covering names python \['3.13'\]",
        ),
        ({"covering": ["3.11 3.1"]}, "A cell is three versions"),
        ({"spark": {"4.2": {"version": "4.3.0"}}}, "4.3.0 is no release of 4.2"),
        ({"airflow": {"3.1": {"version": "3.11.0"}}}, "3.11.0 is no release of 3.1"),
    ],
)
def test_what_cannot_be_tested_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        parse({**DECLARED, **change})


def test_cells_are_chosen_by_version_and_by_name() -> None:
    matrix = parse(DECLARED)
    assert choose(matrix) == list(matrix.covering)
    assert choose(matrix, everything=True) == list(matrix.all)
    assert choose(matrix, only={"python": "3.12", "airflow": None}) == [matrix.covering[1]]
    # No covering cell has both: what has both is chosen.
    assert choose(matrix, only={"python": "3.12", "spark": "4.2"}) == [Cell("3.12", "3.1", "4.2")]
    assert choose(matrix, names=["python3.12-airflow3.1-spark4.2"]) == [Cell("3.12", "3.1", "4.2")]
    for wrong in (
        {"only": {"spark": "5.0"}},
        {"names": ["python3.12"]},
        {"names": ["python3.12-airflow3.1-spark4.2"], "only": {"python": "3.11"}},
    ):
        with pytest.raises(DeclarationError):
            choose(matrix, **wrong)


def test_what_is_declared_is_what_the_metadata_promises(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    matrix = read()
    classified = [
        each.rpartition(" ")[2]
        for each in project["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
    ]
    assert list(matrix.pythons) == classified
    assert project["requires-python"] == f">={matrix.pythons[0]}"
    extras = project["optional-dependencies"]
    assert f"apache-airflow>={next(iter(matrix.airflow))}" in extras["airflow"]
    assert f"pyspark>={next(iter(matrix.spark))}" in extras["spark"]


def test_ci_runs_the_declared_cells(repository: Path) -> None:
    """Its job asks this program for them, before anything is installed."""
    text = (repository / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    [run] = [step["run"] for step in jobs["cells"]["steps"] if step.get("id") == "list"]
    arguments = re.search(r"python (-m matrix .*?)\)", run)
    assert arguments is not None
    done = subprocess.run(
        [sys.executable, "-S", *arguments[1].split()],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = json.loads(done.stdout)
    assert listed == [{"name": cell.name, "python": cell.python} for cell in read().covering]
    [make] = [step["run"] for step in jobs["matrix"]["steps"] if "make" in step.get("run", "")]
    used = set(re.findall(r"matrix\.cell\.(\w+)", make))
    assert used <= listed[0].keys()
    locked = jobs["locked"]["strategy"]["matrix"]["python"]
    assert tuple(locked) == read().pythons
