"""How is a file of lines cut into blocks?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.options.formats.json import JsonOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions


def line_blocks(
    file: OpenedFile, options: CloudFilesOptions, start: int = 0, end: int | None = None
) -> Iterator[bytes]:
    """Blocks of lines for a reader of blocks, cut as the options say."""
    own = options.format_options
    if not isinstance(own, JsonOptions):
        return file.blocks(start, end)
    separator = None if own.line_sep is None else own.line_sep.encode()
    most = own.max_record_bytes
    return file.blocks(start, end, encoding=own.encoding, separator=separator, most=most)
