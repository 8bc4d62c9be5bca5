"""What only Parquet files have: old calendars, INT96, types without a column, row groups."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import (
    BinaryType,
    DecimalType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import (
    FileChangedError,
    FileUnreadableError,
    OptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.formats.columnar.reader import BATCH_BYTES
from airflow_cloudfiles.engine.formats.parquet import file as parquet_file
from tests.support.formats.columnar_files import (
    MemoryFile,
    infer,
    options,
    parquet,
    reader,
    rows,
)

DAY_MICROS = 86_400_000_000
SPARK = b"org.apache.spark.version"
LEGACY = b"org.apache.spark.legacyDateTime"
ZONE = b"org.apache.spark.timeZone"


def only(file: MemoryFile, **more: str) -> list[dict[str, Any]]:
    """Rows of a file in its own schema, in mode rescue."""
    given = options(evolution="rescue", **more)
    return rows(file, infer([file], given), given)


# Types ------------------------------------------------------------------------------------


def test_types_beyond_spark_s_have_the_next_larger_one_or_are_rescued() -> None:
    table = pa.table(
        {
            "u8": pa.array([255], pa.uint8()),
            "u16": pa.array([65535], pa.uint16()),
            "u32": pa.array([2**32 - 1], pa.uint32()),
            "u64": pa.array([2**64 - 1], pa.uint64()),
            "half": pa.array([1.5], pa.float16()),
            "uuid": pa.array([b"0123456789abcdef"], pa.uuid()),
            "json": pa.array(['{"a": 1}'], pa.json_()),
            "word": pa.array(["x"]).dictionary_encode(),
            "span": pa.array([5], pa.duration("us")),
            "clock": pa.array([45_296_789], pa.time32("ms")),
            "long": pa.array([Decimal(10) ** 40], pa.decimal256(50, 2)),
            "short": pa.array([Decimal("-1.20")], pa.decimal32(7, 2)),
        }
    )
    file = parquet(table)
    found = {each.name: each.dataType for each in infer([file], options()).fields}
    assert found == {
        "u8": ShortType(),
        "u16": IntegerType(),
        "u32": LongType(),
        "u64": DecimalType(20, 0),
        "half": FloatType(),
        "uuid": BinaryType(),
        "json": StringType(),
        "word": StringType(),
        "span": LongType(),
        "short": DecimalType(7, 2),
    }
    (row,) = only(file)
    rescued = row.pop("_rescued_data")
    assert rescued == (
        '{"clock":"12:34:56.789","long":1' + "0" * 40 + '.00,"_file_path":"file:///landing/f"}'
    )
    assert row == {
        "u8": 255,
        "u16": 65535,
        "u32": 2**32 - 1,
        "u64": Decimal(2**64 - 1),
        "half": 1.5,
        "uuid": b"0123456789abcdef",
        "json": '{"a": 1}',
        "word": "x",
        "span": 5,
        "short": Decimal("-1.20"),
    }


def test_two_columns_of_one_name_are_one_and_the_other_is_rescued() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["x", "x", "X"])
    (row,) = only(parquet(table))
    assert row["x"] == 1
    assert row["_rescued_data"] == '{"X":3,"x":2,"_file_path":"file:///landing/f"}'


def test_a_column_without_a_name_is_rescued() -> None:
    (row,) = only(parquet(pa.table({"": [1], "a": [2]})))
    assert row == {"a": 2, "_rescued_data": '{"":1,"_file_path":"file:///landing/f"}'}


def test_timestamps_with_and_without_a_zone() -> None:
    table = pa.table(
        {
            "s": pa.array([1], pa.timestamp("ms", "Asia/Tokyo")),
            "local": pa.array([1], pa.timestamp("us")),
            "fine": pa.array([1001], pa.timestamp("ns")),
        }
    )
    file = parquet(table)
    assert infer([file], options()) == StructType(
        [
            StructField("s", TimestampType()),
            StructField("local", TimestampNTZType()),
            StructField("fine", TimestampNTZType()),
        ]
    )
    (row,) = only(file)
    assert row["fine"] is None
    assert json.loads(row["_rescued_data"])["fine"] == "1970-01-01T00:00:00.000001001"
    # A zone is not forgotten, but a time without one is taken for UTC, as everywhere here.
    columns = StructType(
        [StructField("s", TimestampNTZType()), StructField("local", TimestampType())]
    )
    (row,) = rows(file, columns)
    assert row["s"] is None
    assert str(row["local"]) == "1970-01-01 00:00:00.000001+00:00"


def test_int96_keeps_its_years_and_its_nanoseconds() -> None:
    years = pa.array([-62135596800 * 10**6, 253402300799 * 10**6 + 5], pa.timestamp("us"))
    found = only(parquet(pa.table({"t": years}), use_deprecated_int96_timestamps=True))
    assert [str(row["t"]) for row in found] == [
        "0001-01-01 00:00:00+00:00",
        "9999-12-31 23:59:59.000005+00:00",
    ]
    nanos = pa.table({"t": pa.array([1000, 1001, None], pa.timestamp("ns")), "l": [[1], [], None]})
    found = only(parquet(nanos, use_deprecated_int96_timestamps=True))
    assert [row["t"] is None for row in found] == [False, True, True]
    assert json.loads(found[1]["_rescued_data"])["t"] == "1970-01-01T00:00:00.000001001Z"
    assert found[2]["_rescued_data"] is None


# Calendars --------------------------------------------------------------------------------


def dated(days: list[int | None], metadata: dict[bytes, bytes] | None = None) -> MemoryFile:
    """A file with dates, the same nested, and the midnights that begin them."""
    dates = pa.array(days, pa.int32()).view(pa.date32())
    micros = [None if each is None else each * DAY_MICROS for each in days]
    stamps = pa.array(micros, pa.int64()).view(pa.timestamp("us", "UTC"))
    nested = pa.array([[{"d": each}] for each in dates.to_pylist()])
    return parquet(
        pa.table({"d": dates, "t": stamps, "l": nested}).replace_schema_metadata(metadata or {})
    )


@pytest.mark.parametrize(
    ("metadata", "more"),
    [
        ({SPARK: b"2.4.8"}, {}),
        ({SPARK: b"3.5.1", LEGACY: b"", ZONE: b"UTC"}, {}),
        ({}, {"datetimeRebaseMode": "LEGACY"}),
    ],
)
def test_dates_of_the_old_calendar_read_as_they_were_written(
    metadata: dict[bytes, bytes], more: dict[str, str]
) -> None:
    julian = [-141428, -354280]  # the days before 1582-10-15 and 1000-01-01 in the old calendar
    found = only(dated([*julian, None, 19753], metadata), **more)
    assert [str(row["d"]) for row in found] == ["1582-10-04", "1000-01-01", "None", "2024-01-31"]
    assert [str(row["t"])[:10] for row in found] == [str(row["d"]) for row in found]
    assert [row["l"][0]["d"] for row in found] == [row["d"] for row in found]


@pytest.mark.parametrize("metadata", [{}, {SPARK: b"3.5.1"}])
def test_dates_of_today_s_calendar_stay(metadata: dict[bytes, bytes]) -> None:
    days = [-141428, -354280, None]
    found = only(dated(days, metadata))
    assert [str(row["d"]) for row in found] == [
        str(each) for each in pa.array(days, pa.int32()).view(pa.date32()).to_pylist()
    ]


def test_dates_of_an_unknown_calendar_are_refused_if_asked() -> None:
    modern = dated([19753, None])
    assert len(only(modern, datetimeRebaseMode="EXCEPTION")) == 2
    with pytest.raises(FileUnreadableError, match="CORRECTED, or to LEGACY"):
        only(dated([-141428]), datetimeRebaseMode="EXCEPTION")


def test_old_timestamps_of_another_zone_are_refused() -> None:
    metadata = {SPARK: b"3.5.1", LEGACY: b"", ZONE: b"Europe/Paris"}
    assert len(only(dated([0, -20000], metadata))) == 2
    with pytest.raises(FileUnreadableError, match=r"time zone Europe/Paris.*for UTC only"):
        only(dated([-30000], metadata))


# Row groups -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_large_row_group_is_read_in_batches() -> None:
    table = pa.table({"t": [f"{number:>1000}" for number in range(60_000)]})
    file = parquet(table, compression="none", use_dictionary=False)
    made = reader(infer([file], options()), options())
    sizes = [batch.nbytes for batch in made.read_file(file)]
    assert len(sizes) > 2
    assert max(sizes) < 2 * BATCH_BYTES


def test_row_groups_too_large_to_fetch_at_once_are_read_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet_file, "_BUFFERED_BYTES", 1000)
    table = pa.table({"n": np.arange(50_000), "l": [[number] for number in range(50_000)]})
    found = only(parquet(table))
    assert [row["n"] for row in found] == [row["l"][0] for row in found] == list(range(50_000))


@pytest.mark.law
def test_a_large_value_that_many_rows_share_is_given_out_in_batches() -> None:
    values = pa.DictionaryArray.from_arrays(
        pa.array([row % 3 if row % 5 else None for row in range(2000)], pa.int32()),
        pa.array(["x" * 200_000, "y", "z" * 100_000]),
    )
    file = parquet(pa.table({"n": list(range(2000)), "s": values}))
    columns = infer([file], options())
    assert len(file.data) < 100_000
    batches = list(reader(columns, options()).read_file(file))
    assert max(batch.nbytes for batch in batches) < 2 * BATCH_BYTES
    table = pa.Table.from_batches(batches)
    assert table.column("n").to_pylist() == list(range(2000))
    assert table.column("s").combine_chunks() == values.cast(pa.string())


def test_only_the_columns_that_are_needed_are_fetched() -> None:
    table = pa.table({"wide": [np.random.default_rng(1).bytes(10**6)], "n": [1]})
    file = Counted(parquet(table).data)
    given = options(has_schema=True)
    columns = StructType([StructField("n", LongType())])
    assert [batch.to_pylist() for batch in reader(columns, given).read_file(file)] == [[{"n": 1}]]
    assert file.fetched < 200_000


def test_without_a_column_there_are_as_many_rows_as_a_column_has() -> None:
    file = parquet(pa.table({"other": ["x"] * 100_000, "l": [[1]] * 100_000}))
    given = options(has_schema=True)
    columns = StructType([StructField("n", LongType())])
    batches = list(reader(columns, given).read_file(file))
    assert sum(batch.num_rows for batch in batches) == 100_000
    assert max(batch.num_rows for batch in batches) <= 2**16
    # The footer says it of the file and of the row group: 100,000 in Thrift's zigzag.
    said, more = bytes.fromhex("c09a0c"), bytes.fromhex("c09a7f")
    foot = len(file.data) - 8 - int.from_bytes(file.data[-8:-4], "little")
    lying = file.data[:foot] + file.data[foot:].replace(said, more)
    with pytest.raises(FileUnreadableError):
        list(reader(columns, given).read_file(MemoryFile(lying)))


class Counted(MemoryFile):
    """A file that counts the bytes that are read of it."""

    fetched: int = 0

    def random_access(self) -> io.BytesIO:
        outer = self

        class Stream(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                found = super().read(size)
                object.__setattr__(outer, "fetched", outer.fetched + len(found))
                return found

        return Stream(self.data)


def test_what_fetching_raises_passes() -> None:
    class Changing(MemoryFile):
        def random_access(self) -> io.BytesIO:
            class Stream(io.BytesIO):
                def read(self, size: int | None = -1, /) -> bytes:
                    raise FileChangedError(f"changed at {size}")

            return Stream(self.data)

    with pytest.raises(FileChangedError):
        only(Changing(parquet(pa.table({"a": [1]})).data))


# Files that cannot be read ----------------------------------------------------------------


@pytest.mark.parametrize("codec", ["NONE", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_every_codec_of_the_library_is_read(codec: str) -> None:
    assert only(parquet(pa.table({"a": [7]}), compression=codec))[0]["a"] == 7


def test_another_codec_is_told() -> None:
    data = parquet(pa.table({"a": [7]}), compression="snappy").data
    snappy, lzo = b"\x15\x02\x16", b"\x15\x06\x16"  # of a column chunk, before its count of values
    assert data.count(snappy) == 1
    with pytest.raises(FileUnreadableError, match="LZO"):
        only(MemoryFile(data.replace(snappy, lzo)))


def test_an_encrypted_file_is_told() -> None:
    data = parquet(pa.table({"a": [7]})).data
    with pytest.raises(FileUnreadableError, match=r"(?i)encrypt"):
        only(MemoryFile(b"PARE" + data[4:-4] + b"PARE"))


def test_a_page_whose_checksum_is_wrong_is_told() -> None:
    table = pa.table({"t": ["aaa", "some text", "zzz"]})
    whole = parquet(table, compression="none", use_dictionary=False, write_page_checksum=True).data
    assert whole.count(b"some text") == 1
    with pytest.raises(FileUnreadableError, match=r"(?i)checksum|CRC"):
        only(MemoryFile(whole.replace(b"some text", b"some Text", 1)))


def test_a_footer_that_contradicts_itself_is_told() -> None:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("a", pa.int64())])) as writer:
        writer.write_table(pa.table({"a": list(range(100))}))
    data = bytearray(sink.getvalue())
    # The count of rows of the file, a varint in the footer, behind the schema.
    place = data.index(b"\x16\xc8\x01\x19", len(data) - 600)
    data[place + 1 : place + 3] = b"\xca\x01"
    with pytest.raises(FileUnreadableError, match="as many rows together as it says"):
        only(MemoryFile(bytes(data)))


def test_a_footer_without_a_count_of_rows_is_that_of_an_old_writer() -> None:
    data = bytearray(parquet(pa.table({"a": list(range(100))})).data)
    place = data.index(b"\x16\xc8\x01\x19", len(data) - 900)
    data[place + 1 : place + 3] = b"\x80\x00"  # a zero of two bytes
    assert pq.read_metadata(io.BytesIO(bytes(data))).num_rows == 0
    assert [row["a"] for row in only(MemoryFile(bytes(data)))] == list(range(100))


# Options ----------------------------------------------------------------------------------


def test_options_of_parquet() -> None:
    assert options(datetimeRebaseMode="legacy").format_options.datetime_rebase_mode == "LEGACY"
    with pytest.raises(OptionError, match="datetimeRebaseMode must be one of CORRECTED"):
        options(datetimeRebaseMode="wrong")
    for name in ("mode", "columnNameOfCorruptRecord", "badRecordsPath"):
        with pytest.raises(UnsupportedOptionError, match=name):
            options(**{name: "FAILFAST"})
    with pytest.raises(UnsupportedOptionError, match="int96RebaseMode is an option of format"):
        options("orc", int96RebaseMode="LEGACY")
