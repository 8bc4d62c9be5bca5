"""Whoever waits for an inference or an ingestion is told how far it is."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from airflow_cloudfiles.engine import messages
from airflow_cloudfiles.engine.messages import Progress

SAMPLE = (100, 3_000_000_000)
"""Files and bytes."""


class Terminal(io.StringIO):
    """A screen."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(messages, "time", found)
    return found


def test_the_log_gets_a_line_every_few_seconds(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), Progress("Inferring the schema", *SAMPLE) as progress:
        for _ in range(40):
            clock.now += 0.25
            progress.add(1, 30_000_000)
    assert [record.getMessage() for record in caplog.records] == [
        "Inferring the schema: 20 of 100 files, 600 MB of 3.0 GB, 120 MB/s, about 20 s left",
        "Inferring the schema: 40 of 100 files, 1.2 GB of 3.0 GB, 120 MB/s, about 15 s left",
    ]


def test_what_takes_no_time_reports_nothing(
    clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with caplog.at_level(logging.INFO), Progress("Inferring the schema", *SAMPLE) as progress:
        clock.now += 0.1
        progress.add(100, 3_000_000_000)
    assert not caplog.records
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_a_terminal_has_one_line_that_is_gone_in_the_end(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("Inferring the schema", *SAMPLE) as progress:
        for _ in range(2):
            clock.now += 400
            progress.add(1, 30_000_000)
    first, second, wiped, end = terminal.getvalue().split("\r")[1:]
    assert first == (
        "Inferring the schema: 1 of 100 files, 30 MB of 3.0 GB, 75 kB/s, about 11.0 h left"
    )
    assert second.startswith("Inferring the schema: 2 of 100 files")
    assert wiped == " " * len(second.rstrip())
    assert end == ""


def test_minutes_are_reported_as_minutes(clock: Clock) -> None:
    progress = Progress("Inferring the schema", *SAMPLE)
    clock.now += 60
    progress.add(10, 300_000_000)
    assert str(progress).endswith("5 MB/s, about 9 min left")
