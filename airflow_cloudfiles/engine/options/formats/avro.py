"""Which options does Avro have?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from airflow_cloudfiles.engine.options.formats.parquet import REBASE_MODES, RebaseMode
from airflow_cloudfiles.engine.options.values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroOptions:
    """The validated options of Avro."""

    datetime_rebase_mode: RebaseMode = "CORRECTED"
    """`datetimeRebaseMode`: dates before 1582-10-15 and timestamps before 1900 in files that do not
    tell their calendar (those of Spark 3 and later do): `CORRECTED` reads them as they are,
    `LEGACY` takes them for the hybrid calendar of Hive and Spark 2, `EXCEPTION` refuses the
    file."""
    merge_schema: bool = True
    """`mergeSchema`: whether the schema is inferred from all files of the sample; false takes the
    columns of the newest file alone, and others are new columns later. Types are never relaxed:
    where files disagree, the newest one's type is the column's (B12)."""
    stable_union_names: bool = False
    """`enableStableIdentifiersForUnionType`: whether the fields of a union of several types are
    named after these (`member_int`), rather than numbered (`member0`)."""
    stable_union_prefix: str = "member_"
    """`stableIdentifierPrefixForUnionType`: what such names begin with."""

    NAMES: ClassVar[tuple[str, ...]] = (
        "datetimeRebaseMode",
        "enableStableIdentifiersForUnionType",
        "mergeSchema",
        "stableIdentifierPrefixForUnionType",
    )
    REFUSED: ClassVar[Mapping[str, str]] = {
        "avroSchema": "files are read by the schema that each of them holds, so that no field of "
        "theirs is passed over. Give the columns with .schema(...) or cloudFiles.schemaHints.",
        "avroSchemaUrl": "files are read by the schema that each of them holds, so that no field "
        "of theirs is passed over. Give the columns with .schema(...) or cloudFiles.schemaHints.",
        "ignoreExtension": "files are chosen by pathGlobFilter, for instance *.avro.",
        "positionalFieldMatching": "fields find their columns by name. By position, a file with "
        "one more field would fill the wrong columns.",
        "recursiveFieldMaxDepth": "what lies deeper than such a depth would be lost. A recursive "
        "type cannot be read; let the writer nest it to a fixed depth.",
    }

    @classmethod
    def parse(cls, read: Values) -> Self:
        """Validate."""
        return cls(
            datetime_rebase_mode=read.choice("datetimeRebaseMode", REBASE_MODES, "CORRECTED"),
            merge_schema=read.boolean("mergeSchema", default=True),
            stable_union_names=read.boolean("enableStableIdentifiersForUnionType", default=False),
            stable_union_prefix=_or(read.raw("stableIdentifierPrefixForUnionType"), "member_"),
        )

    def can_split(self) -> bool:
        """Whether large files may be read in parts: at the marks between their blocks."""
        return True


def _or(given: str | None, default: str) -> str:
    return default if given is None else given
