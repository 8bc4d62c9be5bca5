"""Cut files of lines into blocks of bytes, and name the kinds of arrays that are made over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

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


Bools = np.ndarray[Any, np.dtype[np.bool_]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int8s = np.ndarray[Any, np.dtype[np.int8]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]
Positions = np.ndarray[Any, np.dtype[np.int64]]
"""Indices into another array, or into the bytes of a buffer."""


def is_utf8(text: bytes, begin: int = 0, end: int | None = None) -> bool:
    """Whether bytes are UTF-8. Arrow checks that in a fraction of the time of decoding them."""
    offsets = pa.py_buffer(np.array([begin, len(text) if end is None else end], np.int64))
    buffers = [None, offsets, pa.py_buffer(text)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def validity(valid: Bools) -> pa.Buffer:
    """An Arrow validity bitmap."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
