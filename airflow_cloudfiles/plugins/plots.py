"""How did files, rows, rescued rows and durations develop over the newest runs?

Bars, as numbers between 0 and 100; the page draws them. No script runs in a page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.overview.runs import RunSummary

HEIGHT: Final = 100.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One run in a plot.

    Attributes:
        height: Of the bar, at most `HEIGHT`; one that is not zero can be seen.
        value: What it stands for.
        run: The run.
    """

    height: float
    value: float
    run: RunSummary


@dataclass(frozen=True, slots=True)
class Plot:
    """One measure over the newest runs, the oldest first.

    Attributes:
        title: What it shows.
        unit: Of its values: `""` for a count, `s` for seconds.
        highest: Its highest value.
        bars: A bar for each run.
    """

    title: str
    unit: str
    highest: float
    bars: Sequence[Bar]


_MEASURES: Final[Sequence[tuple[str, str, Callable[[RunSummary], float]]]] = (
    ("Files", "", lambda run: run.files),
    ("Rows", "", lambda run: run.rows),
    ("Rescued rows", "", lambda run: run.rescued_rows),
    ("Duration", "s", lambda run: run.seconds or 0.0),
)


def plots_of(newest: Sequence[RunSummary]) -> list[Plot]:
    """Make the plots of some runs of which the newest comes first; only those that ingested."""
    runs = [run for run in reversed(newest) if run.kind == "ingest"]
    return [_plot(title, unit, measure, runs) for title, unit, measure in _MEASURES] if runs else []


def _plot(
    title: str, unit: str, measure: Callable[[RunSummary], float], runs: Sequence[RunSummary]
) -> Plot:
    highest = max(map(measure, runs))
    bars = [Bar(_height(measure(run), highest), measure(run), run) for run in runs]
    return Plot(title, unit, highest, bars)


def _height(value: float, highest: float) -> float:
    return 0.0 if value <= 0 else max(2.0, round(HEIGHT * value / highest, 1))
