"""Files in a cloud are registered with a request for the end of each, and one before the commit."""

from __future__ import annotations

import io
import threading
import uuid
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cloudfiles.engine.extensions.registration.register import footers
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.storage.flat_store import CloudStore
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableColumns
from tests.support.registered import REFERENCE, ingested

pytestmark = pytest.mark.emulator

FILES = 5


@pytest.fixture(params=["aws", "azurite", "gcs_xml"])
def root(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of a cloud, which the environment gives access to."""
    emulator = request.getfixturevalue(request.param)
    for name, value in to_environment(emulator.access).items():
        monkeypatch.setenv(name, value)
    found: str = emulator.container() if request.param == "azurite" else emulator.bucket()
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What stores are asked of Parquet files, from now on, and how many bytes."""
    found: Counter[str] = Counter()
    lock = threading.Lock()
    real, head = CloudStore.get_range, CloudStore.head

    def get_range(store: Any, key: str, start: int, length: int, **more: Any) -> bytes:
        if key.endswith(".parquet"):
            with lock:
                found.update(gets=1, bytes=length)
        return real(store, key, start, length, **more)

    def headed(store: Any, key: str, **more: Any) -> Any:
        if key.endswith(".parquet"):
            with lock:
                found["heads"] += 1
        return head(store, key, **more)

    monkeypatch.setattr(CloudStore, "get_range", get_range)
    monkeypatch.setattr(CloudStore, "head", headed)
    return found


def _put(uri: str, name: str, table: pa.Table) -> int:
    content = io.BytesIO()
    pq.write_table(table, content, use_dictionary=False, compression="none")
    open_store(uri).put(name, content.getvalue())
    return len(content.getvalue())


def _run(root: str) -> dict[str, Any]:
    report: dict[str, Any] = {"warnings": []}
    spec = JobSpec(
        kind="ingest",
        source=f"{root}/table/_landing",
        format="parquet",
        checkpoint_location=f"{root}/state",
        target=f"{root}/table",
        run_id=uuid.uuid4().hex,
        options=REFERENCE,
    )
    ingested(spec, report)
    return report


def test_the_end_of_each_file_is_asked_for_once(root: str, asked: Counter[str]) -> None:
    landing = f"{root}/table/_landing"
    _put(landing, "first.parquet", pa.table({"id": [1]}))
    assert _run(root)["registered_files"] == 1
    wide = pa.table({"id": pa.array(range(250_000), pa.int64())})
    names = [f"a b+ü/{number}.parquet" for number in range(FILES)]
    size = sum(_put(landing, name, wide) for name in names)
    asked.clear()
    assert _run(root)["registered_files"] == FILES
    assert (asked["gets"], asked["heads"]) == (FILES, FILES)
    assert asked["bytes"] <= size / 100
    snapshot = TableLog(DeltaLocation.of(f"{root}/table")).snapshot()
    assert len(snapshot.files) == FILES + 1
    reader = DataFileReader(TableColumns.of(snapshot))
    rows = sum(batch.num_rows for file in snapshot.files for batch in reader.read(file))
    assert rows == FILES * 250_000 + 1


def test_another_version_has_no_footer_here(root: str) -> None:
    landing = f"{root}/table/_landing"
    _put(landing, "a.parquet", pa.table({"id": [1]}))
    store = open_store(landing)
    [part] = [FileRange(entry) for entry in store.list()]
    [(_, footer)] = footers(store, [part])
    assert footer.num_rows == 1
    _put(landing, "a.parquet", pa.table({"id": [1, 2, 3]}))
    [(_, footer)] = footers(store, [part])
    assert isinstance(footer, str)
