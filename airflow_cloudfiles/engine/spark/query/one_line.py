"""Say in one line why a query ends, where Spark prints hundreds.

A query that meets a new column ends with an error that a retry mends, again and again over the
years. Spark prints its stack in Java and in Python each time; `awaitTermination()` raises the error
as itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from airflow_cloudfiles.engine.errors import CloudFilesError, with_code

_OF_QUERIES: Final = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
_OF_SOURCES: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"
_OF_CALLBACKS: Final = "py4j.clientserver"
_END_SECONDS = 30.0
_guard = threading.Lock()
_ending: list[Callable[[], None]] = []
"""For each query whose end Spark shall not log, the same: how it is had to log again."""
_log = logging.getLogger(__name__)


class _NotOurs(logging.Filter):
    """Leaves out the errors of this package, which are raised and logged elsewhere."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        return not (record.exc_info and isinstance(record.exc_info[1], CloudFilesError))


def warn_of_no_replacement(session: Any) -> None:
    """Have Spark not warn at each query that a registered source replaces one it has found.

    It finds ours where its Python has this package (`pyspark_cloudfiles`). The registered one has
    the environment of whoever registers it.
    """
    log4j = session._jvm.org.apache.logging.log4j  # noqa: SLF001
    log4j.core.config.Configurator.setLevel(_OF_SOURCES, log4j.Level.ERROR)


def in_one_line(session: Any, error: CloudFilesError) -> None:
    """Log an error that the function of this micro-batch is about to raise.

    Until its query has ended, and others for which this was called, Spark logs no error with which
    a query ends.

    Args:
        session: The session that has started the query.
        error: What it is.
    """
    _log.error("%s", with_code(error))
    callbacks = logging.getLogger(_OF_CALLBACKS)
    if not any(isinstance(each, _NotOurs) for each in callbacks.filters):
        callbacks.addFilter(_NotOurs())
    query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    with _guard:
        _ending.append(_ending[0] if _ending else _silenced(session))

    def end() -> None:
        until = time.monotonic() + _END_SECONDS
        try:
            while session.streams.get(query) is not None and time.monotonic() < until:
                time.sleep(0.05)
        except Exception as gone:  # noqa: BLE001 - the session may have been stopped, and its JVM
            _log.debug("The end of query %s is not waited for: %s", query, gone)
        with _guard:
            restore = _ending.pop()
            if _ending:
                return
            try:
                restore()
            except Exception as gone:  # noqa: BLE001 - as above
                _log.debug("Spark's log is not as it was: %s", gone)

    threading.Thread(target=end, name="log-of-queries", daemon=True).start()


def _silenced(session: Any) -> Callable[[], None]:
    """Have Spark log no error with which a query ends; gives what undoes that."""
    log4j = session._jvm.org.apache.logging.log4j  # noqa: SLF001
    loggers = log4j.LogManager.getContext(False)
    configuration = loggers.getConfiguration()
    before = configuration.getLoggerConfig(_OF_QUERIES)
    is_own, level = before.getName() == _OF_QUERIES, before.getLevel()
    log4j.core.config.Configurator.setLevel(_OF_QUERIES, log4j.Level.OFF)

    def restore() -> None:
        if is_own:
            log4j.core.config.Configurator.setLevel(_OF_QUERIES, level)
        else:
            configuration.removeLogger(_OF_QUERIES)
            loggers.updateLoggers()

    return restore
