"""A watcher fires once for what arrived: one batch is one DAG run, whatever happens to that run."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.intake.results import Arrivals
from airflow_cloudfiles.triggers.cloud_files import judged

pytestmark = pytest.mark.airflow

NOTHING = Arrivals(START)
FILE = Arrivals(START, unrecorded=True)
RECORDED = Arrivals(Offset(1, 0), recorded=True)
FILE_BEHIND_RUN = Arrivals(Offset(1, 0), recorded=True, unrecorded=True)


def _messages(count: int, head: Offset = START) -> Arrivals:
    return Arrivals(head, messages=count)


def _fires(*checks: Arrivals) -> list[bool]:
    """What a watcher does that forgets nothing, though it is started anew before each check."""
    fired, memory = [], None
    for seen in checks:
        should_fire, memory = judged(seen, json.loads(json.dumps(memory)))
        fired.append(should_fire)
    return fired


@pytest.mark.parametrize(
    ("checks", "fires"),
    [
        pytest.param([NOTHING, NOTHING], [False, False], id="nothing"),
        pytest.param([FILE, FILE, FILE], [True, False, False], id="a run that never comes"),  # B145
        pytest.param([FILE, RECORDED, NOTHING], [True, False, False], id="one batch, one run"),
        pytest.param([FILE, RECORDED, RECORDED], [True, False, False], id="a run that fails"),
        pytest.param([FILE, NOTHING, FILE], [True, False, True], id="two batches"),
        pytest.param([RECORDED, RECORDED], [True, False], id="left by an earlier run"),
        pytest.param([FILE, FILE_BEHIND_RUN], [True, True], id="a file after a run has looked"),
        pytest.param([RECORDED, FILE_BEHIND_RUN], [True, True], id="a file after a failed run"),
        pytest.param([_messages(3), _messages(3), _messages(1)], [True, False, False], id="drain"),
        pytest.param([_messages(3), _messages(1), _messages(2)], [True, False, True], id="more"),
        pytest.param(
            [_messages(1), _messages(1, Offset(1, 0))], [True, True], id="another, after the run"
        ),
        pytest.param(
            [Arrivals(START, messages=1, newest_us=us) for us in (5, 5, 6, 3, 6, 7)],
            [True, False, True, False, False, True],
            id="a queue that does not count",  # Pub/Sub: some of the messages are looked at
        ),
        pytest.param(
            [_messages(3), _messages(0, Offset(1, 0)), _messages(1, Offset(1, 0))],
            [True, False, True],
            id="again",
        ),
    ],
)
def test_when_it_fires(checks: list[Arrivals], fires: list[bool]) -> None:
    assert _fires(*checks) == fires


arrivals = st.builds(
    Arrivals,
    head=st.builds(Offset, st.integers(0, 2), st.just(0)),
    recorded=st.booleans(),
    unrecorded=st.booleans(),
    messages=st.integers(0, 3),
    newest_us=st.integers(0, 3),
)


@given(st.lists(arrivals))
def test_it_never_fires_for_nothing_nor_twice_for_the_same(checks: list[Arrivals]) -> None:
    fired = _fires(*checks)
    assert not any(fires and not seen for fires, seen in zip(fired, checks, strict=True))
    for (before, seen), fires in zip(pairwise(checks), fired[1:], strict=True):
        assert not (fires and before == seen)
        assert fires or not seen or before, "what comes after nothing always fires"
