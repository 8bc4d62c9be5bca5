"""Each module of the package is imported, and none of them uses what is deprecated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import airflow_cloudfiles

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

# Warnings that name one of our modules; what others import is their own affair. A program that
# runs when it is imported is none: `__main__`.
PROGRAM = """
import importlib, pkgutil, sys, warnings

warnings.simplefilter("ignore")
warnings.filterwarnings("error", module=r"airflow_cloudfiles(\\.|$)")
import airflow_cloudfiles
from airflow_cloudfiles.engine.errors import SparkVersionError
from airflow_cloudfiles.engine.spark_versions import installed, require_for_queries

try:
    require_for_queries(installed())
    refused = ()
except SparkVersionError:  # jobs run with it; what queries need says that it is too old
    refused = "airflow_cloudfiles.engine.spark.", "register"

def broken(name):
    raise ImportError(name)

found = pkgutil.walk_packages(airflow_cloudfiles.__path__, "airflow_cloudfiles.", broken)
names = [each.name for each in found if not each.name.endswith(".__main__")]
for name in names:
    try:
        module = importlib.import_module(name)
    except SparkVersionError:
        assert name.startswith(refused), name
        continue
    for public in getattr(module, "__all__", ()):
        getattr(module, public)
for public in airflow_cloudfiles.__all__:
    try:
        getattr(airflow_cloudfiles, public)
    except SparkVersionError:
        assert public in refused, public
print(len(names))
"""


def test_each_module_and_each_public_name_is_imported_without_a_warning_of_ours() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    files = [
        path
        for path in Path(airflow_cloudfiles.__file__).parent.rglob("*.py")
        if path.name != "__main__.py"
    ]
    assert int(done.stdout.split()[-1]) == len(files) - 1  # all but the package itself
