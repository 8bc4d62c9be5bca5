"""What does reading cost in requests, and what does a store that fails in between come to?"""

from __future__ import annotations

import io
import random

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine import inference as sampling
from airflow_cloudfiles.engine.errors import (
    FileChangedError,
    FileMissingError,
    FileUnreachableError,
)
from airflow_cloudfiles.engine.formats import content as columnar_content
from airflow_cloudfiles.engine.formats.base import FileReader, line_blocks
from airflow_cloudfiles.engine.formats.parquet import file as parquet_file
from airflow_cloudfiles.engine.formats.registry import fixed_schema, open_reader
from airflow_cloudfiles.engine.inference import Sample, learn_sample
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading import fetch as fetching
from airflow_cloudfiles.engine.reading import opened
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, fetch, fetched_ahead, first_range
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.storage import open_store

ROWS = 20_000
ODD_NAMES = ["a b.", "a+b%20.", "ä—☃#?.", "in/er."]


def table() -> pa.Table:
    numbers = random.Random(1)
    return pa.table(
        {f"c{each}": [numbers.getrandbits(60) for _ in range(ROWS)] for each in range(8)}
    )


def parquet(**given) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(), sink, **given)
    return sink.getvalue()


def orc_bytes(**given) -> bytes:
    sink = io.BytesIO()
    orc.write_table(table(), sink, **given)
    return sink.getvalue()


def avro() -> bytes:
    sink = io.BytesIO()
    fields = [{"name": f"c{each}", "type": "long"} for each in range(8)]
    fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, table().to_pylist())
    return sink.getvalue()


FILES = {
    "parquet": parquet(),
    "orc": orc_bytes(compression="zstd"),
    "avro": avro(),
    "csv": b"a,b\n" + b"1,2\n" * 100,
    "json": b'{"a": 1}\n' * 100,
    "xml": b"<rows>" + b"<row><a>1</a></row>" * 100 + b"</rows>",
    "text": b"line\n" * 100,
    "binaryFile": bytes(1000),
}


@pytest.fixture(params=["memory", "s3", "azure", "gcs"])
def store(request, tmp_path):
    """A new folder in memory and in each cloud."""
    if request.param == "memory":
        return open_store(f"memory://{tmp_path.name}/in")
    emulator = request.getfixturevalue(
        {"s3": "aws", "azure": "azurite", "gcs": "gcs"}[request.param]
    )
    root = emulator.container() if request.param == "azure" else emulator.bucket()
    return open_store(f"{root}/in", emulator.access)


def source(name: str) -> CloudFilesOptions:
    own = {"rowTag": "row"} if name == "xml" else {}
    return CloudFilesOptions.parse({"cloudFiles.format": name, **own}, path="/landing")


def inferred(store, name, counts=None):
    options = source(name)
    fixed = fixed_schema(options)
    return fixed or learn_sample(
        Sample(store, list(store.list()), options), counts or FetchCounts()
    )


def read(store, name, schema, parts, **given) -> int:
    """Read files as a task does; says how many rows they have."""
    options = source(name)
    reader = open_reader(schema, options)
    range_of = first_range(options)

    def use(part):
        def rows(file):
            if isinstance(reader, FileReader):
                return (each.num_rows for each in reader.read_file(file, part.start, part.end))
            return (each.count(b"\n") for each in line_blocks(file, options.format_options))

        return rows

    given = {"ignore_missing": False, "counts": FetchCounts(), **given}
    return sum(
        rows
        for part, first in fetched_ahead(store, parts, range_of)
        for rows in fetch(store, part, use=use(part), first=first, range_of=range_of, **given)
    )


def whole(store) -> list[FileRange]:
    return [FileRange(file) for file in store.list()]


@pytest.mark.parametrize("name", FILES)
def test_a_small_file_of_any_format_costs_one_request(store, name):
    in_cloud = not store.uri.startswith("memory:")  # which takes keys as a disk does
    for odd in [*ODD_NAMES, *["a//b."] * in_cloud]:
        store.put(f"{odd}{name}", FILES[name])
    parts = whole(store)
    before = store.requests
    schema = inferred(store, name)
    looked = store.requests - before
    assert looked["get"] == (0 if fixed_schema(source(name)) else len(parts))
    assert looked["head"] == 0
    before = store.requests
    rows = read(store, name, schema, parts)
    assert store.requests - before == {"get": len(parts)}
    expected = {"parquet": ROWS, "orc": ROWS, "avro": ROWS, "binaryFile": 1}
    assert rows == len(parts) * expected.get(name, 100)


@pytest.mark.parametrize("name", ["csv", "json"])
def test_a_large_sample_is_not_fetched_whole(store, name, monkeypatch):
    block, files = 2**12, 20
    monkeypatch.setattr(opened, "BLOCK_BYTES", block)
    monkeypatch.setattr(sampling, "TEXT_BYTES", block // 2)
    monkeypatch.setattr(sampling, "QUIET_BYTES", 3 * block)
    monkeypatch.setattr(fetching, "AHEAD_BYTES", 2 * block)  # asked for before that is known
    for number in range(files):
        store.put(f"{number}.{name}", FILES[name] * 100)
    asked = watched(store, monkeypatch)
    given = {"cloudFiles.format": name, "cloudFiles.inferColumnTypes": "true"}
    options = CloudFilesOptions.parse(given, path="/landing")
    counts = FetchCounts()
    learn_sample(Sample(store, list(store.list()), options), counts)
    assert counts.files == files, "every file is looked at"
    assert len(asked) <= files + 4
    assert asked[-10:] == [block // 2] * 10


def test_the_path_of_a_binary_file_is_its_uri(store):
    names = [f"{odd}bin" for odd in ODD_NAMES]
    for name in names:
        store.put(name, name.encode())
    options = source("binaryFile")
    reader = open_reader(fixed_schema(options), options)
    found = [
        row
        for part in whole(store)
        for batch in fetch(store, part, FetchCounts(), reader.read_file, ignore_missing=False)
        for row in batch.to_pylist()
    ]
    assert {row["path"]: row["content"].decode() for row in found} == {
        f"{store.uri}/{name}": name for name in names
    }


@pytest.mark.parametrize("name", ["parquet", "orc", "avro", "binaryFile"])
@pytest.mark.parametrize("is_small", [True, False])
def test_what_changed_since_it_was_discovered_is_read_as_it_is_now(
    name, is_small, monkeypatch, tmp_path
):
    if not is_small:
        monkeypatch.setattr(opened, "BLOCK_BYTES", len(FILES[name]) // 3)
    store = open_store(f"memory://{tmp_path.name}")
    store.put("a", FILES[name])
    schema, parts = inferred(store, name), whole(store)
    store.put("a", FILES[name] if name != "binaryFile" else bytes(3000))
    counts = FetchCounts()
    assert read(store, name, schema, parts, counts=counts) == (1 if name == "binaryFile" else ROWS)
    assert counts.changed_files == 1
    store.put("a", FILES[name])
    assert inferred(store, name) == schema


@pytest.mark.parametrize("name", ["parquet", "orc", "avro"])
def test_a_schema_at_one_end_of_a_file_costs_one_small_request(name, monkeypatch, tmp_path):
    store = open_store(f"memory://{tmp_path.name}")
    store.put(f"a.{name}", FILES[name])
    asked = watched(store, monkeypatch)
    assert len(inferred(store, name).fields) == 8
    assert asked == [fetching.END_BYTES]


@pytest.mark.parametrize(
    ("name", "most"), [("parquet", 4), ("orc", 5), ("avro", 5), ("binaryFile", 4)]
)
def test_large_files_cost_few_requests_and_nothing_twice(name, most, monkeypatch, tmp_path):
    content = FILES[name] if name != "binaryFile" else bytes(600_000)
    size = len(content)
    monkeypatch.setattr(opened, "BLOCK_BYTES", size // 3)
    monkeypatch.setattr(columnar_content, "BLOCK_BYTES", size // 3)
    store = open_store(f"memory://{tmp_path.name}")
    store.put(f"a.{name}", content)
    schema = inferred(store, name)
    asked = watched(store, monkeypatch)
    rows = read(store, name, schema, whole(store))
    assert rows == (1 if name == "binaryFile" else ROWS)
    assert len(asked) <= 5
    assert sum(asked) <= size + fetching.END_BYTES
    assert store.requests["head"] == 0


def test_a_row_group_too_large_for_memory_is_fetched_in_large_pieces(monkeypatch, tmp_path):
    content = FILES["parquet"]
    piece = len(content) // 16  # half of what the row group has of a column
    monkeypatch.setattr(parquet_file, "_LEAST_PIECE", 2**10)
    monkeypatch.setattr(parquet_file, "_BUFFERED_BYTES", 8 * piece)
    monkeypatch.setattr(opened, "BLOCK_BYTES", len(content) - 1)
    store = open_store(f"memory://{tmp_path.name}")
    store.put("a.parquet", content)
    schema = inferred(store, "parquet")
    asked = watched(store, monkeypatch)
    assert read(store, "parquet", schema, whole(store)) == ROWS
    assert len(asked) <= 1 + 8 * 3
    assert max(asked[1:]) < 2 * piece


def test_small_stripes_share_what_is_fetched(monkeypatch, tmp_path):
    content = orc_bytes(stripe_size=2**16, compression="uncompressed")
    monkeypatch.setattr(opened, "BLOCK_BYTES", len(content) // 3)
    monkeypatch.setattr(columnar_content, "BLOCK_BYTES", len(content) // 4)
    assert orc.ORCFile(io.BytesIO(content)).nstripes > 5
    store = open_store(f"memory://{tmp_path.name}")
    store.put("a.orc", content)
    schema = inferred(store, "orc")
    asked = watched(store, monkeypatch)
    assert read(store, "orc", schema, whole(store)) == ROWS
    assert len(asked) <= 8
    assert sum(asked) < 1.2 * len(content)


@pytest.mark.parametrize("name", ["parquet", "orc", "avro", "binaryFile"])
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (ConnectionError("reset"), FileUnreachableError),
        (TimeoutError("slow"), FileUnreachableError),
        ("gone", FileMissingError),
        ("overwritten", FileChangedError),
    ],
)
def test_a_store_that_fails_in_between_is_no_damaged_file(
    name, failure, error, monkeypatch, tmp_path
):  # it would be given up for good with ignoreCorruptFiles
    content = FILES[name] if name != "binaryFile" else bytes(600_000)
    monkeypatch.setattr(opened, "BLOCK_BYTES", len(content) // 4)
    store = open_store(f"memory://{tmp_path.name}")
    store.put("a", content)
    schema = inferred(store, name)
    parts = whole(store)
    read_range, asked = store.get_range, []

    def failing(key, start, length, *, etag=None):
        asked.append(length)
        if len(asked) > 1 and isinstance(failure, Exception):
            raise failure
        if len(asked) > 1 and failure == "gone":
            store.delete("a")
        elif len(asked) > 1:
            store.put("a", content)
        return read_range(key, start, length, etag=etag)

    monkeypatch.setattr(store, "get_range", failing)
    with pytest.raises(error, match="/a "):
        read(store, name, schema, parts, ignore_corrupt=True)


def watched(store, monkeypatch) -> list[int]:
    """The lengths of what is asked of a store from now on."""
    asked: list[int] = []
    read_range = store.get_range

    def watching(key, start, length, *, etag=None):
        asked.append(length)
        return read_range(key, start, length, etag=etag)

    monkeypatch.setattr(store, "get_range", watching)
    return asked


@pytest.mark.parametrize("name", ["json", "parquet", "avro", "binaryFile"])
def test_an_empty_file_is_no_bad_request(store, name):
    store.put("a", b"")
    schema = fixed_schema(source(name)) or StructType([StructField("a", StringType())])
    assert read(store, name, schema, whole(store)) == (name == "binaryFile")
    if name != "binaryFile":
        assert not inferred(store, name).fields
