"""An open Auto Loader for Airflow and Spark.

`import airflow_cloudfiles` imports neither Airflow nor Spark: the public names are loaded when they
are first asked for (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from airflow_cloudfiles.version import __version__ as __version__

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.errors import CloudFilesError, UnknownFieldException
    from airflow_cloudfiles.engine.extensions.file_operations.of_table import operate_on_files
    from airflow_cloudfiles.engine.extensions.overview.rescued import why_rescued
    from airflow_cloudfiles.engine.extensions.overview.summary import stream_summary
    from airflow_cloudfiles.engine.extensions.start_over import start_over
    from airflow_cloudfiles.engine.extensions.transfer.archived import export_state, import_state
    from airflow_cloudfiles.engine.extensions.transfer.move import move_state
    from airflow_cloudfiles.engine.extensions.transfer.relocate import relocate_source
    from airflow_cloudfiles.engine.intake.file_state_columns import cloud_files_state
    from airflow_cloudfiles.engine.intake.stream_logs import cloud_files_metrics
    from airflow_cloudfiles.engine.options.builders import Options
    from airflow_cloudfiles.engine.schema.history import SchemaHistory
    from airflow_cloudfiles.engine.schema.proposals import SchemaProposals
    from airflow_cloudfiles.engine.spark.register import register
    from airflow_cloudfiles.engine.spark.tables.merge_into import merge_into
    from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
    from airflow_cloudfiles.operators.clean import CloudFilesCleanOperator
    from airflow_cloudfiles.operators.cloud_files import (
        CloudFilesInferSchemaOperator,
        CloudFilesIngestOperator,
        CloudFilesReconcileOperator,
    )
    from airflow_cloudfiles.operators.files import CloudFilesFileOperator
    from airflow_cloudfiles.operators.promote import CloudFilesPromoteOperator
    from airflow_cloudfiles.operators.table import (
        CloudFilesOptimizeTableOperator,
        CloudFilesVacuumTableOperator,
    )
    from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
    from airflow_cloudfiles.task_groups.cloud_files import CloudFilesTaskGroup
    from airflow_cloudfiles.task_groups.streams import dags_from_file, streams_from_file
    from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger

__all__ = [
    "CloudFilesCleanOperator",
    "CloudFilesError",
    "CloudFilesFileOperator",
    "CloudFilesHook",
    "CloudFilesInferSchemaOperator",
    "CloudFilesIngestOperator",
    "CloudFilesOptimizeTableOperator",
    "CloudFilesPromoteOperator",
    "CloudFilesReconcileOperator",
    "CloudFilesSensor",
    "CloudFilesTaskGroup",
    "CloudFilesTrigger",
    "CloudFilesVacuumTableOperator",
    "Options",
    "SchemaHistory",
    "SchemaProposals",
    "UnknownFieldException",
    "cloud_files_metrics",
    "cloud_files_state",
    "dags_from_file",
    "export_state",
    "import_state",
    "merge_into",
    "move_state",
    "operate_on_files",
    "register",
    "relocate_source",
    "start_over",
    "stream_summary",
    "streams_from_file",
    "why_rescued",
]

_HOMES = {
    "CloudFilesCleanOperator": "airflow_cloudfiles.operators.clean",
    "CloudFilesError": "airflow_cloudfiles.engine.errors",
    "CloudFilesFileOperator": "airflow_cloudfiles.operators.files",
    "CloudFilesHook": "airflow_cloudfiles.hooks.cloud_files",
    "CloudFilesInferSchemaOperator": "airflow_cloudfiles.operators.cloud_files",
    "CloudFilesIngestOperator": "airflow_cloudfiles.operators.cloud_files",
    "CloudFilesOptimizeTableOperator": "airflow_cloudfiles.operators.table",
    "CloudFilesPromoteOperator": "airflow_cloudfiles.operators.promote",
    "CloudFilesReconcileOperator": "airflow_cloudfiles.operators.cloud_files",
    "CloudFilesSensor": "airflow_cloudfiles.sensors.cloud_files",
    "CloudFilesTaskGroup": "airflow_cloudfiles.task_groups.cloud_files",
    "CloudFilesTrigger": "airflow_cloudfiles.triggers.cloud_files",
    "CloudFilesVacuumTableOperator": "airflow_cloudfiles.operators.table",
    "Options": "airflow_cloudfiles.engine.options.builders",
    "SchemaHistory": "airflow_cloudfiles.engine.schema.history",
    "SchemaProposals": "airflow_cloudfiles.engine.schema.proposals",
    "UnknownFieldException": "airflow_cloudfiles.engine.errors",
    "cloud_files_metrics": "airflow_cloudfiles.engine.intake.stream_logs",
    "cloud_files_state": "airflow_cloudfiles.engine.intake.file_state_columns",
    "dags_from_file": "airflow_cloudfiles.task_groups.streams",
    "export_state": "airflow_cloudfiles.engine.extensions.transfer.archived",
    "import_state": "airflow_cloudfiles.engine.extensions.transfer.archived",
    "merge_into": "airflow_cloudfiles.engine.spark.tables.merge_into",
    "move_state": "airflow_cloudfiles.engine.extensions.transfer.move",
    "operate_on_files": "airflow_cloudfiles.engine.extensions.file_operations.of_table",
    "register": "airflow_cloudfiles.engine.spark.register",
    "relocate_source": "airflow_cloudfiles.engine.extensions.transfer.relocate",
    "start_over": "airflow_cloudfiles.engine.extensions.start_over",
    "stream_summary": "airflow_cloudfiles.engine.extensions.overview.summary",
    "streams_from_file": "airflow_cloudfiles.task_groups.streams",
    "why_rescued": "airflow_cloudfiles.engine.extensions.overview.rescued",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """List the public names besides what is loaded already."""
    return sorted({*globals(), *__all__})
