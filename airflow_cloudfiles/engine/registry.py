"""Name the extensions of the core, and load them.

The core gets files into tables. What goes beyond that lies in `extensions`, which imports the core;
the core imports nothing of it. These lines are all that the core knows of an extension: who deletes
its folder deletes its lines here.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

_EXTENSIONS: Final = {
    "archive members": "archives.members:members",
    "batch write": "merge.batch_write:BatchWrite",
    "check registration": "registration.register:check_run",
    "clean": "cleaning.of_stream:clean_source",
    "clean after a run": "cleaning.of_stream:clean_after_run",
    "compact": "upkeep.optimize:auto_compact",
    "deleted files": "deleted_files:DeletedFiles",
    "event log": "event_log.reading:EventLogAnnouncements",
    "iceberg table": "iceberg.target_table:IcebergTargetTable",
    "inventory": "inventory.reading:InventoryDiscovery",
    "inventory folder": "inventory.base:report_folder",
    "merge": "merge.commit:merge_batch",
    "merge rule": "merge.source_rows:MergeRule",
    "promote": "promotion.promote:promote_for_run",
    "propose": "proposal.propose:propose",
    "quarantine": "file_operations.of_table:put_aside",
    "quarantine of rows": "row_rules.batch:settle",
    "register": "registration.register:register",
    "register splits": "registration.register:splits_to_register",
    "replay": "replay:replay",
    "row rules": "row_rules.batch:RowRules",
}
"""Module and name of each, below `extensions`."""


def extension(name: str) -> Any:
    """Load a class or a function of an extension, when it is needed.

    Args:
        name: Of its line.
    """
    module, _, attribute = _EXTENSIONS[name].partition(":")
    return getattr(
        importlib.import_module(f"airflow_cloudfiles.engine.extensions.{module}"), attribute
    )
