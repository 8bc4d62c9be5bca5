r"""Read the lines of text files.

One column, one row a line, or one row a file with `wholeText` (B14). The text is what is between
the line breaks, whatever it is: nothing is trimmed, and an empty line is an empty text.

Bytes that are no UTF-8 are written as `\xNN`, and such a line is counted as a corrupt record. With
a rescued data column it goes there, and the column is NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructType

from airflow_cloudfiles.engine.errors import FileUnreadableError, IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import (
    BadRecord,
    OpenedFile,
    ReadCounts,
    is_utf8,
    line_blocks,
    member,
    path_end,
    printable,
    with_line_breaks,
)
from airflow_cloudfiles.engine.formats.record_policy import batch_schema, make_batch
from airflow_cloudfiles.engine.types import short_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.registry import TextOptions

_CHUNK_BYTES: Final = 16 * 2**20


class TextReader:
    """Reads text files.

    Args:
        data_schema: At most one column, a string, under any name.
        options: Of the source.

    Attributes:
        arrow_schema: Of the batches: the column, then the rescued data column if any.
        counts: What was read so far.
        bad_records: Stays empty.

    Raises:
        IncompatibleSchemaError: The schema is another.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        if len(data_schema.fields) > 1 or not all(
            isinstance(field.dataType, StringType) for field in data_schema.fields
        ):
            raise IncompatibleSchemaError(
                f"Format text has one column, a string, not {short_type(data_schema)}. Give a "
                "schema such as `value STRING`, with partition columns besides if there are any."
            )
        self.arrow_schema = batch_schema(data_schema, options)
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []
        self._column = data_schema.names[0] if data_schema.fields else None
        self._rescues = options.rescued_data_column is not None
        self._options = cast("TextOptions", options.format_options)

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file, or the lines of it that begin in a range of bytes.

        Raises:
            FileUnreadableError: It is not in its encoding, or too large for one row.
        """
        for lines in self._lines(file, start, end):
            batch = self._batch(lines, file.uri)
            self.counts.rows += batch.num_rows
            yield batch

    def _lines(self, file: OpenedFile, start: int, end: int | None) -> Iterator[list[bytes]]:
        own = self._options
        if own.whole_text:
            yield [_whole(file, own)]
            return
        separator = None if own.line_sep is None else own.line_sep.encode()
        for block in line_blocks(file, own, start, end):
            yield _split(block, separator)

    def _batch(self, lines: list[bytes], uri: str) -> pa.RecordBatch:
        raw = pa.array(lines, pa.binary())
        rescued = pa.nulls(len(lines), pa.string())
        try:
            values = raw.cast(pa.string())
        except pa.ArrowInvalid:
            values, rescued = self._odd(lines, uri)
        arrays = [values] if self._column is not None else []
        if self._rescues:
            arrays.append(rescued)
        return make_batch(arrays, self.arrow_schema, len(lines))

    def _odd(self, lines: list[bytes], uri: str) -> tuple[pa.Array, pa.Array]:
        """Lines of which some are no UTF-8."""
        strings = list(map(printable, lines))
        odd = np.array([not is_utf8(line) for line in lines])
        self.counts.corrupt_records += int(np.count_nonzero(odd))
        self.counts.corrupt_by_file[uri] += int(np.count_nonzero(odd))
        values = pa.array(strings, pa.string())
        if not self._rescues or self._column is None:
            return values, pa.nulls(len(lines), pa.string())
        self.counts.rescued_rows += int(np.count_nonzero(odd))
        end = path_end(uri)
        rescued = [
            "{" + member(self._column, string) + end if is_odd else None
            for string, is_odd in zip(strings, odd.tolist(), strict=True)
        ]
        kept = pc.if_else(pa.array(odd), pa.scalar(None, pa.string()), values)
        return kept, pa.array(rescued, pa.string())


def _split(block: bytes, separator: bytes | None) -> list[bytes]:
    r"""Split a block into lines; by default each ends with `\n`, `\r\n` or `\r`, as in Spark."""
    if separator is None:
        block, separator = with_line_breaks(block), b"\n"
    lines = block.split(separator)
    if not lines[-1]:
        lines.pop()  # what ends with a separator has no line behind it
    return lines


def _whole(file: OpenedFile, own: TextOptions) -> bytes:
    parts = []
    size = 0
    with file.text_stream(own.encoding) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            parts.append(chunk)
            size += len(chunk)
            if size > own.max_record_bytes:
                raise FileUnreadableError(
                    f"{file.uri} has more than {own.max_record_bytes} bytes of text, the most that "
                    "one row can take (maxRecordBytes). Set wholeText=false to read it line by "
                    "line."
                )
    return b"".join(parts)
