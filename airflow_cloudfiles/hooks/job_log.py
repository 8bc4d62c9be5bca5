"""Make a line of a job's log an entry of the task's, at its own level.

A job writes `time LEVEL name: message`, its JVM `time LEVEL class: message`. Airflow's log has the
time itself, so only level and message are passed on. A line without such a head, as a stack trace
has many, continues the entry before it.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.spark.preload import is_banner

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
}
_HEAD: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}|\d\d/\d\d/\d\d \d\d:\d\d:\d\d) "
    rf"({'|'.join(sorted(_LEVELS, key=len, reverse=True))}) ([^\s:]+): (.*)"
)
_OWN: Final = "airflow_cloudfiles."


class JobLog:
    """Passes lines of a job's log on.

    Args:
        log: Where they go.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._level = logging.INFO

    def write(self, line: str) -> None:
        """Pass a line on at its level; what every Spark prints at its start is only for DEBUG."""
        if is_banner(line):
            self._log.debug("%s", line)
            return
        head = _HEAD.match(line)
        if head is None:
            self._log.log(self._level, "%s", line)
            return
        level, name, message = head.groups()
        self._level = _LEVELS[level]
        if name.startswith(_OWN):
            self._log.log(self._level, "%s", message)
        else:
            self._log.log(self._level, "%s: %s", name, message)
