"""Have Spark read a Delta table as a stream, without jars.

`spark.readStream.format("delta")` (or `deltalake`): `delta.stream` plans which files a micro-batch
has, in the process beside the driver, and tasks read them. Spark keeps the offsets in its own
checkpoint, so the stream needs no state of its own; where schemas are tracked, their log is below
the checkpoint location, which `start()` tells to the planning process (`handoff`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.task_process import log_to_stderr, marking_errors
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.checkpoint_mirror import CheckpointMirror
from airflow_cloudfiles.engine.spark.data_source_api import (
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from airflow_cloudfiles.engine.spark.data_source_api import (
    ReadLimit as SparkReadLimit,
)
from airflow_cloudfiles.engine.tables.delta.read.files import TablePart, shared_out
from airflow_cloudfiles.engine.tables.delta.stream.evolution import QueryPlace
from airflow_cloudfiles.engine.tables.delta.stream.table_stream import TableStream
from airflow_cloudfiles.engine.tables.delta.stream.tracking import StreamDefinition, define

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

IS_STREAM = "cloudFiles.internal.tableStream"
"""Option of the source: the read is a stream. Spark does not say so when it asks for columns."""
TOKEN = "cloudFiles.internal.tableToken"  # noqa: S105 - the name of an option
"""Option of the source: where `start()` says where the state of the query is."""
_TIME_TRAVEL = ("versionasof", "timestampasof")
_log = logging.getLogger(__name__)


def lowered(options: Mapping[str, Any]) -> dict[str, str]:
    """Options by their names in lower case, as Spark compares them."""
    return {key.lower(): str(value) for key, value in options.items() if value is not None}


def is_stream(options: Mapping[str, str]) -> bool:
    """Tell whether options, by their names in lower case, are those of a stream."""
    names = {IS_STREAM.lower(), "schematrackinglocation", "schemalocation"}
    return bool(names & options.keys())


def definition_of(target: str, options: Mapping[str, str]) -> StreamDefinition:
    """Resolve with which schema a stream reads.

    Args:
        target: The table.
        options: By their names in lower case.

    Raises:
        OptionError: An option is not valid, or not one of a stream.
        CloudFilesError: As of `define`.
    """
    found = [name for name in _TIME_TRAVEL if name in options]
    if found:
        raise OptionError(
            f"{found[0]} is an option of batch reads. A stream begins where startingVersion or "
            "startingTimestamp says."
        )
    return define(target, TableStreamOptions.read(options))


@marking_errors
class DeltaTableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of one query.

    Args:
        target: The table.
        schema: The columns that Spark expects.
        options: By their names in lower case.
        definition: Of the stream.
    """

    def __init__(
        self,
        target: str,
        schema: StructType,
        options: Mapping[str, str],
        definition: StreamDefinition | None,
    ) -> None:
        if definition is None:
            raise OptionError(
                "A stream from a Delta table has the table's schema: leave out schema(...)."
            )
        self._target = target
        self._schema = schema
        self._given = dict(options)
        self._options = TableStreamOptions.read(options)
        self._definition = definition
        self._opened: TableStream | None = None
        self._handed: dict[str, Any] | None = None
        self._mirror: CheckpointMirror | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what only the planning process needs."""
        return {**self.__dict__, "_opened": None, "_handed": None, "_mirror": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a stream with a new checkpoint begins."""
        return self._stream().initial().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the newest version; later ones wait for the next run."""
        self._stream().prepare_available_now()

    def getDefaultReadLimit(self) -> SparkReadLimit:  # noqa: N802
        """`maxFilesPerTrigger`; bytes are limited beside it in `latestOffset`."""
        return ReadMaxFiles(self._options.most_files or 2**31 - 1)

    def latestOffset(self, start: dict[str, Any], limit: SparkReadLimit) -> dict[str, Any]:  # noqa: N802
        """Plan the next micro-batch; `start` itself when there is nothing new."""
        stream = self._stream()
        unlimited = isinstance(limit, ReadAllAvailable)
        return stream.latest(stream.read_offset(start), unlimited=unlimited).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Behind the newest version; Spark shows it in the progress of the query."""
        newest = self._stream().newest()
        return None if newest is None else newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Share the files of a micro-batch out over tasks."""
        stream = self._stream()
        self._publish()
        crash_point("after-spark-offset")
        files = stream.files(stream.read_offset(start), stream.read_offset(end))
        _log.info("Micro-batch: %s", counted(len(files), "file"))
        return [InputPartition(part) for part in shared_out(stream.columns, files)] if files else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some files in a task."""
        crash_point("before-read")
        part: TablePart = partition.value
        yield from part.read(self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has committed up to `end`, which its own log holds."""
        crash_point("after-spark-commit")
        self._publish()
        _log.debug("Committed up to %s", end)

    def stop(self) -> None:
        """Free what the planning process holds, which is nothing."""
        self._opened = None

    def _publish(self) -> None:
        """Bring Spark's checkpoint into the state, where it is not there anyway."""
        if self._mirror is not None:
            self._mirror.publish()

    def _stream(self) -> TableStream:
        if self._opened is None:
            log_to_stderr()
            token = self._given.get(TOKEN.lower())
            self._handed = None if token is None else handoff.take(token)
            if self._handed is not None and self._handed["mirror"] is not None:
                self._mirror = CheckpointMirror(Path(self._handed["mirror"]))
            self._opened = TableStream(self._target, self._options, self._definition, self._place)
        return self._opened

    def _place(self) -> QueryPlace:
        """Find where the query keeps its state: from `start()`, or given to the reader."""
        found = self._handed
        if found is not None:
            return QueryPlace(found["checkpoint"], found["ordinal"], found["settings"])
        if self._options.checkpoint_location is None:
            raise OptionError(
                "The source does not know its checkpoint location, below which the schemas are "
                "tracked. Give the one of writeStream to readStream too: "
                ".option('checkpointLocation', ...). (After airflow_cloudfiles.register(spark) it "
                "is passed on by itself, except over Spark Connect.)"
            )
        return QueryPlace(self._options.checkpoint_location)
