"""`cloudFiles` feeds Delta's own sink, and its driver is killed again and again: nothing is lost.

The moments are steps of a micro-batch, seen from outside or named by crash points, and a random
time after them; one of them is between Delta's commit and Spark's, where a sink has to know what it
has already.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.processes import descendants
from tests.delta_spark.test_cloudfiles_into_deltas_sink import Pipeline
from tests.support import delta_ingest
from tests.support.delta_spark import DeltaSpark, environment
from tests.support.delta_tables import read
from tests.support.laws import examples, some
from tests.support.waiting import until

pytestmark = pytest.mark.spark

SEEN = ("state/offsets", "table", "table/_delta_log", "state/commits")
"""Folders in which each batch leaves a file, in this order."""
PLANNED = ("before-plan-append", "after-plan-append", "after-spark-offset", "after-spark-commit")
"""Steps of the source that it takes for each batch, in the process that plans them."""
NAMED = ("after-dedupe", "after-file-log-append", "before-read", *PLANNED)
FILES = 4
"""How many land before each driver begins, of which it takes one at a time."""
AHEAD = 1
"""How many drivers start their Spark while another one runs: that takes longest."""
PATIENCE_SECONDS = 1800
"""Ends a wait for a driver that hangs."""


class Driver:
    """A driver that starts Spark, begins its stream when asked to, and is killed in it.

    Args:
        pipeline: What it carries out.
        place: The step at which it is killed: a folder of `SEEN`, or a name of `NAMED`.
        rng: Chooses in which batch, and how long after it.
    """

    def __init__(self, pipeline: Pipeline, place: str, rng: random.Random) -> None:
        self.pipeline, self.place = pipeline, place
        self.batches = rng.randrange(1, FILES)
        self.delay = rng.choice([0, rng.uniform(0, 0.3)])
        self._log = pipeline.root / f"log-{rng.random()}"
        order = f"{place}:{self.batches if place in PLANNED else 1}"
        command = [sys.executable, "-m", delta_ingest.__name__, *pipeline.places.values()]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, str(pipeline.target)],
                cwd=pipeline.root,
                env={**environment(), **({CRASH_AT: order} if place in NAMED else {})},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def run(self) -> None:
        """Begin the stream, and kill it with all its processes."""
        folder = self.pipeline.root / self.place
        before = _files(folder)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: what it printed is shown
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

        def is_due() -> bool:
            if self.place in NAMED:
                return self.process.poll() is not None
            assert self.process.poll() is None, self.printed()
            return len(_files(folder) - before) >= self.batches

        try:
            until(is_due, PATIENCE_SECONDS, more=self.printed, every=0.002)
            time.sleep(self.delay)  # the moment of the kill, drawn by the seed
        finally:
            self.kill()
        assert self.process.returncode == -signal.SIGKILL, f"{self.place}: {self.printed()}"

    def kill(self) -> None:
        """Kill it, and what it has started: Spark's daemon of Python has a group of its own."""
        if self.process.poll() is None:
            for pid in (self.process.pid, *descendants(self.process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def printed(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def _files(folder: Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return {each.name for each in folder.iterdir() if each.name[0] not in "._"}
    return set()


def _drivers(pipeline: Pipeline, places: list[str], rng: random.Random) -> Iterator[Driver]:
    """Start a driver for each place, some of them ahead."""
    started: list[Driver] = []
    try:
        for number in range(len(places)):
            wanted = places[number + len(started) : number + 1 + AHEAD]
            started += [Driver(pipeline, place, rng) for place in wanted]
            yield started.pop(0)
    finally:
        for each in started:
            each.kill()


@pytest.mark.timeout(3600)
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(
    delta: DeltaSpark, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    pipeline = Pipeline(delta, tmp_path)
    landed: list[str] = []
    places = some([*SEEN, *NAMED], 3, name="killed beside Delta's sink", always=SEEN[2:3])
    places += rng.choices(SEEN, k=examples(3))
    rng.shuffle(places)
    with contextlib.closing(_drivers(pipeline, places, rng)) as drivers:
        for number, driver in enumerate(drivers):
            for _ in range(FILES):
                ids = [f"{len(landed) + each:03}" for each in range(2)]
                pipeline.land(ids[0], *({"id": each} for each in ids))
                landed += ids
            driver.run()
            is_there = (pipeline.target / "_delta_log" / f"{0:020}.json").exists()
            found = read(pipeline.target).column("id").to_pylist() if is_there else []
            what = f"seed {seed}, kill {number} at {driver.place}"
            assert len(found) == len({*found}), f"rows twice: {what}"
            assert {*found} <= {*landed}, what
    pipeline.ingest()
    assert pipeline.ids() == landed, f"seed {seed}"
