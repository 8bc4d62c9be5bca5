"""Declare the options of Avro, Parquet and ORC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, get_args

from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import FirstPart, FormatOptions
from airflow_cloudfiles.engine.options.values import (
    GIB,
    RefusedOption,
    any_text,
    boolean,
    choice,
    record_size,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrcOptions(FormatOptions):
    """The validated options of ORC."""

    HAS_TYPES: ClassVar[bool] = True
    ROWS_FROM: ClassVar[FirstPart] = "all or end"
    SCHEMA_FROM: ClassVar[FirstPart] = "end"

    merge_schema: bool = option("mergeSchema", boolean, default=True)
    """Whether the schema is inferred from all files of the sample, in the widest types; false takes
    the columns of the newest file alone, and others are new columns later."""
    max_record_bytes: int = option("maxRecordBytes", record_size, default=GIB, shown="1g")
    """The most bytes of the numbers of a stripe in memory, unless the file has a thousandth of
    them: a stripe is read as a whole; `1g` at most. Ours. What strings take is not limited."""

    def can_split(self) -> bool:
        """Tell whether large files may be read in parts: stripes are."""
        return True


RebaseMode = Literal["CORRECTED", "EXCEPTION", "LEGACY"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions(FormatOptions):
    """The validated options of Parquet."""

    HAS_TYPES: ClassVar[bool] = True
    ROWS_FROM: ClassVar[FirstPart] = "all or end"
    SCHEMA_FROM: ClassVar[FirstPart] = "end"

    merge_schema: bool = option("mergeSchema", boolean, default=True)
    """Whether the schema is inferred from all files of the sample, in the widest types; false takes
    the columns of the newest file alone, and others are new columns later."""
    datetime_rebase_mode: RebaseMode = option(
        "datetimeRebaseMode", choice(get_args(RebaseMode)), default="CORRECTED"
    )
    """What dates before 1582-10-15 and timestamps before 1900 are in files that do not name their
    calendar (Spark's own do): `CORRECTED` reads them as they are, `LEGACY` takes them for the
    hybrid calendar of Hive and Spark 2, `EXCEPTION` refuses the file."""
    int96_rebase_mode: RebaseMode = option(
        "int96RebaseMode", choice(get_args(RebaseMode)), default="CORRECTED"
    )
    """The same for timestamps stored as INT96."""
    max_record_bytes: int = option("maxRecordBytes", record_size, default=GIB, shown="1g")
    """The most bytes that a record may take in memory, with the pages that it is in; `1g` at most.
    Ours. Rows are read so many at a time that they take some 64 MB, or a single one."""

    def can_split(self) -> bool:
        """Tell whether large files may be read in parts: row groups are."""
        return True


_OWN_SCHEMA: Final = (
    "files are read by the schema that each of them holds, so that no field of theirs is passed "
    "over. Give the columns with .schema(...) or cloudFiles.schemaHints."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroOptions(FormatOptions):
    """The validated options of Avro."""

    HAS_TYPES: ClassVar[bool] = True
    SCHEMA_FROM: ClassVar[FirstPart] = "header"

    datetime_rebase_mode: RebaseMode = option(
        "datetimeRebaseMode", choice(get_args(RebaseMode)), default="CORRECTED"
    )
    """What dates before 1582-10-15 and timestamps before 1900 are in files that do not name their
    calendar (those of Spark 3 and later do): `CORRECTED` reads them as they are, `LEGACY` takes
    them for the hybrid calendar of Hive and Spark 2, `EXCEPTION` refuses the file."""
    merge_schema: bool = option("mergeSchema", boolean, default=True)
    """Whether the schema is inferred from all files of the sample; false takes the columns of the
    newest file alone, and others are new columns later. Types are never relaxed: where files
    disagree, the newest one's type is the column's (B12)."""
    stable_union_names: bool = option("enableStableIdentifiersForUnionType", boolean, default=False)
    """Whether the fields of a union of several types are named after these (`member_int`), rather
    than numbered (`member0`)."""
    stable_union_prefix: str = option(
        "stableIdentifierPrefixForUnionType", any_text, default="member_"
    )
    """What such names begin with."""
    max_record_bytes: int = option("maxRecordBytes", record_size, default=GIB, shown="1g")
    """The most bytes of a block, decompressed: files have their records in blocks, and each is read
    as a whole; `1g` at most. Ours. A record takes several times as much memory as bytes of a block,
    and up to two hundred times where it has nothing but short entries of maps."""

    REFUSED: ClassVar[tuple[RefusedOption, ...]] = (
        RefusedOption("avroSchema", _OWN_SCHEMA),
        RefusedOption("avroSchemaUrl", _OWN_SCHEMA),
        RefusedOption(
            "ignoreExtension", "files are chosen by pathGlobFilter, for instance *.avro."
        ),
        RefusedOption(
            "positionalFieldMatching",
            "fields find their columns by name. By position, a file with one more field would fill "
            "the wrong columns.",
        ),
        RefusedOption(
            "recursiveFieldMaxDepth",
            "what lies deeper than such a depth would be lost. A recursive type cannot be read; "
            "let the writer nest it to a fixed depth.",
        ),
    )

    def can_split(self) -> bool:
        """Tell whether large files may be read in parts: at the marks between their blocks."""
        return True
