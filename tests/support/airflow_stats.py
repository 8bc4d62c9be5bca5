"""Airflow's own stats, configured in a test's process, and who receives their lines."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import airflow
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

CAN_BE_CONFIGURED = Version(airflow.__version__) >= Version("3.3")
"""Before, stats are configured otherwise, and nothing is received."""


class Receiver:
    """Keeps the lines that statsd's client would send."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_broken = False

    def incr(self, stat: str, count: int, rate: float) -> None:
        """Take a counter."""
        self._take(f"{stat}:{count}|c", rate)

    def gauge(self, stat: str, value: float, rate: float, delta: bool) -> None:
        """Take a gauge."""
        assert not delta
        self._take(f"{stat}:{value:g}|g", rate)

    def timing(self, stat: str, time: timedelta) -> None:
        """Take a duration."""
        self._take(f"{stat}:{time.total_seconds() * 1000:g}|ms", 1)

    def _take(self, line: str, rate: float) -> None:
        if self.is_broken:
            raise OSError("no route to the receiver")
        assert rate == 1
        self.lines.append(line)


@contextmanager
def received() -> Iterator[Receiver]:
    """Have Airflow's stats send lines with tags as InfluxDB has them, within the block."""
    found = Receiver()
    if not CAN_BE_CONFIGURED:
        yield found
        return
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger
    from airflow.sdk.observability import stats

    logger = SafeStatsdLogger(
        found,  # type: ignore[arg-type]
        influxdb_tags_enabled=True,
        statsd_influxdb_enabled=True,
    )
    stats.initialize(factory=lambda: logger, export_legacy_names=True)
    try:
        yield found
    finally:
        stats.initialize(factory=NoStatsLogger, export_legacy_names=True)
