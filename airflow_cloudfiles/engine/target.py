"""Say what is known of the target of a stream by its name: a Delta table, or an Iceberg table.

Nothing is opened or imported, so that a task of Airflow can ask it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.uri import iceberg_name, is_iceberg, normalize_uri


@dataclass(frozen=True, slots=True)
class Target:
    """The table that a stream writes to.

    Attributes:
        uri: Its path or URI, as it was given.
        layer: Its kind, as its dataset for lineage has it.
    """

    uri: str
    layer: Literal["delta", "iceberg"]

    @property
    def folder(self) -> str | None:
        """The canonical URI of its folder; `None` where only a catalog knows it.

        Raises:
            OptionError: It is not a location.
        """
        return None if self.layer == "iceberg" else normalize_uri(self.uri)

    @property
    def identifier(self) -> tuple[str, tuple[str, ...]] | None:
        """Its catalog, and its identifier there (`iceberg_name`); `None` without a catalog."""
        return iceberg_name(self.uri) if self.layer == "iceberg" else None

    def require_delta(self, what: str, instead: str) -> None:
        """Refuse what only a Delta table can do.

        Args:
            what: It, as the subject of a sentence and its verb.
            instead: What to do, in sentences.

        Raises:
            OptionError: The target is of another kind.
        """
        if self.layer != "delta":
            raise OptionError(
                f"{what} for Delta tables only, and {self.uri} is an Iceberg table. {instead}"
            )


def target_of(uri: str) -> Target:
    """Tell where a stream writes by the path or URI of its table."""
    return Target(uri, "iceberg" if is_iceberg(uri) else "delta")
