"""Declare the messages that this package's own processes exchange.

Tasks of schema inference and what they found travel between a process and the workers that it
started itself: through anonymous pipes, or inside Spark's own results. Nothing that was read from a
file, a row, the state or a queue is ever decoded here; values of files are at most strings inside
an object that a worker made.

It builds nothing but classes of this package and of Spark's types, so that bytes from anywhere else
would fail to decode instead of running something. What driver and tasks of a run send each other is
inside Spark's own closures and results (`batches`).
"""

from __future__ import annotations

import importlib
import io
import pickle
from typing import IO, Any

_PACKAGES = ("airflow_cloudfiles.engine.", "pyspark.sql.types")
_BUILTINS = frozenset({"set", "frozenset", "bytearray", "complex"})
_OTHERS = frozenset(
    {
        ("collections", "Counter"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("decimal", "Decimal"),
    }
)

DecodeError = pickle.UnpicklingError
"""What was received is not a message of this package."""


class _OwnClassesOnly(pickle.Unpickler):
    """Finds classes by name where this package and Spark's types define them, and no functions."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS or (module == "builtins" and name in _BUILTINS):
            return getattr(importlib.import_module(module), name)
        if module.startswith(_PACKAGES) and "." not in name:
            found = getattr(importlib.import_module(module), name, None)
            # Not what the module has imported itself, such as `os` or a class of another package.
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise DecodeError(f"{module}.{name} is not a class of this package")


def encode(message: object) -> bytes:
    """Write a message for `decode` in a process with the same version of this package."""
    return pickle.dumps(message)


def decode(data: bytes) -> Any:
    """Read what `encode` wrote.

    Raises:
        DecodeError: It names something that this package does not send.
    """
    return _OwnClassesOnly(io.BytesIO(data)).load()


def send(message: object, stream: IO[bytes]) -> None:
    """Write a message to a pipe."""
    pickle.dump(message, stream)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read the next message from a pipe.

    Raises:
        EOFError: The other end was closed.
        DecodeError: It names something that this package does not send.
    """
    return _OwnClassesOnly(stream).load()
