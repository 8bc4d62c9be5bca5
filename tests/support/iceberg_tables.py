"""An Iceberg catalog on SQLite, configured as a user does, and its tables read back."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from airflow_cloudfiles.engine.extensions.iceberg.catalog import IcebergLocation


class LocalCatalog:
    """A catalog with one namespace, `db`, in a folder; processes find it by the environment.

    Args:
        folder: Where its database and its tables are.
        uri: Of a REST catalog that is there; without it, the catalog is a database.
    """

    def __init__(self, folder: Path, uri: str | None = None) -> None:
        self.folder = folder / "warehouse"
        self.folder.mkdir(exist_ok=True)
        self.database = folder / "catalog.db"
        # pyiceberg takes an underscore in such a variable for a dash.
        self.name = f"lake{abs(hash(str(folder)))}"
        self.environment = {
            f"PYICEBERG_CATALOG__{self.name.upper()}__URI": uri or f"sqlite:///{self.database}",
            f"PYICEBERG_CATALOG__{self.name.upper()}__WAREHOUSE": f"file://{self.folder}",
        }
        os.environ.update(self.environment)
        self.catalog.create_namespace("db")

    def for_spark(self) -> None:
        """Let the session of the tests know the catalog, which began before it was there."""
        uri, warehouse = self.environment.values()
        text = f"catalog:\n  {self.name}:\n    uri: {uri}\n    warehouse: {warehouse}\n"
        Path(os.environ["PYICEBERG_HOME"], ".pyiceberg.yaml").write_text(text, encoding="utf-8")

    def close(self) -> None:
        """Take the catalog out of the environment."""
        for name in self.environment:
            del os.environ[name]

    @property
    def catalog(self) -> Catalog:
        return IcebergLocation.of(self.uri("any")).open_catalog()

    def uri(self, table: str) -> str:
        return f"iceberg://{self.name}/db/{table}"

    def table(self, name: str) -> Table:
        return self.catalog.load_table(("db", name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Every row, as DuckDB reads it, in no order."""
        return read_with_duckdb(self.table(name))

    def files(self) -> list[str]:
        """Data files that are there, committed or not."""
        return sorted(str(each) for each in self.folder.rglob("*.parquet"))


def read_with_duckdb(
    table: Table, where: str = "true", values: Sequence[Any] = ()
) -> list[dict[str, Any]]:
    """Read rows of a table with DuckDB's Iceberg extension, from its wheel."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        file = next(Path(next(iter(package.__path__))).rglob(f"{name}.duckdb_extension"))
        connection.execute(f"LOAD '{file}'")
    place = table.metadata_location.removeprefix("file://")
    query = f"SELECT * FROM iceberg_scan('{place}') WHERE {where}"
    found = connection.execute(query, values).to_arrow_table()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows
