"""Refuse a Spark whose Python has another version of this package than who defines a stream.

Over Spark Connect the two are different machines. The client says its version in an option of a
source, or with a task, and the server's Python looks at it before it does anything else: the check
travels with a request that is made anyway, and costs none of its own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from airflow_cloudfiles.engine.errors import CloudFilesError, SparkServerError
from airflow_cloudfiles.engine.messages import install
from airflow_cloudfiles.version import __version__

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
