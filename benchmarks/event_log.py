"""Two hundred streams of one bucket that read one event log: requests, latency, memory.

The queue, the log and the states are in this process or on its disk, so that requests are counted
and nothing waits for a network. What a request takes in a cloud comes on top.
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.discovery.events import FileEvent, Parsed
from airflow_cloudfiles.engine.discovery.queues.base import Message
from airflow_cloudfiles.engine.extensions.event_log import collector as collecting
from airflow_cloudfiles.engine.extensions.event_log.collector import EventCollector
from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.base import RequestCounter
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.memory_queue import MemoryQueue
from tests.support.memory_ledger import MemoryLedger

STREAMS = 200
ROUNDS = 5
EVENTS = 1_000_000
FOLDERS = 200
QUEUE = {"cloudFiles.queueUrl": "https://sqs.eu-central-1.amazonaws.com/1/q"}


def run(work: Path) -> list[dict[str, Any]]:
    """Run all cases, each in a process of its own; give their results."""
    found = []
    for case in ("quiet", "latency", "memory"):
        command = [sys.executable, "-m", "benchmarks.event_log", case, str(work / case)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found.append({"case": f"event log, {case}", **json.loads(told.stdout)})
    return found


def quiet(_: Path) -> dict[str, Any]:
    """What streams ask while nothing arrives."""
    made = _all_requests()
    place = MemoryStore("memory://bench/log")
    create_log(place, "memory://bench/bucket", QUEUE)
    queue = MemoryQueue("memory://bench/bucket")
    collector = EventCollector(EventLog.open(place.uri), queue=queue)
    _collect(collector)
    streams = [_stream(number, place.uri) for number in range(STREAMS)]
    collecting.FRESH_SECONDS = 3600.0
    for each in streams:
        each.discover()
    before, states = made.copy(), sum((each.state.requests for each in streams), Counter())
    for _ in range(ROUNDS):
        for each in streams:
            each.discover()
    discoveries = ROUNDS * STREAMS
    state = sum((each.state.requests for each in streams), Counter()) - states
    log = made - before - state
    before, calls = made.copy(), queue.calls
    _collect(collector)
    drained = made - before
    per_hour = STREAMS * 60
    drains = int(3600 / 10)
    return {
        "streams": STREAMS,
        "log_requests_of_a_discovery": dict(_per(log, discoveries)),
        "state_requests_of_a_discovery": dict(_per(state, discoveries)),
        "queue_requests_of_a_draining": queue.calls - calls,
        "log_requests_of_a_draining": dict(drained),
        "an_hour_each_stream_every_minute": {
            "queue": drains * (queue.calls - calls),
            "log": round(drains * drained.total() + per_hour * log.total() / discoveries),
            "states": round(per_hour * state.total() / discoveries),
            "queue_if_each_had_its_own": per_hour * (queue.calls - calls),
        },
    }


def latency(work: Path) -> dict[str, Any]:
    """How long from a message to its event in the log, with a collector that never pauses long."""
    location = str(work / "log")
    create_log(open_store(location), "memory://bench/bucket", QUEUE)
    source = open_store("memory://bench/bucket")
    queue = MemoryQueue("memory://bench/bucket")
    collector = EventCollector(EventLog.open(location), queue=queue)
    stop = threading.Event()
    thread = threading.Thread(
        target=collecting.collect_on,
        args=(collector, lambda _: None, stop),
        kwargs={"poll_seconds": 1.0},
    )
    thread.start()
    taken = []
    reader = EventLog.open(location)
    for number in range(20):
        source.put(f"in/{number}", b"x")
        began = time.monotonic()
        queue.send(f"in/{number}".encode())
        while reader.look(number).end <= number:
            time.sleep(0.01)
        taken.append(time.monotonic() - began)
    stop.set()
    thread.join()
    taken.sort()
    return {"pause_seconds": 1.0, "median_seconds": taken[10], "most_seconds": taken[-1]}


class _Generated:
    """A queue that makes its messages as they are asked for, and keeps none."""

    name = "generated"
    batch_size = 10

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def receive(self, seconds: int) -> list[Message]:  # noqa: ARG002 - the protocol's
        found = list(itertools.islice(self._numbers, 10))
        return [Message(str(number), "", b"%d" % number) for number in found if number < EVENTS]

    def hide(self, messages: Any, seconds: int) -> list[Message]:  # noqa: ARG002
        return []

    def delete(self, messages: Any) -> list[Message]:  # noqa: ARG002 - as above
        return []

    def approximate_size(self) -> None:
        return None

    def parse(self, message: Message) -> Parsed:
        number = int(message.body)
        location = f"s3://bucket/folder={number % FOLDERS:03}/day=2026-11-24/{number:09}.json"
        return [FileEvent(location=location, size=1000, time_us=number, etag=f"{number:032x}")]


def memory(work: Path) -> dict[str, Any]:
    """What a collector needs for a million events, and a stream that reads them."""
    location = str(work / "log")
    create_log(open_store(location), "s3://bucket", QUEUE)
    log = EventLog.open(location)
    before = _peak()
    began = time.monotonic()
    _collect(EventCollector(log, queue=_Generated()))
    collected, peak = time.monotonic() - began, _peak()
    began = time.monotonic()
    end = log.end()
    own = sum(1 for n in range(end) for _ in log.read(n, below="folder=007/"))
    size = sum(entry.size for entry in log.store.list("events/"))
    return {
        "events": EVENTS,
        "entries": end,
        "log_mib": round(size / 2**20, 1),
        "collected_seconds": round(collected, 1),
        "peak_mib_before": before,
        "peak_mib": peak,
        "read_seconds_of_a_stream": round(time.monotonic() - began, 1),
        "events_of_the_stream": own,
    }


def _stream(number: int, log: str) -> Intake:
    return Intake(
        source=MemoryStore(f"memory://bench/bucket/folder={number}"),
        format="json",
        state=MemoryStore(f"memory://bench/state={number}"),
        discovery=DiscoveryOptions(use_managed_file_events=True, file_events_location=log),
        ledger=MemoryLedger(),
    )


def _collect(collector: EventCollector) -> None:
    if not collector.try_begin():
        sys.exit("another collector has the lease")
    collector.collect()
    collector.end()


def _all_requests() -> Counter[str]:
    """Count the requests of all stores of this process from now on."""
    made: Counter[str] = Counter()
    add = RequestCounter.add

    def counted(counter: RequestCounter, kind: str) -> None:
        made[kind] += 1
        add(counter, kind)

    RequestCounter.add = counted  # type: ignore[method-assign]
    return made


def _per(counts: Counter[str], many: int) -> dict[str, float]:
    return {name: count / many for name, count in counts.items()}


def _peak() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


if __name__ == "__main__":
    case = {"quiet": quiet, "latency": latency, "memory": memory}[sys.argv[1]]
    sys.stdout.write(json.dumps(case(Path(sys.argv[2]))))
