"""What does the log of a Delta table say?

The actions of the Delta protocol that a reader needs, as one line of the log holds them. Fields and
actions of which a reader has no use are skipped, as the protocol asks for.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from airflow_cloudfiles.engine.delta.read.paths import decoded


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


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Columns and properties of the table.

    Attributes:
        id: Of the table; another table at the same path has another.
        schema_string: The columns, in Spark's JSON.
        partition_columns: Their names.
        configuration: The table's properties.
    """

    id: str
    schema_string: str
    partition_columns: list[str] = []
    configuration: dict[str, str | None] = {}

    def property(self, key: str, default: str = "") -> str:
        """One of the table's properties."""
        value = self.configuration.get(key)
        return default if value is None else value


class Protocol(msgspec.Struct, frozen=True, rename="camel"):
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
