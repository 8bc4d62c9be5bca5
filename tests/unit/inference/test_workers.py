"""With and without help, the same schema; whoever helps ends with the one who infers."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from airflow_cloudfiles.engine import worker_messages
from airflow_cloudfiles.engine.errors import FileUnreadableError, RunFailedError
from airflow_cloudfiles.engine.inference import tasks
from airflow_cloudfiles.engine.inference.infer import infer_files
from airflow_cloudfiles.engine.inference.tasks import Learned, Sample, learn_sample, learn_task
from airflow_cloudfiles.engine.inference.workers import ProcessWorkers, SparkWorkers
from airflow_cloudfiles.engine.job import run as job
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spark_command import LAUNCHED
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.storage import open_store
from tests.unit.inference.test_parts import json_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from airflow_cloudfiles.engine.inference.tasks import SampleTask


def _travelled(message: Any) -> Any:
    """A message after its way to or from a worker."""
    return worker_messages.decode(worker_messages.encode(message))


class Colleague:
    """Workers in this process: what it is given and gives back travels as bytes."""

    count = 3
    start_seconds = -1.0  # always worth it

    def __init__(self) -> None:
        self.tasks: list[SampleTask] = []

    def learn(
        self, tasks: Sequence[SampleTask], on_done: Callable[[int, int], None]
    ) -> Iterator[Learned]:
        self.tasks += tasks
        for task in tasks:
            learned: Learned = _travelled(learn_task(_travelled(task)))
            on_done(learned.counts.files, learned.counts.bytes)
            yield learned


class Processes(ProcessWorkers):
    """Processes that are always worth it."""

    start_seconds = -1.0


@pytest.fixture(autouse=True)
def _decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TRIAL_SECONDS", 0.0)
    for name in ("MIN_SPLIT_BYTES", "OPEN_COST_BYTES"):  # small files are many tasks, too
        monkeypatch.setattr(f"airflow_cloudfiles.engine.reading.splits.{name}", 100)


def _sample(folder: Path, **options: str) -> Sample:
    given = {"cloudFiles.format": "json", "cloudFiles.inferColumnTypes": "true", **options}
    store = open_store(str(folder))
    newest = sorted(store.list(), key=lambda file: (-file.modification_time_us, file.path))
    return Sample(store, newest, CloudFilesOptions.parse(given, path=str(folder)))


def _land(folder: Path, seed: int, files: int = 12, lines: int = 30) -> None:
    rng = random.Random(seed)
    for number in range(files):
        path = folder / f"{number:03}.json"
        repeated = 20 if number == files // 2 else 1  # one is large enough to be cut
        path.write_bytes(b"\n".join(json_lines(rng, lines) * repeated) + b"\n")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_shared_sample_gives_the_schema_of_one_process(tmp_path: Path, seed: int) -> None:
    _land(tmp_path, seed)
    sample, workers = _sample(tmp_path), Colleague()
    alone, shared = FetchCounts(), FetchCounts()
    expected = learn_sample(sample, alone)
    found = learn_sample(sample, shared, workers)
    assert found.json() == expected.json()
    assert shared == alone
    assert shared.files == 12
    assert len(workers.tasks) > 1
    assert any(part.end for task in workers.tasks for part in task.ranges), "no file was cut"


@pytest.mark.slow
def test_processes_give_the_schema_of_one_process(tmp_path: Path) -> None:
    _land(tmp_path, 7, files=30)
    sample = _sample(tmp_path)
    counts = FetchCounts()
    assert learn_sample(sample, counts, Processes(2)).json() == (
        learn_sample(sample, FetchCounts()).json()
    )
    assert counts.files == 30


def test_names_are_compared_in_a_worker_as_by_the_one_who_asked(tmp_path: Path) -> None:  # B16
    for number, name in enumerate(("foo", "Foo", "FOO")):
        (tmp_path / f"{number}.json").write_text(json.dumps({name: 1}))
    for sensitive, columns in (("false", 1), ("true", 3)):
        sample = _sample(tmp_path, **{"cloudFiles.internal.caseSensitive": sensitive})
        found = learn_sample(sample, FetchCounts(), Colleague())
        assert len(found.fields) == columns
        assert found == learn_sample(sample, FetchCounts())


def test_a_sample_that_is_soon_looked_at_is_not_shared(tmp_path: Path) -> None:
    _land(tmp_path, 1)
    workers = Colleague()
    workers.start_seconds = 5.0
    learn_sample(_sample(tmp_path), FetchCounts(), workers)
    assert not workers.tasks


@pytest.mark.parametrize("workers", [None, Colleague()])
def test_a_damaged_file_is_named_unless_it_is_to_be_passed_over(
    tmp_path: Path, workers: tasks.Workers | None
) -> None:
    _land(tmp_path, 3)
    (tmp_path / "003.json").rename(tmp_path / "damaged.json.gz")
    (tmp_path / "damaged.json.gz").write_bytes(gzip.compress(b'{"z": 1}\n' * 1000)[:-30])
    with pytest.raises(FileUnreadableError, match=r"damaged\.json\.gz"):
        learn_sample(_sample(tmp_path), FetchCounts(), workers)
    counts = FetchCounts()
    learn_sample(_sample(tmp_path, ignoreCorruptFiles="true"), counts, workers)
    assert (counts.files, counts.corrupt_files) == (11, 1)


@pytest.mark.parametrize("workers", [None, Colleague()])
def test_a_file_that_is_gone_is_passed_over(
    tmp_path: Path, workers: tasks.Workers | None, caplog: pytest.LogCaptureFixture
) -> None:
    _land(tmp_path, 3)
    sample = _sample(tmp_path)
    (tmp_path / "004.json").unlink()
    found = infer_files(sample.store, sample.files, sample.options, workers=workers)
    assert found.files == 11
    assert "1 file of the sample is gone" in caplog.text


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_inference_and_leaves_no_process(tmp_path: Path) -> None:
    _land(tmp_path, 3)

    class Killer(Processes):
        def learn(
            self, tasks: Sequence[SampleTask], on_done: Callable[[int, int], None]
        ) -> Iterator[Learned]:
            del on_done

            def kill(files: int, size: int) -> None:
                del files, size
                for worker in _workers():
                    worker.kill()

            assert len(tasks) > 3
            return super().learn(tasks, kill)

    with pytest.raises(RunFailedError, match=r"has died; its task began with \d+\.json"):
        learn_sample(_sample(tmp_path), FetchCounts(), Killer(2))
    assert not _workers()


@pytest.mark.slow
def test_interrupting_an_inference_leaves_no_process(tmp_path: Path) -> None:
    _land(tmp_path, 3)

    class Impatient(Processes):
        def learn(
            self, tasks: Sequence[SampleTask], on_done: Callable[[int, int], None]
        ) -> Iterator[Learned]:
            results = super().learn(tasks, on_done)
            yield next(results)
            assert len(_workers()) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_sample(_sample(tmp_path), FetchCounts(), Impatient(2))
    deadline = time.monotonic() + 300
    while _workers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _workers()


@pytest.mark.parametrize(
    ("launched", "master", "arguments", "workers"),
    [
        (None, "local[3]", "", 3),
        ("local", None, "--master 'local[2]' pyspark-shell", 2),
        ("local", None, "--master 'local[1]' pyspark-shell", None),
        ("submit", None, "", job.ASSUMED_WORKERS),
    ],
)
def test_a_job_asks_the_cluster_or_as_many_processes_as_its_master_has_cores(
    monkeypatch: pytest.MonkeyPatch,
    launched: str | None,
    master: str | None,
    arguments: str,
    workers: int | None,
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    monkeypatch.delenv(LAUNCHED, raising=False)
    if launched:
        monkeypatch.setenv(LAUNCHED, launched)
    spec = JobSpec(
        kind="infer",
        source="/in",
        format="json",
        checkpoint_location="/state",
        run_id="r",
        spark_conf={"spark.master": master} if master else {},
    )
    found = job._workers(spec, SparkStart(spec))
    assert (None if found is None else found.count) == workers
    assert isinstance(found, SparkWorkers) == (launched == "submit")  # starts no session yet


def _workers() -> list[psutil.Process]:
    """Worker processes below this one."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE
        and any("inference.workers" in word for word in child.cmdline())
    ]
