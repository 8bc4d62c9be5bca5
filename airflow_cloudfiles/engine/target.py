"""Say what is known of the target of a stream by its name: a Delta table, or an Iceberg table.

Nothing is opened or imported, so that a task of Airflow can ask it.
"""

from __future__ import annotations

from typing import TypeAlias

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.uri import iceberg_name, is_iceberg, normalize_uri


class DeltaTarget:
    """A Delta table, in a folder that no catalog has to name.

    Args:
        uri: Path or URI.

    Attributes:
        layer: The kind of table in its dataset for lineage.
        identifier: The catalog and the identifier of the table in it; `None` without a catalog.
        finds_nested_rows: Whether rows are found by a column in a struct, too.
    """

    layer = "delta"
    identifier = None
    finds_nested_rows = True

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @property
    def folder(self) -> str | None:
        """The canonical URI of its folder; `None` where only a catalog knows it.

        Raises:
            OptionError: It is not a location.
        """
        return normalize_uri(self.uri)

    def require_delta(self, what: str, instead: str) -> None:
        """Refuse what only a Delta table can do, which this is.

        Args:
            what: It, as the subject of a sentence.
            instead: What to do, in sentences.

        Raises:
            OptionError: The target is of another kind.
        """


class IcebergTarget:
    """A table of an Iceberg catalog. It is asked what a `DeltaTarget` is."""

    layer = "iceberg"
    folder = None
    finds_nested_rows = False

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @property
    def identifier(self) -> tuple[str, tuple[str, ...]] | None:
        """The name of the catalog, and the identifier of the table in it (`iceberg_name`)."""
        return iceberg_name(self.uri)

    def require_delta(self, what: str, instead: str) -> None:
        """Refuse it."""
        raise OptionError(
            f"{what} for Delta tables only, and {self.uri} is an Iceberg table. {instead}"
        )


Target: TypeAlias = DeltaTarget | IcebergTarget
"""Where a stream writes."""


def target_of(uri: str) -> Target:
    """Tell where a stream writes by the path or URI of its table."""
    return (IcebergTarget if is_iceberg(uri) else DeltaTarget)(uri)
