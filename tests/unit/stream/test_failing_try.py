"""How much of a large file does a try read that fails because of a new field?"""

from __future__ import annotations

import io
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc
from pyarrow import parquet as pq

from airflow_cloudfiles.engine.errors import UnknownFieldException
from airflow_cloudfiles.engine.formats import content
from airflow_cloudfiles.engine.formats.avro import file as avro_file
from airflow_cloudfiles.engine.formats.avro import reader
from airflow_cloudfiles.engine.formats.excel import xlsx
from airflow_cloudfiles.engine.formats.xml import rows as xml_rows
from airflow_cloudfiles.engine.reading import fetch, opened, split_reader
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.landed import Stream
from tests.unit.stream.test_every_format import OPTIONS, WRITERS, Records

ROWS = 20_000
BLOCK_BYTES = 2**16
"""Of what is read at once: so that a file of a few megabytes has many."""


def _parquet(records: Records) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), sink, row_group_size=1000, compression="none")
    return sink.getvalue()


def _orc(records: Records) -> bytes:
    sink = io.BytesIO()
    with orc.ORCWriter(sink, stripe_size=BLOCK_BYTES, batch_size=100) as writer:
        for begin in range(0, len(records), 1000):
            writer.write(pa.Table.from_pylist(records[begin : begin + 1000]))
    return sink.getvalue()


def _avro(records: Records) -> bytes:
    fields = [{"name": name, "type": ["null", "string"]} for name in records[0]]
    sink = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(sink, schema, records, sync_interval=BLOCK_BYTES)
    return sink.getvalue()


LARGE: dict[str, Callable[[Records], bytes]] = {
    **WRITERS,
    "parquet": _parquet,
    "orc": _orc,
    "avro": _avro,
}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each request for data has given; blocks are small."""
    sizes: list[int] = []
    get_range = MemoryStore.get_range

    def counted(self: MemoryStore, key: str, start: int, length: int, **others: Any) -> bytes:
        found = get_range(self, key, start, length, **others)
        if key == "big":
            sizes.append(len(found))
        return found

    monkeypatch.setattr(MemoryStore, "get_range", counted)
    for module, name in (
        (opened, "BLOCK_BYTES"),
        (xlsx, "PIECE_BYTES"),
        (xlsx, "REQUEST_BYTES"),
        (split_reader, "BLOCK_BYTES"),
        (fetch, "END_BYTES"),
        (xml_rows, "CHUNK_BYTES"),
        (content, "BLOCK_BYTES"),
        (avro_file, "_CHUNK_BYTES"),
        (reader, "_BATCH_BYTES"),
    ):
        monkeypatch.setattr(module, name, BLOCK_BYTES)
    return sizes


@pytest.fixture(params=LARGE)
def landed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Stream, int]:
    """A stream whose next file is large and has a new field, and the size of that file."""
    name, generator = request.param, random.Random(7)
    store = open_store(f"memory://{uuid.uuid4()}")
    store.put("small", LARGE[name]([{"a": "x", "b": "y"}]))
    stream = Stream(store.uri, tmp_path, name, **OPTIONS.get(name, {}))  # type: ignore[arg-type]
    assert len(stream.run()) == 1
    records = [{"a": str(n), "b": generator.randbytes(60).hex(), "c": "z"} for n in range(ROWS)]
    big = LARGE[name](records)
    store.put("big", big)
    return stream, len(big)


def _more_places(stream: Stream) -> int:
    """How many blocks more a format needs: a workbook has texts, cells and a list of its parts."""
    return 7 if stream.options.format == "excel" else 0


def test_reading_ends_at_a_new_field_long_before_the_file_does(
    landed: tuple[Stream, int], fetched: list[int]
) -> None:
    """In this mode nobody looks for what else is new."""
    stream, size = landed
    stream.given["cloudFiles.schemaEvolutionMode"] = "failOnNewColumns"
    [task] = stream.tasks()
    with pytest.raises(UnknownFieldException) as caught:
        list(task.read())
    assert list(caught.value.fields) == ["c"]
    assert size > 25 * BLOCK_BYTES
    assert 0 < sum(fetched) <= (6 + _more_places(stream)) * BLOCK_BYTES


def test_the_whole_try_reads_a_file_once_more_where_only_rows_tell_their_fields(
    landed: tuple[Stream, int], fetched: list[int]
) -> None:
    """What else is new, only the rows of JSON and XML tell; other files tell it in one place."""
    stream, size = landed
    [task] = stream.tasks()
    with pytest.raises(UnknownFieldException):
        list(task.read())
    again = size if stream.options.format in {"json", "xml"} else 0
    assert again < sum(fetched) <= again + (8 + _more_places(stream)) * BLOCK_BYTES
    assert len(stream.run()) == ROWS
