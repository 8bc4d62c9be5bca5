"""How does a job keep its state small?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import OptionGroup, option
from airflow_cloudfiles.engine.options.values import Kind, at_least_zero, interval

_SECONDS_A_DAY: Final = 86400


def _retention(name: str, text: str) -> float:
    seconds = interval.read(name, text)
    if seconds < _SECONDS_A_DAY:
        raise OptionError(
            f"{name} must be at least 1 day, got {text!r}: a run that was left on a server, and "
            "comes back, still needs what it was asked to do."
        )
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOptions(OptionGroup):
    """What jobs do besides, when their report is written."""

    state_compact_interval: int = option(
        "cloudFiles.stateCompactInterval", at_least_zero, default=100
    )
    """A job packs old entries of a log of its state when there are so many of them behind the
    newest 100; 0: never. Ours, not Auto Loader's."""
    run_retention_seconds: float = option(
        "cloudFiles.runRetention",
        Kind(interval.label, _retention),
        default=30.0 * _SECONDS_A_DAY,
        shown="`30 days`",
    )
    """How long specification and report of a run stay in the state; at least 1 day. Those of the
    newest 100 runs always do. Ours, not Auto Loader's."""
