"""A store that fails is no damaged file: `ignoreCorruptFiles` gives up no row for it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import FileUnreachableError, FileUnreadableError
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.formats.registry import fixed_schema
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading import opened
from airflow_cloudfiles.engine.reading.split_reader import SplitReader
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.unit.stream.test_every_format import OPTIONS, WRITERS

BLOCK = 2**13
RECORDS = [{"a": number, "b": f"{number**15:x}"} for number in range(6000)]
PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress}
TEXTS = ("json", "csv", "xml", "text")
CASES = [(name, end) for name in (*WRITERS, "text", "binaryFile") for end in PACKED]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ConnectionResetError("reset by peer"), FileUnreachableError),
        (OSError(5, "input/output error"), FileUnreachableError),
        (PermissionError(13, "permission denied"), FileUnreadableError),
    ],
)
@pytest.mark.parametrize(
    ("name", "end"), [case for case in CASES if not case[1] or case[0] in TEXTS]
)
def test_a_store_that_fails_in_the_middle_of_a_file_fails_the_task(
    monkeypatch: pytest.MonkeyPatch, name: str, end: str, error: OSError, raised: type[Exception]
) -> None:
    monkeypatch.setattr(opened, "BLOCK_BYTES", BLOCK)
    uri = f"memory://fails-{name}{end}"
    store = open_store(uri)
    store.put(f"f{end}", PACKED[end](WRITERS.get(name, WRITERS["json"])(RECORDS)))
    file = store.head(f"f{end}")
    assert file is not None
    assert file.size > 2**17, "more than what is read first"
    given = {"cloudFiles.format": name, "ignoreCorruptFiles": "true", **OPTIONS.get(name, {})}
    options = CloudFilesOptions.parse(given, path=uri)
    schema = fixed_schema(options) or parse_schema("a BIGINT, b STRING")
    context = BatchContext(
        source_uri=uri,
        source_name=uri,
        state_uri=uri,
        schema_uri=None,
        schema_version=-1,
        data_schema=schema.json(),
        partition_schema=json.dumps({"type": "struct", "fields": []}),
        start=START,
        end=START,
        options=options,
    )
    real = MemoryStore.get_range
    asked: list[int] = []

    def fails(self: MemoryStore, path: str, start: int, length: int, **more: Any) -> bytes:
        asked.append(start)
        if len(asked) > 1:
            raise error
        return real(self, path, start, length, **more)

    monkeypatch.setattr(MemoryStore, "get_range", fails)
    reader = SplitReader(Split(context, (FileRange(file),)))
    with pytest.raises(raised):
        list(reader.read())
    assert reader.counts.fetched.corrupt_files == 0
