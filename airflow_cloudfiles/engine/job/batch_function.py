"""Carry the function over micro-batches to the driver, wherever that is.

As an import reference (`package.module:function`), which the driver imports, or as the source of
the function, which the driver compiles. Neither is taken from the state, which others may write:
both go with the specification in a folder that only this user can enter (`spec`), or, where the
driver is on another machine, with the submitted program.

Such a program gets it as an argument. Whoever can submit a program to a cluster runs code there
in any case; whoever can write a state may not, so the function is never taken from there.

Importing this module imports no Spark.
"""

from __future__ import annotations
import __future__

import ast
import base64
import builtins
import importlib
import inspect
import json
import os
import re
import symtable
import sys
import sysconfig
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import OptionError, TransformError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.job.spec import JobSpec

MOST_CHARACTERS: Final = 100_000
"""Linux takes 131,072 bytes in one argument."""


def as_argument(function: Mapping[str, Any]) -> str:
    """Write a function (`BatchFunction.to_json`) as one word.

    Raises:
        OptionError: It is too long for a command line.
    """
    text = json.dumps(function, ensure_ascii=True)
    word = base64.urlsafe_b64encode(zlib.compress(text.encode("ascii"))).decode("ascii")
    if len(word) > MOST_CHARACTERS:
        raise OptionError(
            f"The function {function.get('name')} has {len(word):,} characters with its arguments, "
            f"and an argument of spark-submit takes {MOST_CHARACTERS:,}. Put it into a module of "
            "the cluster's Python or of py_files, and name it as 'package.module:function'."
        )
    return word


def with_function(spec: JobSpec, word: str) -> JobSpec:
    """Give a specification, which has the name of its function only, the function.

    Raises:
        TransformError: It is of another function, or cannot be read.
    """
    try:
        function = json.loads(zlib.decompress(base64.urlsafe_b64decode(word)))
    except (ValueError, zlib.error) as failure:
        raise TransformError(
            f"The function of run {spec.run_id} did not reach the driver as it was sent: {failure}."
        ) from failure
    wanted = (spec.transform or {}).get("name")
    if function.get("name") != wanted:
        raise TransformError(
            f"Run {spec.run_id} is specified with the function {wanted}, and was submitted with "
            f"{function.get('name')}. Start it again."
        )
    return replace(spec, transform=function)


_REFERENCE = re.compile(r"[^\W\d]\w*([.][^\W\d]\w*)*:[^\W\d]\w*")
_DROPPED = frozenset({"cloud_files", "setup", "teardown"})
"""Decorators that make a task of a function, which the driver has no use for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFunction:
    """A function from the rows of a micro-batch to the rows that are written.

    Attributes:
        name: For messages: the reference, or the name of the function.
        reference: Where it is imported from, `package.module:function`.
        source: Its source, where it is not imported.
        file: The file that the source is of, for tracebacks.
        line: The line of that file at which the source begins, from 1.
        arguments: What it is called with besides the batch, by name; values of JSON.
    """

    name: str
    reference: str | None = None
    source: str | None = None
    file: str = "<transform>"
    line: int = 1
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, given: str | Callable[..., Any], arguments: Mapping[str, Any] | None = None
    ) -> BatchFunction:
        """Describe a function, without importing it or calling it.

        Args:
            given: `package.module:function`, or the function itself, whose source is taken.
            arguments: What it is called with besides the batch.

        Raises:
            OptionError: It is no such reference; or the function has no source of its own, takes no
                batch, or uses names from outside of it, which the driver does not have.
        """
        arguments = dict(arguments or {})
        _check_arguments(arguments)
        if isinstance(given, str):
            if not _REFERENCE.fullmatch(given):
                raise OptionError(
                    f"transform must be a function, or say where one is imported from, such as "
                    f"'package.module:function', got {given!r}."
                )
            return cls(name=given, reference=given, arguments=arguments)
        return cls(**_described(given), arguments=arguments)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> BatchFunction:
        """Make what `to_json` gave.

        Raises:
            TransformError: It has neither a reference nor a source, as one in a state.
        """
        if not value.get("reference") and not value.get("source"):
            raise TransformError(
                f"The function {value.get('name')} did not reach the driver: it is not in the "
                "state, which is no safe place for code. Start the run again."
            )
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        """Encode it as plain values, for the driver."""
        return asdict(self)

    def load(self) -> Callable[..., Any]:
        """Import the function, or compile it.

        Raises:
            TransformError: That fails, or what is found is no function.
        """
        try:
            found = self._imported() if self.reference else self._compiled()
        except Exception as error:
            raise TransformError(
                f"The function {self.name} cannot be loaded: {type(error).__name__}: {error}. "
                + (
                    "Its module must be where the driver can import it, as a folder of PYTHONPATH "
                    "is, or the folder of the DAGs."
                    if self.reference
                    else "Import what it needs inside of it."
                )
            ) from error
        if not callable(found):
            raise TransformError(
                f"{self.name} is no function but {type(found).__name__}: name one that takes the "
                "DataFrame of a micro-batch and returns one."
            )
        return found  # type: ignore[no-any-return]

    def _imported(self) -> Any:
        module, _, name = str(self.reference).partition(":")
        return getattr(importlib.import_module(module), name)

    def _compiled(self) -> Any:
        tree = ast.parse(str(self.source))
        ast.increment_lineno(tree, self.line - 1)
        made = _function_in(tree)
        made.decorator_list = [each for each in made.decorator_list if not _is_of_task(each)]
        flags = __future__.annotations.compiler_flag
        code = compile(tree, self.file, "exec", flags=flags, dont_inherit=True)
        # Not the name of a module that there is: Spark then sends functions in it as they are.
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(code, names)  # noqa: S102 - the user's own code, which no state has held
        return names[made.name]


def python_path() -> str:
    """Build the `PYTHONPATH` for a driver that is to import what this process does."""
    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = [
        path
        for path in sys.path
        if path
        and path not in own
        and not any(path.startswith(f"{each}{os.sep}") for each in own)
        and Path(path).is_dir()
    ]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, [*given, *folders])))


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"The arguments of the function over micro-batches must be values of JSON: {error}."
        ) from error


def _described(function: Callable[..., Any]) -> dict[str, Any]:
    """Build the fields that name a function and hold its source."""
    name = getattr(function, "__name__", repr(function))
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise OptionError(f"transform must be a function that was written with def, got {name}.")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise OptionError(f"{name} must return a DataFrame: it is async, or yields.")
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError as error:
        raise OptionError(
            f"The source of {name} cannot be read: {error}. Put the function into a module, and "
            "name it as 'package.module:function'."
        ) from error
    source = textwrap.dedent("".join(lines))
    if not inspect.signature(function).parameters:
        raise OptionError(f"{name} must take the DataFrame of a micro-batch; it takes nothing.")
    outside = sorted({*function.__code__.co_freevars, *_globals_in(source, function)})
    if outside:
        raise OptionError(
            f"{name} uses {', '.join(outside)} from outside of it. It runs in the Spark driver, "
            "which has only its source: import modules inside of the function, and give values as "
            "arguments of it. Or put it into a module, and name it as 'package.module:function'."
        )
    file = function.__code__.co_filename
    return {"name": name, "source": source, "file": file, "line": first}


def _globals_in(source: str, function: Callable[..., Any]) -> Iterator[str]:
    """Names of the function's module that its body uses."""
    written = _function_in(ast.parse(source)).args
    for default in filter(None, (*written.defaults, *written.kw_defaults)):
        for part in ast.walk(default):
            if isinstance(part, ast.Name) and not hasattr(builtins, part.id):
                yield part.id
    known = {*vars(builtins), function.__name__}
    tables = symtable.symtable(source, "<transform>", "exec").get_children()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_global() and symbol.is_referenced() and symbol.get_name() not in known:
                yield symbol.get_name()


def _function_in(tree: ast.Module) -> ast.FunctionDef:
    return next(each for each in tree.body if isinstance(each, ast.FunctionDef))


def _is_of_task(decorator: ast.expr) -> bool:
    """Tell whether a decorator makes a task of a function."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
    return name in _DROPPED
