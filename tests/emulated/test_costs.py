"""What a run asks of a cloud is what `cloudfiles cost` and the pages say.

Counted between the run and an emulator, with source, state and table in its store; for Google's,
whose emulator `deltalake` cannot list, the table is on a disk. Locks are left out: how
often they are renewed follows from the time.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.extensions.event_log.log import COLLECTED
from airflow_cloudfiles.engine.extensions.overview import cost
from airflow_cloudfiles.engine.intake.ledger.opening import CACHE_DIR
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalPython, launch
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.access import Access
from tests.support import laws
from tests.support import round_trips as proxy
from tests.support.discovery.ways import Landing, landing, logged
from tests.support.round_trips import RoundTrips, round_trips

pytestmark = [pytest.mark.emulator, pytest.mark.slow]

TRIES = 3


class Counted:
    """A stream whose requests are counted.

    Args:
        far: Between the runs and the store.
        source: The store of the source, reached directly.
        access: How the runs reach the store.
        root: Where state and table are, with what else is theirs.
        target: The table; `None` for one in the root.

    Attributes:
        log: What the runs have logged.
    """

    def __init__(
        self,
        far: RoundTrips,
        source: ObjectStore,
        access: Access,
        root: str,
        target: str | None = None,
    ) -> None:
        self._far, self._source, self._access = far, source, access
        self._root = root
        self._target = target or f"{root}/table"
        self._files = 0
        self.log: list[str] = []

    def land(self, count: int) -> None:
        """Add files to the source."""
        for _ in range(count):
            self._source.put(f"{self._files:06}.json", json.dumps({"a": self._files}).encode())
            self._files += 1

    def run(self, **options: str) -> dict[str, Counter[str]]:
        """Run, and give the requests by method, for each of source, state and table."""
        self._far.requests.clear()
        spec = JobSpec(
            kind="ingest",
            source=self._source.uri,
            format="json",
            checkpoint_location=f"{self._root}/state",
            target=self._target,
            options=options,
            run_id=uuid.uuid4().hex,
        )
        launch(spec, LocalPython(), on_log=self.log.append, access=self._access).wait()
        found: dict[str, Counter[str]] = {"in": Counter(), "state": Counter(), "table": Counter()}
        for each in self._far.requests:
            # None, where it is asked what kind of account or bucket it is.
            places = [name for name in found if _is_below(each.key, name)]
            if places and ".lock" not in each.key:
                found[places[0]][each.method] += 1
        return found

    def other_than(
        self, found: dict[str, Counter[str]], expected: dict[str, Mapping[str, int]]
    ) -> dict[str, Counter[str]]:
        """Give what differs from what the page says; a table on a disk is not asked by requests."""
        is_counted = self._target.startswith(self._root)
        names = [name for name in expected if is_counted or name != "table"]
        return {name: found[name] for name in names if found[name] != expected[name]}


def _with_delete(state: Mapping[str, int]) -> Counter[str]:
    """Count that an earlier report is deleted, too, which has no price."""
    return Counter(state) + Counter(DELETE=1)


def _is_below(key: str, place: str) -> bool:
    return f"/{place}/" in key or f"prefix={place}/" in key


@pytest.fixture(params=laws.some(["aws", "azurite", "gcs"], 1, name="costs of listings"))
def stream(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Counted]:
    emulator = request.getfixturevalue(request.param)
    is_azure = request.param == "azurite"
    root = emulator.container() if is_azure else emulator.bucket()
    upstream = f"http://127.0.0.1:{emulator.blob_port}" if is_azure else emulator.endpoint
    monkeypatch.setattr(proxy, "LATENCY_SECONDS", 0.0)
    monkeypatch.setenv(CACHE_DIR, str(tmp_path / "cache"))
    with round_trips(upstream) as far:
        port = int(far.endpoint.rpartition(":")[2])
        access = emulator.access_through(port if is_azure else far.endpoint)
        target = str(tmp_path / "table") if request.param == "gcs" else None
        yield Counted(far, open_store(f"{root}/in", emulator.access), access, root, target)


def test_a_run_costs_what_the_page_says(stream: Counted) -> None:
    stream.land(1)
    stream.run()
    commits = 2  # one creates the table

    def with_files(new: int) -> dict[str, Counter[str]]:
        nonlocal commits
        stream.land(new)
        found = stream.run()
        # One PUT is the data file, the other the commit.
        table = Counter(cost.TABLE_OF_FILES) + Counter(GET=cost.GETS_A_COMMIT * commits)
        commits += 1
        state = _with_delete(cost.STATE_OF_FILES[cost.LISTED])
        source = {"LIST": 1, "GET": new}
        return stream.other_than(found, {"in": source, "state": state, "table": table})

    def with_none() -> dict[str, Counter[str]]:
        table = Counter(cost.TABLE) + Counter(GET=cost.GETS_A_COMMIT * commits)
        state = _with_delete(cost.STATE[cost.LISTED])
        return stream.other_than(stream.run(), {"in": {"LIST": 1}, "state": state, "table": table})

    for run in (lambda: with_files(10), lambda: with_files(100), with_none):
        # A busy machine may ask once more for what two threads want at once.
        tries = [run()]
        while tries[-1] and len(tries) < TRIES:
            tries.append(run())
        assert not tries[-1], tries
    assert not [line for line in stream.log if "discarding connection" in line]


def test_a_further_micro_batch_costs_little_of_the_state_and_the_table(stream: Counted) -> None:
    stream.land(1)
    stream.run()
    more, commits = 3, 2
    state, table = _with_delete(cost.STATE_OF_FILES[cost.LISTED]), Counter(cost.TABLE_OF_FILES)
    for _ in range(more):
        state += Counter(cost.STATE_OF_ONE_MORE)
        table += Counter(cost.TABLE_OF_ONE_MORE)
    tries = []
    while len(tries) < TRIES and (not tries or tries[-1]):
        stream.land(1 + more)
        found = stream.run(**{"cloudFiles.maxFilesPerTrigger": "1"})
        further = sum(commits + each for each in range(more))
        commit_reads = Counter(GET=cost.GETS_A_COMMIT * commits + further)
        commits += 1 + more
        source = {"LIST": 1, "GET": 1 + more}
        expected = {"in": source, "state": state, "table": table + commit_reads}
        tries.append(stream.other_than(found, expected))
    assert not tries[-1], tries


class Announced(Counted):
    """The same, of which a queue announces the files, or an event log that a queue feeds.

    Args:
        place: Where they land, reached directly.
        far: Between the runs and the store.
        asked: How many requests the queue has had.
        access: How the runs reach both.
        root: Where nothing is announced.
        target: See `Counted`.
    """

    def __init__(
        self,
        place: Landing,
        far: RoundTrips,
        asked: Callable[[], int],
        access: Access,
        root: str,
        target: str | None = None,
    ) -> None:
        super().__init__(far, place.store, access, root, target)
        self._place, self._asked = place, asked
        found = place.options
        given = {
            "cloudFiles.useNotifications": found.use_notifications,
            "cloudFiles.useManagedFileEvents": found.use_managed_file_events,
            "cloudFiles.queueUrl": found.queue_url,
            "cloudFiles.queueName": found.queue_name,
            "cloudFiles.subscription": found.subscription,
            "cloudFiles.fileEventsLocation": found.file_events_location,
        }
        self._options = {name: str(value) for name, value in given.items() if value}
        location = found.file_events_location
        self._log = None if location is None else open_store(location, place.access)

    def land(self, count: int) -> None:
        """Add files to the source, and announce them."""
        for _ in range(count):
            self._place.put(f"{self._files:06}.json", json.dumps({"a": self._files}).encode())
            self._files += 1

    def run(self, **options: str) -> dict[str, Counter[str]]:
        """Run, and give the requests to queue and event log, too."""
        if self._log is not None:
            self._log.delete(COLLECTED)  # or the queue, drained just now, would be left alone
        self._far.requests.clear()
        asked = self._asked()
        found = super().run(**self._options, **options)
        log = Counter(
            each.method
            for each in self._far.requests
            if _is_below(each.key, "log") and ".lock" not in each.key
        )
        return {**found, "log": log, "queue": Counter(QUEUE=self._asked() - asked)}

    def estimate(self, new: int) -> Counter[str]:
        """Estimate a run with so many new files, or with none."""
        options = CloudFilesOptions.parse(
            {"cloudFiles.format": "json", **self._options}, path=self._source.uri
        )
        load = cost.Load(files=self._files, new=new, file_bytes=10)
        return cost.estimated(self._source.uri, options, load)["new" if new else "nothing"]


WAYS = [
    f"{cloud} {way}"
    for way in ("notified", "logged")
    for cloud in laws.some(["s3", "azure", "gcs"], 1, name=f"costs of what is {way}")
]
_FIXTURES = {"s3": "aws", "azure": "azurite", "gcs": "gcs", "pubsub": "pubsub_here"}
"""Of Pub/Sub, the one that counts calls."""


@pytest.fixture(params=WAYS)
def announced(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Announced]:
    def ask(name: str) -> Any:
        return request.getfixturevalue(_FIXTURES.get(name, name))

    cloud, _, way = request.param.partition(" ")
    place = landing(f"{cloud} notified", tmp_path, ask)
    emulator = ask(cloud)
    root = emulator.container() if cloud == "azure" else emulator.bucket()
    if way == "logged":
        place = logged(place, root)
    monkeypatch.setattr(proxy, "LATENCY_SECONDS", 0.0)
    monkeypatch.setenv(CACHE_DIR, str(tmp_path / "cache"))
    with contextlib.ExitStack() as stack:

        def before(port: int) -> RoundTrips:
            return stack.enter_context(round_trips(f"http://127.0.0.1:{port}"))

        if cloud == "azure":
            far, queue = before(emulator.blob_port), before(emulator.queue_port)
            ports = [int(each.endpoint.rpartition(":")[2]) for each in (far, queue)]
            access = emulator.access_through(*ports)
            yield Announced(place, far, lambda: len(queue.requests), access, root)
            return
        far = stack.enter_context(round_trips(emulator.endpoint))
        access = emulator.access_through(far.endpoint)
        if cloud == "gcs":
            pubsub = ask("pubsub")
            access = replace(access, pubsub_endpoint=pubsub.endpoint)
            table = str(tmp_path / "table")
            yield Announced(place, far, pubsub.service.calls.total, access, root, table)
            return
        yield Announced(
            place,
            far,
            lambda: sum(each.method == "QUEUE" for each in far.requests),
            access,
            root,
        )


def test_what_announces_files_costs_what_is_estimated(announced: Announced) -> None:
    announced.land(1)
    announced.run()
    for new in (20, 0):
        tries = []
        while len(tries) < TRIES and (not tries or tries[-1]):  # see above
            announced.land(new)
            found = announced.run()
            of_table = Counter(cost.TABLE_OF_FILES if new else cost.TABLE)
            estimate = announced.estimate(new) - of_table
            estimate["GET"] -= cost.GETS_A_COMMIT * cost.COMMITS
            made = sum((found[name] for name in ("in", "state", "log", "queue")), Counter())
            del made["DELETE"]  # has no price
            tries.append({} if made == estimate else {"made": made, "estimated": estimate, **found})
        assert not tries[-1], tries
    assert not [line for line in announced.log if "discarding connection" in line]
