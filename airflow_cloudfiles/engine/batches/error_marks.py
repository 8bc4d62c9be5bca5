"""Have our errors leave a Python process of Spark as themselves.

Spark passes on the text of an error, inside those of its own. So what PySpark calls, such as the
methods of a data source, puts a machine-readable record behind the message (`errors.marked`), from
which `errors.from_text` makes the same error again on the other side.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from airflow_cloudfiles.engine.errors import CloudFilesError, marked
from airflow_cloudfiles.engine.storage.outage import unexpected

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
