"""Check the types with which a change of the schema is accepted.

Apart from `decisions`, which needs no types of Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.names import dotted
from airflow_cloudfiles.engine.schema.ddl import parse_columns
from airflow_cloudfiles.engine.schema.diff import paths_of, without
from airflow_cloudfiles.engine.schema.hints import apply_hints
from airflow_cloudfiles.engine.schema.inference import diff
from airflow_cloudfiles.engine.schema.source_columns import beside
from airflow_cloudfiles.engine.types import canonical_struct

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_cloudfiles.engine.schema.proposals import Proposal

Schemas = tuple[dict[str, Any], dict[str, Any]]


def accepted_types(
    proposal: Proposal, before: Mapping[str, Any], hints: str, left_out: Collection[str] = ()
) -> Schemas:
    """Put hints over what a proposal adds or widens.

    Args:
        proposal: The change.
        before: Columns of the records of the version it changes, in Spark's schema JSON.
        hints: As `cloudFiles.schemaHints`; empty for none.
        left_out: Paths of the proposal that are not accepted: they stay as they are.

    Returns:
        Columns of the records and of the paths.

    Raises:
        SchemaHintError: A hint cannot be read, does not fit, or names something else.
    """
    proposed = StructType.fromJson(without(proposal.data_schema, before, left_out))
    columns = parse_columns(hints) if hints.strip() else []
    known = {path.lower() for path in paths_of(proposal.data_schema)}
    missing = [dotted(each.path) for each in columns if dotted(each.path).lower() not in known]
    if missing:
        raise SchemaHintError(
            f"The hints name {few(missing)}, which this change does not have. It has "
            f"{few(proposal.paths)}."
        )
    accepted = canonical_struct(apply_hints(proposed, columns))
    of_proposal = tuple(proposal.paths)
    others = [
        each.path
        for each in diff(StructType.fromJson(dict(before)), accepted)
        if each.kind != "added" and each.path not in of_proposal
    ]
    if others:
        raise SchemaHintError(
            f"The hints change {few(others)}, which the schema has already: columns keep their "
            f"types. Hints for this change may name {few(proposal.paths)}."
        )
    partitions = StructType.fromJson(dict(proposal.partition_schema))
    return accepted.jsonValue(), beside(accepted, partitions).jsonValue()
