"""May a column take corrupt records?"""

from __future__ import annotations

from pyspark.sql.types import StringType, StructType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.types import short_type


def check_corrupt_column(schema: StructType, name: str) -> None:
    """The corrupt record column is a string, as in Spark; a schema may lack it.

    Raises:
        IncompatibleSchemaError: It has another type.
    """
    if name in schema.names and not isinstance(schema[name].dataType, StringType):
        raise IncompatibleSchemaError(
            f"Column {name} takes corrupt records and must be a string, not "
            f"{short_type(schema[name].dataType)}. Change its type, or name another column "
            "with columnNameOfCorruptRecord."
        )
