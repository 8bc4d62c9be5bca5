"""`make size`: how large the package is, what a small run executes, what a change touches.

Code lines are those with code: no blank ones, comments and docstrings. The walk is a run of
`cloudfiles ingest --engine local` of one file: the modules of which it calls a function, in all of
its processes, but for what Python executes while it imports them. The same is counted of a run that
finds a new column and of its retry. What a change touches is the modules whose code names a thing
outside of its own folder.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
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


NAMED = {
    "a format (Avro), outside of its own": (r"(?i)\bavro", "/formats/avro/"),
    # `SftpCreate` is an event of Azure's, and `google.protobuf` what Spark Connect speaks.
    "a store (SFTP), outside of its own": (
        r"(?i)sftp(?!create|commit)", "/clouds/sftp/|/access_sftp"
    ),
    "Google, outside of its own": (
        r"(?i)google(?!\n\.\nprotobuf)|gcp|\bgs\b", "/clouds/gcp/|/access_gcp"
    ),
    "an argument (`expected_every`)": (r"expected_every", None),
    "a kind of table or source (`is_iceberg`, `is_table`)": (r"is_iceberg\b|is_table\b", None),
}  # fmt: skip
"""What modules may name: as which expression, and where it lives."""


def code(text: str) -> str:
    """Give the tokens of a module, but for comments and docstrings."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(
        token.string
        for token in tokens
        if token.type != tokenize.COMMENT and token.start[0] not in prose
    )


def naming(modules: dict[Path, str]) -> dict[str, list[str]]:
    """List the modules that name each of `NAMED`."""
    codes = {str(path.relative_to(ROOT)): code(text) for path, text in modules.items()}
    return {
        what: [
            name
            for name, text in codes.items()
            if re.search(pattern, text) and (home is None or not re.search(home, name))
        ]
        for what, (pattern, home) in NAMED.items()
    }


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


def walk() -> list[set[str]]:
    """Run `cloudfiles ingest --engine local` of one file, of a new column, and again.

    Returns:
        The modules that each of the three has executed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("site", "in"):
            (folder / each).mkdir()
        (folder / "site" / "sitecustomize.py").write_text(TRACER, encoding="utf-8")
        (folder / "in" / "a.json").write_text('{"a": 1}\n', encoding="utf-8")
        found = [_executed(folder, rows=1)]
        (folder / "in" / "b.json").write_text('{"a": 1, "b": 1}\n', encoding="utf-8")
        return [*found, _executed(folder, rows=0), _executed(folder, rows=1)]


def _executed(folder: Path, *, rows: int) -> set[str]:
    """Run what is in a folder, and read which modules it has executed."""
    where = [
        f"--source={folder}/in",
        f"--checkpoint-location={folder}/state",
        f"--target={folder}/table",
        "--format=json",
        "--engine=local",
    ]
    with tempfile.TemporaryDirectory() as seen:
        done = subprocess.run(
            [sys.executable, "-m", "airflow_cloudfiles.cli", "ingest", "--json", "--quiet", *where],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([f"{folder}/site", str(ROOT)]),
                "CLOUDFILES_WALK": seen,
                "CLOUDFILES_WALK_OF": f"{PACKAGE}/",
            },
            stdout=subprocess.PIPE,
            check=False,
        )
        found = {line for file in Path(seen).iterdir() for line in file.read_text().split()}
    if done.returncode == 0 and json.loads(done.stdout)["rows"] != rows:
        raise SystemExit(f"The run has other rows: {done.stdout.decode()}")
    if (done.returncode == 0) != (rows > 0):
        raise SystemExit(f"The run ended with {done.returncode}: {done.stdout.decode()}")
    return {str(Path(each).relative_to(PACKAGE)) for each in found}


def main() -> None:
    """Print the figures as tables of Markdown."""
    lines: Counter[str] = Counter()
    classes: dict[str, list[str]] = defaultdict(list)
    modules: dict[Path, str] = {}
    imports = functions = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(PACKAGE).parts
        lines["/".join(parts[:-1][:2]) or "."] += code_lines(text)
        modules[path] = text
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append("/".join(parts))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                imports += (node.end_lineno or node.lineno) - node.lineno + 1
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                functions += 1
    small, unknown, retry = walk()
    print("| | |\n| --- | --- |")
    for name, figure in {
        "code lines": lines.total(),
        "of them imports": imports,
        "modules": len(modules),
        "classes": sum(map(len, classes.values())),
        "public functions and methods": functions,
        "class names that stand for several things": sum(len(x) > 1 for x in classes.values()),
        "modules that a run of one file executes": len(small),
        "more of them for a new column, and its retry": len((unknown | retry) - small),
        **{f"modules that name {what}": len(names) for what, names in naming(modules).items()},
    }.items():
        print(f"| {name} | {figure:,} |")
    print("\n| folder | code lines |\n| --- | --- |")
    for folder, count in lines.most_common():
        print(f"| {folder} | {count:,} |")


if __name__ == "__main__":
    main()
