"""Which versions are supported together, and which of their combinations are tested?

Said once, in `[tool.test-matrix]` of pyproject.toml: `make test-matrix` and CI both read it from
here. The standard library suffices, since CI lists the cells before anything is installed.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
TABLE: Final = "test-matrix"


class DeclarationError(ValueError):
    """What is declared, or asked for, cannot be tested."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Minor versions that are tested together, such as `3.11`, `3.1` and `4.2`."""

    python: str
    airflow: str
    spark: str

    @property
    def name(self) -> str:
        """Of its folder, and for `--cell`."""
        return f"python{self.python}-airflow{self.airflow}-spark{self.spark}"


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Airflow.

    Attributes:
        version: The exact one, since a minor version alone moves.
        dependencies_until: A day; its dependencies are those that were out by then. `None` for
            the newest that fit.
    """

    version: str
    dependencies_until: str | None = None


@dataclass(frozen=True, slots=True)
class SparkRelease:
    """A release of PySpark.

    Attributes:
        version: The exact one.
        beside: Requirements of what is installed beside it; empty for the newest that fit.
    """

    version: str
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Matrix:
    """What is declared.

    Attributes:
        pythons: Minor versions.
        airflow: Releases by their minor version.
        spark: Releases of PySpark by their minor version.
        covering: The cells that are tested unless somebody asks for others.
    """

    pythons: tuple[str, ...]
    airflow: Mapping[str, Release]
    spark: Mapping[str, SparkRelease]
    covering: tuple[Cell, ...]

    @property
    def all(self) -> tuple[Cell, ...]:
        """Every combination."""
        return tuple(itertools.starmap(Cell, itertools.product(*self.axes().values())))

    def axes(self) -> dict[str, tuple[str, ...]]:
        """The minor versions of each part."""
        return {
            "python": self.pythons,
            "airflow": tuple(self.airflow),
            "spark": tuple(self.spark),
        }


def read(path: Path = ROOT / "pyproject.toml") -> Matrix:
    """Read the declaration.

    Raises:
        DeclarationError: A cell names a version that is not declared, or a version is in no cell.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))["tool"][TABLE]
    return parse(table)


def parse(table: Mapping[str, Any]) -> Matrix:
    """Read the table of a declaration.

    Raises:
        DeclarationError: As for `read`.
    """
    matrix = Matrix(
        pythons=tuple(table["python"]),
        airflow={
            minor: Release(each["version"], each.get("dependencies-until"))
            for minor, each in table["airflow"].items()
        },
        spark={
            minor: SparkRelease(each["version"], tuple(each.get("with", ())))
            for minor, each in table["spark"].items()
        },
        covering=tuple(_cell(text) for text in table["covering"]),
    )
    exact = [(minor, each.version) for minor, each in matrix.airflow.items()]
    exact += [(minor, each.version) for minor, each in matrix.spark.items()]
    for minor, version in exact:
        if not version.startswith(f"{minor}."):
            raise DeclarationError(f"{version} is no release of {minor}.")
    for axis, versions in matrix.axes().items():
        covered = {getattr(cell, axis) for cell in matrix.covering}
        if unknown := covered.difference(versions):
            raise DeclarationError(
                f"covering names {axis} {sorted(unknown)}, which is not declared."
            )
        if missing := set(versions).difference(covered):
            raise DeclarationError(f"No cell of covering names {axis} {sorted(missing)}.")
    return matrix


def _cell(text: str) -> Cell:
    words = text.split()
    if len(words) != len(Cell.__slots__):
        raise DeclarationError(
            f"A cell is three versions, of Python, Airflow and Spark, got {text!r}."
        )
    return Cell(*words)


def choose(
    matrix: Matrix,
    *,
    everything: bool = False,
    names: Sequence[str] = (),
    only: Mapping[str, str | None] | None = None,
) -> list[Cell]:
    """Choose cells.

    Args:
        matrix: What is declared.
        everything: All combinations in place of the covering ones.
        names: Names of cells, covering or not; empty for no such choice.
        only: A version by `python`, `airflow` or `spark`. Where no covering cell has what is asked
            for, all combinations that have it are chosen.

    Raises:
        DeclarationError: There is no such cell.
    """
    asked = {axis: version for axis, version in (only or {}).items() if version is not None}
    by_name = {cell.name: cell for cell in matrix.all}
    for axis, version in asked.items():
        if version not in matrix.axes()[axis]:
            known = ", ".join(matrix.axes()[axis])
            raise DeclarationError(f"--{axis} {version} is not declared. Declared are {known}.")
    if unknown := [name for name in names if name not in by_name]:
        known = next(iter(by_name))
        raise DeclarationError(f"No cell is called {unknown[0]}; their names are like {known}.")
    if names:
        chosen = [by_name[name] for name in names]
    else:
        chosen = list(matrix.all if everything else matrix.covering)
    found = [cell for cell in chosen if _has(cell, asked)]
    if not found and names:
        raise DeclarationError("No cell of --cell has the versions that are asked for.")
    return found or [cell for cell in matrix.all if _has(cell, asked)]


def _has(cell: Cell, asked: Mapping[str, str]) -> bool:
    return all(getattr(cell, axis) == version for axis, version in asked.items())
