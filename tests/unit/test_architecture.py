"""The walls stand: what importing a room drags in, how big rooms are, what they call public.

import-linter reads import statements; it does not see what a parent package's `__init__` runs. So
each claim about imports is also made in a fresh interpreter.
"""

from __future__ import annotations

import ast
import importlib.metadata
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.get_provider_info import get_provider_info

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_cloudfiles"
DISTRIBUTION = "airflow-provider-cloudfiles"

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(PACKAGE)], "airflow_cloudfiles.", onerror=print)
    if not module.name.endswith("__main__")
)
FRONT_ROOMS = ("operators", "sensors", "triggers", "hooks")
FRONT = [name for name in MODULES if name.split(".")[1] in FRONT_ROOMS]
ENGINE = [name for name in MODULES if name.startswith("airflow_cloudfiles.engine")]

# Runs in a fresh interpreter: import each module with some packages made impossible to import,
# then say which of some others came along.
PROBE = """
import importlib, sys

modules, blocked, unwanted = (argument.split() for argument in sys.argv[1:4])


class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} must not be needed here")


sys.meta_path.insert(0, Wall())
failed = []
for module in modules:
    try:
        importlib.import_module(module)
    except ImportError as error:
        failed.append(f"{module}: {error}")
dragged = [name for name in unwanted if name in sys.modules]
print("\\n".join([*failed, *(f"{name} was imported" for name in dragged)]))
sys.exit(bool(failed or dragged))
"""


def _probe(*modules: str, blocked: str = "", unwanted: str = "") -> str:
    """Import modules in a fresh interpreter; returns what went wrong, or nothing."""
    command = [sys.executable, "-c", PROBE, " ".join(modules), blocked, unwanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return (done.stdout + done.stderr).strip() if done.returncode else ""


def _imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that statements import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_root_imports_neither_airflow_nor_spark_nor_arrow() -> None:
    unwanted = "airflow pyspark pyarrow deltalake rocksdict msgspec"
    assert not _probe("airflow_cloudfiles", unwanted=unwanted)


def test_provider_info_imports_nothing() -> None:
    unwanted = "airflow pyspark pyarrow rocksdict msgspec airflow_cloudfiles.engine"
    assert not _probe("airflow_cloudfiles.get_provider_info", unwanted=unwanted)


@pytest.mark.slow
def test_the_engine_does_without_airflow() -> None:
    assert not _probe(*ENGINE, blocked="airflow")


@pytest.mark.slow
def test_listing_and_ledger_do_without_spark() -> None:
    rooms = ("discovery", "ledger", "storage")
    modules = [name for name in ENGINE if [*name.split("."), ""][2] in rooms]
    assert modules
    assert not _probe(*modules, blocked="airflow pyspark py4j pyarrow")


@pytest.mark.slow
def test_an_executor_reads_without_airflow_and_without_rocksdb() -> None:
    assert not _probe("airflow_cloudfiles.engine.spark.source", blocked="airflow rocksdict")


@pytest.mark.airflow
def test_hooks_and_sensors_do_without_spark() -> None:
    modules = [name for name in FRONT if name.split(".")[1] != "operators"]
    assert modules
    assert not _probe(*modules, blocked="pyspark py4j")


@pytest.mark.airflow
def test_parsing_a_dag_imports_no_spark() -> None:
    assert not _probe(*FRONT, unwanted="pyspark pyarrow deltalake rocksdict")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("__init__.py")), ids=lambda p: p.parent.name)
def test_an_init_is_empty_or_lazy(path: Path) -> None:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    imported = {name.partition(".")[0] for name in _imports(body)}
    assert imported <= {*sys.stdlib_module_names, "airflow_cloudfiles"}


def _all_of(path: Path) -> list[str] | None:
    """What a module writes in `__all__`, if it has one."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


PUBLIC = {path: names for path in sorted(PACKAGE.rglob("*.py")) if (names := _all_of(path))}


@pytest.mark.airflow
@pytest.mark.parametrize("path", PUBLIC, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_public_names_are_real_and_sorted(path: Path) -> None:
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(dotted)
    names = PUBLIC[path]
    assert names == sorted(set(names))
    assert [name for name in names if not hasattr(module, name)] == []


def test_every_public_name_of_the_root_is_listed_by_dir() -> None:
    assert set(airflow_cloudfiles.__all__) <= set(dir(airflow_cloudfiles))


def test_the_version_is_one_version() -> None:
    info = get_provider_info()
    versions = info["versions"]
    assert isinstance(versions, list)
    assert airflow_cloudfiles.__version__ == versions[0] == importlib.metadata.version(DISTRIBUTION)


def test_airflow_is_told_the_truth_about_our_modules() -> None:
    info = get_provider_info()
    assert info["package-name"] == DISTRIBUTION
    named = [
        module
        for room in FRONT_ROOMS
        for entry in info.get(room, [])  # type: ignore[attr-defined]
        for module in entry["python-modules"]
    ]
    assert set(named) <= set(MODULES)


@pytest.mark.airflow
def test_every_third_party_import_is_of_a_declared_dependency() -> None:
    requirements = importlib.metadata.requires(DISTRIBUTION) or []
    declared = {re.split(r"[^\w.-]", each)[0].replace("_", "-").lower() for each in requirements}
    imported = {
        (name.partition(".")[0], str(path.relative_to(ROOT)))
        for path in PACKAGE.rglob("*.py")
        for name in _imports(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    }
    providers = importlib.metadata.packages_distributions()
    undeclared = {
        f"{path} imports {name}"
        for name, path in imported
        if name not in {*sys.stdlib_module_names, "airflow_cloudfiles"}
        if name in providers  # else an optional client of a cloud, which is not installed here
        if declared.isdisjoint(each.replace("_", "-").lower() for each in providers[name])
    }
    assert not undeclared


def _too_long(paths: list[Path], most: int) -> list[str]:
    counts = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    return [f"{path.relative_to(ROOT)}: {n} lines" for path, n in counts.items() if n > most]


def test_no_module_is_longer_than_500_lines() -> None:
    others = [
        p for room in ("dags_examples", "demo", "benchmarks") for p in (ROOT / room).rglob("*.py")
    ]
    assert _too_long([*PACKAGE.rglob("*.py"), *others], 500) == []


def test_no_test_module_is_longer_than_600_lines_and_no_conftest_than_150() -> None:
    tests = list((ROOT / "tests").rglob("*.py"))
    assert _too_long(tests, 600) == []
    assert _too_long([path for path in tests if path.name == "conftest.py"], 150) == []


def test_every_module_says_why_it_exists() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*.py")
        if (source := path.read_text(encoding="utf-8")).strip()
        and not ast.get_docstring(ast.parse(source))
    ]
    assert silent == []
