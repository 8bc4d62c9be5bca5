"""Every format gives the same schema however its sample is shared."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_cloudfiles.engine.inference import tasks
from airflow_cloudfiles.engine.inference.tasks import Sample, learn_sample
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.storage import open_store
from tests.unit.inference.test_workers import Colleague

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("a", "A", "b", "c", "d", "e")
TEXTS = (
    *("", "1", "-7", "3000000000", "99999999999999999999", "1.5", "1e3", "NaN", "true", "false"),
    *("2021-01-01", "2021-01-01T10:00:00Z", "2021-01-01 10:00:00", "x", "é"),
)
VALUES: tuple[Any, ...] = (
    *(1, 2**40, 1.5, True, "x", b"\x00", date(2021, 1, 1), datetime(2021, 1, 1, tzinfo=UTC)),
    *(Decimal("1.25"), Decimal(12345), [1], [1.5], ["x"], {"n": 1}, {"n": 1.5, "m": "x"}, {"k": 1}),
)
OPTIONS = {"xml": {"rowTag": "row"}, "csv": {"header": "true"}}


@pytest.fixture(autouse=True)
def _decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TRIAL_SECONDS", 0.0)
    for name in ("MIN_SPLIT_BYTES", "OPEN_COST_BYTES"):
        monkeypatch.setattr(f"airflow_cloudfiles.engine.reading.splits.{name}", 100)


def _csv(path: Path, rng: random.Random) -> None:
    names = rng.sample(NAMES, rng.randrange(1, len(NAMES)))
    # Few kinds of texts a column: otherwise all of them are strings soon.
    kinds = [rng.sample(TEXTS, rng.randrange(1, 3)) for _ in names]
    rows = [",".join(rng.choice(kind) for kind in kinds) for _ in range(rng.randrange(1, 150))]
    path.write_text("\n".join([",".join(names), *rows]) + "\n", encoding="utf-8")


def _element(rng: random.Random, name: str, depth: int) -> str:
    attribute = f' id="{rng.choice(TEXTS)}"' if rng.random() < 0.2 else ""
    if depth < 3 and rng.random() < 0.3:
        inside = "".join(_element(rng, rng.choice("nmo"), depth + 1) for _ in range(2))
    else:
        inside = rng.choice(TEXTS)
    return f"<{name}{attribute}>{inside}</{name}>"


def _xml(path: Path, rng: random.Random) -> None:
    rows = [
        "".join(_element(rng, rng.choice(NAMES), 0) for _ in range(rng.randrange(4)))
        for _ in range(rng.randrange(1, 6))
    ]
    text = "\n".join(f"<row>{row}</row>" for row in rows)
    path.write_text(f"<rows>\n{text}\n</rows>\n", encoding="utf-8")


def _table(rng: random.Random) -> pa.Table:
    names = rng.sample(NAMES, rng.randrange(1, 4))
    return pa.table({name: [rng.choice(VALUES)] for name in names})


def _parquet(path: Path, rng: random.Random) -> None:
    pq.write_table(_table(rng), path)


def _orc(path: Path, rng: random.Random) -> None:
    orc.write_table(_table(rng), str(path))


def _avro(path: Path, rng: random.Random) -> None:
    import fastavro

    kinds: list[Any] = ["int", "long", "double", "string", "boolean"]
    fields = []
    for name in rng.sample("abcde", rng.randrange(1, 4)):
        within = [{"name": rng.choice("nm"), "type": "long"}]
        record = {"type": "record", "name": f"record_{name}", "fields": within}
        fields.append({"name": name, "type": ["null", rng.choice([*kinds, record])]})
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "t", "fields": fields}, [])


WRITERS = {"csv": _csv, "xml": _xml, "parquet": _parquet, "orc": _orc, "avro": _avro}


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["true", "false"])
@pytest.mark.parametrize("name", sorted(WRITERS))
def test_a_shared_sample_gives_the_schema_of_one_process(
    tmp_path: Path, name: str, typed: str
) -> None:
    shared = 0
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        rng = random.Random(seed)
        for number in range(8):
            WRITERS[name](folder / f"{number}.{name}", rng)
        given = {
            "cloudFiles.format": name,
            "cloudFiles.inferColumnTypes": typed,
            **OPTIONS.get(name, {}),
        }
        store = open_store(str(folder))
        files = sorted(store.list(), key=lambda file: file.path)
        sample = Sample(store, files, CloudFilesOptions.parse(given, path=str(folder)))
        workers, alone, together = Colleague(), FetchCounts(), FetchCounts()
        expected = learn_sample(sample, alone)
        found = learn_sample(sample, together, workers)
        assert found.json() == expected.json(), f"seed {seed}"
        assert together == alone
        shared += len(workers.tasks)
    assert shared > 12


def test_a_sample_of_records_is_not_shared(tmp_path: Path) -> None:
    for number in range(8):
        _xml(tmp_path / f"{number}.xml", random.Random(number))
    given = {"cloudFiles.format": "xml", "rowTag": "row", "samplingRatio": "0.5"}
    store, workers = open_store(str(tmp_path)), Colleague()
    options = CloudFilesOptions.parse(given, path=str(tmp_path))
    learn_sample(Sample(store, list(store.list()), options), FetchCounts(), workers)
    assert not workers.tasks
