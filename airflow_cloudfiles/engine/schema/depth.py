"""Schemas that are nested deeper than rows can be carried to a table are refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError, SchemaHintError
from airflow_cloudfiles.engine.types import ROOM, too_deep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_cloudfiles.engine.schema.ddl import ColumnDefinition


def refuse_too_deep(schema: StructType, version: int | None) -> None:
    """Refuse a schema before any file is read with it.

    Args:
        schema: The columns of the records.
        version: Of the schema log; `None` where the user gave the schema.

    Raises:
        IncompatibleSchemaError: It is nested too deep.
    """
    column = too_deep(schema)
    if column is None:
        return
    where = "given schema" if version is None else f"schema (version {version})"
    remedy = (
        "Declare what lies deep in it as STRING."
        if version is None
        else "Go back to the version before with `cloudfiles schema rollback`, and run once with "
        "cloudFiles.schemaEvolutionMode=rescue; later runs rescue what lies too deep. Where there "
        "is no version before, start with another cloudFiles.schemaLocation and checkpointLocation."
    )
    raise IncompatibleSchemaError(
        f"Column {column} of the {where} is nested deeper than rows can be carried to a table and "
        f"the table be read: some {ROOM.json // 3} structs, {ROOM.parquet // 2} arrays or "
        f"{ROOM.arrow // 2} maps, one in the other. {remedy}"
    )


def refuse_too_deep_hints(hints: Sequence[ColumnDefinition]) -> None:
    """Refuse hints that are nested too deep.

    Raises:
        SchemaHintError: One is.
    """
    for hint in hints:
        if too_deep(StructType([StructField(hint.path[-1], hint.data_type)])):
            raise SchemaHintError(
                f"cloudFiles.schemaHints gives {'.'.join(hint.path)!r} a type that is nested "
                "deeper than a table can be. Hint STRING for what lies deep in it."
            )
