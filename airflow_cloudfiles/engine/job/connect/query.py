"""How does the query of a run start on a Spark Connect server?

As in a local run: Spark's checkpoint is an empty folder on the disk of the driver, which here is
the server, and what the sink records in the state says how far the stream is. The query has the id
of its stream, by which the server stops what a killed client has left behind
(`spark.server_checkpoint`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateLockedError
from airflow_cloudfiles.engine.files import Offset, printable_path
from airflow_cloudfiles.engine.job.query import start_query
from airflow_cloudfiles.engine.spark import server_checkpoint
from airflow_cloudfiles.engine.spark.source import AFTER_BATCH
from airflow_cloudfiles.engine.spark.tables.stream_writer import FIRST_BATCH, STATE
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.position import position_of_a_job
from airflow_cloudfiles.engine.storage import normalize_uri, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from airflow_cloudfiles.engine.job.spec import JobSpec

_TRIES = 3
_log = logging.getLogger(__name__)


def run_on_server(
    start: Callable[[int], StreamingQuery],
    follow: Callable[[StreamingQuery], None],
    spec: JobSpec,
    before: int,
) -> None:
    """Run the query to its end, behind what a killed client's query has committed meanwhile.

    Such a query goes on until this one starts. So the position that was read before is an older
    one; the planning process notices, and nobody else moves it then.

    Args:
        start: Starts the query behind a batch.
        follow: Waits for its end.
        spec: The run, with the last entry of the file log that it is to ingest.
        before: The last committed batch, as it was read under the lock of jobs; -1 for none.

    Raises:
        StateLockedError: Another query is at work, or has been again and again.
        CloudFilesError: What else has stopped the query.
    """
    state = open_store(spec.checkpoint_location)
    last = Offset(int((spec.batch or {})["last_entry"]) + 1, 0)
    for tries_left in reversed(range(_TRIES)):
        try:
            follow(start(before))
        except StateLockedError:
            now = position_of_a_job(state, PlanLog(state))
            if now.batch == before or not tries_left:
                raise
            _log.info(
                "The query of a client that was lost has committed up to batch %s; going on "
                "behind it",
                now.batch,
            )
            before = now.batch
            if now.end >= last:
                return  # Spark begins an empty checkpoint with a batch, even an empty one
        else:
            return


def start_on_server(
    spark: SparkSession, spec: JobSpec, temporary: str, after_batch: int
) -> StreamingQuery:
    """Start the available-now query of a run; its rows never enter the JVM.

    Args:
        spark: The session, with `cloudFiles` registered.
        spec: The run, whose stream has a state.
        temporary: The temporary directory of the server.
        after_batch: The last committed batch of the stream; -1 for none.
    """
    folder = server_checkpoint.new_folder(temporary)
    return start_query(
        spark,
        spec,
        # With its scheme, whatever file system is Hadoop's default.
        f"file:{folder}",
        of_source={
            AFTER_BATCH: str(after_batch),
            server_checkpoint.FOLDER: folder,
            server_checkpoint.QUERY_ID: query_id(spec.checkpoint_location),
        },
        of_sink={
            STATE: normalize_uri(spec.checkpoint_location),
            FIRST_BATCH: str(after_batch + 1),
        },
    )


def query_id(checkpoint_location: str) -> str:
    """Give the id that the query of a stream has on every server, in every run.

    A copy of a state somewhere else is another stream.
    """
    state = open_store(checkpoint_location)
    stream = read_metadata(state)
    if stream is None:
        name = printable_path(state.uri)
        raise CorruptedStateError(
            f"The checkpoint location {name} belongs to no source any more: "
            "_source/metadata.json was deleted during the run. Restore it from a backup."
        )
    return str(uuid.uuid5(uuid.UUID(hex=stream.stream_id), state.uri))
