"""Nothing in the package can turn data into code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_cloudfiles

PACKAGE = Path(airflow_cloudfiles.__file__).parent
DESERIALIZERS = {
    "pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal",
    "shelve", "yaml",
}  # fmt: skip
EXECUTORS = {"eval", "exec", "compile", "__import__", "system", "popen", "getoutput"}
STARTERS = {"run", "Popen", "call", "check_call", "check_output"}
SQL = {"sql", "expr", "selectExpr", "execute", "executemany", "executescript"}
UNPACKERS = {"extractall", "unpack_archive", "read_pickle"}
MODULES = {"run_module", "run_path"}
_TASKS = "what driver and tasks of one run send each other, inside Spark's own closures and results"
_OURS = "a name that the program itself has written down"
_FUNCTION = "the function that whoever starts a run gives it; never from a state or a file of data"
ALLOWED = {
    ("engine/batches/connect_tasks.py", "imports pickle"): _TASKS,
    ("engine/batches/run.py", "imports pickle"): _TASKS,
    ("__init__.py", "imports by name"): _OURS,
    ("cli.py", "imports by name"): _OURS,
    ("engine/formats/registry.py", "imports by name"): _OURS,
    ("engine/registry.py", "imports by name"): _OURS,
    ("engine/spark/forked_python.py", "imports by name"): _OURS,
    ("engine/spark/fork_server.py", "imports by name"): _OURS,
    (
        "engine/spark/fork_server.py",
        "calls run_module",
    ): "Spark's own modules only",
    ("engine/job/batch_function.py", "calls compile"): _FUNCTION,
    ("engine/job/batch_function.py", "calls exec"): _FUNCTION,
    ("engine/job/batch_function.py", "imports by name"): _FUNCTION,
    ("engine/spark/preload.py", "imports by name"): _OURS,
    ("engine/storage/vendors.py", "imports by name"): _OURS,
    ("hooks/access.py", "imports by name"): "hooks of Airflow's providers, of a list",
}
"""What is allowed, and why."""


def _imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        module = (node.module or "").partition(".")[0]
        return {module, *(alias.name for alias in node.names)}
    return set()


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        # `re.compile` compiles a pattern; other methods may have these names.
        return node.func.attr if isinstance(owner, ast.Name) and owner.id == "os" else ""
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _pasted(node: ast.AST) -> bool:
    """Whether a text is put together from parts."""
    if isinstance(node, ast.JoinedStr | ast.BinOp):
        return True
    formats = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return formats and node.func.attr in {"format", "join"}  # type: ignore[attr-defined]


def _dangers_of_call(node: ast.Call) -> Iterator[str]:
    """What in one call could execute what it is given."""
    if _called(node) in EXECUTORS:
        yield f"calls {_called(node)}"
    shell = [word for word in node.keywords if word.arg in {"shell", "allow_pickle"}]
    if shell:
        yield f"sets {shell[0].arg}"
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else _called(node)
    first = node.args[0] if node.args else None
    if name in UNPACKERS | MODULES:
        yield f"calls {name}"
    if first is None:
        return
    if name in SQL and _pasted(first):
        yield "pastes into SQL"
    if name == "import_module" and not isinstance(first, ast.Constant):
        yield "imports by name"
    starts = isinstance(owner, ast.Name) and owner.id == "subprocess" and name in STARTERS
    if starts and (_pasted(first) or isinstance(first, ast.Constant)):
        yield "pastes into a command"


def dangers(source: str) -> Iterator[str]:
    """What in a module could execute data."""
    for node in ast.walk(ast.parse(source)):
        for module in sorted(_imported(node) & DESERIALIZERS):
            yield f"imports {module}"
        if isinstance(node, ast.Call):
            yield from _dangers_of_call(node)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "from multiprocessing.reduction import pickle",
        "import yaml",
        "eval(text)",
        "os.system(text)",
        "subprocess.run(text, shell=True)",
        "np.load(file, allow_pickle=True)",
        "subprocess.run(f'ls {name}')",
        "subprocess.Popen('ls ' + name)",
        "spark.sql(f'SELECT * FROM {table}')",
        "cursor.execute('DELETE FROM t WHERE a = %s' % name)",
        "frame.selectExpr('{} AS a'.format(name))",
        "functions.expr(' AND '.join(names))",
        "importlib.import_module(name)",
        "tarfile.open(name).extractall(folder)",
        "shutil.unpack_archive(name)",
        "runpy.run_path(name)",
    ],
)
def test_a_danger_is_seen(source: str) -> None:
    assert list(dangers(source))


@pytest.mark.slow
def test_no_module_executes_data() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), danger)
        for path in PACKAGE.rglob("*.py")
        for danger in dangers(path.read_text(encoding="utf-8"))
    }
    assert sorted(found - set(ALLOWED)) == []
    assert sorted(set(ALLOWED) - found) == [], "these are gone"
