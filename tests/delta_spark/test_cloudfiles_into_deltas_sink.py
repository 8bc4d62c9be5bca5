"""`cloudFiles` feeds Delta's own sink, in a session in which `delta` is Delta's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.delta_spark.test_delta_reads_what_we_write import same
from tests.support import delta_ingest
from tests.support.delta_spark import DeltaError, DeltaSpark
from tests.support.delta_tables import read

pytestmark = pytest.mark.spark


@dataclass
class Pipeline:
    """Files land in a folder and go into a table of Delta's own."""

    delta: DeltaSpark
    root: Path

    @property
    def target(self) -> Path:
        return self.root / "table"

    @property
    def places(self) -> dict[str, str]:
        return {"landing": str(self.root / "landing"), "state": str(self.root / "state")}

    def land(self, name: str, *rows: dict[str, Any]) -> None:
        folder = self.root / "landing"
        folder.mkdir(exist_ok=True)
        hidden = folder / f"_{name}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(folder / f"{name}.json")

    def ingest(self, sink: str = "delta") -> None:
        target = str(self.target)
        self.delta.call(delta_ingest.ingest, **self.places, target=target, sink=sink)

    def ids(self) -> list[str]:
        """The values of `id`, of rows that both read alike."""
        same(read(self.target), self.delta.table(self.target))
        return sorted(read(self.target).column("id").to_pylist())


@pytest.fixture
def pipeline(delta: DeltaSpark, tmp_path: Path) -> Pipeline:
    """The pipeline of a test."""
    return Pipeline(delta, tmp_path)


def test_restarts_read_each_file_once(pipeline: Pipeline) -> None:
    for number in range(3):
        pipeline.land(str(number), {"id": number}, {"id": number + 10})
        for _ in range(2):
            pipeline.ingest()
        assert len(pipeline.ids()) == 2 * (number + 1)
    assert pipeline.ids() == ["0", "1", "10", "11", "12", "2"]
    # The sink was Delta's own: it names itself in the log.
    engines = pipeline.delta.rows(f"DESCRIBE HISTORY delta.`{pipeline.target}`")["engineInfo"]
    assert all("Delta-Lake" in each for each in engines.to_pylist())


def test_a_new_column_fails_once_and_is_taken_by_merge_schema(pipeline: Pipeline) -> None:
    pipeline.land("1", {"id": 1})
    pipeline.ingest()
    pipeline.land("2", {"id": 2, "price": "2.50"})
    with pytest.raises(DeltaError, match=r"^UnknownFieldException: .*price"):
        pipeline.ingest()
    assert pipeline.ids() == ["1"]
    schemas = (pipeline.root / "state" / "_schemas").iterdir()
    assert any("price" in each.read_text() for each in schemas if each.is_file())
    pipeline.ingest()
    assert pipeline.ids() == ["1", "2"]
    rows = pipeline.delta.rows(f"SELECT price FROM delta.`{pipeline.target}` ORDER BY id")
    assert rows["price"].to_pylist() == [None, "2.50"]


def test_a_table_of_the_catalog_is_appended_to(pipeline: Pipeline) -> None:
    name = "of_the_catalog"
    for number in range(2):
        pipeline.land(str(number), {"id": number})
        pipeline.delta.call(delta_ingest.ingest_to_table, **pipeline.places, name=name)
    assert pipeline.delta.rows(f"SELECT id FROM {name} ORDER BY id")["id"].to_pylist() == ["0", "1"]


def test_batches_are_merged_by_deltas_statement(pipeline: Pipeline) -> None:
    target = str(pipeline.target)
    pipeline.delta.run(f"CREATE TABLE delta.`{target}` (id STRING, v STRING) USING delta")
    pipeline.delta.run(f"ALTER TABLE delta.`{target}` ADD COLUMNS (_rescued_data STRING)")
    pipeline.land("1", {"id": 1, "v": "a"}, {"id": 2, "v": "b"})
    pipeline.delta.call(delta_ingest.merge, **pipeline.places, target=target)
    pipeline.land("2", {"id": 2, "v": "c"}, {"id": 3, "v": "d"})
    for _ in range(2):
        pipeline.delta.call(delta_ingest.merge, **pipeline.places, target=target)
    assert pipeline.ids() == ["1", "2", "3"]
    assert sorted(read(pipeline.target).column("v").to_pylist()) == ["a", "c", "d"]


def test_both_sinks_append_to_one_table(pipeline: Pipeline) -> None:
    other = Pipeline(pipeline.delta, pipeline.root / "other")
    other.root.mkdir()
    for number in range(2):
        pipeline.land(str(number), {"id": number})
        pipeline.ingest()
        other.land(str(number), {"id": number + 10})
        target = str(pipeline.target)
        other.delta.call(delta_ingest.ingest, **other.places, target=target, sink="deltalake")
        assert len(pipeline.ids()) == 2 * (number + 1)
    assert pipeline.ids() == ["0", "1", "10", "11"]


@pytest.mark.parametrize("sink", ["delta", "deltalake"])
def test_each_format_reads_and_writes_in_one_query(pipeline: Pipeline, sink: str) -> None:
    pipeline.land("1", {"id": 1}, {"id": 2})
    pipeline.ingest()
    copied = pipeline.root / "copied"
    arguments = {"state": str(pipeline.root / "copying"), "target": str(copied), "sink": sink}
    for _ in range(2):
        pipeline.delta.call(delta_ingest.copy, source=str(pipeline.target), **arguments)
        same(read(copied), pipeline.delta.table(pipeline.target))
