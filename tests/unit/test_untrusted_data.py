"""Nothing in the package can turn data into code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_cloudfiles

PACKAGE = Path(airflow_cloudfiles.__file__).parent
DESERIALIZERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "yaml"}
EXECUTORS = {"eval", "exec", "compile", "__import__", "system", "popen", "getoutput"}
ALLOWED = {
    "engine/worker_messages.py": "imports pickle",  # own workers only, own classes only
}
"""What is allowed, with the reason in the module itself."""


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


def dangers(source: str) -> Iterator[str]:
    """What in a module could execute data."""
    for node in ast.walk(ast.parse(source)):
        for module in sorted(_imported(node) & DESERIALIZERS):
            yield f"imports {module}"
        if isinstance(node, ast.Call):
            if _called(node) in EXECUTORS:
                yield f"calls {_called(node)}"
            shell = [word for word in node.keywords if word.arg in {"shell", "allow_pickle"}]
            if shell:
                yield f"sets {shell[0].arg}"


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
    assert found == set(ALLOWED.items())
