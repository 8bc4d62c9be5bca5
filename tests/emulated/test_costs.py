"""What a run asks of a cloud is what `cloudfiles cost` and the pages say.

Counted between the run and an emulator, with source, state and table in its store; for Google's,
whose emulator `deltalake` cannot list, the table is on a disk. Locks are left out: how
often they are renewed follows from the time.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.launch import JobSpec, LocalPython, launch
from airflow_cloudfiles.engine.ledger.opening import CACHE_DIR
from airflow_cloudfiles.engine.overview import cost
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.access import Access
from tests.support import round_trips as proxy
from tests.support.round_trips import RoundTrips, round_trips

pytestmark = [pytest.mark.emulator, pytest.mark.slow]

TRIES = 3


class Counted:
    """A stream whose requests are counted.

    Args:
        far: Between the runs and the store.
        source: The store of the source, reached directly.
        access: How the runs reach the store.
        target: The table; `None` for one in the store.
    """

    def __init__(
        self, far: RoundTrips, source: ObjectStore, access: Access, target: str | None = None
    ) -> None:
        self._far, self._source, self._access = far, source, access
        self._root = source.uri.removesuffix("/in")
        self._target = target or f"{self._root}/table"
        self._files = 0

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
            source=f"{self._root}/in",
            format="json",
            checkpoint_location=f"{self._root}/state",
            target=self._target,
            options=options,
            run_id=uuid.uuid4().hex,
        )
        launch(spec, LocalPython(), on_log=print, access=self._access).wait()
        found: dict[str, Counter[str]] = {"in": Counter(), "state": Counter(), "table": Counter()}
        for each in self._far.requests:
            # None, where it is asked what kind of account or bucket it is.
            places = [name for name in found if _is_below(each.key, name)]
            if places and ".lock" not in each.key:
                found[places[0]][each.method] += 1
        return found

    def more_than(
        self,
        found: dict[str, Counter[str]],
        exactly: dict[str, Mapping[str, int]],
        most: Counter[str],
    ) -> dict[str, Counter[str]]:
        """Give what differs from what the page says; of the table, what is more."""
        differs = {name: found[name] for name in exactly if found[name] != exactly[name]}
        beyond = found["table"] - most
        return {**differs, **({"table": beyond} if beyond else {})}


def _with_delete(state: Mapping[str, int]) -> Counter[str]:
    """Count that an earlier report is deleted, too, which has no price."""
    return Counter(state) + Counter(DELETE=1)


def _is_below(key: str, place: str) -> bool:
    return f"/{place}/" in key or f"prefix={place}/" in key


@pytest.fixture(params=["aws", "azurite", "gcs"])
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
        yield Counted(far, open_store(f"{root}/in", emulator.access), access, target)


def test_a_run_costs_what_the_page_says(stream: Counted) -> None:
    stream.land(1)
    stream.run()
    commits = 2  # one creates the table

    def with_files(new: int) -> dict[str, Counter[str]]:
        nonlocal commits
        stream.land(new)
        found = stream.run()
        # One PUT is the data file, the other the commit.
        most = Counter(cost.TABLE_OF_FILES) + Counter(GET=cost.GETS_A_COMMIT * commits)
        commits += 1
        exactly = {"in": {"LIST": 1, "GET": new}, "state": _with_delete(cost.STATE_OF_FILES)}
        return stream.more_than(found, exactly, most)

    def with_none() -> dict[str, Counter[str]]:
        most = Counter(cost.TABLE) + Counter(GET=cost.GETS_A_COMMIT * commits)
        exactly = {"in": {"LIST": 1}, "state": _with_delete(cost.STATE)}
        return stream.more_than(stream.run(), exactly, most)

    for run in (lambda: with_files(10), lambda: with_files(100), with_none):
        # A busy machine may ask once more for what two threads want at once.
        tries = [run()]
        while tries[-1] and len(tries) < TRIES:
            tries.append(run())
        assert not tries[-1], tries


def test_a_further_micro_batch_costs_little_of_the_state_and_the_table(stream: Counted) -> None:
    stream.land(1)
    stream.run()
    more, commits = 3, 2
    state, table = _with_delete(cost.STATE_OF_FILES), Counter(cost.TABLE_OF_FILES)
    for _ in range(more):
        state += Counter(cost.STATE_OF_ONE_MORE)
        table += Counter(cost.TABLE_OF_ONE_MORE)
    tries = []
    while len(tries) < TRIES and (not tries or tries[-1]):
        stream.land(1 + more)
        found = stream.run(**{"cloudFiles.maxFilesPerTrigger": "1"})
        further = sum(commits + each for each in range(more))
        most = table + Counter(GET=cost.GETS_A_COMMIT * commits + further)
        commits += 1 + more
        exactly = {"in": {"LIST": 1, "GET": 1 + more}, "state": state}
        tries.append(stream.more_than(found, exactly, most))
    assert not tries[-1], tries
