"""Show a user of a query its errors, its warnings and the metrics of its source.

A query that meets a new column ends with an error that a retry mends, again and again over the
years. Spark logs its stacks in Java and in Python each time, some hundred lines; of an error of
this package, a session that `register` knows logs the message (`quiet_log`).

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
from typing import TYPE_CHECKING, Any, Final, cast

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.options.metadata_columns import NAME as METADATA_COLUMNS
from airflow_cloudfiles.engine.spark.calls import calls_of

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


_OF_SOURCES: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"
_OF_CALLBACKS: Final = "py4j.clientserver"
_LOG4J: Final = "org.apache.logging.log4j.core."
_SHORTENED: Final = "-cloudFiles"
"""Behind the name of an appender whose lines are shortened; no logger has the former one then."""
_ERROR: Final = r"airflow_cloudfiles[\w.]*\.(\w+): ([^\n]{1,4000}).*<<cloudfiles-error:.*"
"""A stack that ends in an error with its mark (`errors.marked`): its class, its message."""
_SHORTER: Final = {
    rf"(?s)\A([^\n]{{0,200}}?MicroBatchExecution: ).*?{_ERROR}": "$1$3\n",
    rf"(?s)\A([^\n]{{0,200}}?: ).*?{_ERROR}": "$1$2\n",
}
"""What becomes of a line of the log with its stack: the query ends with the message, and what comes
before has the class."""
_log = logging.getLogger(__name__)


class _OwnErrorFilter(logging.Filter):
    """Leaves out the errors of this package, which Spark logs and `awaitTermination()` raises."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is logged."""
        return not (record.exc_info and isinstance(record.exc_info[1], CloudFilesError))


def quiet_log(session: Any) -> None:
    """Have Spark log an error of this package in one line, and nothing of what is meant to be.

    It warns at each query that a registered source replaces one that it has found: ours, where its
    Python has this package (`pyspark_cloudfiles`). The registered one has the environment of
    whoever registers it.
    """
    callbacks = logging.getLogger(_OF_CALLBACKS)
    if not any(isinstance(each, _OwnErrorFilter) for each in callbacks.filters):
        callbacks.addFilter(_OwnErrorFilter())
    log4j = session._jvm.org.apache.logging.log4j  # noqa: SLF001
    context = log4j.LogManager.getContext(False)
    if context.getClass().getName().startswith(_LOG4J):  # another library may be behind its API
        log4j.core.config.Configurator.setLevel(_OF_SOURCES, log4j.Level.ERROR)
        _shorten(log4j, context)


def _shorten(log4j: Any, context: Any) -> None:
    """Replace appenders to the console by such that cut errors of this package to their message.

    Only those that write lines by a pattern, as Spark's own does; JSON stays as it is.
    """
    configuration = context.getConfiguration()
    # A collection of Java's ends with an exception, which takes Py4J 20 ms; an array does not.
    loggers = [each.getValue() for each in configuration.getLoggers().entrySet().toArray()]
    for named in configuration.getAppenders().entrySet().toArray():
        name, appender = named.getKey(), named.getValue()
        layout = appender.getLayout()
        kinds = appender.getClass().getSimpleName(), layout and layout.getClass().getSimpleName()
        refs = [
            (logger, ref)
            for logger in loggers
            if logger.getAppenders().containsKey(name)
            for ref in logger.getAppenderRefs().toArray()
            if ref.getRef() == name
        ]
        if kinds != ("ConsoleAppender", "PatternLayout") or not refs:
            continue
        pattern = layout.getConversionPattern()
        for long, short in _SHORTER.items():
            pattern = f"%replace{{{pattern}}}{{{long}}}{{{short}}}"
        shorter = log4j.core.layout.PatternLayout.newBuilder()
        shorter = shorter.withPattern(pattern).withConfiguration(configuration)
        made = log4j.core.appender.ConsoleAppender.newBuilder()
        made = made.setName(name + _SHORTENED).setConfiguration(configuration)
        made = made.setTarget(appender.getTarget()).setFilter(appender.getFilter())
        made = made.setLayout(shorter.withAlwaysWriteExceptions(False).build()).build()
        made.start()
        for logger, ref in refs:
            logger.removeAppender(name)
            logger.addAppender(made, ref.getLevel(), ref.getFilter())
    context.updateLoggers()
