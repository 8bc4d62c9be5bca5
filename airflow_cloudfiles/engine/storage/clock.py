"""What time is it where the files are?

A store says when a file was modified by its own clock. Whoever compares that with another moment
needs the moment by the same clock, as finely as the store gives modification times.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Self

SKEW_SECONDS = 300
"""How far this machine's clock is taken to be ahead of a store that does not report the time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was seen, for whoever asks how long ago that was.

    Of the clocks of this machine, each may miss some time: the one that counts from its start does
    not count the sleep of some systems, the other one may be set back.

    Attributes:
        wall: Seconds since 1970.
        running: Seconds since the machine was started.
    """

    wall: float
    running: float

    @classmethod
    def now(cls) -> Self:
        """This moment."""
        clock = getattr(time, "CLOCK_BOOTTIME", None)  # counts sleep; Linux has it
        return cls(time.time(), time.monotonic() if clock is None else time.clock_gettime(clock))

    def seconds_ago(self) -> float:
        """How long ago it was: what the clock says that says more."""
        now = self.now()
        return max(now.wall - self.wall, now.running - self.running)


def now_us() -> int:
    """This machine's clock, in microseconds since 1970."""
    return time.time_ns() // 1000


def disk_now_us() -> int:
    """The clock by which a disk of this machine notes changes, in microseconds since 1970.

    Linux notes the time of its last tick, up to ten milliseconds ago.
    """
    coarse = getattr(time, "CLOCK_REALTIME_COARSE", None)
    return now_us() if coarse is None else time.clock_gettime_ns(coarse) // 1000


def http_now_us(date: str | None, store: str) -> int:
    """The clock of a server, in microseconds since 1970: a whole second.

    Args:
        date: The header `Date` of an answer it gave just now; `None` when there was none.
        store: What to call it in the log.

    Returns:
        Its time; without a date that can be read, this machine's, `SKEW_SECONDS` earlier.
    """
    try:
        return int(parsedate_to_datetime(date or "").timestamp()) * 1_000_000
    except ValueError:
        _log.warning(
            "%s does not report the time (its answer has the date %r). Its clock is assumed to be "
            "%d seconds behind the one of this machine.",
            store,
            date,
            SKEW_SECONDS,
        )
        return now_us() - SKEW_SECONDS * 1_000_000
