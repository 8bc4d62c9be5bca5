"""Credentials that expire, and a store that throttles, in a run: nothing is lost or twice.

Source, state and table are in S3, behind a proxy that answers some requests of a run by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    ReadError,
    SinkError,
    SourceError,
    StateError,
)
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from tests.support.answering_proxy import CUT, AnsweringProxy, answering_proxy
from tests.support.emulators.aws import Aws
from tests.support.ingested import Ingested
from tests.support.laws import some

pytestmark = [pytest.mark.emulator, pytest.mark.slow]

SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate</Message></Error>"
)
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The token has expired</Message></Error>"
PLACES: dict[str, tuple[str, type[CloudFilesError]]] = {
    "listing the source": ("GET .*list-type=2.*prefix=in", SourceError),
    "reading a file": ("GET .*/in/reading a file.json", ReadError),
    "planning": ("PUT .*/_source/plans/", StateError),
    "committing": ("PUT .*/_delta_log/", SinkError),
    "recording the batch": ("PUT .*/_source/sink/", StateError),
    "noting what it did": ("PUT .*/_source/batches/", StateError),
    "recording what was found": ("PUT .*/_source/files/", StateError),
    "taking the lock": ("PUT .*/_source/.*lock", StateError),
}
"""What of a run meets the answer: a part of its requests, and what that raises."""

IMPORTANT = ("committing", "recording the batch")


class FarIngested(Ingested):
    """A stream in a bucket."""

    def __init__(self, root: str) -> None:
        self.source, self.state, self.target = (  # type: ignore[assignment]
            f"{root}/{name}" for name in ("in", "state", "table")
        )
        self.sink = {}
        self.iceberg = ""
        self.given = {"cloudFiles.maxFilesPerTrigger": "1"}

    def add(self, *names: str, **fields: Any) -> None:
        for name in names:
            content = json.dumps({"a": name, **fields}) + "\n"
            open_store(str(self.source)).put(f"{name}.json", content.encode())

    @property
    def table(self) -> DeltaTable:
        options = DeltaLocation.of(str(self.target)).storage_options()
        return DeltaTable(str(self.target), storage_options=options)


@pytest.fixture
def far(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FarIngested, AnsweringProxy]]:
    """A stream of which one batch is committed, and the proxy before its bucket."""
    with answering_proxy(aws.endpoint) as proxy:
        for name, value in to_environment(aws.access_through(proxy.endpoint)).items():
            monkeypatch.setenv(name, value)
        stream = FarIngested(aws.bucket())
        stream.add("0")
        stream.run()
        yield stream, proxy


def test_credentials_that_expire_anywhere_fail_a_run_for_good_and_renewed_it_goes_on(
    far: tuple[FarIngested, AnsweringProxy],
) -> None:
    stream, proxy = far
    places = some([*PLACES], 2, name="expired", always=IMPORTANT)
    for place in places:
        where, kind = PLACES[place]
        stream.add(place)
        proxy.answer(where, 400, EXPIRED, 1000)
        with pytest.raises(CloudFilesError, match=r"ExpiredToken|expired") as caught:
            stream.run()
        assert proxy.pass_all(), place
        assert isinstance(caught.value, kind), (place, caught.value)
        assert not caught.value.is_retryable, place
        stream.run()
    assert stream.rows() == sorted(["0", *places])


def test_a_store_that_throttles_any_request_for_a_while_fails_no_run(
    far: tuple[FarIngested, AnsweringProxy],
) -> None:
    stream, proxy = far
    places = some([*PLACES], 2, name="throttled", always=IMPORTANT)
    for place in places:
        where, _ = PLACES[place]
        stream.add(place)
        proxy.answer(where, 503, SLOW_DOWN, 2)
        stream.run()
        assert proxy.pass_all() == 2, place
    assert stream.rows() == sorted(["0", *places])


_REQUESTS_OF_A_RUN = 40
"""So many has a run at least."""


def _outcome(stream: FarIngested) -> CloudFilesError | None:
    try:
        stream.run()
    except CloudFilesError as error:
        return error
    return None


@pytest.mark.parametrize(
    "number", some(range(_REQUESTS_OF_A_RUN), 6, name="requests that are cut off")
)
def test_any_answer_that_breaks_off_is_asked_for_again_or_can_be(
    far: tuple[FarIngested, AnsweringProxy], number: int
) -> None:
    stream, proxy = far
    stream.add("new")
    proxy.answer(".", CUT, b"", 1, after=number)
    failed = _outcome(stream)
    assert proxy.pass_all() == 1
    assert failed is None or failed.is_retryable, failed
    stream.run()
    assert stream.rows() == ["0", "new"]


@pytest.mark.parametrize("what", ["cut", "busy"])
def test_a_listing_of_a_log_that_fails_for_a_moment_is_an_outage(
    far: tuple[FarIngested, AnsweringProxy], what: str
) -> None:
    stream, proxy = far
    stream.add("new")
    where = "GET .*list-type=2.*_delta_log"
    for after in range(4 if what == "cut" else 1):
        if what == "cut":
            proxy.answer(where, CUT, b"", 1, after=after)
        else:
            proxy.answer(where, 503, SLOW_DOWN, 1000, after=after)
        failed = _outcome(stream)
        proxy.pass_all()
        assert failed is None or (isinstance(failed, SinkError) and failed.is_retryable), failed
    stream.run()
    assert stream.rows() == ["0", "new"]
