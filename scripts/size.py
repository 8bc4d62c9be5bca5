"""`make size`: how large the package is, and how much of it a small run executes.

Code lines are those with code: no blank ones, comments and docstrings. The walk is a run of
`cloudfiles ingest --engine local` of one file: the modules of which it calls a function, in all of
its processes, but for what Python executes while it imports them.
"""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "airflow_cloudfiles"
_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
TRACER = """
import atexit, os, sys, threading
folder, package = os.environ.get("CLOUDFILES_WALK"), os.environ.get("CLOUDFILES_WALK_OF")
if folder:
    seen, exit_now = set(), os._exit

    def note(frame, event, argument):
        name = frame.f_code.co_filename
        is_module = frame.f_code.co_name == "<module>"
        if event != "call" or is_module or name in seen or not name.startswith(package):
            return
        called = frame.f_back
        while called is not None:
            is_of_package = called.f_code.co_filename.startswith(package)
            if is_of_package and called.f_code.co_name == "<module>":
                if called.f_globals.get("__name__") != "__main__":
                    return
            called = called.f_back
        seen.add(name)

    def write():
        sys.setprofile(None)
        with open(f"{folder}/{os.getpid()}", "w") as file:
            file.write(chr(10).join(sorted(seen)))

    def write_and_exit(code):
        write()
        exit_now(code)

    threading.setprofile(note)
    sys.setprofile(note)
    atexit.register(write)
    os._exit = write_and_exit
"""
"""`sitecustomize` of the processes of a walk."""


def code_lines(text: str) -> int:
    """Count the lines of a module that have code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def walk() -> list[str]:
    """Run `cloudfiles ingest --engine local` of one file, and list the modules it has executed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("site", "in", "walk"):
            (folder / each).mkdir()
        (folder / "site" / "sitecustomize.py").write_text(TRACER, encoding="utf-8")
        (folder / "in" / "a.json").write_text('{"a": 1}\n', encoding="utf-8")
        where = [
            f"--source={folder}/in",
            f"--checkpoint-location={folder}/state",
            f"--target={folder}/table",
            "--format=json",
            "--engine=local",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "airflow_cloudfiles.cli", "ingest", "--json", "--quiet", *where],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([f"{folder}/site", str(ROOT)]),
                "CLOUDFILES_WALK": f"{folder}/walk",
                "CLOUDFILES_WALK_OF": f"{PACKAGE}/",
            },
            stdout=subprocess.PIPE,
            check=True,
        )
        if json.loads(done.stdout)["rows"] != 1:
            raise SystemExit(f"The run of the walk has no row: {done.stdout.decode()}")
        found = {line for file in (folder / "walk").iterdir() for line in file.read_text().split()}
    return sorted(str(Path(each).relative_to(PACKAGE)) for each in found)


def main() -> None:
    """Print the figures as tables of Markdown."""
    lines: Counter[str] = Counter()
    classes: dict[str, list[str]] = defaultdict(list)
    modules = imports = functions = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(PACKAGE).parts
        lines["/".join(parts[:-1][:2]) or "."] += code_lines(text)
        modules += 1
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append("/".join(parts))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                imports += (node.end_lineno or node.lineno) - node.lineno + 1
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                functions += 1
    executed = walk()
    print("| | |\n| --- | --- |")
    for name, figure in {
        "code lines": lines.total(),
        "of them imports": imports,
        "modules": modules,
        "classes": sum(map(len, classes.values())),
        "public functions and methods": functions,
        "class names that stand for several things": sum(len(x) > 1 for x in classes.values()),
        "modules that a run of one file executes": len(executed),
    }.items():
        print(f"| {name} | {figure:,} |")
    print("\n| folder | code lines |\n| --- | --- |")
    for folder, count in lines.most_common():
        print(f"| {folder} | {count:,} |")


if __name__ == "__main__":
    main()
