"""Ask a Spark Connect server about the query of a deferred task.

The address is looked up where it is needed, in the triggerer or the worker: a connection's token
is in no argument of a trigger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import LeftQuery, QueryState
from airflow_cloudfiles.engine.job.connect.server import SparkConnect
from airflow_cloudfiles.hooks.spark import SparkArguments, submission

if TYPE_CHECKING:
    from collections.abc import Mapping


class LeftQueryHook(BaseHook):
    """The query that a deferred task waits for.

    Args:
        spark_conn_id: Connection of type *Spark Connect*.
        spark_remote: Or the server's address.
        query: Which query, as the report of the run that has left it says.
    """

    conn_name_attr = "spark_conn_id"
    hook_name = "Query on a Spark Connect server"

    def __init__(
        self, spark_conn_id: str | None, spark_remote: str | None, query: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._spark = SparkArguments(conn_id=spark_conn_id, remote=spark_remote)
        self._query = LeftQuery.from_json(query)

    def state(self) -> QueryState:
        """Ask whether the query is still running.

        Raises:
            SparkUnreachableError: The server does not answer.
            CloudFilesError: The server refuses, or the connection does not name one.
        """
        return left_query.state_of(self._server(), self._query)

    def stop(self) -> None:
        """Stop the query, and no other; harmless when it has ended.

        Raises:
            CloudFilesError: As of `state`.
        """
        left_query.stop(self._server(), self._query)

    def _server(self) -> SparkConnect:
        conn_id = self._spark.conn_id
        return server_of(self._spark, self.get_connection(conn_id) if conn_id else None)


def server_of(spark: SparkArguments, connection: Any) -> SparkConnect:
    """Give the server that a task with `deferrable=True` runs on.

    Raises:
        OptionError: The arguments and the connection name none.
    """
    how = submission(spark, connection)
    if not isinstance(how, SparkConnect):
        raise OptionError(
            f"deferrable=True needs a Spark Connect server, and the connection {spark.conn_id!r} "
            "names none. Give a connection of type Spark Connect, or leave out deferrable."
        )
    return how


def check_deferrable(spark: SparkArguments) -> None:
    """Refuse arguments with which a task cannot defer, as far as they show when a DAG is parsed.

    Raises:
        OptionError: They name no server, or hold what a trigger must not.
    """
    if not spark.conn_id and not spark.remote:
        raise OptionError(
            "deferrable=True needs a Spark Connect server: set spark_conn_id to a connection of "
            "type Spark Connect, or spark_remote to its address. A Spark of the task's own ends "
            "with the task."
        )
    if spark.remote and SparkConnect(spark.remote).has_secrets:
        raise OptionError(
            "deferrable=True stores spark_remote in Airflow's database, and it has a token. Put "
            "the server into a connection of type Spark Connect, and name that by spark_conn_id."
        )
