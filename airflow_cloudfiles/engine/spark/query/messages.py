"""Show a user of a query its errors, its warnings and the metrics of its source.

A query that meets a new column ends with an error that a retry mends, again and again over the
years. Spark prints its stack in Java and in Python each time; `awaitTermination()` raises the error
as itself.

The metrics of a source are shown where Spark documents them:
`lastProgress["sources"][0]["metrics"]`. Spark takes none from a source in Python, so ours gives
them with its newest offset (`CloudFilesStreamReader.reportLatestOffset`).

An error of ours that a task or the planning process raised comes by class and message as in a
program without Spark, and is a `StreamingQueryException` too, for those who catch that.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from airflow_cloudfiles.engine.errors import CloudFilesError, with_code
from airflow_cloudfiles.engine.options.metadata_columns import NAME as METADATA_COLUMNS
from airflow_cloudfiles.engine.spark.query.calls import calls_of

if TYPE_CHECKING:
    from pyspark.errors import StreamingQueryException


def as_query_exception(ours: CloudFilesError, query: StreamingQueryException) -> CloudFilesError:
    """Build one exception that is both: a StreamingQueryException and one of our class."""
    kind = type(ours).__name__
    both = type(
        kind, (type(ours), type(query)), {"__module__": "airflow_cloudfiles", "__str__": _message}
    )
    error = cast("CloudFilesError", both.__new__(both))  # type: ignore[call-overload]
    error.__dict__.update(query.__dict__)
    error.__dict__.update(ours.__dict__)
    error.args = ours.args
    return error


def _message(error: CloudFilesError) -> str:
    return error.message


_METRICS: Final = (
    "numFilesOutstanding",
    "numBytesOutstanding",
    "isBacklogComputationComplete",
    "approximateQueueSize",
)


@functools.cache
def show_metrics() -> None:
    """Have the progress of queries and of their listeners show them; once a process."""
    from pyspark.sql.streaming.listener import SourceProgress  # noqa: PLC0415

    original = SourceProgress.__init__

    @functools.wraps(original)
    def with_metrics(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self["metrics"] = self["metrics"] or _metrics_in(self["latestOffset"])

    SourceProgress.__init__ = with_metrics  # type: ignore[method-assign]


def _metrics_in(offset: str) -> dict[str, str]:
    """Find the metrics that our source has put beside an offset; none beside another's."""
    if f'"{_METRICS[0]}"' not in offset:
        return {}
    found = json.loads(offset)
    return {name: found[name] for name in _METRICS if name in found}


MERGE_SCHEMA: Final = "mergeschema"


def warn(writer: Any, sink: str, options: dict[str, Any]) -> None:
    """Log a warning for each, with the line that mends it.

    Args:
        writer: PySpark's `DataStreamWriter` of a query that reads `cloudFiles`.
        sink: Name of its format; empty where none was set.
        options: Of the query, by their names in lower case.
    """
    called = {name for name, _, _ in calls_of(writer)}
    if not sink and MERGE_SCHEMA in options and not called & {"foreach", "foreachBatch"}:
        _log.warning(
            "The query has no format, so Spark writes Parquet files, which know no mergeSchema. "
            'For a Delta table, add .format("deltalake") to writeStream.'
        )
    plan = writer._df._jdf.queryExecution().analyzed().toString()  # noqa: SLF001
    if "input_file_name()" in plan:
        _log.warning(
            "input_file_name() is an empty text for rows of cloudFiles. Add "
            '.option("%s", "file_path") to readStream, and use the column file_path.',
            METADATA_COLUMNS,
        )


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
        """Tell whether a record is logged."""
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
