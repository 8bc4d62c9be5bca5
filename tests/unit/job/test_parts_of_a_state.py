"""A state of which a part is gone is refused by name or goes on; no row comes twice."""

from __future__ import annotations

import itertools
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder
from airflow_cloudfiles.engine.state.metadata import open_metadata
from airflow_cloudfiles.engine.state.run_history import encode_report
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.tables.target_table import TargetTable
from tests.support.iceberg_tables import LocalCatalog
from tests.support.ingested import Ingested
from tests.support.laws import some

PARTS = (
    "_source/metadata.json",
    "_source/files",
    "_source/plans",
    "_source/sink",
    "_source/batches",
    "_source/head.json",
    "_schemas",
    "_reports",
)
FILES = ["f0", "f1", "f2"]
SUBSETS = [
    each for size in range(1, len(PARTS) + 1) for each in itertools.combinations(PARTS, size)
]
WORST = [
    tuple(part for part in PARTS if part.startswith("_source")),  # `_source/` is gone
    PARTS,
    tuple(part for part in PARTS if part != "_schemas"),
    ("_source/files",),
    ("_source/plans",),
    ("_source/sink",),
]


def write_report(state: Path, batches: int) -> None:
    (state / "_reports").mkdir(exist_ok=True)
    report = {"kind": "ingest", "batches": batches, "outcome": "succeeded"}
    (state / f"_reports/{batches}.json").write_bytes(encode_report(report))


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    """A stream that has ingested some files, as its runs leave it."""
    found = Ingested(tmp_path)
    found.add(*FILES)
    found.run()
    write_report(found.state, len(FILES))
    return found


def remove(state: Path, part: str) -> None:
    path = state / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("has_index", [True, False], ids=["with its index", "without"])
@pytest.mark.parametrize(
    "gone",
    some(SUBSETS, 25, name="parts of a state", always=WORST),
    ids=lambda gone: " ".join(part.rpartition("/")[2] for part in gone),
)
def test_no_row_comes_twice_whatever_is_gone(
    stream: Ingested, gone: tuple[str, ...], has_index: bool
) -> None:
    for part in gone:
        remove(stream.state, part)
    if not has_index:
        shutil.rmtree(cache_folder())
    stream.add("new")
    refused = []
    for _ in range(2):
        try:
            stream.run()
        except CorruptedStateError as error:
            refused.append(error.message)
    assert all("estore" in message for message in refused)
    assert stream.rows() == (FILES if refused else [*FILES, "new"])


def test_a_state_of_which_nothing_is_left_is_known_by_its_table(stream: Ingested) -> None:
    shutil.rmtree(stream.state)
    for _ in range(2):
        with pytest.raises(CorruptedStateError, match=r"table has batch 2 of a stream with this"):
            stream.run()
    assert not stream.state.exists()
    stream.state = stream.state.with_name("another state")  # on purpose
    stream.run()
    assert stream.rows() == sorted(2 * FILES)


@pytest.mark.parametrize("is_query", [False, True])
def test_a_state_of_an_iceberg_table_is_known_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_query: bool
) -> None:
    stream = Ingested(tmp_path)
    with closing(LocalCatalog(tmp_path)) as lake:
        stream.iceberg = lake.uri("t")
        stream.add(*FILES)
        stream.run()
        shutil.rmtree(stream.state)
        if is_query:  # which asks nothing before it has rows
            monkeypatch.setattr(TargetTable, "check_before_run", lambda *_: None)
        with pytest.raises(CorruptedStateError, match=r"has batch 2 of a stream with this"):
            stream.run()
        assert len(lake.rows("t")) == len(FILES)


def test_a_new_state_starts_beside_what_comes_before_the_first_file(tmp_path: Path) -> None:
    stream = Ingested(tmp_path)
    stream.add(*FILES)
    stream.infer()
    for name in ("_source/run.lock", "_source/job.lock", "_runs/1.json"):
        (stream.state / name).parent.mkdir(parents=True, exist_ok=True)
        (stream.state / name).touch()
    write_report(stream.state, 0)  # of a run that failed
    stream.run()
    assert stream.rows() == FILES


@pytest.mark.parametrize("part", ["_source/plans/0", "_source/sink/0/0", "_reports/1.json"])
def test_parts_in_an_object_store_are_refused_likewise(part: str, tmp_path: Path) -> None:
    state = open_store(f"memory://{tmp_path.name}/state")
    assert isinstance(state, MemoryStore)
    state.put(part, encode_report({"kind": "ingest", "batches": 1}))
    with pytest.raises(CorruptedStateError, match=f"{part} is there"):
        open_metadata(state, "file:///in", "json")
    state.delete(part)
    assert open_metadata(state, "file:///in", "json").is_new
