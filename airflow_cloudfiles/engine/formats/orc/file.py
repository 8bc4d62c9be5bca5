"""Read an ORC file.

Opens a file, tells its types as Spark's reader sees them, and gives its stripes one by one. A
stripe is read whole, as ORC's library does; writers keep stripes at some 64 MB. The library reads
its columns by turns, a little of each, so its bytes are held until it is read. ORC has no
checksums: a flipped bit can go unnoticed, and one damaged file in a thousand makes the library end
the process.

ORC files become batches stripe by stripe.

Their columns are those that their footers name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyarrow import orc

from airflow_cloudfiles.engine.formats.columnar.content import Blocks
from airflow_cloudfiles.engine.formats.columnar.reader import (
    BATCH_BYTES,
    Chunk,
    ColumnarFile,
    ColumnarInference,
    ColumnarReader,
    names_of,
)
from airflow_cloudfiles.engine.formats.columnar.types import leaf_types
from airflow_cloudfiles.engine.formats.orc.writer import (
    OrcWriter,
    rows_of_stripes,
    unscaled_decimals,
)
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.values import GIB

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.formats.columnar import OrcOptions

_FEWEST_ROWS: Final = 64
_MOST_ROWS: Final = 2**16
_VALUE_BYTES: Final = 8
_MOST_TIMES: Final = 1000
_SPARK_TYPE: Final = b"spark.sql.catalyst.type"
"""The attribute in which Spark keeps its own type of a column."""
_VERSIONS: Final = {"0.11", "0.12", "1.9999"}
"""The versions that Spark's reader takes, too; the last is that of files before ORC 2."""
_UNSCALED: Final = pa.decimal128(38, 6)
"""What the library makes of a decimal without a precision."""


class OrcFile:
    """An open ORC file.

    Args:
        content: The file, seekable; its owner closes it.
        limit: A stripe of more bytes in memory is refused if the file has less than a thousandth
            of them.

    Raises:
        pyarrow.ArrowException, OSError: It is no ORC file, or cannot be read.
    """

    def __init__(self, content: IO[bytes], limit: int = GIB) -> None:
        self._limit = limit
        self._content = Blocks(content)
        self._file = orc.ORCFile(self._content)
        if self._file.file_version not in _VERSIONS:
            raise OSError(
                f"it was written in version {self._file.file_version} of the format, which is "
                "later than the newest known here"
            )
        self._found = self._file.schema
        tail = self._file.reader.serialized_file_tail()
        self._writer = OrcWriter(tail, content)
        leaves = (leaf for field in self._found for leaf in leaf_types(field.type))
        self._unscaled = unscaled_decimals(tail) if _UNSCALED in leaves else {}
        self.schema: pa.Schema = pa.schema(
            [field.with_type(_corrected(field)) for field in self._found]
        )

    def check_exact(self, columns: Iterable[int] | None = None) -> None:
        """Refuse columns whose values the library would cut; of all columns, unless some are named.

        Raises:
            OSError: One is, or holds, a decimal without a precision, as Hive 0.11 wrote it.
        """
        wanted = self._unscaled if columns is None else self._unscaled.keys() & set(columns)
        for column in sorted(wanted):
            raise OSError(
                f"its column {self._unscaled[column]} is a decimal without a precision, as Hive "
                "0.11 wrote it, of which only six digits after the point would be read. Write it "
                "anew with a later Hive or with Spark, which read it as decimal(38,10)"
            )

    def _check_size(self, parts: list[int], columns: list[int]) -> None:
        """Refuse a stripe whose rows take too much without what their strings and lists take."""
        width = sum(
            len(list(leaf_types(self._found.field(column).type))) * _VALUE_BYTES
            for column in columns
        )
        most = max(self._limit, _MOST_TIMES * self._file.file_length)
        rows = rows_of_stripes(self._file.reader.serialized_file_tail())
        if len(rows) != self._file.nstripes:
            raise OSError("its footer does not name the stripes that it has")
        for part in parts:
            if rows[part] * width > most:
                raise OSError(
                    f"stripe {part} of it takes {rows[part] * width} bytes in memory or more, and "
                    f"{self._limit} are the most that is read of so small a file (maxRecordBytes)"
                )

    def parts(self, start: int, end: int | None) -> list[int]:
        """List the stripes of a range of bytes.

        The library does not tell where stripes begin. They are taken to be of equal size, which
        gives each of them to one range, as the true places would.
        """
        stripes = self._file.nstripes
        size = self._file.file_length
        places = ((number, number * size // stripes) for number in range(stripes))
        return [number for number, at in places if start <= at and (end is None or at < end)]

    def chunks(self, parts: list[int], columns: list[int]) -> Iterator[Chunk]:
        """Yield the rows of some stripes, in order.

        Raises:
            OSError: As of `check_exact`, for these columns.
        """
        self.check_exact(columns)
        if not len(self.schema):
            if 0 in parts:
                for begin in range(0, self._file.nrows, _MOST_ROWS):
                    yield Chunk(min(_MOST_ROWS, self._file.nrows - begin), [])
            return
        # Without any column the library does not tell how many rows a stripe has.
        wanted = columns or [0]
        names = names_of(self._found, wanted)
        self._check_size(parts, wanted if names else list(range(len(self._found))))
        places = wanted if names is None else range(len(wanted))
        total = 0
        for part in parts:
            with self._content.holding():
                batch = self._file.read_stripe(part, columns=names)
            batch.validate()
            total += batch.num_rows
            rows = max(_FEWEST_ROWS, BATCH_BYTES * batch.num_rows // max(1, batch.nbytes))
            for begin in range(0, batch.num_rows, rows):
                piece = batch.slice(begin, rows)
                found = [
                    self._corrected_array(piece.column(place), column, part)
                    for place, column in zip(places, wanted, strict=True)
                ]
                yield Chunk(piece.num_rows, found if columns else [])
        if len(parts) == self._file.nstripes and total != self._file.nrows:
            raise OSError(f"it has {counted(total, 'row')}, not {self._file.nrows} as it says")

    def _corrected_array(self, array: pa.Array, column: int, part: int) -> pa.Array:
        """Give the array the type that `schema` tells, in today's calendar."""
        kind = self.schema.field(column).type
        if any(map(pa.types.is_temporal, leaf_types(kind))):
            array = self._writer.corrected(array, part)
        return array if kind == self._found.field(column).type else array.view(kind)


def _corrected(field: pa.Field) -> pa.DataType:
    """Correct an Arrow type to how Spark sees the ORC type it was made from.

    ORC's plain timestamp is Spark's timestamp, taken for UTC as every time without a zone; Spark
    writes its timestamps without a zone as numbers of microseconds, and says so in an attribute.
    """
    kind = field.type
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_corrected(each)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_corrected(kind.key_field)),
            kind.item_field.with_type(_corrected(kind.item_field)),
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_corrected(kind.value_field)))
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC")
    if kind == pa.int64() and (field.metadata or {}).get(_SPARK_TYPE) == b"timestamp_ntz":
        return pa.timestamp("us")
    return kind


class OrcReader(ColumnarReader):
    """Reads ORC files with one schema; see `ColumnarReader`."""

    format = "ORC"

    def open(self, content: IO[bytes]) -> ColumnarFile:
        """Read the footer of a file."""
        return OrcFile(content, cast("OrcOptions", self._options.format_options).max_record_bytes)


class OrcInference(ColumnarInference):
    """Learns the schema of ORC files from their footers; see `ColumnarInference`."""

    format = "ORC"

    def open(self, content: IO[bytes]) -> ColumnarFile:
        """Read the footer of a file; refuse one with a column that could not be read exactly."""
        file = OrcFile(content)
        file.check_exact()
        return file
