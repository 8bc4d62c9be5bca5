"""The architecture: what importing a package brings along, how large packages are, what is public.

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
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
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
AIRFLOW_PACKAGES = ("operators", "sensors", "triggers", "hooks")
AIRFLOW_FACING = [name for name in MODULES if name.split(".")[1] in AIRFLOW_PACKAGES]
ENGINE = [name for name in MODULES if name.startswith("airflow_cloudfiles.engine")]

# Runs in a fresh interpreter: import each module with some packages made impossible to import,
# then print which of some others came along.
PROBE = """
import importlib, sys

modules, blocked, unwanted = (argument.split() for argument in sys.argv[1:4])


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} must not be needed here")


sys.meta_path.insert(0, Blocked())
failed = []
for module in modules:
    try:
        importlib.import_module(module)
    except ImportError as error:
        failed.append(f"{module}: {error}")
imported = [name for name in unwanted if name in sys.modules]
print("\\n".join([*failed, *(f"{name} was imported" for name in imported)]))
sys.exit(bool(failed or imported))
"""


def _probe(*modules: str, blocked: str = "", unwanted: str = "") -> str:
    """Import modules in a fresh interpreter; returns what went wrong, or nothing."""
    command = [sys.executable, "-c", PROBE, " ".join(modules), blocked, unwanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
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
    ways = ("discovery", "extensions.event_log", "extensions.inventory", "intake.ledger", "storage")
    packages = tuple(f"{PACKAGE.name}.engine.{name}." for name in ways)
    columnar = f"{packages[2]}columnar"  # imported for ORC and Parquet
    modules = [name for name in ENGINE if f"{name}.".startswith(packages)]
    assert columnar in modules
    modules.remove(columnar)
    assert not _probe(*modules, blocked="airflow pyspark py4j pyarrow")


@pytest.mark.slow
def test_an_executor_reads_without_airflow_and_without_rocksdb() -> None:
    assert not _probe("airflow_cloudfiles.engine.spark.source", blocked="airflow rocksdict")


def test_workbooks_are_read_without_the_package_for_old_ones() -> None:
    assert not _probe("airflow_cloudfiles.engine.formats.excel.reader", blocked="xlrd")


@pytest.mark.slow
def test_a_session_is_registered_and_a_delta_job_runs_without_pyiceberg() -> None:
    sources = "airflow_cloudfiles.engine.spark.load_and_start"
    modules = (sources, "airflow_cloudfiles.engine.job.ingest")
    assert not _probe(*modules, blocked="pyiceberg")


@pytest.mark.airflow
def test_hooks_and_sensors_do_without_spark() -> None:
    modules = [name for name in AIRFLOW_FACING if name.split(".")[1] != "operators"]
    assert modules
    assert not _probe(*modules, blocked="pyspark py4j")


@pytest.mark.airflow
def test_parsing_a_dag_imports_no_spark_no_table_and_no_client_of_a_cloud() -> None:
    libraries = "pyspark py4j pyarrow deltalake pyiceberg rocksdict numpy pandas"
    clients = "boto3 botocore azure.storage azure.identity google.cloud.storage google.auth"
    # Airflow itself loads the provider's `get_provider_info`.
    lineage = "openlineage airflow.providers.openlineage.extractors"
    assert not _probe(*AIRFLOW_FACING, unwanted=f"{libraries} {clients} {lineage}")


@pytest.mark.airflow
def test_a_process_that_loads_the_plugin_loads_none_of_its_pages() -> None:
    unwanted = "airflow_cloudfiles.engine airflow_cloudfiles.hooks pyspark pyarrow rocksdict"
    assert not _probe("airflow_cloudfiles.plugins.cloud_files", unwanted=unwanted)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("__init__.py")), ids=lambda p: p.parent.name)
def test_an_init_is_empty_or_lazy(path: Path) -> None:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    imported = {name.partition(".")[0] for name in _imports(body)}
    assert imported <= {*sys.stdlib_module_names, "airflow_cloudfiles"}


def _at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below `if TYPE_CHECKING`, which never run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (each for other in node.orelse for each in (other, *ast.walk(other)))
        else:
            yield node
            yield from _at_run_time(node)


@dataclass(frozen=True, slots=True)
class Source:
    """What the tests ask of a module.

    Attributes:
        public: Its `__all__`, if it has one.
        is_silent: Whether it has code and no docstring.
        imports: What it imports anywhere.
        run_time_imports: The same, without what is for type checkers.
    """

    public: list[str] | None
    is_silent: bool
    imports: frozenset[str]
    run_time_imports: frozenset[str]


@cache
def _sources() -> dict[Path, Source]:
    """Every module of the package; parsed once, which takes a second."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[path] = Source(
            public=_all_of(tree),
            is_silent=bool(tree.body) and not ast.get_docstring(tree),
            imports=frozenset(_imports(ast.walk(tree))),
            run_time_imports=frozenset(_imports(_at_run_time(tree))),
        )
    return found


def _all_of(tree: ast.Module) -> list[str] | None:
    """What a module writes in `__all__`, if it has one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


@pytest.mark.airflow
def test_public_names_are_real_and_sorted() -> None:
    public = {path: source.public for path, source in _sources().items() if source.public}
    assert public
    for path, names in public.items():
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(dotted)
        assert names == sorted(set(names)), dotted
        assert [name for name in names if not hasattr(module, name)] == [], dotted


def test_every_public_name_of_the_root_is_listed_by_dir() -> None:
    assert set(airflow_cloudfiles.__all__) <= set(dir(airflow_cloudfiles))


def test_the_version_is_one_version() -> None:
    info = get_provider_info()
    versions = info["versions"]
    assert isinstance(versions, list)
    assert airflow_cloudfiles.__version__ == versions[0] == importlib.metadata.version(DISTRIBUTION)


def test_provider_info_names_modules_that_exist() -> None:
    info = get_provider_info()
    assert info["package-name"] == DISTRIBUTION
    named = [
        module
        for package in AIRFLOW_PACKAGES
        for entry in info.get(package, [])  # type: ignore[attr-defined]
        for module in entry["python-modules"]
    ]
    assert set(named) <= set(MODULES)


@pytest.mark.airflow
def test_every_third_party_import_is_of_a_declared_dependency() -> None:
    requirements = importlib.metadata.requires(DISTRIBUTION) or []
    declared = {re.split(r"[^\w.-]", each)[0].replace("_", "-").lower() for each in requirements}
    imported = {
        (name.partition(".")[0], str(path.relative_to(ROOT)))
        for path, source in _sources().items()
        for name in source.imports
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


def test_no_module_is_longer_than_600_lines() -> None:
    others = [
        p
        for folder in ("dags_examples", "demo", "benchmarks", "matrix", "torture")
        for p in (ROOT / folder).rglob("*.py")
    ]
    assert _too_long([*PACKAGE.rglob("*.py"), *others], 600) == []


def test_no_test_module_is_longer_than_600_lines_and_no_conftest_than_150() -> None:
    tests = list((ROOT / "tests").rglob("*.py"))
    assert _too_long(tests, 600) == []
    assert _too_long([path for path in tests if path.name == "conftest.py"], 150) == []


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT)) for path, source in _sources().items() if source.is_silent
    ]
    assert silent == []


@pytest.mark.parametrize(
    "folder",
    [path.parent for path in sorted((PACKAGE / "engine").rglob("__init__.py"))],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_no_package_of_the_engine_has_more_than_twenty_modules(folder: Path) -> None:
    modules = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= 20


def _contract(containers: list[str]) -> set[str]:
    """The packages and modules in a contract of layers in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [layers] = [
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and contract["containers"] == containers
    ]
    return {name.strip() for layer in layers for name in layer.split("|")}


def test_every_module_of_the_engine_has_a_layer() -> None:
    engine = PACKAGE / "engine"
    modules = {path.stem for path in engine.glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in engine.glob("*/__init__.py")}
    assert _contract(["airflow_cloudfiles.engine"]) == modules | packages


@pytest.mark.parametrize(
    ("library", "packages"),
    [
        ("pyspark.sql.datasource", ("engine/spark",)),
        ("pyspark.sql.streaming", ("engine/spark",)),
        (
            "deltalake",
            (
                "engine/tables/delta",
                "engine/extensions/merge",
                "engine/extensions/promotion",
                "engine/extensions/upkeep",
            ),
        ),
        ("pyiceberg", ("engine/extensions/iceberg",)),
    ],
)
def test_a_library_is_imported_only_where_it_belongs(
    library: str, packages: tuple[str, ...]
) -> None:
    """Inside functions, too, which import-linter reads, but reports with the whole module."""
    elsewhere = [
        str(path.relative_to(PACKAGE))
        for path, source in _sources().items()
        if not str(path.relative_to(PACKAGE)).startswith(tuple(f"{each}/" for each in packages))
        for name in source.run_time_imports
        if f"{name}.".startswith(f"{library}.")
    ]
    assert elsewhere == []


@pytest.mark.parametrize(
    ("call", "module"),
    [
        ("table.cleanup_metadata", "tables/delta/opening.py"),
        ("table.create_checkpoint", "tables/delta/write/log_commit.py"),
        ("table.create_write_transaction", "extensions/merge/batch_write.py"),
        ("table.merge", "extensions/merge/commit.py"),
        ("write_deltalake", "extensions/merge/batch_write.py"),
        ("DeltaTable.create", None),
        ("table.alter", None),
    ],
)
def test_deltalake_writes_to_a_log_in_named_places_only(call: str, module: str | None) -> None:
    """Every other version of a table is written by `write.log_commit`."""
    folder = PACKAGE / "engine"
    pattern = re.compile(rf"(?<![\w.]){re.escape(call)}[.(]")
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if pattern.search(path.read_text(encoding="utf-8"))
    }
    assert found == ({module} if module else set())


OWN_WORDS = re.compile(
    r"\b(crews?|strangers?|outgrown|doorbells?|house|rooms|front room|walls|speaking|told)\b",
    re.IGNORECASE,
)
"""Words this project once had of its own, where the field has another: docs/glossary."""


def test_no_text_uses_a_word_that_only_this_project_has() -> None:
    texts = [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml", ".ci/run")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*PACKAGE.rglob("*.py"), *texts]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if OWN_WORDS.search(line)
    ]
    assert found == []
