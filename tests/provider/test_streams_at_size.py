"""The list of 1,000 streams of a real Airflow, in a browser, where each request takes 40 ms.

How long something takes is not asserted: what is asked, what is shown before it is answered, and
that nothing lies outside of a narrow window or cannot be read in a dark one.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.state.run_history import SUMMARY, write_report
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.plugins.stream_list import FRESH_SECONDS
from demo.airflow_home import AirflowHome
from tests.support import round_trips as proxy
from tests.support.aws_landing import connection
from tests.support.browser import BROWSER, DRIVER, MISSING, Browser, browser
from tests.support.emulators.aws import Aws
from tests.support.many_streams import put_streams
from tests.support.round_trips import Request, RoundTrips, round_trips
from tests.support.waiting import until

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.emulator,
    pytest.mark.slow,
    pytest.mark.skipif(DRIVER is None or BROWSER is None, reason=MISSING),
]

_log = logging.getLogger(__name__)
STREAMS = 1000
FAILED, BEHIND = range(500, 503), range(900, 905)
HOSTILE = "<img src=x onerror=alert(1)>"
WORST_CONTRAST = """
(() => {
  const light = (text) => {
    const parts = text.match(/[\\d.]+/g).slice(0, 3).map((each) => {
      const part = each / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const back = light(getComputedStyle(document.body).backgroundColor);
  const texts = "h1, p, label, th a, td, td a, td div, td span, .chips a";
  const seen = [...document.querySelectorAll(texts)];
  return Math.min(...seen.filter((each) => each.offsetParent).map((each) => {
    const front = light(getComputedStyle(each).color);
    return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  }));
})()
""".strip()
"""The lowest ratio of contrast of a text, as the WCAG compute it."""
FARTHEST = 'Math.max(...[...document.querySelectorAll("a, td, th, input, button")]'
FARTHEST += ".map((each) => each.getBoundingClientRect().right))"


@pytest.fixture
def far(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[RoundTrips]:
    monkeypatch.setattr(proxy, "LATENCY_SECONDS", 0.04)
    with round_trips(aws.endpoint) as found:
        yield found


def _summaries(folder: Path) -> dict[str, bytes]:
    """The summaries of a stream that is well, of one that has failed and of one that is behind."""
    now, found = datetime.now(UTC), {}
    report: dict[str, Any] = {"run_id": "r", "kind": "ingest", "outcome": "succeeded", "rows": 7}
    report |= {"started": now.isoformat(), "ended": now.isoformat(), "oldest_outstanding": None}
    report["metrics"] = {"numFilesOutstanding": "0", "numBytesOutstanding": "0"}
    report["metrics"]["isBacklogComputationComplete"] = "true"
    report["position"] = {"last_batch": 0, "entries": 1, "newest_found": now.isoformat()}
    error = {"class": "UnknownFieldException", "code": "CF501", "message": f"New: {HOSTILE}"}
    late = {"oldest_outstanding": (now - timedelta(hours=3)).isoformat()}
    late["metrics"] = {**report["metrics"], "numFilesOutstanding": "3"}
    kinds = {"well": {}, "failed": {"outcome": "failed", "error": error}, "behind": late}
    for name, more in kinds.items():
        store = open_store(str(folder / name))
        write_report(store, "_reports/r.json", {**report, **more})
        found[name] = store.get(SUMMARY)
    return found


def _row(lake: str, number: int) -> list[Any]:
    """A task instance: half of them are of one mapped task."""
    state = f"{lake}/{number}"
    fields = {"source": f"s3://in/stream-{number}", "format": "json", "conn_id": "lake"}
    fields |= {"checkpoint_location": state, "target": f"s3://lake/tables/{number}"}
    if number < STREAMS // 2:
        return [f"dag_{number % 20:02}", f"ingest_{number:03}", -1, None, "success", fields]
    return ["mapped", "ingest", number, f"table {number}", "success", fields]


@pytest.fixture
def airflow(aws: Aws, far: RoundTrips, tmp_path: Path) -> Iterator[AirflowHome]:
    lake, kinds = aws.bucket(), _summaries(tmp_path)
    store = open_store(lake, aws.access)
    named = {**dict.fromkeys(FAILED, "failed"), **dict.fromkeys(BEHIND, "behind")}
    contents = {f"{each}/{SUMMARY}": kinds[named.get(each, "well")] for each in range(STREAMS)}
    at_once(store, [partial(store.put, *each) for each in contents.items()])
    given = json.dumps(connection(aws, "test")).replace(aws.endpoint, far.endpoint)
    dags = tmp_path / "dags"
    dags.mkdir()
    users = {"admin": "admin"}
    env = {"AIRFLOW_CONN_LAKE": given}
    home = AirflowHome(tmp_path / "airflow", dags, env, ("api-server",), users)
    try:
        home.start()
        put_streams(home.env, [_row(lake, number) for number in range(STREAMS)])
        home.wait(home.api.health, 300, "the API server")
        yield home
    finally:
        home.stop()


def _chip(seen: Browser, word: str) -> str:
    return str(
        seen.ask(f'document.querySelector(".chips .{word}")?.parentElement.textContent ?? ""')
    )


def _names(seen: Browser) -> list[str]:
    return list(seen.ask('[...document.querySelectorAll("a.row")].map((each) => each.textContent)'))


def test_a_thousand_streams_are_listed_found_and_read_everywhere(
    airflow: AirflowHome, far: RoundTrips
) -> None:
    token = airflow.api.headers()["Authorization"].removeprefix("Bearer ")
    with browser(airflow.url) as seen:
        seen.sign_in(token)
        far.is_open.clear()
        seen.open("/cloudfiles/streams")
        assert far.requests == []
        assert _chip(seen, "unread") == "not read yet 1,000", "the page waits for no state"
        painted, ended = _times(seen)
        assert painted < ended, "it begins before its rows"
        assert len(_names(seen)) == 50

        far.is_open.set()
        _open_when_read(seen, airflow)
        _each_is_read_once_while_it_is_fresh(far.requests)
        seen.open("/cloudfiles/streams")
        _log.info("First paint and end of the page, in ms, when all is known: %s", _times(seen))

        assert [_chip(seen, word) for word in ("trouble", "failed", "behind")] == [
            "in trouble 8",
            "failed 3",
            "behind 5",
        ]
        names = [f"mapped/ingest[table {each}]" for each in (*FAILED, *BEHIND)]
        assert _names(seen)[:9] == [*names, "dag_00/ingest_000"]
        assert f"UnknownFieldException: New: {HOSTILE}" in seen.text()

        _fits_windows_and_can_be_read(seen)

        seen.search("q", "TABLE 777")
        seen.wait_for("1 to 1 of 1 stream")
        assert _names(seen) == ["mapped/ingest[table 777]"]
        seen.click("mapped/ingest[table 777]")
        assert "s3://in/stream-777" in seen.wait_for("s3://lake/tables/777")
        seen.click("All streams")
        seen.click("behind 5")
        seen.wait_for("1 to 5 of 5 streams")
        assert _names(seen) == names[3:]
        assert seen.complaints() == []

        seen.open("/plugin/cloudfiles_streams")
        seen.enter_frame()
        seen.wait_for("in trouble 8")


def _open_when_read(seen: Browser, airflow: AirflowHome) -> None:
    def is_read() -> bool:
        seen.open("/cloudfiles/streams")
        return _chip(seen, "unread") == ""

    airflow.wait(is_read, 300, "all states to be read")


def _each_is_read_once_while_it_is_fresh(requests: Sequence[Request]) -> None:
    """One request a stream; another where the page was opened again after that long."""
    assert {each.method for each in requests} == {"GET"}
    by_key: dict[str, list[Request]] = defaultdict(list)
    for each in sorted(requests, key=lambda request: request.began):
        by_key[each.key].append(each)
    assert len(by_key) == STREAMS
    for known in by_key.values():
        for before, after in pairwise(known):
            assert after.began - before.began >= FRESH_SECONDS, after.key


def _times(seen: Browser) -> list[int]:
    """When something was painted first, and when the page had ended, in milliseconds."""
    paint = 'performance.getEntriesByName("first-contentful-paint")'
    until(lambda: seen.ask(f"{paint}.length"))
    ended = 'performance.getEntriesByType("navigation")[0].responseEnd'
    return [round(seen.ask(each)) for each in (f"{paint}[0].startTime", ended)]


def _fits_windows_and_can_be_read(seen: Browser) -> None:
    for width in (1600, 1280, 1000, 700, 390):
        seen.resize(width)
        farthest = seen.ask(FARTHEST)
        assert farthest <= seen.ask("document.documentElement.clientWidth") <= width, width
    for scheme in ("light", "dark"):
        seen.prefer(scheme)
        back = seen.ask("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(255, 255, 255)") == (scheme == "light")
        assert seen.ask(WORST_CONTRAST) >= 4.5, scheme
    seen.resize(1400)
