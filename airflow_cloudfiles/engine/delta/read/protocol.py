"""Which Delta tables can be read?

One list for batch and stream: a table with a reader feature that is not on it is refused by name.
Features that only writers must know do not matter to a reader.
"""

from __future__ import annotations

from typing import Final

from airflow_cloudfiles.engine.delta.read.actions import Metadata, Protocol
from airflow_cloudfiles.engine.errors import TargetCorruptedError, UnsupportedTableError
from airflow_cloudfiles.engine.shortened import few

READER_FEATURES: Final[dict[str, str]] = {
    "columnMapping": "columns are found by name or by id, so that they can be renamed and dropped",
    "deletionVectors": "rows that are deleted without rewriting their file are left out",
    "timestampNtz": "timestamps without a time zone",
    "typeWidening": "values of files with a narrower type are cast",
    "typeWidening-preview": "as `typeWidening`",
    "v2Checkpoint": "checkpoints with sidecar files",
    "vacuumProtocolCheck": "no effect on reading",
    "variantType": "columns of the type VARIANT",
    "variantType-preview": "as `variantType`",
    "variantShredding": "VARIANTs whose fields are stored as columns",
    "variantShredding-preview": "as `variantShredding`",
}
"""The reader features that are supported, and what each means for a reader."""

_FEATURES_SINCE: Final = 3
"""The reader version from which on a table names its features one by one."""
_INSTEAD: Final = {
    "catalogManaged": "Its commits are known to its catalog only: read it through the catalog.",
    "catalogOwned-preview": "Its commits are known to its catalog only: read it through the "
    "catalog.",
}
_READ_OTHERWISE: Final = (
    "Read it with Delta's own jars, or have the feature removed where the table is written "
    "(ALTER TABLE ... DROP FEATURE)."
)


def features_of(protocol: Protocol) -> frozenset[str]:
    """The reader features of a table; versions 1 and 2 imply theirs."""
    if protocol.min_reader_version >= _FEATURES_SINCE:
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
    if version > _FEATURES_SINCE:
        raise UnsupportedTableError(
            f"The Delta table {target} cannot be read: it has the reader version {version}, and "
            f"this version of the package supports versions up to {_FEATURES_SINCE}. Update the "
            "package, or read the table with Delta's own jars."
        )
    if version == _FEATURES_SINCE and protocol.reader_features is None:
        raise TargetCorruptedError(
            f"The log of the Delta table {target} is damaged: its protocol has the reader version "
            f"{version} but no readerFeatures. Restore the log from a backup."
        )
    unknown = sorted(features_of(protocol) - READER_FEATURES.keys())
    if unknown:
        instead = next((_INSTEAD[name] for name in unknown if name in _INSTEAD), _READ_OTHERWISE)
        raise UnsupportedTableError(
            f"The Delta table {target} cannot be read: it has the table "
            f"feature{'s' if len(unknown) > 1 else ''} {few(unknown)}, which this version of the "
            f"package does not support. {instead}"
        )


def mapping_mode(metadata: Metadata, protocol: Protocol, target: str) -> str:
    """How columns find their data in files: `none`, `name` or `id`.

    Raises:
        TargetCorruptedError: The table has another mode.
    """
    if "columnMapping" not in features_of(protocol):
        return "none"
    mode = metadata.property("delta.columnMapping.mode", "none").lower()
    if mode not in {"none", "name", "id"}:
        raise TargetCorruptedError(
            f"The log of the Delta table {target} is damaged: delta.columnMapping.mode is "
            f"{mode!r}, not none, name or id. Restore the log from a backup."
        )
    return mode
