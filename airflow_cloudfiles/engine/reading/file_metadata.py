"""What does the reader know of the file that a row came from?

The values of Spark's `_metadata`, for the version of the file that was read, which is not always
the one that was discovered. They differ from Spark's in two things: a path has the scheme under
which the stream knows its source (`s3`, where Spark may say `s3a`), and times have
the microseconds that the store has.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from airflow_cloudfiles.engine.options.metadata_columns import SHEET_NAME, STRUCT
from airflow_cloudfiles.engine.schema.source_columns import FIELDS, SHEET_FIELDS
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_cloudfiles.engine.options.metadata_columns import MetadataColumn
    from airflow_cloudfiles.engine.reading.splits import FileRange

_FIELDS: Final = to_arrow(FIELDS)
_SHEET_FIELDS: Final = to_arrow(SHEET_FIELDS)
_QUOTED: Final = re.compile(
    # What `java.net.URI` quotes in a path: all of ASCII that no path may have, control characters,
    # and spaces of any kind; here also bytes that are no UTF-8.
    "[^A-Za-z0-9\\-_.!~*'():@&=+$,;/\u00a1-\U0010ffff]"
    "|[\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ud800-\udfff]"
)


def metadata_arrays(
    columns: Sequence[MetadataColumn],
    source_uri: str,
    part: FileRange,
    rows: int,
    sheet: str | None = None,
) -> dict[str, pa.Array]:
    """Make the columns of rows of one part of a file.

    Args:
        columns: Which, and of which names.
        source_uri: What the path of the file is relative to.
        part: The part, of the version that was read.
        rows: How many rows.
        sheet: The sheet that they are from, where files have sheets.
    """
    values = {**metadata_values(source_uri, part), SHEET_NAME: sheet}
    wanted = {each.field for each in columns}
    arrays = {
        field.name: pa.repeat(pa.scalar(values[field.name], field.type), rows)
        for field in _SHEET_FIELDS
        if STRUCT in wanted or field.name in wanted
    }
    found = {}
    for each in columns:
        if each.field == STRUCT:
            fields = list(_SHEET_FIELDS if each.has_sheet else _FIELDS)
            found[each.name] = pa.StructArray.from_arrays(
                [arrays[field.name] for field in fields], fields=fields
            )
        else:
            found[each.name] = arrays[each.field]
    return found


def metadata_values(source_uri: str, part: FileRange) -> Mapping[str, str | int]:
    """The values for one part of a file; the time in microseconds since 1970."""
    path = file_path(source_uri, part.file.path)
    return {
        "file_path": path,
        "file_name": path.rpartition("/")[2],
        "file_size": part.file.size,
        "file_block_start": part.start,
        "file_block_length": part.size,
        "file_modification_time": part.file.modification_time_us,
    }


def file_path(source_uri: str, path: str) -> str:
    """The URI of a file as Spark's file sources write it."""
    scheme, _, rest = source_uri.partition("://")
    authority, _, folder = rest.partition("/")
    below = f"{folder.rstrip('/')}/{path}" if folder else path
    place = f"{scheme}://{authority}" if authority else f"{scheme}:"
    return f"{place}/{_QUOTED.sub(_quoted, below)}"


def _quoted(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogateescape"))
