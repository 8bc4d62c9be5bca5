"""What whoever has only the wheel gets: metadata, links, documentation, constraints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hatchling import build

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
ADDRESS = "https://code.example/acme/cloudfiles"
FENCES = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture
def metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Message]:
    """Give the metadata that a wheel has when the repository is at an address."""

    def made(address: str) -> Message:
        monkeypatch.chdir(ROOT)
        monkeypatch.setenv("CLOUDFILES_REPOSITORY", address)
        folder = build.prepare_metadata_for_build_wheel(str(tmp_path))
        return message_from_string((tmp_path / folder / "METADATA").read_text(encoding="utf-8"))

    return made


def test_the_readme_of_an_index_links_to_the_repository(
    metadata: Callable[[str], Message],
) -> None:
    found = metadata(f"{ADDRESS}/")
    assert found["Description-Content-Type"] == "text/markdown"
    links = LINK.findall(FENCES.sub("", str(found.get_payload())))
    assert f"{ADDRESS}/blob/HEAD/docs/how-to/connections.md" in links
    assert f"{ADDRESS}/tree/HEAD/docs/decisions/" in links
    assert f"{ADDRESS}/raw/HEAD/docs/overview.svg" in links
    assert not [link for link in links if not link.startswith("https://")]
    urls = dict(line.split(", ") for line in found.get_all("Project-URL", []))
    assert {"Source", "Documentation", "Changelog", "Issues"} == urls.keys()
    assert all(url.startswith(ADDRESS) for url in urls.values())


def test_without_an_address_nothing_links_anywhere(metadata: Callable[[str], Message]) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    given = settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    found = metadata("")
    links = LINK.findall(FENCES.sub("", str(found.get_payload())))
    assert not [link for link in links if not link.startswith("https://")]
    assert "![" not in str(found.get_payload())
    assert bool(found.get_all("Project-URL")) is bool(given)


def test_an_address_that_is_none_is_refused(metadata: Callable[[str], Message]) -> None:
    with pytest.raises(ValueError, match="must be an https address, got 'git@"):
        metadata("git@code.example:acme/cloudfiles")


def test_an_index_can_sort_it(metadata: Callable[[str], Message]) -> None:
    found = metadata(ADDRESS)
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Requires-Python"] == ">=3.11"
    classifiers = set(found.get_all("Classifier", []))
    assert "Framework :: Apache Airflow :: Provider" in classifiers
    assert "Programming Language :: Python :: 3.13" in classifiers
    assert {"airflow", "spark", "delta", "aws", "all"} <= set(found.get_all("Provides-Extra", []))


@pytest.mark.slow
def test_the_wheel_has_its_documentation_and_constraints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    wheel = zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path)))
    with wheel:
        names = set(wheel.namelist())
        wheel.extractall(tmp_path / "installed")
    assert {"airflow_cloudfiles/py.typed", "airflow_cloudfiles/docs/reference/options.md"} <= names
    assert not [name for name in names if "/decisions/" in name or name.startswith("tests/")]
    constraints = tmp_path / "installed" / "airflow_cloudfiles" / "constraints.txt"
    assert constraints.read_bytes() == (ROOT / "requirements" / "constraints.txt").read_bytes()
    told = subprocess.run(
        [sys.executable, "-m", "airflow_cloudfiles.cli", "docs", "docs/how-to/recover.md"],
        env={**os.environ, "PYTHONPATH": str(constraints.parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == (ROOT / "docs" / "how-to" / "recover.md").read_text(encoding="utf-8")


def test_a_distribution_is_built_with_what_the_development_lock_has() -> None:
    locks = ROOT / "requirements"
    pins = re.findall(
        r"^(\S+==\S+)", (locks / "dist.lock").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert 2 <= len(pins) <= 10
    development = (locks / "dev.lock").read_text(encoding="utf-8")
    assert [pin for pin in pins if f"\n{pin} " not in development] == []
