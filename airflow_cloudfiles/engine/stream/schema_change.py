"""What happens when a record has a field the schema does not have?

1. Nothing of the micro-batch is committed: the task that meets the field fails.
2. In `addNewColumns` it first infers the schema again over the files of the micro-batch, within
   the sample limits, merges what is new behind the columns there are, and appends that to the
   schema log as the next version. Tasks that meet the change at the same moment race on a
   put-if-absent: one version is written (B45, B47).
3. It fails with `UnknownFieldException`, which says whether running again helps.
"""

from __future__ import annotations

import json
import logging

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CloudFilesError, UnknownFieldException
from airflow_cloudfiles.engine.ledger.file_log import FileLog
from airflow_cloudfiles.engine.schema.evolution import evolve
from airflow_cloudfiles.engine.schema.schema_log import SchemaLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream.inference import infer_files
from airflow_cloudfiles.engine.stream.splits import BatchContext

_log = logging.getLogger(__name__)


def react(context: BatchContext, fields: dict[str, object], file_uri: str) -> CloudFilesError:
    """Do what the evolution mode says about new fields, and return the error to fail with.

    Repeating it is harmless: a version that already has the fields is not written again.
    """
    if context.options.schema_evolution_mode != "addNewColumns" or context.schema_uri is None:
        return UnknownFieldException.of(fields, file=file_uri, retry=False)
    log = SchemaLog(open_store(context.schema_uri), context.source_name)
    latest = log.latest()
    if latest is None or latest.version == context.schema_version:
        current = StructType.fromJson(_loads(context.data_schema))
        evolved = _evolved(context, current, fields, file_uri)
        if evolved == current:
            return UnknownFieldException.of(fields, file=file_uri, retry=False)
        crash_point("before-schema-append")
        latest = log.append(
            context.schema_version + 1,
            data_schema=evolved,
            partition_schema=StructType.fromJson(_loads(context.partition_schema)),
            reason={"change": "addNewColumns", "fields": sorted(fields), "file": file_uri},
        )
        crash_point("after-schema-append")
        _log.warning("Schema version %s has the new fields %s", latest.version, sorted(fields))
    return UnknownFieldException.of(fields, file=file_uri, retry=True)


def _evolved(
    context: BatchContext, current: StructType, fields: dict[str, object], file_uri: str
) -> StructType:
    """The current schema with what the files of the micro-batch have besides.

    The file that has the new fields may lie outside the sample; it is then looked at by itself.
    """
    store = open_store(context.source_uri)
    files = list(FileLog(open_store(context.state_uri)).slice(context.start, context.end))
    evolved = evolve(current, infer_files(store, files, context.options, current).data_schema)
    if evolved == current:
        _log.info("The sample lacks %s; inferring from %s", sorted(fields), file_uri)
        offending = [file for file in files if store.child_uri(file.path) == file_uri]
        evolved = evolve(
            current, infer_files(store, offending, context.options, current).data_schema
        )
    return evolved


def _loads(text: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(text)
    return loaded
