"""Have Spark read the state of a stream as a table of files.

`spark.read.format("cloudFilesState").load(checkpoint)`: entries of the file log are shared out over
tasks, and every task looks at the state as it was when the query was planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.task_process import marking_errors
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.intake.file_state_columns import DDL, record_batches
from airflow_cloudfiles.engine.intake.file_states import FileStates, StateSnapshot
from airflow_cloudfiles.engine.spark.data_source_api import (
    DataSource,
    DataSourceReader,
    InputPartition,
)
from airflow_cloudfiles.engine.state.file_log import PREFIX
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

MOST_TASKS = 64
_LEAST_BYTES = 4 * 1024**2
_ENTRY_BYTES = 16 * 1024
"""What reading an entry costs, in bytes of a large one."""


@marking_errors
class CloudFilesStateDataSource(DataSource):
    """The data source `cloudFilesState`; `path` is a checkpoint location."""

    @classmethod
    def name(cls) -> str:
        """Return the name to give to `format`."""
        return "cloudFilesState"

    def schema(self) -> str:
        """Return the columns of the table."""
        self._location()
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - of Spark
        """Build the reader of one query."""
        return CloudFilesStateReader(self._location())

    def _location(self) -> str:
        """Return the checkpoint location.

        Raises:
            OptionError: It is not given, or something else is.
        """
        options: dict[str, Any] = dict(self.options)
        others = sorted(name for name in options if name.lower() != "path")
        if others:
            raise OptionError(
                f"cloudFilesState has no option {others[0]!r}: filter the DataFrame with where()."
            )
        if not options:
            raise OptionError(
                "cloudFilesState needs a checkpoint location: "
                "spark.read.format('cloudFilesState').load('<checkpoint location>')."
            )
        return str(next(iter(options.values())))


@marking_errors
class CloudFilesStateReader(DataSourceReader):
    """Reads the state as it is when the query is planned.

    Args:
        checkpoint_location: Path or URI of the state.
    """

    def __init__(self, checkpoint_location: str) -> None:
        self._checkpoint_location = checkpoint_location

    def partitions(self) -> Sequence[InputPartition]:
        """Share the entries of the file log out, by their sizes."""
        snapshot = StateSnapshot.take(self._checkpoint_location)
        state = open_store(snapshot.uri)
        with reaching_state(state):
            listed = {each.path.rpartition("/")[2]: each.size for each in state.list(f"{PREFIX}/")}
        sizes = [listed.get(f"{number:020}", 0) for number in range(snapshot.entries)]
        return [InputPartition((snapshot, part)) for part in shared_out(sizes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some entries."""
        snapshot, entries = partition.value
        yield from record_batches(FileStates(snapshot).groups(entries))


def shared_out(sizes: Sequence[int]) -> list[range]:
    """Cut entries of these sizes into parts that cost about the same; at least one part."""
    costs = [size + _ENTRY_BYTES for size in sizes]
    share = max(_LEAST_BYTES, -(-sum(costs) // MOST_TASKS))
    parts, start, cost = [], 0, 0
    for number, each in enumerate(costs):
        cost += each
        if cost >= share:
            parts.append(range(start, number + 1))
            start, cost = number + 1, 0
    if start < len(costs) or not parts:
        parts.append(range(start, len(costs)))
    return parts
