"""Delta tables written by hand: old logs, every kind of checkpoint and of deletion vector."""

from __future__ import annotations

import contextlib
import json
import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, TableFeatures, write_deltalake
from pyroaring import BitMap64

from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader, TableColumns
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
OLD = {"minReaderVersion": 1, "minWriterVersion": 2}
MAPPED = {"minReaderVersion": 2, "minWriterVersion": 5}
SIMPLE = [
    {"name": "a", "type": "long", "nullable": True, "metadata": {}},
    {"name": "s", "type": "string", "nullable": True, "metadata": {}},
]

_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_STRINGS = pa.map_(pa.string(), pa.string())
CHECKPOINT = pa.schema(
    {
        "txn": pa.struct([("appId", pa.string()), ("version", pa.int64())]),
        "add": pa.struct(
            [
                ("path", pa.string()),
                ("partitionValues", _STRINGS),
                ("size", pa.int64()),
                ("modificationTime", pa.int64()),
                ("dataChange", pa.bool_()),
                ("stats", pa.string()),
                ("deletionVector", _VECTOR),
            ]
        ),
        "remove": pa.struct(
            [
                ("path", pa.string()),
                ("deletionTimestamp", pa.int64()),
                ("dataChange", pa.bool_()),
                ("deletionVector", _VECTOR),
            ]
        ),
        "metaData": pa.struct(
            [
                ("id", pa.string()),
                (
                    "format",
                    pa.struct([("provider", pa.string()), ("options", _STRINGS)]),
                ),
                ("schemaString", pa.string()),
                ("partitionColumns", pa.list_(pa.string())),
                ("configuration", _STRINGS),
                ("createdTime", pa.int64()),
            ]
        ),
        "protocol": pa.struct(
            [
                ("minReaderVersion", pa.int32()),
                ("minWriterVersion", pa.int32()),
                ("readerFeatures", pa.list_(pa.string())),
                ("writerFeatures", pa.list_(pa.string())),
            ]
        ),
        "sidecar": pa.struct(
            [
                ("path", pa.string()),
                ("sizeInBytes", pa.int64()),
                ("modificationTime", pa.int64()),
                ("tags", _STRINGS),
            ]
        ),
        "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", _STRINGS)]),
    }
)


def features(*reader: str, writer: tuple[str, ...] = ()) -> dict[str, Any]:
    """A protocol that names its features."""
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(reader),
        "writerFeatures": [*reader, *writer],
    }


def column(name: str, kind: Any, number: int | None = None, **metadata: Any) -> dict[str, Any]:
    """A column of a schema; with a number, one that column mapping has given another name."""
    if number is not None:
        metadata["delta.columnMapping.id"] = number
        metadata["delta.columnMapping.physicalName"] = f"col-{number}"
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def base85(content: bytes) -> str:
    """Encode as Z85."""
    padded = content + b"\0" * (-len(content) % 4)
    found = ""
    for (number,) in struct.iter_unpack(">I", padded):
        found += "".join(Z85[number // 85**place % 85] for place in range(4, -1, -1))
    return found


def bitmap(rows: list[int], *, runs: bool = False) -> bytes:
    """The bytes of a deletion vector."""
    found = BitMap64(rows)
    if runs:
        found.run_optimize()
    return struct.pack("<I", 1681511377) + found.serialize()


class HandMadeTable:
    """A table whose log is written line by line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = -1

    def commit(self, *actions: dict[str, Any], version: int | None = None) -> int:
        """Append a commit."""
        self.version = self.version + 1 if version is None else version
        path = self.log / f"{self.version:020}.json"
        path.write_text("".join(json.dumps(each) + "\n" for each in actions))
        return self.version

    def create(
        self,
        *actions: dict[str, Any],
        protocol: dict[str, Any] | None = None,
        columns: list[dict[str, Any]] | None = None,
        partitions: tuple[str, ...] = (),
        **configuration: str,
    ) -> int:
        """Append a commit that sets protocol and columns, too."""
        properties = {key.replace("_", "."): value for key, value in configuration.items()}
        metadata = self.metadata(columns or SIMPLE, partitions, properties)
        return self.commit({"protocol": protocol or OLD}, metadata, *actions)

    def metadata(
        self,
        columns: list[dict[str, Any]],
        partitions: tuple[str, ...] = (),
        configuration: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        return {
            "metaData": {
                "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": columns}),
                "partitionColumns": list(partitions),
                "configuration": configuration or {},
                "createdTime": 0,
            }
        }

    def file(
        self,
        name: str,
        rows: pa.Table | dict[str, Any],
        *,
        path: str | None = None,
        partition: dict[str, str | None] | None = None,
        vector: dict[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Write a data file, and give the action that adds it."""
        where = self.folder / name
        where.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table(rows) if isinstance(rows, dict) else rows
        pq.write_table(table, where, **options)
        add = {
            "path": path or name,
            "partitionValues": partition or {},
            "size": where.stat().st_size,
            "modificationTime": int(where.stat().st_mtime * 1000),
            "dataChange": True,
            # Readers count deleted rows by it: the protocol requires it beside a vector.
            "stats": json.dumps({"numRecords": table.num_rows}),
        }
        return {"add": add if vector is None else {**add, "deletionVector": vector}}

    def vector(
        self, rows: list[int], *, kind: str = "u", prefix: str = "", before: bytes = b"\1"
    ) -> dict[str, Any]:
        """Write a deletion vector, and give what the log says of it."""
        content = bitmap(rows)
        size = len(content)
        found: dict[str, Any] = {"storageType": kind, "sizeInBytes": size, "cardinality": len(rows)}
        if kind == "i":
            return {**found, "pathOrInlineDv": base85(content)}
        unique = uuid.uuid4()
        where = self.folder / prefix / f"deletion_vector_{unique}.bin"
        where.parent.mkdir(exist_ok=True)
        framed = struct.pack(">I", size) + content + struct.pack(">I", zlib.crc32(content))
        where.write_bytes(before + framed)
        text = prefix + base85(unique.bytes) if kind == "u" else where.as_uri()
        return {**found, "pathOrInlineDv": text, "offset": len(before)}

    def checkpoint(self, name: str, actions: list[dict[str, Any]]) -> None:
        """Write a checkpoint, a part of one, or a sidecar."""
        where = self.log / name
        where.parent.mkdir(exist_ok=True)
        if name.endswith(".json"):
            where.write_text("".join(json.dumps(each) + "\n" for each in actions))
            return
        rows = [{key: _pairs(value) for key, value in each.items()} for each in actions]
        pq.write_table(pa.Table.from_pylist(rows, CHECKPOINT), where)


def _pairs(fields: dict[str, Any]) -> dict[str, Any]:
    maps = ("partitionValues", "configuration", "options", "tags")
    return {
        key: list(value.items())
        if key in maps
        else _pairs(value)
        if isinstance(value, dict)
        else value
        for key, value in fields.items()
    }


def removed(add: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The action that removes a file which was added."""
    keys = ("path", "deletionVector")
    found = {key: add["add"][key] for key in keys if key in add["add"]}
    return {"remove": {**found, "deletionTimestamp": 0, "dataChange": True, **more}}


def read(folder: Path | str, version: int | None = None) -> pa.Table:
    """The rows of a version, by this package."""
    snapshot = TableLog(DeltaLocation.to_read(str(folder))).snapshot(version)
    reader = DataFileReader(TableColumns.of(snapshot))
    batches = [batch for file in snapshot.files for batch in reader.read(file)]
    return pa.Table.from_batches(batches, schema=reader.schema)


@contextlib.contextmanager
def duckdb_session() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its Delta extension, from the wheel of that."""
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as session:
        session.execute(f"LOAD '{extension}'")
        session.execute("SET TimeZone = 'UTC'")
        yield session


def read_by_duckdb(folder: Path | str) -> pa.Table:
    """The rows of the newest version, by another implementation."""
    with duckdb_session() as session:
        return session.execute(f"FROM delta_scan('{folder}')").to_arrow_table()


def take_vectors(table: DeltaTable) -> None:
    """Have rows of a table be deleted by vectors, as another writer may."""
    alter = table.alter
    alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    alter.set_table_properties({"delta.enableDeletionVectors": "true"}, raise_if_not_exists=False)


def delete_by_vector(target: Path, column: str, value: object) -> None:
    """Delete a row as Delta does: the file stays, and a vector says which row is gone."""
    snapshot = TableLog(DeltaLocation.to_read(str(target))).snapshot()
    log = target / "_delta_log"
    lines = "".join(path.read_text() for path in sorted(log.glob("*.json"))).splitlines()
    adds = [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]
    actions: list[dict[str, Any]] = []
    for file in snapshot.files:
        rows = pq.read_table(target / file.path)[column].to_pylist()
        if value not in rows:
            continue
        assert file.deletion_vector is None
        (add,) = [each for each in adds if each["path"] == file.path]
        content = bitmap([rows.index(value)])
        vector = {
            "storageType": "i",
            "pathOrInlineDv": base85(content),
            "sizeInBytes": len(content),
            "cardinality": 1,
        }
        remove = {"path": file.path, "deletionTimestamp": 0, "dataChange": True}
        actions += [{"remove": remove}, {"add": {**add, "deletionVector": vector}}]
    assert actions, f"no row has {value}"
    text = "".join(json.dumps(each) + "\n" for each in actions)
    (log / f"{snapshot.version + 1:020}.json").write_text(text)


def sorted_rows(table: pa.Table) -> list[str]:
    """The rows, in an order that does not depend on files."""
    return sorted(map(repr, table.to_pylist()))


def expire_transactions(target: Path, *, is_cleaned: bool) -> None:
    """Leave a table as another writer does whose checkpoint lets transactions expire.

    Args:
        target: The table.
        is_cleaned: Whether the commits before are removed from its log, too.
    """
    log, before = target / "_delta_log", DeltaTable(str(target)).version()
    DeltaTable(str(target)).create_checkpoint()
    [path] = log.glob(f"{before:020}.checkpoint.parquet")
    actions = pq.read_table(path)
    kept = actions.filter(pc.invert(pc.is_valid(actions["txn"])))
    pq.write_table(kept, path)
    hint = {"version": before, "size": len(kept)}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    rows = DeltaTable(str(target)).to_pyarrow_dataset().schema.empty_table()
    write_deltalake(str(target), rows, mode="append")
    for version in range(before + 1 if is_cleaned else 0):
        (log / f"{version:020}.json").unlink(missing_ok=True)
