"""What tests share is taken down after the last test: not for ever, whatever hangs there.

The limit of `pytest-timeout` is for one thing that hangs: it does not see the second, nor a thread
that keeps Python from ending. Here the process ends itself, and first says where each thread is.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_SECONDS = 900
"""On a busy machine, one Spark and six servers end in one minute."""


class Ending:
    """The plugin.

    Args:
        seconds: After the last test; a process that has not ended its session by then ends at once.
    """

    def __init__(self, seconds: float = LONGEST_SECONDS) -> None:
        self._seconds = seconds
        # While tests run, the stream is one that keeps what is written.
        self._errors = os.dup((sys.__stderr__ or sys.stderr).fileno())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        """Begin to measure with the end of the last test."""
        if nextitem is None:
            self._begin()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Begin again: the limit for one test ends with the last one, and takes this one along."""
        self._begin()

    def _begin(self) -> None:
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._errors)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """The session has ended; a process of several waits for the others now."""
        faulthandler.cancel_dump_traceback_later()
        os.close(self._errors)
