"""Have the tasks of a query over Spark Connect write what they read, where they may.

A client has the message that it sends to the server, not a plan that is resolved. So the columns of
a query are followed by their names from its source on. Where it does more than choose, drop and
rename them, the rows pass Spark, as in `direct_write`. The server is asked once: for the schema of
the source, and whether its Python can carry the function that commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors.exceptions.base import PySparkException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.connect.proto import Plan
from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type
from pyspark.sql.connect.utils import get_python_ver
from pyspark.sql.types import StructField, StructType

from airflow_cloudfiles.engine.batches.task_process import marking
from airflow_cloudfiles.engine.names import NameMatcher, parts_of
from airflow_cloudfiles.engine.spark.direct_write import (
    OPTION,
    PROBE,
    DirectCommit,
    DirectDataSource,
    DirectWrite,
)

_log = logging.getLogger(__name__)
Columns = list[tuple[int, StructField]]
"""Columns of a query: their place in its source, and what they are called by now."""


class NeedsRowsError(Exception):
    """A query does more with its rows than a task can do while it moves them."""


def write_directly(
    query: Any, source: Any, checkpoint: str, client: Any, matcher: NameMatcher
) -> None:
    """Change the message that starts a query, if its tasks may write what they read.

    Args:
        query: The message, whose sink is one of ours, with all its options.
        source: The message of its only source, with all its options.
        checkpoint: Checkpoint location of the query.
        client: Of the session.
        matcher: Compares names of columns.
    """
    options = {key.lower(): value for key, value in query.options.items()}
    target = query.path or options.get("path")
    if not target or query.output_mode.lower() not in {"", "append"}:
        return  # Spark says so, or the sink
    try:
        schema = _schema(source, client)
        columns = _followed(query.input, list(enumerate(schema.fields)), matcher)
    except NeedsRowsError as reason:
        _log.info("The rows pass Spark, since %s.", reason)
        return
    direct = DirectWrite(
        sink=query.format.lower(),
        target=target,
        options=options,
        columns=[place for place, _ in columns],
        schema=StructType([field for _, field in columns]).json(),
        source_schema=schema.json(),
        is_given=bool(source.schema),
    )
    query.input.CopyFrom(_read(source, {OPTION: direct.to_json()}))
    query.format = query.path = ""
    pickled: Any = CloudPickleSerializer  # PySpark leaves it untyped
    commit = marking(DirectCommit(direct, checkpoint, is_remote=True))
    query.foreach_batch.python_function.command = pickled().dumps(commit)
    query.foreach_batch.python_function.python_ver = get_python_ver()
    _log.info("Tasks write to %s what they read; no row passes Spark.", target)


def _schema(source: Any, client: Any) -> StructType:
    """Ask for the schema of a source by now; its server can carry the function that commits."""
    plan = Plan(root=_read(source, {PROBE: source.schema}))
    try:
        found: StructType = client.schema(plan)
    except PySparkException as error:
        reason = str(error).partition("\n")[0]  # behind it are traces of Java
        raise NeedsRowsError(f"the server does not say its columns: {reason}") from None
    return found


def _read(source: Any, options: dict[str, str]) -> Any:
    """Build the relation of the source whose tasks write, with more options."""
    relation = Plan().root
    relation.read.is_streaming = True
    relation.read.data_source.CopyFrom(source)
    relation.read.data_source.format = DirectDataSource.name()
    relation.read.data_source.schema = ""  # which is in the options, or is asked for
    relation.read.data_source.options.update(options)
    return relation


def _followed(relation: Any, columns: Columns, matcher: NameMatcher) -> Columns:
    """Follow the columns of a relation, whose source has some.

    Raises:
        NeedsRowsError: It does not only choose, drop and rename columns.
    """
    kind = relation.WhichOneof("rel_type")
    if kind == "read":
        return columns
    if kind not in _STEPS:
        raise NeedsRowsError(f"the query has {kind}")
    message = getattr(relation, kind)
    return _STEPS[kind](message, _followed(message.input, columns, matcher), matcher)


def _projected(message: Any, columns: Columns, matcher: NameMatcher) -> Columns:
    return [one for each in message.expressions for one in _chosen(each, columns, matcher)]


def _with_columns(message: Any, columns: Columns, matcher: NameMatcher) -> Columns:
    found = list(columns)
    for alias in message.aliases:
        place, field = _one(alias.expr, columns, matcher)
        made = (place, _named(field, alias.name[0]))
        same = [at for at, (_, each) in enumerate(found) if matcher.same(each.name, alias.name[0])]
        for at in same:
            found[at] = made
        found += [] if same else [made]
    return found


def _dropped(message: Any, columns: Columns, matcher: NameMatcher) -> Columns:
    gone = {matcher.key(name) for name in message.column_names}
    gone |= {matcher.key(_name_of(each)) for each in message.columns}
    return [each for each in columns if matcher.key(each[1].name) not in gone]


def _renamed(message: Any, columns: Columns, matcher: NameMatcher) -> Columns:
    names = [(each.col_name, each.new_col_name) for each in message.renames]
    for old, new in names or message.rename_columns_map.items():
        columns = [
            (place, _named(field, new) if matcher.same(field.name, old) else field)
            for place, field in columns
        ]
    return columns


def _all_named(message: Any, columns: Columns, _matcher: NameMatcher) -> Columns:
    pairs = zip(columns, message.column_names, strict=True)
    return [(place, _named(field, name)) for (place, field), name in pairs]


_STEPS: Final[dict[str, Callable[[Any, Columns, NameMatcher], Columns]]] = {
    "project": _projected,
    "with_columns": _with_columns,
    "drop": _dropped,
    "with_columns_renamed": _renamed,
    "to_df": _all_named,
    "subquery_alias": lambda _message, columns, _matcher: columns,
}


def _chosen(expression: Any, columns: Columns, matcher: NameMatcher) -> Columns:
    """Find what an expression chooses of the columns, unchanged.

    Raises:
        NeedsRowsError: It is more than a choice.
    """
    kind = expression.WhichOneof("expr_type")
    if kind == "unresolved_star" and not expression.unresolved_star.unparsed_target:
        return columns
    if kind == "alias" and len(expression.alias.name) == 1 and not expression.alias.metadata:
        place, field = _one(expression.alias.expr, columns, matcher)
        return [(place, _named(field, expression.alias.name[0]))]
    if kind == "cast":
        place, field = _one(expression.cast.expr, columns, matcher)
        if not _is_type(expression.cast, field):
            raise NeedsRowsError(f"the query has a cast of {field.name}")
        return [(place, field)]
    name = _name_of(expression)
    found = [each for each in columns if matcher.same(each[1].name, name)]
    if len(found) != 1:
        raise NeedsRowsError(f"{name} is not one column of the source")
    return [(found[0][0], _named(found[0][1], name))]


def _one(expression: Any, columns: Columns, matcher: NameMatcher) -> tuple[int, StructField]:
    """Find the one column that an expression chooses."""
    found = _chosen(expression, columns, matcher)
    if len(found) != 1:
        raise NeedsRowsError("the query has an expression")
    return found[0]


def _name_of(expression: Any) -> str:
    """Return the name of the column that an expression is."""
    attribute = expression.unresolved_attribute
    parts = parts_of(attribute.unparsed_identifier)
    if len(parts) != 1 or attribute.is_metadata_column:
        raise NeedsRowsError("the query has an expression")
    return parts[0]


def _is_type(cast: Any, field: StructField) -> bool:
    """Tell whether a cast is to the type that a column has."""
    if cast.type_str:
        return bool(cast.type_str.lower() == field.dataType.simpleString().lower())
    return proto_schema_to_pyspark_data_type(cast.type) == field.dataType


def _named(field: StructField, name: str) -> StructField:
    return StructField(name, field.dataType, field.nullable, field.metadata)
