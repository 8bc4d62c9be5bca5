"""What of a run's Spark configuration says how its Spark starts?

Keys that Spark itself does not know. None changes what a run does. Each is `true` unless it is set
to `false`, but for the bounds of a warm Spark.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError
from airflow_cloudfiles.engine.options import values


@dataclass(frozen=True, slots=True)
class Bound:
    """A key whose value is a size or an interval."""

    kind: values.Kind[int] | values.Kind[float]
    """How it is written."""
    default: str
    """What holds without it."""
    meaning: str
    """What it bounds."""


PREFIX = "spark.cloudfiles."
FORK_SERVER = "spark.cloudFiles.forkServer"
JVM_ARCHIVE = "spark.cloudFiles.jvmArchive"
EXECUTOR_PRELOAD = "spark.cloudFiles.executorPreload"
WARM_MEMORY = "spark.cloudFiles.warmMemory"
WARM_AGE = "spark.cloudFiles.warmAge"
WARM_RUNS = "spark.cloudFiles.warmRuns"
MEANINGS = {
    FORK_SERVER: "local runs: Python processes are forked from one that has imported everything; "
    "on Linux",
    JVM_ARCHIVE: "local runs: the JVM's classes are kept by the second run on a machine, and used "
    "by later ones",
    EXECUTOR_PRELOAD: "runs on a cluster: an executor imports everything once, not once for each "
    "core; not with `py_files`",
}
"""Every key that turns something on, and what."""
BOUNDS = {
    WARM_MEMORY: Bound(
        values.size,
        "a quarter of the machine's memory, at least `2g`",
        "memory of all its processes",
    ),
    WARM_AGE: Bound(values.interval, "`12 hours`", "how long it lives"),
    WARM_RUNS: Bound(
        values.positive,
        "`300`",
        "how many runs it serves: Spark keeps about 1.5 MB of each for an hour",
    ),
}
"""Every key that bounds a warm Spark: from there on it takes no more runs (`keep_warm`)."""


def check(conf: Mapping[str, str]) -> None:
    """Find out whether the keys of this package are some, with values that they take.

    Raises:
        UnknownOptionError: A key that begins like them is none of them.
        OptionError: A value is neither `true` nor `false`; or a bound is no size or interval.
    """
    for key, value in conf.items():
        if not key.lower().startswith(PREFIX):
            continue
        if key in BOUNDS:
            BOUNDS[key].kind.read(key, str(value))
            continue
        if key not in MEANINGS:
            names = {each.lower().removeprefix(PREFIX): each for each in (*MEANINGS, *BOUNDS)}
            near = difflib.get_close_matches(key.lower().removeprefix(PREFIX), names, n=1)
            all_names = ", ".join((*MEANINGS, *BOUNDS))
            hint = f" Did you mean {names[near[0]]}?" if near else f" There are: {all_names}."
            raise UnknownOptionError(f"The Spark configuration {key} does not exist.{hint}")
        if str(value).lower() not in {"true", "false"}:
            raise OptionError(f"{key} must be true or false, got {value!r}.")


def is_on(conf: Mapping[str, str], key: str) -> bool:
    """Whether a key is not turned off."""
    return str(conf.get(key, "true")).lower() != "false"
