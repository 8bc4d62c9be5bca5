"""Read the actions of a Delta log, and list the features of tables that are supported.

The actions of the Delta protocol that a reader needs, as one line of the log holds them. Fields and
actions of which a reader has no use are skipped, as the protocol asks for.

A checkpoint says the same, in Parquet as a rule.

A checkpoint has one row for each file of the table, and a few rows for everything else. Opening a
table needs those few only, so the rows of files stay columns until somebody asks for the files.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions

One list has the features of tables, and what each means for reading, appending, rewriting and a
vacuum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.errors import UnsupportedTableError
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.tables.delta.read.log import damaged_log, decoded


class DeletionVector(msgspec.Struct, frozen=True, rename="camel"):
    """Where the rows are listed that are deleted from a data file.

    Attributes:
        storage_type: `u` for a file of the table, `p` for an absolute path, `i` for inline.
        path_or_inline_dv: The file, or the vector itself in Base85.
        offset: Where the vector begins in the file.
        size_in_bytes: The length of the vector.
        cardinality: How many rows are deleted.
    """

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def unique_id(self) -> str:
        """The id that tells two vectors of one data file apart, as the protocol defines it."""
        text = f"{self.storage_type}{self.path_or_inline_dv}"
        return text if self.offset is None else f"{text}@{self.offset}"


FileKey = tuple[str, str]
"""A data file as the log identifies it: its path, and the id of its deletion vector."""


def _key(path: str, vector: DeletionVector | None) -> FileKey:
    # Writers may encode one name in two ways.
    return decoded(path), "" if vector is None else vector.unique_id


class AddFile(msgspec.Struct, frozen=True, rename="camel"):
    """A data file that is part of the table from this version on.

    Attributes:
        path: Relative to the table, or absolute; percent-encoded.
        size: Bytes.
        partition_values: By physical name of the partition column; `None` is null.
        modification_time: Milliseconds since 1970.
        data_change: Whether its rows are new, rather than rows of other files in another order.
        deletion_vector: Which of its rows are deleted.
    """

    path: str
    size: int
    partition_values: dict[str, str | None] = {}
    modification_time: int = 0
    data_change: bool = True
    deletion_vector: DeletionVector | None = None

    @property
    def key(self) -> FileKey:
        """What a `RemoveFile` of this file has, too."""
        return _key(self.path, self.deletion_vector)

    def partition_value(self, name: str) -> str | None:
        """Look up the value of a partition column by its physical name, in any case."""
        values = self.partition_values
        if name in values:
            return values[name]
        return next((values[each] for each in values if CASE_INSENSITIVE.same(each, name)), None)


class RemoveFile(msgspec.Struct, frozen=True, rename="camel"):
    """A data file that is no part of the table any more.

    Attributes:
        path: As `AddFile` has it.
        deletion_timestamp: Milliseconds since 1970, by the clock of the writer.
        data_change: Whether its rows are gone, rather than in other files.
        deletion_vector: As `AddFile` has it.
    """

    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    deletion_vector: DeletionVector | None = None

    @property
    def key(self) -> FileKey:
        """What the `AddFile` of this file has, too."""
        return _key(self.path, self.deletion_vector)


class ChangeFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file of the change data feed, which a version names besides its data files."""

    path: str


_NO_COLUMNS: Final = '{"type":"struct","fields":[]}'


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Columns and properties of the table.

    Attributes:
        id: Of the table; another table at the same path has another.
        schema_string: The columns, in Spark's JSON; a table without any may have none.
        partition_columns: Their names.
        configuration: The table's properties.
        name: The table's name, if it has one.
        description: Its description, if it has one.
        created_time: When it was created, in milliseconds since 1970.
    """

    id: str
    schema_string: str | None = None
    partition_columns: list[str] = []
    configuration: dict[str, str | None] = {}
    name: str | None = None
    description: str | None = None
    created_time: int | None = None

    @property
    def schema_json(self) -> str:
        """The columns; none, where the version says nothing of them, as the first one of DLT."""
        return self.schema_string or _NO_COLUMNS

    def property(self, key: str, default: str = "") -> str:
        """Look up one of the table's properties."""
        value = self.configuration.get(key)
        return default if value is None else value


class Protocol(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a program must be able to do to read and to write the table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class CommitInfo(msgspec.Struct, frozen=True, rename="camel"):
    """When a commit was made, in a table with in-commit timestamps: milliseconds since 1970."""

    in_commit_timestamp: int | None = None


class Sidecar(msgspec.Struct, frozen=True, rename="camel"):
    """A file that holds part of a checkpoint."""

    path: str


class Action(msgspec.Struct, frozen=True, rename="camel"):
    """One line of the log; one of the attributes is set, or none that a reader needs."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    cdc: ChangeFile | None = None
    meta_data: Metadata | None = None
    protocol: Protocol | None = None
    commit_info: CommitInfo | None = None
    sidecar: Sidecar | None = None


_decoder = msgspec.json.Decoder(Action)


def decode(content: bytes) -> Sequence[Action]:
    """Read a commit, a compacted log or a checkpoint in JSON.

    Raises:
        msgspec.DecodeError: It is damaged, or not written as the protocol has it.
    """
    return _decoder.decode_lines(content)


_OF_FILES: Final = {
    "add": ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector"),
    "remove": ("path", "deletionTimestamp", "dataChange", "deletionVector"),
}
"""What is read of a file: its statistics would take most of the memory."""
_OTHERS: Final = ("metaData", "protocol", "sidecar")


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """A checkpoint, or a part of one.

    Attributes:
        others: All that is not about a file.
        added: The files of the table, as columns.
        removed: Files that it had before, as columns.
    """

    others: Sequence[Action]
    added: pa.StructArray | None = None
    removed: pa.StructArray | None = None

    @classmethod
    def read(cls, content: IO[bytes]) -> CheckpointPart:
        """Read a file of Parquet.

        Raises:
            pa.ArrowException: It is damaged.
            msgspec.ValidationError: It is not written as the protocol has it.
        """
        parquet = pq.ParquetFile(content, arrow_extensions_enabled=False)
        there = set(parquet.schema_arrow.names)
        for name in there & {*_OF_FILES, *_OTHERS}:
            if not pa.types.is_struct(kind := parquet.schema_arrow.field(name).type):
                raise msgspec.ValidationError(f"{name} is a {kind}")
        wanted = [f"{name}.{each}" for name, fields in _OF_FILES.items() for each in fields]
        wanted = [each for each in (*wanted, *_OTHERS) if each.partition(".")[0] in there]
        table = parquet.read(columns=wanted)
        rows = {name: _there(table, name) for name in (*_OF_FILES, *_OTHERS)}
        others = [
            msgspec.convert({name: without_nulls(row)}, Action)
            for name in _OTHERS
            for row in _pylist(rows[name])
        ]
        return cls(others, _checked(rows["add"], "size"), _checked(rows["remove"]))

    def files(self) -> Iterator[AddFile]:
        """Yield the files of the table."""
        yield from (each.add for each in self.others if each.add is not None)
        if self.added is not None:
            rows = self.added
            yield from map(
                AddFile,
                _values(rows, "path"),
                _values(rows, "size"),
                _partitions(rows),
                _values(rows, "modificationTime", 0),
                _values(rows, "dataChange", True),
                _vectors(rows),
            )

    def gone(self) -> Iterator[RemoveFile]:
        """Yield the files that the table had before."""
        yield from (each.remove for each in self.others if each.remove is not None)
        if self.removed is not None:
            rows = self.removed
            yield from map(
                RemoveFile,
                _values(rows, "path"),
                _values(rows, "deletionTimestamp"),
                _values(rows, "dataChange", True),
                _vectors(rows),
            )


def without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """Drop the fields of a checkpoint's action that JSON would leave out."""
    return {name: value for name, value in fields.items() if value is not None}


def _there(table: pa.Table, name: str) -> pa.StructArray | None:
    """Return the actions of one kind; `None` where the checkpoint has no column for them."""
    if name not in table.column_names:
        return None
    found = table.column(name).drop_null().combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _pylist(rows: pa.StructArray | None) -> list[dict[str, Any]]:
    return [] if rows is None else rows.to_pylist(maps_as_pydicts="strict")


def _checked(rows: pa.StructArray | None, *required: str) -> pa.StructArray | None:
    """Refuse files without what each must have, before somebody relies on the checkpoint."""
    if rows is None:
        return None
    for name in ("path", *required):
        if name not in rows.type.names or rows.field(name).null_count:
            raise msgspec.ValidationError(f"a file has no {name}")
    for name, is_of in _KINDS.items():
        if name in rows.type.names and not is_of(rows.field(name).type):
            raise msgspec.ValidationError(f"{name} is a {rows.field(name).type}")
    return rows


_KINDS: Final = {
    "path": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    "size": pa.types.is_integer,
    "modificationTime": pa.types.is_integer,
    "deletionTimestamp": pa.types.is_integer,
    "dataChange": pa.types.is_boolean,
    "partitionValues": pa.types.is_map,
    "deletionVector": pa.types.is_struct,
}


def _values(rows: pa.StructArray, name: str, default: object = None) -> list[Any]:
    """Read a column; what is null, or was not written, becomes the default."""
    if name not in rows.type.names:
        return [default] * len(rows)
    # Not pyarrow's fill_null, which imports pandas.
    return [default if each is None else each for each in rows.field(name).to_pylist()]


def _partitions(rows: pa.StructArray) -> list[dict[str, str | None]]:
    """Read the partition values of each file; files without partitions share one dictionary."""
    column = rows.field("partitionValues") if "partitionValues" in rows.type.names else None
    if column is None or not len(column.keys):
        return [{}] * len(rows)
    return [each or {} for each in column.to_pylist(maps_as_pydicts="strict")]


def _vectors(rows: pa.StructArray) -> list[DeletionVector | None]:
    column = rows.field("deletionVector") if "deletionVector" in rows.type.names else None
    # Where there is none, some writers have a struct of nulls.
    if column is None or column.field("storageType").null_count == len(column):
        return [None] * len(rows)
    return [
        msgspec.convert(without_nulls(each), DeletionVector)
        if each is not None and each["storageType"] is not None
        else None
        for each in column.to_pylist()
    ]


FEATURES_SINCE: Final = 3
"""The reader version from which on a table names its features one by one."""


class Feature(NamedTuple):
    """What is done with a table that has a feature.

    Attributes:
        reading: What it means for a reader; `None`: such a table is not read.
        appending: What it means for adding rows; `None`: none are added.
        is_rewritten: Whether data files are replaced: not where `deltalake` (1.6) neither reads nor
            writes rows, or where what the feature promises would be lost.
        is_library: Whether `deltalake` (1.6) appends to it, where it matters.
        is_vacuumed: Whether a vacuum knows all files that it may name.
    """

    reading: str | None = None
    appending: str | None = None
    is_rewritten: bool = True
    is_library: bool = True
    is_vacuumed: bool = True


_AS_PREVIEW: Final = {
    "typeWidening": Feature(
        "values of files with a narrower type are cast",
        "files have the newest types",
        is_rewritten=False,
        is_library=False,
    ),
    "variantType": Feature("columns of the type VARIANT", "columns of the type VARIANT"),
    "variantShredding": Feature("VARIANTs whose fields are stored as columns", is_rewritten=False),
}
_NO_EFFECT: Final = "no effect on appending"
FEATURES: Final[dict[str, Feature]] = {
    "allowColumnDefaults": Feature(
        appending="refused where a column has a default", is_library=False
    ),
    "appendOnly": Feature(appending=_NO_EFFECT),
    "catalogManaged": Feature(is_vacuumed=False),
    "catalogOwned-preview": Feature(is_vacuumed=False),
    "changeDataFeed": Feature(appending="files that are added need no change files"),
    "checkConstraints": Feature(appending="refused where the table has a constraint"),
    "checkpointProtection": Feature(),
    "clustering": Feature(is_rewritten=False),
    "columnMapping": Feature(
        "columns are found by name or by id, so that they can be renamed and dropped",
        "files have physical names and field ids",
    ),
    "deletionVectors": Feature(
        "rows that are deleted without rewriting their file are left out",
        _NO_EFFECT,
    ),
    "domainMetadata": Feature(appending=_NO_EFFECT, is_library=False),
    "generatedColumns": Feature(appending="refused where a column is generated"),
    "icebergCompatV1": Feature(is_rewritten=False),
    "icebergCompatV2": Feature(is_rewritten=False),
    "identityColumns": Feature(appending="refused where a column is one", is_library=False),
    "inCommitTimestamp": Feature(),
    "invariants": Feature(appending="refused where a column has an invariant"),
    "materializePartitionColumns": Feature(),
    "rowTracking": Feature(is_rewritten=False),
    "timestampNtz": Feature("timestamps without a time zone", "timestamps without a time zone"),
    "v2Checkpoint": Feature("checkpoints with sidecar files", "checkpoints with sidecar files"),
    "vacuumProtocolCheck": Feature("no effect on reading", _NO_EFFECT, is_library=False),
    **_AS_PREVIEW,
    **{
        f"{name}-preview": each._replace(
            reading=f"as `{name}`", appending=each.appending and f"as `{name}`"
        )
        for name, each in _AS_PREVIEW.items()
    },
}
"""Every feature that is known, of readers and of writers. A table with another one is refused by
name: it would be read wrongly, or its rules would be broken silently."""
READER_FEATURES: Final = {name: each.reading for name, each in FEATURES.items() if each.reading}
"""The reader features that are supported, and what each means for a reader."""
APPEND_FEATURES: Final = {name: each.appending for name, each in FEATURES.items() if each.appending}
"""The writer features with which rows can be added, and what each means for that."""
NOT_REWRITTEN: Final = frozenset(name for name, each in FEATURES.items() if not each.is_rewritten)
BEYOND_DELTALAKE: Final = frozenset(name for name, each in FEATURES.items() if not each.is_library)
_VACUUMED: Final = frozenset(name for name, each in FEATURES.items() if each.is_vacuumed)
_BY_CATALOG: Final = FEATURES.keys() - _VACUUMED


def features_of(protocol: Protocol) -> frozenset[str]:
    """Return the reader features of a table; versions 1 and 2 imply theirs."""
    if protocol.min_reader_version >= FEATURES_SINCE:
        return frozenset(protocol.reader_features or ())
    return frozenset({"columnMapping"} if protocol.min_reader_version > 1 else ())


def require_readable(protocol: Protocol, target: str) -> None:
    """Refuse a table that this version cannot read rightly.

    Raises:
        UnsupportedTableError: It has a reader version or a reader feature that is not supported;
            the message names it.
        TargetCorruptedError: Its protocol contradicts itself.
    """
    version = protocol.min_reader_version
    if version > FEATURES_SINCE:
        raise UnsupportedTableError(
            f"The Delta table {target} cannot be read: it has the reader version {version}, and "
            f"this version of the package supports versions up to {FEATURES_SINCE}. Update the "
            "package, or read the table with Delta's own jars."
        )
    if version == FEATURES_SINCE and protocol.reader_features is None:
        what = f"its protocol has the reader version {version} but no readerFeatures"
        raise damaged_log(target, what)
    unknown = features_of(protocol) - READER_FEATURES.keys()
    instead = (
        "Its commits are known to its catalog only: read it through the catalog."
        if unknown & _BY_CATALOG
        else "Read it with Delta's own jars, or have the feature removed where the table is "
        "written (ALTER TABLE ... DROP FEATURE)."
    )
    _refuse(unknown, target, "read", instead)


def require_vacuumable(protocol: Protocol, target: str) -> None:
    """Refuse a table with features that may name files in ways not known here.

    Raises:
        UnsupportedTableError: It has some.
    """
    unknown = frozenset(protocol.writer_features or ()) - _VACUUMED
    _refuse(unknown, target, "vacuumed", "Vacuum it with the program that writes it.")


def _refuse(features: frozenset[str], target: str, what: str, instead: str) -> None:
    """Refuse a table because of features, if there are any."""
    if features:
        raise UnsupportedTableError(
            f"The Delta table {target} cannot be {what}: it has the table "
            f"feature{'s' if len(features) > 1 else ''} {few(sorted(features))}, which this "
            f"version of the package does not support. {instead}"
        )
