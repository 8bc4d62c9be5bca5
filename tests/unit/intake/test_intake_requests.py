"""What does finding files cost in requests, and which of them are needed?"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter

import pytest

from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage.memory import MemoryStore

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


class Stream:
    """A stream whose index is on this disk, and whose source and state are in a store."""

    def __init__(self, committer):
        self.committer = committer
        self.batches = 0
        self.name = f"memory://{uuid.uuid4().hex}"
        self.source = MemoryStore(f"{self.name}/in")

    def put(self, *names):
        for name in names:
            self.source.put(name, b"{}\n")

    def commit(self):
        """What a job, or Spark in a plain query, writes when all that is recorded is ingested."""
        state = MemoryStore(f"{self.name}/state")
        with self._opened(self.source, state) as intake:
            end = intake.head()
        if self.committer == "job":
            batch = self.batches
            self.batches += 1
            SinkLog(state).add(SinkRecord(batch=batch, end=end))
            return
        state.put("offsets/0", f'v1\n{METADATA}\n{{"entry":{end.entry},"index":0}}'.encode())
        state.put("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')

    def poke(self):
        """Discover as a sensor does; what it found, and the requests to source and state."""
        source, state = MemoryStore(f"{self.name}/in"), MemoryStore(f"{self.name}/state")
        with self._opened(source, state) as intake:
            intake.discover()
            files = intake.outstanding(up_to=intake.known_head()).files
        return files, source.requests, state.requests

    def look(self):
        """Look as a trigger does."""
        source, state = MemoryStore(f"{self.name}/in"), MemoryStore(f"{self.name}/state")
        with self._opened(source, state) as intake:
            seen = bool(intake.arrivals())
        return seen, source.requests, state.requests

    def _opened(self, source, state):
        return contextlib.closing(Intake(source=source, state=state, format="json"))


@pytest.fixture(params=["job", "plain query"])
def stream(request, tmp_path, monkeypatch):
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    return Stream(request.param)


def test_a_poke_with_fifty_outstanding_files_costs_seven_requests(stream):
    stream.put(*(f"{number:03}.json" for number in range(50)))
    stream.poke()
    files, source, state = stream.poke()
    assert files == 50
    assert source == Counter(list=1)
    # whose state; how far the last listing came; the entry with the outstanding files, which also
    # shows that the index on this disk is of this log. LISTs: the file log, what jobs have
    # committed, what Spark has
    assert state == Counter(get=3, list=3)


def test_a_quiet_poke_writes_nothing(stream):
    stream.put("a.json")
    stream.poke()
    stream.commit()
    for _ in range(3):
        files, source, state = stream.poke()
        assert files == 0
        assert source == Counter(list=1)
        assert state == Counter(get=4, list=3)  # and the end of the last committed batch


def test_a_poke_that_records_files_writes_three_objects(stream):
    stream.put("a.json")
    stream.poke()
    stream.commit()
    stream.put("b.json")
    files, source, state = stream.poke()
    assert files == 1
    assert source == Counter(list=1)
    # PUTs: the entry; the mark of the log's length; what the listing showed
    assert state == Counter(get=7, list=7, put=3)  # lost entries are looked for before one is added


def test_a_quiet_look_writes_nothing(stream):
    stream.put("a.json")
    stream.poke()
    stream.commit()
    for _ in range(3):
        seen, source, state = stream.look()
        assert not seen
        assert source == Counter(list=1)
        assert state == Counter(get=4, list=3, head=1)  # nobody recorded something meanwhile


def test_the_cost_of_a_poke_does_not_grow_with_what_was_ingested(stream):
    costs = []
    for number in range(6):
        stream.put(f"{number}.json")
        stream.poke()
        stream.commit()
        costs.append(stream.poke()[2])
    assert costs == [costs[0]] * 6
