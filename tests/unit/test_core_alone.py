"""The core gets files into tables without its extensions, whose folders can be deleted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cloudfiles.engine import registry

pytestmark = pytest.mark.slow

PACKAGE = Path(registry.__file__).parents[1]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose package has no extensions, no workbooks and no SFTP."""
    folder = tmp_path_factory.mktemp("core")
    copied = folder / PACKAGE.name
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    for gone in ("extensions", "formats/excel", "clouds/sftp"):
        assert (copied / "engine" / gone).is_dir()
        shutil.rmtree(copied / "engine" / gone)
    return {**os.environ, "PYTHONPATH": str(folder), "AIRFLOW_CLOUDFILES_CACHE": str(folder)}


def run(core: dict[str, str], *command: str) -> str:
    folder = core["PYTHONPATH"]
    done = subprocess.run(
        [sys.executable, *command],
        env=core,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_module_of_the_core_is_imported_without_extensions(core: dict[str, str]) -> None:
    out = run(
        core,
        "-c",
        "import importlib, pkgutil, airflow_cloudfiles.engine as engine\n"
        "names = [m.name for m in pkgutil.walk_packages(engine.__path__, engine.__name__ + '.')]\n"
        "for name in names:\n"
        "    if not name.endswith(('__main__', 'preload', '.inventory')):\n"
        "        importlib.import_module(name)\n"
        "print(engine.__file__, len(names))",
    )
    place, modules = out.split()
    assert place.startswith(core["PYTHONPATH"])
    assert int(modules) > 250


def test_files_get_into_a_table_without_extensions(core: dict[str, str], tmp_path: Path) -> None:
    landing = tmp_path / "in"
    landing.mkdir()
    ingest = (
        "-m",
        "airflow_cloudfiles.cli",
        "ingest",
        "--json",
        "--quiet",
        f"--source={landing}",
        f"--checkpoint-location={tmp_path / 'state'}",
        f"--target={tmp_path / 'table'}",
        "--format=json",
        "--engine=local",
    )
    rows = []
    for number in (1, 2):
        (landing / f"{number}.json").write_text(f'{{"a": {number}}}\n')
        rows.append(json.loads(run(core, *ingest))["rows"])
    assert rows == [1, 1]


@pytest.mark.parametrize("name", sorted(registry._EXTENSIONS))
def test_each_line_of_the_registry_names_what_is_there(name: str) -> None:
    assert callable(registry.extension(name))
