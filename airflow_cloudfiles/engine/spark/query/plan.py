"""Find the streams that a query reads, and with which options.

They are read from the logical plan of its DataFrame, which only a session with a JVM has here.

Have the tasks of a query write what they read, where `start()` finds that they may.

They may where the query has one source, `cloudFiles`, of which it selects, drops and renames
columns at most, and appends to a table of ours. Else the rows pass Spark (`direct_write` says what
differs).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.errors.exceptions.base import PySparkException

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.errors import StaleSchemaError
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.query.calls import calls_of
from airflow_cloudfiles.engine.spark.query.direct_write import (
    OPTION,
    DirectCommit,
    DirectDataSource,
    DirectWrite,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE_HANDOFF: Final = "cloudFiles.internal.token"
"""Option of a source: the token by which it is handed the checkpoint location."""
_CHECKPOINT: Final = "checkpointlocation"


def streaming_leaves(frame: DataFrame) -> int:
    """Count the streams that a query reads."""
    return sum(bool(leaf.isStreaming()) for leaf in _leaves(frame))


def tokens_of(frame: DataFrame) -> tuple[list[str], list[str]]:
    """Find the hand-over tokens of the cloudFiles sources in a query.

    Returns:
        Those of the sources that were not given their checkpoint location, and those of the others.
    """
    tokens: list[str] = []
    located: list[str] = []
    for leaf in _leaves(frame):
        options = _leaf_options(leaf)
        token = options.get(STATE_HANDOFF.lower())
        if token:
            (located if options.get(_CHECKPOINT) else tokens).append(token)
    return list(dict.fromkeys(tokens)), list(dict.fromkeys(located))


def streaming_options(frame: DataFrame) -> list[dict[str, str]]:
    """List the reader options of the streams that a query reads, in their order."""
    return [_leaf_options(leaf) for leaf in _leaves(frame) if leaf.isStreaming()]


def columns_of_leaf(frame: DataFrame) -> tuple[list[int], dict[str, str], str] | str:
    """Find which columns of its only source a query has, if it changes no row.

    Returns:
        The place in the source of each column; the options of the source, as they were given; and
        its schema as JSON. Otherwise what in the plan needs the rows.
    """
    plan = cast("Any", frame)._jdf.queryExecution().analyzed()  # noqa: SLF001
    columns = [_id_of(each) for each in _elements(plan.output())]
    while (kind := plan.getClass().getSimpleName()) in {"Project", "SubqueryAlias"}:
        if kind == "Project":
            made = {_id_of(each): _unchanged(each) for each in _elements(plan.projectList())}
            chosen = [made[each] for each in columns]
            columns = [each for each in chosen if each is not None]
            if len(columns) != len(chosen):
                return "an expression"
        plan = plan.child()
    if kind != "StreamingRelationV2":
        return str(kind)
    ids = [_id_of(each) for each in _elements(plan.output())]
    if not set(columns) <= set(ids):
        return "a metadata column"
    return list(map(ids.index, columns)), _given_options(plan), str(plan.schema().json())


def _unchanged(expression: Any) -> int | None:
    """Find the id of the column that an expression gives, maybe renamed, or `None`."""
    kind = expression.getClass().getSimpleName()
    if kind == "AttributeReference":
        return _id_of(expression)
    if kind == "Cast" and not expression.dataType().equals(expression.child().dataType()):
        return None
    return _unchanged(expression.child()) if kind in {"Alias", "Cast"} else None


def _id_of(expression: Any) -> int:
    return int(expression.exprId().id())


def _leaves(frame: DataFrame) -> list[Any]:
    """List the leaves of the logical plan; none where the session has no JVM here."""
    plan = getattr(frame, "_jdf", None)
    return [] if plan is None else _elements(plan.queryExecution().logical().collectLeaves())


def _elements(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _leaf_options(leaf: Any) -> dict[str, str]:
    """Read the reader options of a leaf of a logical plan, keyed in lower case."""
    return {key.lower(): value for key, value in _given_options(leaf).items()}


def _given_options(leaf: Any) -> dict[str, str]:
    """Read the reader options of a leaf of a logical plan, as they were given."""
    kind = leaf.getClass().getSimpleName()
    if kind == "UnresolvedDataSource":  # Spark 4.3
        entries = leaf.options()
        iterator = entries.iterator()
        pairs = []
        while iterator.hasNext():
            pair = iterator.next()
            pairs.append((pair.productElement(0), pair.productElement(1)))
    elif kind == "StreamingRelationV2":  # Spark 4.2
        pairs = list(dict(leaf.extraOptions().asCaseSensitiveMap()).items())
    else:
        return {}
    return {str(key): str(value) for key, value in pairs}


_OF_SINK: Final = {"format", "partitionBy", "foreach", "foreachBatch"}
_log = logging.getLogger(__name__)


class DirectQueries:
    """Finds them; knows the sources that `load()` has defined by their tokens."""

    def __init__(self) -> None:
        self._is_given: dict[str, bool] = {}

    def defined(self, token: str, *, is_given: bool) -> None:
        """Take note of a source.

        Args:
            token: By which it is handed the checkpoint location.
            is_given: Whether the user gave its schema.
        """
        self._is_given[token] = is_given

    def instead_of(self, writer: Any, sink: str, target: str, options: Mapping[str, Any]) -> Any:
        """Build the writer to start in the place of one, or `None` where the rows pass Spark.

        Args:
            writer: PySpark's `DataStreamWriter`, which appends.
            sink: Name of its format, one of ours.
            target: The table.
            options: Of the sink, by their names in lower case.
        """
        if "checkpointlocation" not in options:  # `start()` will say so
            return None
        found = columns_of_leaf(writer._df)  # noqa: SLF001
        if isinstance(found, str):
            _log.info("The rows pass Spark, since the query has %s.", found)
            return None
        columns, of_source, source_schema = found
        is_given = self._is_given.get(of_source.get(STATE_HANDOFF, ""))
        if is_given is None:  # another source, or one that would be inferred once more
            return None
        direct = DirectWrite(
            sink=sink,
            target=target,
            options={key: str(value) for key, value in options.items()},
            columns=columns,
            schema=writer._df.schema.json(),  # noqa: SLF001
            source_schema=source_schema,
            is_given=is_given,
        )
        try:
            again = _writer(writer, direct, of_source)
        except PySparkException as error:
            ours = errors.from_text(str(error))
            if not isinstance(ours, StaleSchemaError):
                raise ours or error from None
            _log.info("The rows pass Spark, since the schema has changed meanwhile.")
            return None
        _log.info("Tasks write to %s what they read; no row passes Spark.", target)
        return again


def _writer(writer: Any, direct: DirectWrite, of_source: Mapping[str, str]) -> Any:
    """Define the query that is started instead."""
    reader = writer._spark.readStream.format(DirectDataSource.name()).options(**of_source)  # noqa: SLF001
    reader.option(STATE_HANDOFF, handoff.new_token()).option(OPTION, direct.to_json())
    frame = reader.load()
    frame.schema  # noqa: B018 - Spark resolves the source only when it is asked for it
    again = frame.writeStream
    for call, args, kwargs in calls_of(writer):
        if call not in _OF_SINK:
            getattr(again, call)(*args, **kwargs)
    commit = DirectCommit(direct, direct.options["checkpointlocation"])
    return again.foreachBatch(commit)
