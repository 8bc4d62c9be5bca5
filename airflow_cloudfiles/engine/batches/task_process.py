"""Prepare the process of a task: mark its errors, show its progress, check its version.

Spark passes on the text of an error, inside those of its own. So what PySpark calls, such as the
methods of a data source, puts a machine-readable record behind the message (`errors.marked`), from
which `errors.from_text` makes the same error again on the other side.

A Spark whose Python has another version of this package than who defines a stream is refused: over
Spark Connect the two are different machines. The client says its version in an option of a
source, or with a task, and the server's Python looks at it before it does anything else: the check
travels with a request that is made anyway, and costs none of its own.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from airflow_cloudfiles.engine.errors import CloudFilesError, SparkServerError, marked
from airflow_cloudfiles.engine.messages import install
from airflow_cloudfiles.engine.storage.outage import unexpected
from airflow_cloudfiles.version import __version__

_Class = TypeVar("_Class", bound=type)


def marking_errors(kind: _Class) -> _Class:
    """Mark the errors that the public methods of a class raise, and the iterators they return."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, marking(method))
    return kind


def marking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that an error of ours that it raises is marked."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return marked_call(function, *args, **kwargs)

    return call


def marked_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function as `marking` has it called; a partial of it is pickled by names alone."""
    with _marked():
        result = function(*args, **kwargs)
    return _each(result) if isinstance(result, Iterator) else result


def _each(values: Iterator[Any]) -> Iterator[Any]:
    with _marked():
        yield from values


@contextmanager
def _marked() -> Iterator[None]:
    try:
        yield
    except CloudFilesError as error:
        error.args = (marked(error),)  # what a traceback shows; `message` stays as it is
        raise
    except BaseException as failure:
        ours = unexpected(failure)
        if ours is None:
            raise
        ours.args = (marked(ours),)
        raise ours from failure


PACKAGE: Final = "airflow_cloudfiles"
"""Name of the logger of this package."""


def log_to_stderr() -> None:
    """Show this package's progress: Spark passes on what its Python processes print to stderr."""
    logger = logging.getLogger(PACKAGE)
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(os.environ.get("CLOUDFILES_LOG_LEVEL", "INFO"))


CLIENT_VERSION = "cloudFiles.internal.clientVersion"
"""Option of the source: the version of this package where the stream was defined."""
_INSTALL = f"It has to be there in version {__version__}. {install('spark', 'delta')}"
_OURS = frozenset({"airflow_cloudfiles", "deltalake", "msgspec", "numpy", "pyarrow", "rocksdict"})
"""What the extras `spark` and `delta` bring; a module of the user's is the user's to install."""
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_ATTRIBUTE = re.compile(r"Can't get attribute '\w+' on <module 'airflow_cloudfiles")
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH|different (?:minor )?version.{0,40}driver")
_PYTHON_OF_WORKER = re.compile(r"[Pp]ython in worker has different version[:\s(]*([\d.]+)")


def check_client(options: Mapping[str, str]) -> None:
    """Refuse a stream that was defined with another version of this package.

    Raises:
        SparkServerError: The versions differ; says which is where.
    """
    given = {key.lower(): value for key, value in options.items()}.get(CLIENT_VERSION.lower())
    if given is not None and given != __version__:
        raise SparkServerError(
            f"The Python of the Spark server has airflow_cloudfiles {__version__}, the client has "
            f"{given}. Install the same version on both."
        )


def explained(text: str, address: str) -> CloudFilesError | None:
    """Explain a failure of the server's Python; return `None` when it is something else.

    Args:
        text: The error as the server tells it.
        address: Of the server.
    """
    missing = _NO_MODULE.search(text)
    if missing is not None and missing[1].partition(".")[0] in _OURS:
        name = missing[1]
        what = "no airflow_cloudfiles" if name == "airflow_cloudfiles" else f"no module {name}"
        if name.startswith("airflow_cloudfiles."):
            what = f"another version of airflow_cloudfiles (without {name})"
        return SparkServerError(
            f"The Python of the Spark Connect server {address} has {what}. {_INSTALL} "
            "The server takes the Python that spark.pyspark.python or PYSPARK_PYTHON "
            "named when it was started."
        )
    if _NO_ATTRIBUTE.search(text):
        return SparkServerError(
            f"The Python of the Spark Connect server {address} has another version of "
            f"airflow_cloudfiles. {_INSTALL}"
        )
    if _OTHER_PYTHON.search(text):
        mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
        found = _PYTHON_OF_WORKER.search(text)
        theirs = f"Python {found[1]}" if found else "another Python"
        return SparkServerError(
            f"The Spark Connect server {address} runs {theirs}, the client Python {mine}. "
            f"Spark needs the same minor version on both: start the server with a Python {mine} "
            "(spark.pyspark.python), or run the client with the server's."
        )
    return None
