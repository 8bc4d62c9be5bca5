"""Declare the columns that say what file a row came from.

`cloudFiles.metadataColumns` is written as the list of a SELECT over Spark's `_metadata`:
`_metadata`, `_metadata.file_path`, `file_path AS source_file`, `_metadata.*`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.options.values import ValueKind

NAME: Final = "cloudFiles.metadataColumns"
STRUCT: Final = "_metadata"
"""Spark's name for all fields together."""
FILE_PATH: Final = "file_path"
FIELDS: Final = (
    FILE_PATH,
    "file_name",
    "file_size",
    "file_block_start",
    "file_block_length",
    "file_modification_time",
)
"""The fields of `_metadata`, in Spark's order."""
SHEET_NAME: Final = "sheet_name"
"""Where files have sheets, the last field: the name of the sheet that a row came from. Ours."""
ARCHIVE_MEMBER: Final = "archive_member"
"""The path of the file in its archive that a row came from, NULL outside of archives. Ours, and no
field of the struct, which has the fields of Spark's."""

_ALL: Final = "*"
_ENTRY: Final = re.compile(
    r"""\s*(?:_metadata\s*\.\s*)?(?P<field>\w+|\*)
        (?:\s+AS\s+(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^\s,`]+)))?
        \s*(?:,|$)""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """A column that the reader fills with what it knows of the file.

    Attributes:
        name: Of the column.
        field: One of `FIELDS`, `SHEET_NAME`, `ARCHIVE_MEMBER`, or `STRUCT` for all of them.
        is_asked: Whether the field is named, rather than one of all there are.
        has_sheet: Whether `STRUCT` has the field `SHEET_NAME`.
    """

    name: str
    field: str
    is_asked: bool = True
    has_sheet: bool = False

    @property
    def path_field(self) -> tuple[str, ...]:
        """Where it has the URI of the file, as a path of names; empty where it has not."""
        if self.field == STRUCT:
            return self.name, FILE_PATH
        return (self.name,) if self.field == FILE_PATH else ()


def _read(name: str, text: str) -> tuple[MetadataColumn, ...]:
    columns = tuple(each for entry in _entries(name, text) for each in entry)
    seen: set[str] = set()
    for each in columns:
        if each.name.lower() in seen:
            raise OptionError(f"{name} makes two columns {each.name!r}. Rename one with AS.")
        seen.add(each.name.lower())
    return columns


metadata_columns: Final = ValueKind("columns", _read)


def of_files(columns: Sequence[MetadataColumn], *, have_sheets: bool) -> tuple[MetadataColumn, ...]:
    """List the columns for files that have sheets, or have none.

    Raises:
        OptionError: They have none, and a column is to name one.
    """
    if have_sheets:
        return tuple(replace(each, has_sheet=each.field == STRUCT) for each in columns)
    if any(each.field == SHEET_NAME and each.is_asked for each in columns):
        raise OptionError(
            f"{NAME} names {SHEET_NAME}, which only cloudFiles.format=excel has. Leave it out."
        )
    return tuple(each for each in columns if each.field != SHEET_NAME)


def metadata_option(columns: Sequence[str] | Mapping[str, str]) -> str:
    """Write the option for columns that are given as values of Python.

    Args:
        columns: Fields of `_metadata`, each perhaps with `AS` and a name; or a mapping from names
            of columns to fields.

    Raises:
        OptionError: A field that `_metadata` has not, or two columns of one name.
    """
    if isinstance(columns, str) or not all(isinstance(each, str) for each in columns):
        raise OptionError(
            "metadata_columns must be a list of fields of _metadata, or a mapping from columns to "
            f"fields, got {columns!r}."
        )
    if isinstance(columns, Mapping):
        pairs = columns.items()
        entries = [f"{field} AS `{name.replace('`', '``')}`" for name, field in pairs]
    else:
        entries = list(columns)
    text = ", ".join(entries)
    _read(NAME, text)
    return text


def _entries(name: str, text: str) -> Iterator[list[MetadataColumn]]:
    """Yield what each entry of the list asks for."""
    at = 0
    while at < len(text) and text.strip():
        found = _ENTRY.match(text, at)
        if found is None:
            raise OptionError(
                f"{name} must name fields of {STRUCT}, such as 'file_path, file_size AS bytes'; "
                f"cannot read {cut(text[at:])!r}."
            )
        quoted = found["quoted"]
        column = quoted.replace("``", "`") if quoted else found["plain"]
        yield _columns(name, found["field"], column)
        at = found.end()


def _columns(name: str, field: str, column: str | None) -> list[MetadataColumn]:
    if field == _ALL:
        if column is not None:
            raise OptionError(
                f"{name}: {STRUCT}.* is several columns and takes no AS. Name its fields."
            )
        return [MetadataColumn(each, each, is_asked=False) for each in (*FIELDS, SHEET_NAME)]
    known = field.lower()
    single = (*FIELDS, SHEET_NAME, ARCHIVE_MEMBER)
    if known not in {*single, STRUCT}:
        near = difflib.get_close_matches(known, single, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise OptionError(
            f"{name} names {cut(field)!r}, which is no field of {STRUCT}.{hint} It has "
            f"{', '.join(FIELDS)}."
        )
    return [MetadataColumn(column or known, known)]
