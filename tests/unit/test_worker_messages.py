"""Messages between workers build classes of this package, and run nothing."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import DecimalType, StructField, StructType

from airflow_cloudfiles.engine import worker_messages
from airflow_cloudfiles.engine.errors import UnknownFieldException
from airflow_cloudfiles.engine.files import FileEntry, Offset


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize(
    "message",
    [
        FileEntry("a\udcff.json", 1, 2, "e"),
        (Offset(1, 2), {"a": {1, 2}}, b"bytes", None),
        StructType([StructField("a", DecimalType(10, 2))]),
    ],
)
def test_a_message_arrives_as_it_was_sent(message: object) -> None:
    assert worker_messages.decode(worker_messages.encode(message)) == message


def test_an_error_arrives_with_its_class() -> None:
    error = UnknownFieldException.of({"a": 1}, file="f", retry=True)
    found = worker_messages.decode(worker_messages.encode(error))
    assert type(found) is UnknownFieldException
    assert (found.message, found.is_retryable) == (error.message, True)


@pytest.mark.parametrize(
    "function", [os.system, subprocess.check_call, eval, exec, getattr, __import__]
)
def test_a_function_is_not_called(function: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    data = pickle.dumps(Calls(function, f"touch {trace}"))
    with pytest.raises(worker_messages.DecodeError, match="not a class of this package"):
        worker_messages.decode(data)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("airflow_cloudfiles.engine.job.launch", "os"),
        ("airflow_cloudfiles.engine.job.launch", "os.system"),
        ("airflow_cloudfiles.engine.job.launch", "subprocess.Popen"),
        ("airflow_cloudfiles.engine.job.launch", "launch"),
        ("airflow_cloudfiles.engine.job.launch", "Path"),
        ("pyspark.sql.types", "json.codecs.sys.exit"),
        ("pyspark.sql.types_", "x"),
    ],
)
def test_what_a_module_imports_or_defines_as_a_function_is_not_found(
    module: str, name: str
) -> None:
    data = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode()
    data += b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    with pytest.raises((worker_messages.DecodeError, ImportError)):
        worker_messages.decode(data)
