"""What a run asks of S3 is what docs/concepts/discovery-by-listing.md says a run costs.

Counted between the run and an emulator, with source, state and table in S3. Locks are left out: how
often they are renewed follows from the time.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.launch import JobSpec, LocalPython, launch
from airflow_cloudfiles.engine.ledger.opening import CACHE_DIR
from tests.support import round_trips as proxy
from tests.support.emulators.aws import Aws
from tests.support.round_trips import RoundTrips, round_trips

pytestmark = [pytest.mark.emulator, pytest.mark.slow]

STATE = {"LIST": 7, "GET": 8, "HEAD": 1, "PUT": 3, "DELETE": 1}
"""Of a run that finds nothing new."""
STATE_OF_FILES = {"LIST": 11, "GET": 14, "HEAD": 1, "PUT": 9, "DELETE": 1}
"""Of one with a micro-batch."""
STATE_OF_ONE_MORE = {"GET": 6, "PUT": 3}
"""Of each further micro-batch."""
TRIES = 3


class Counted:
    """A stream whose requests are counted.

    Args:
        far: Between the runs and the store.
        aws: The store.
    """

    def __init__(self, far: RoundTrips, aws: Aws) -> None:
        self._far, self._aws, self._root = far, aws, aws.bucket()
        self._files = 0

    def land(self, count: int) -> None:
        """Add files to the source."""
        client = self._aws.client("s3")
        for _ in range(count):
            key, row = f"in/{self._files:06}.json", json.dumps({"a": self._files})
            client.put_object(Bucket=self._root.removeprefix("s3://"), Key=key, Body=row.encode())
            self._files += 1

    def run(self, **options: str) -> dict[str, Counter[str]]:
        """Run, and give the requests by method, for each of source, state and table."""
        self._far.requests.clear()
        spec = JobSpec(
            kind="ingest",
            source=f"{self._root}/in",
            format="json",
            checkpoint_location=f"{self._root}/state",
            target=f"{self._root}/table",
            options=options,
            run_id=uuid.uuid4().hex,
        )
        access = self._aws.access_through(self._far.endpoint)
        launch(spec, LocalPython(), on_log=print, access=access).wait()
        found: dict[str, Counter[str]] = {"in": Counter(), "state": Counter(), "table": Counter()}
        for each in self._far.requests:
            if not each.key.endswith(".lock"):
                [place] = [name for name in found if _is_below(each.key, name)]
                found[place][each.method] += 1
        return found


def _is_below(key: str, place: str) -> bool:
    return f"/{place}/" in key or f"prefix={place}/" in key


@pytest.fixture
def stream(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    monkeypatch.setattr(proxy, "LATENCY_SECONDS", 0.0)
    monkeypatch.setenv(CACHE_DIR, str(tmp_path / "cache"))
    with round_trips(aws.endpoint) as far:
        yield Counted(far, aws)


def test_a_run_costs_what_the_page_says(stream: Counted) -> None:
    stream.land(1)
    stream.run()
    commits = 2  # one creates the table

    def with_files(new: int) -> dict[str, Counter[str]]:
        nonlocal commits
        stream.land(new)
        found = stream.run()
        # One PUT is the data file, the other the commit.
        most = {"LIST": 12, "GET": 3 * commits + 5, "HEAD": 1, "PUT": 2}
        commits += 1
        return more_than(found, {"in": {"LIST": 1, "GET": new}, "state": STATE_OF_FILES}, most)

    def with_none() -> dict[str, Counter[str]]:
        most = {"LIST": 5, "GET": 3 * commits + 1}
        return more_than(stream.run(), {"in": {"LIST": 1}, "state": STATE}, most)

    for run in (lambda: with_files(10), lambda: with_files(100), with_none):
        # A busy machine may ask once more for what two threads want at once.
        tries = [run()]
        while tries[-1] and len(tries) < TRIES:
            tries.append(run())
        assert not tries[-1], tries


def more_than(
    found: dict[str, Counter[str]], exactly: dict[str, dict[str, int]], most: dict[str, int]
) -> dict[str, Counter[str]]:
    """Give what differs from what the page says, and more requests to the table than it says."""
    differs = {name: found[name] for name in exactly if found[name] != exactly[name]}
    beyond = found["table"] - Counter(most)
    return {**differs, **({"table": beyond} if beyond else {})}


def test_a_further_micro_batch_costs_little_of_the_state_and_the_table(stream: Counted) -> None:
    stream.land(1)
    stream.run()
    more, commits = 3, 2
    state = Counter(STATE_OF_FILES)
    for method, count in STATE_OF_ONE_MORE.items():
        state[method] += more * count
    tries = []
    while len(tries) < TRIES and (not tries or tries[-1]):
        stream.land(1 + more)
        found = stream.run(**{"cloudFiles.maxFilesPerTrigger": "1"})
        further = sum(4 + commits + 1 + each for each in range(more))
        most = {"LIST": 12 + 7 * more, "GET": 3 * commits + 5 + further, "HEAD": 4, "PUT": 8}
        commits += 1 + more
        exactly = {"in": {"LIST": 1, "GET": 1 + more}, "state": dict(state)}
        tries.append(more_than(found, exactly, most))
    assert not tries[-1], tries
