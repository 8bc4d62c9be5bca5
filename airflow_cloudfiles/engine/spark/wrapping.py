"""Put functions around methods of PySpark's builders and queries, and raise our errors there."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors.exceptions.base import PySparkException

from airflow_cloudfiles.engine import errors


def wrap(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Put a function around a method; it gets the original, which knows its name, and the call."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(original, self, *args, **kwargs)

    setattr(owner, name, wrapped)


@contextlib.contextmanager
def raising_ours() -> Iterator[None]:
    """Raise an error of ours that comes in the text of one of PySpark's as itself."""
    try:
        yield
    except PySparkException as error:
        raise (errors.from_text(str(error)) or error) from None
