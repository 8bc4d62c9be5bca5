"""List the features of Delta tables that are supported, and refuse tables with others.

One list for batch and stream of the features that readers must know, one of those that writers
must, and one for a vacuum. A table with another one is refused by name: it would be read wrongly,
or its rules would be broken silently.
"""

from __future__ import annotations

from typing import Final

from airflow_cloudfiles.engine.delta.read.actions import Protocol
from airflow_cloudfiles.engine.delta.read.log import damaged_log
from airflow_cloudfiles.engine.errors import UnsupportedTableError
from airflow_cloudfiles.engine.messages import few

FEATURES_SINCE: Final = 3
"""The reader version from which on a table names its features one by one."""
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
APPEND_FEATURES: Final[dict[str, str]] = {
    "allowColumnDefaults": "refused where a column has a default",
    "appendOnly": "no effect on appending",
    "invariants": "refused where a column has an invariant",
    "checkConstraints": "refused where the table has a constraint",
    "changeDataFeed": "files that are added need no change files",
    "columnMapping": "files have physical names and field ids",
    "deletionVectors": "no effect on appending",
    "domainMetadata": "no effect on appending",
    "generatedColumns": "refused where a column is generated",
    "identityColumns": "refused where a column is one",
    "timestampNtz": "timestamps without a time zone",
    "typeWidening": "files have the newest types",
    "typeWidening-preview": "as `typeWidening`",
    "vacuumProtocolCheck": "no effect on appending",
    "v2Checkpoint": "checkpoints with sidecar files",
    "variantType": "columns of the type VARIANT",
    "variantType-preview": "as `variantType`",
}
"""The writer features with which rows can be added, and what each means for that."""
SHREDDED: Final = frozenset({"variantShredding", "variantShredding-preview"})
VACUUM_FEATURES: Final = SHREDDED.union(
    APPEND_FEATURES,
    ("checkpointProtection", "clustering", "icebergCompatV1", "icebergCompatV2"),
    ("inCommitTimestamp", "materializePartitionColumns", "rowTracking"),
)
"""Features that name files only where a vacuum reads them; another may name more."""
_BY_CATALOG: Final = frozenset(("catalogManaged", "catalogOwned-preview"))


def features_of(protocol: Protocol) -> frozenset[str]:
    """The reader features of a table; versions 1 and 2 imply theirs."""
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
    refuse_unknown(unknown, target, "read", instead)


def refuse_unknown(features: frozenset[str], target: str, what: str, instead: str) -> None:
    """Refuse a table because of features, if there are any.

    Args:
        features: Those that are not supported.
        target: The table.
        what: What cannot be done with it.
        instead: What to do, as a sentence.

    Raises:
        UnsupportedTableError: There are some.
    """
    if features:
        raise UnsupportedTableError(
            f"The Delta table {target} cannot be {what}: it has the table "
            f"feature{'s' if len(features) > 1 else ''} {few(sorted(features))}, which this "
            f"version of the package does not support. {instead}"
        )
