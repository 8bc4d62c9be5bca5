r"""Read formats that have the same columns for every file.

The rows of such a format are about files rather than of them: a file as a whole (`binaryFile`), or
the sheets of a workbook (`listSheets`). A schema may leave columns out, and order them otherwise.

`binaryFile` has one row a file: where it is, when it was written, how long it is, and its bytes as
they are stored, never decompressed (B14).

`text` has one column, one row a line, or one row a file with `wholeText` (B14). The text is what is
between the line breaks, whatever it is: nothing is trimmed, and an empty line is an empty text.
Bytes that are no UTF-8 are written as `\xNN`, and such a line is counted as a corrupt record. With
a rescued data column it goes there, and the column is NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import FileUnreadableError, IncompatibleSchemaError
from airflow_cloudfiles.engine.files import RecordError
from airflow_cloudfiles.engine.formats.base import (
    OpenedFile,
    is_utf8,
    line_begin,
    line_blocks,
    member,
    path_end,
    printable,
    with_line_breaks,
)
from airflow_cloudfiles.engine.formats.record_policy import FormatReader, make_batch
from airflow_cloudfiles.engine.types import short_type, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.registry import TextOptions


BINARY_FILE: Final = StructType(
    [
        StructField("path", StringType()),
        StructField("modificationTime", TimestampType()),
        StructField("length", LongType()),
        StructField("content", BinaryType()),
    ]
)
"""As Spark's own source for `binaryFile` (B14)."""
SHEETS: Final = StructType(
    [StructField("sheetIndex", LongType()), StructField("sheetName", StringType())]
)
TEXT: Final = StructType([StructField("value", StringType())])
"""As Spark's own source for `text`; the column may have any name in a given schema."""


class FixedColumnsReader(FormatReader):
    """Makes rows of columns that are always the same.

    Args:
        data_schema: Some or all of the columns, in any order.
        options: Of the source.

    Attributes:
        arrow_schema: Of the batches: the columns, then the rescued data column if any (NULL).
        counts: What was read so far.
        bad_records: Stays empty.

    Raises:
        IncompatibleSchemaError: There is another column.
    """

    WHAT: ClassVar[str]
    """The format, as errors name it."""
    COLUMNS: ClassVar[StructType]

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        columns = {each.name: each.type for each in to_arrow(self.COLUMNS)}
        for field in to_arrow(data_schema):
            if columns.get(field.name) != field.type:
                names = ", ".join(
                    f"{each.name} {each.dataType.simpleString().upper()}"
                    for each in self.COLUMNS.fields
                )
                raise IncompatibleSchemaError(
                    f"{self.WHAT} has no column {field.name} of type {field.type}. Its columns "
                    f"are: {names}."
                )
        super().__init__(data_schema, options)

    def _row(self, values: dict[str, object]) -> pa.RecordBatch:
        """Build a batch of one row; columns without a value are NULL."""
        arrays = [pa.array([values.get(each.name)], each.type) for each in self.arrow_schema]
        self.counts.rows += 1
        return make_batch(arrays, self.arrow_schema, 1)


_MAX_CONTENT_BYTES: Final = 2**31 - 1
"""As Spark's `spark.sql.sources.binaryFile.maxLength`."""


class BinaryReader(FixedColumnsReader):
    """Reads files as they are, in some or all of the columns of `binaryFile`."""

    WHAT = "Format binaryFile"
    COLUMNS = BINARY_FILE

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file. It is a row of the part that it begins in.

        Raises:
            FileUnreadableError: It is larger than a row can take.
        """
        del end  # of the protocol
        if start:
            return
        found: dict[str, object] = {
            "path": file.uri,
            "modificationTime": file.entry.modification_time_us,
            "length": file.entry.size,
        }
        if "content" in self.arrow_schema.names:
            found["content"] = _content(file)
        yield self._row(found)


def _content(file: OpenedFile) -> bytes:
    if file.entry.size > _MAX_CONTENT_BYTES:
        raise FileUnreadableError(
            f"{file.uri} has {file.entry.size} bytes, more than the {_MAX_CONTENT_BYTES} that one "
            "row can take. Leave it out with pathGlobFilter, or give a schema without `content`."
        )
    with file.random_access() as stream:
        return stream.read()


_CHUNK_BYTES: Final = 16 * 2**20
_NOT_UTF8: Final = "bytes that are not UTF-8"


class TextReader(FormatReader):
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
        super().__init__(data_schema, options)
        self._column = data_schema.names[0] if data_schema.fields else None
        self._rescues = options.rescued_data_column is not None
        self._own = cast("TextOptions", options.format_options)

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file, or the lines of it that begin in a range of bytes.

        Raises:
            FileUnreadableError: It is not in its encoding, or too large for one row.
        """
        before: int | None = None if start else 0
        for lines, block in self._lines(file, start, end):
            batch, odd = self._batch(lines, file.uri)
            if odd is not None and self.first_error is None:
                self.first_error = self._error(odd, before, file, block)
            before = None if before is None else before + len(lines)
            self.counts.rows += batch.num_rows
            yield batch

    def _error(self, odd: int, before: int | None, file: OpenedFile, block: bytes) -> RecordError:
        """Say where in the file a line of a block is."""
        if before is not None:
            return RecordError(_NOT_UTF8, self._column or "", before + odd + 1)
        begin = line_begin(block, odd + 1, self._separator)
        return RecordError(_NOT_UTF8, self._column or "", byte=file.block_begin + begin)

    def _lines(
        self, file: OpenedFile, start: int, end: int | None
    ) -> Iterator[tuple[list[bytes], bytes]]:
        """Yield lines, and the block that they are."""
        own = self._own
        if own.whole_text:
            yield [_whole(file, own)], b""
            return
        for block in line_blocks(file, own, start, end):
            yield _split(block, self._separator), block

    @property
    def _separator(self) -> bytes | None:
        return None if self._own.line_sep is None else self._own.line_sep.encode()

    def _batch(self, lines: list[bytes], uri: str) -> tuple[pa.RecordBatch, int | None]:
        """Build the batch of lines, and find the first of them that is no UTF-8."""
        raw = pa.array(lines, pa.binary())
        rescued, first = pa.nulls(len(lines), pa.string()), None
        try:
            values = raw.cast(pa.string())
        except pa.ArrowInvalid:
            values, rescued, first = self._odd(lines, uri)
        arrays = [values] if self._column is not None else []
        if self._rescues:
            arrays.append(rescued)
        return make_batch(arrays, self.arrow_schema, len(lines)), first

    def _odd(self, lines: list[bytes], uri: str) -> tuple[pa.Array, pa.Array, int]:
        """Lines of which some are no UTF-8."""
        strings = list(map(printable, lines))
        odd = np.array([not is_utf8(line) for line in lines])
        self.counts.corrupt_records += int(np.count_nonzero(odd))
        self.counts.corrupt_by_file[uri] += int(np.count_nonzero(odd))
        values = pa.array(strings, pa.string())
        if not self._rescues or self._column is None:
            return values, pa.nulls(len(lines), pa.string()), int(odd.argmax())
        self.counts.rescued_rows += int(np.count_nonzero(odd))
        end = path_end(uri)
        rescued = [
            "{" + member(self._column, string) + end if is_odd else None
            for string, is_odd in zip(strings, odd.tolist(), strict=True)
        ]
        kept = pc.if_else(pa.array(odd), pa.scalar(None, pa.string()), values)
        return kept, pa.array(rescued, pa.string()), int(odd.argmax())


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
