"""How does Spark write the stream to a Delta table without jars?

`writeStream.format("deltalake")` (and `format("delta")` where no Delta jar is), `DataFrame.write`
and `spark.read` of the same name: the data sources, and what they make of their options.
"""

from __future__ import annotations

import difflib

from pyspark.sql.types import StructType  # noqa: TC002 - Spark reads the annotations of none

from airflow_cloudfiles.engine.batches.delta_writer import DeltaWriter
from airflow_cloudfiles.engine.batches.error_marks import marking_errors
from airflow_cloudfiles.engine.delta.read.table_state import TableColumns, TableState
from airflow_cloudfiles.engine.delta.stream.tracking import StreamDefinition
from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError
from airflow_cloudfiles.engine.options.declared import options_of
from airflow_cloudfiles.engine.options.sink import (
    EXPECT,
    OF_SINK,
    BatchWriteOptions,
    SinkOptions,
    TableOptions,
)
from airflow_cloudfiles.engine.spark.data_source_api import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
)
from airflow_cloudfiles.engine.spark.tables.batch_writer import DeltaBatchWriter
from airflow_cloudfiles.engine.spark.tables.source import DeltaTableReader, version_to_read
from airflow_cloudfiles.engine.spark.tables.stream_reader import (
    DeltaTableStreamReader,
    definition_of,
    is_stream,
    lowered,
)
from airflow_cloudfiles.engine.spark.tables.stream_writer import StreamWriter, new_writer

_ALIKE = 0.85
"""From where on a name is taken for a misspelt one; `overwriteSchema` is not `mergeSchema`."""


@marking_errors
class DeltaLakeDataSource(DataSource):
    """The sink `deltalake`, and the source of the same name, for batches and streams.

    Options: `path` (the table), `checkpointLocation`, `mergeSchema` (false), `typeWidening` (false:
    whether the table is rewritten when a column has become wider), `typeWideningMaxBytes` (10g: the
    largest table that is), `targetFileSize`, `partitionBy` and table properties
    (`delta.columnMapping.mode`, `delta.enableTypeWidening`, `delta.appendOnly`) for a new table,
    `txnAppId` (default: the id of the stream whose state is in the checkpoint location).
    """

    _definition: StreamDefinition | None = None

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "deltalake"

    def schema(self) -> StructType:
        """The columns of the version of the table that a batch read is of, or of a stream.

        Raises:
            TargetNotDeltaError: There is no Delta table.
            UnsupportedTableError: It needs a feature that is not supported.
        """
        options = lowered(dict(self.options))
        if is_stream(options):
            self._definition = definition_of(self._path(), options)
            return self._definition.state.public_schema
        snapshot = version_to_read(self._path(), options)
        self._definition = StreamDefinition(TableState.at(snapshot), snapshot.version)
        return TableColumns.of(snapshot).public_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query: the newest version, or the one `versionAsOf` names."""
        defined = None if self._definition is None else self._definition.state.columns
        return DeltaTableReader(self._path(), schema, dict(self.options), defined)

    def streamReader(self, schema: StructType) -> DeltaTableStreamReader:  # noqa: N802
        """The reader of a stream; see `TableStreamOptions` for its options."""
        options = lowered(dict(self.options))
        return DeltaTableStreamReader(self._path(), schema, options, self._definition)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> StreamWriter:
        """The writer of one query.

        Raises:
            OptionError: No path, an output mode other than append, or an option that looks like one
                of the sink's and is none.
        """
        options = {key.lower(): value for key, value in dict(self.options).items()}
        target = self._path()
        if overwrite:
            raise OptionError("The deltalake sink appends: use outputMode append.")
        refuse_misspelt(options, SinkOptions, self.name())
        return StreamWriter(new_writer(DeltaWriter, target, options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        """The writer of one DataFrame.

        Raises:
            OptionError: No path, or an option that is not valid or does not go with the mode.
        """
        options = {key.lower(): value for key, value in dict(self.options).items()}
        target = self._path()
        refuse_misspelt(options, BatchWriteOptions, self.name())
        return DeltaBatchWriter(target, options, schema, overwrite=overwrite)

    def _path(self) -> str:
        for key, value in dict(self.options).items():
            if key.lower() == "path" and value:
                return str(value)
        raise OptionError("No target: give the table's folder to start(path) or load(path).")


def refuse_misspelt(options: dict[str, str], group: type[TableOptions], sink: str) -> None:
    """Refuse what looks like an option; other names may be those of other sinks, and do nothing.

    Raises:
        UnknownOptionError: One does.
    """
    names = [each.name for each in options_of(group).values()]
    known = {name.lower(): name for name in names if name != "path"}
    for key in options.keys() - known.keys():
        if key.startswith(EXPECT):
            expected = [name for name in OF_SINK if name.startswith(EXPECT)]
            raise UnknownOptionError(
                f"{key} is none of the expectations, which are for runs that ingest files: "
                f"{', '.join(expected)}."
            )
        near = difflib.get_close_matches(key, known, n=1, cutoff=_ALIKE)
        if near:
            raise UnknownOptionError(
                f"The {sink} sink has no option {key!r}. Did you mean {known[near[0]]}?"
            )


class DeltaDataSource(DeltaLakeDataSource):
    """The same sink under Delta's own name, for sessions without the Delta jars."""

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "delta"
