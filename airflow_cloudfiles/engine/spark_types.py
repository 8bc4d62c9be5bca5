"""Give the types of schemas that an older supported Spark lacks.

`VariantType` is Spark's own from 4.0. Before, it is a class of this module, which schemas in JSON
are read with, too: rows of a job whose tasks read and write them never enter Spark, so a table gets
its VARIANT columns from any Spark. Where rows do enter, `require_types` refuses by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import types

from airflow_cloudfiles.engine.errors import SparkVersionError

if TYPE_CHECKING:
    from pyspark.sql.types import VariantType
else:
    try:
        from pyspark.sql.types import VariantType
    except ImportError:

        class VariantType(types.AtomicType):
            """VARIANT, for a Spark before 4.0."""

        # What `StructType.fromJson` of Spark 3.5 finds the types in.
        types._all_atomic_types[VariantType.typeName()] = VariantType  # noqa: SLF001

__all__ = ["VariantType", "has_variant", "require_types"]

HAS_VARIANT: Final = hasattr(types, "VariantType")
"""Whether the installed Spark knows VARIANT."""


def has_variant(kind: types.DataType) -> bool:
    """Tell whether a type is VARIANT, or holds one."""
    if isinstance(kind, types.StructType):
        return any(has_variant(each.dataType) for each in kind.fields)
    if isinstance(kind, types.ArrayType):
        return has_variant(kind.elementType)
    return isinstance(kind, VariantType) or (
        isinstance(kind, types.MapType) and has_variant(kind.valueType)
    )


def require_types(schema: types.StructType, version: str, what: str) -> None:
    """Refuse rows that are to enter a Spark which lacks one of their types.

    Args:
        schema: Of the rows.
        version: Of the Spark, such as `3.5.6`.
        what: What gives the rows to Spark, for the message.

    Raises:
        SparkVersionError: A column is VARIANT, and Spark is older than 4.0.
    """
    if HAS_VARIANT:
        return
    found = next((each.name for each in schema.fields if has_variant(each.dataType)), None)
    if found is not None:
        raise SparkVersionError(
            f"Column {found} is VARIANT, which Spark {version} does not have, and {what} gives its "
            "rows to Spark. Use Spark 4.0 or later; a table that only tasks of this package write "
            "gets VARIANT columns with any Spark."
        )
