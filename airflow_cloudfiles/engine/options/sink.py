"""Which options does the Delta sink have?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.options.declared import OptionGroup, option, options_of
from airflow_cloudfiles.engine.options.values import GIB, boolean, size, text


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(OptionGroup):
    """The options of the sink that a task takes among those of its stream."""

    merge_schema: bool | None = option(
        "mergeSchema",
        boolean,
        default=None,
        shown="`false`; `true` for the Airflow operators, which take it in `options`",
    )
    """Add columns that the table lacks; otherwise they are refused."""
    type_widening: bool | None = option(
        "typeWidening",
        boolean,
        default=None,
        shown="`false`; for the Airflow operators `true` with "
        "`cloudFiles.schemaEvolutionMode=addNewColumnsWithTypeWidening`",
    )
    """With `mergeSchema`: rewrite the table, in one commit, when a column has become wider;
    otherwise that is refused."""
    type_widening_max_bytes: int = option("typeWideningMaxBytes", size, default=10 * GIB)
    """The largest table that is rewritten, in bytes of its data files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(TableOptions):
    """The options of `writeStream`."""

    checkpoint_location: str | None = option(
        "checkpointLocation", text, default=None, shown="required"
    )
    """The state of the stream."""
    path: str | None = option("path", text, default=None, shown="the argument of `start`")
    """The folder of the table."""
    txn_app_id: str | None = option("txnAppId", text, default=None, shown="the id of the stream")
    """The name under which the table remembers the batches it has."""


OF_SINK: Final = tuple(each.name for each in options_of(TableOptions).values())
"""Names of the options of the sink that a task takes among those of its stream."""
