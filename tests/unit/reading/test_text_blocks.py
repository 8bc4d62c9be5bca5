"""Text is handed out in small blocks, whatever a request asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.reading import split_reader
from airflow_cloudfiles.engine.reading.opened import BLOCK_BYTES, TEXT_BYTES, StoreFile
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from tests.support.landed import Stream

LINE = b'{"a": "' + b"x" * 500 + b'"}\n'
NONE = {"cloudFiles.schemaEvolutionMode": "none"}
CONTENT = LINE * ((BLOCK_BYTES + 3 * TEXT_BYTES) // len(LINE))


@pytest.fixture(params=["disk", "store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A store that holds one large file."""
    is_disk = request.param == "disk"
    found = open_store(str(tmp_path) if is_disk else f"memory://{tmp_path.name}")
    found.put("large.json", CONTENT)
    return found


@pytest.mark.parametrize("part", [(0, None), (len(LINE) // 2, len(CONTENT) - 1)])
def test_blocks_are_small_and_have_each_line_once(
    store: ObjectStore, part: tuple[int, int | None]
) -> None:
    entry = store.head("large.json")
    assert entry is not None
    before = store.requests["get"]
    blocks = list(StoreFile(store, entry).blocks(*part))
    first = len(LINE) if part[0] else 0
    assert b"".join(blocks) == CONTENT[first:]
    assert max(map(len, blocks)) <= TEXT_BYTES + len(LINE)
    asked = store.requests["get"] - before
    if store.uri.startswith("memory:"):
        # Each request to a store is worth its round trip: two, and what a part asks at its ends.
        assert asked <= 2 + (4 if part[0] else 0)
    else:
        assert asked >= len(CONTENT) // TEXT_BYTES


@pytest.mark.parametrize(("columns", "groups"), [(1, 4), (50, 2), (100, 1)])
def test_a_table_with_many_columns_is_parsed_in_larger_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, groups: int
) -> None:
    monkeypatch.setattr(split_reader, "SMALL_BATCH_BYTES", 0)
    names = [f"column_{number}" for number in range(100)]
    line = b"{" + b", ".join(b'"%s": "%s"' % (name.encode(), b"x" * 90) for name in names) + b"}\n"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "wide.json").write_bytes(line * (7 * TEXT_BYTES // 2 // len(line)))
    schema = StructType([StructField(name, StringType()) for name in names[:columns]])
    stream = Stream(tmp_path / "in", tmp_path / "state", "json", schema=schema, **NONE)
    (task,) = stream.tasks()
    batches = list(task.read())
    assert sum(batch.num_rows for batch in batches) == 7 * TEXT_BYTES // 2 // len(line)
    assert len(batches) == groups
