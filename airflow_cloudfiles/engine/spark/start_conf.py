"""Declare the keys of a Spark configuration that say how Spark starts.

Spark itself does not know them. None changes what a run does. Each is `true` unless it is set
to `false`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError

PREFIX = "spark.cloudfiles."
FORKED_DAEMON = "spark.cloudFiles.forkedDaemon"
JVM_ARCHIVE = "spark.cloudFiles.jvmArchive"
EXECUTOR_PRELOAD = "spark.cloudFiles.executorPreload"
MEANINGS = {
    FORKED_DAEMON: "local runs and queries: Spark's Python processes are forked from one that has "
    "imported everything; on Linux",
    JVM_ARCHIVE: "local runs: the JVM's classes are kept after the second run on a machine, and "
    "used by later ones",
    EXECUTOR_PRELOAD: "runs on a cluster: an executor imports everything once, not once for each "
    "core; not with `py_files`",
}
"""Every key that turns something on, and what."""


def check(conf: Mapping[str, str]) -> None:
    """Find out whether the keys of this package are some, with values that they take.

    Raises:
        UnknownOptionError: A key that begins like them is none of them.
        OptionError: A value is neither `true` nor `false`.
    """
    for key, value in conf.items():
        if not key.lower().startswith(PREFIX):
            continue
        if key not in MEANINGS:
            names = {each.lower().removeprefix(PREFIX): each for each in MEANINGS}
            near = difflib.get_close_matches(key.lower().removeprefix(PREFIX), names, n=1)
            all_names = ", ".join(MEANINGS)
            hint = f" Did you mean {names[near[0]]}?" if near else f" There are: {all_names}."
            raise UnknownOptionError(f"The Spark configuration {key} does not exist.{hint}")
        if str(value).lower() not in {"true", "false"}:
            raise OptionError(f"{key} must be true or false, got {value!r}.")


def is_on(conf: Mapping[str, str], key: str) -> bool:
    """Whether a key is not turned off."""
    return str(conf.get(key, "true")).lower() != "false"
