"""What becomes of files of the source that were ingested?

The part of the options that cleaning obeys, as one frozen value; it holds no credentials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import OptionGroup, option
from airflow_cloudfiles.engine.options.values import (
    Kind,
    boolean,
    choice,
    interval,
    names,
    parse_interval,
    place,
)

CleanSource = Literal["OFF", "DELETE", "MOVE"]
CLEAN_SOURCE: tuple[CleanSource, ...] = ("OFF", "DELETE", "MOVE")

_SECONDS_A_DAY: Final = 86400
_DAYS_BEFORE_DELETION: Final = 7


def _retention(name: str, text: str) -> float:
    """Read an interval; none at all is one as well."""
    return 0.0 if parse_interval(text) == 0 else interval.read(name, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningOptions(OptionGroup):
    """What cleaning is asked to do; the defaults are those of the options."""

    mode: CleanSource = option("cloudFiles.cleanSource", choice(CLEAN_SOURCE), default="OFF")
    """What is done with a file of the source when it is committed and its retention is over: it
    stays, is deleted, or is moved. The current value decides, whatever it was when the file was
    ingested. [Clean the source](../how-to/clean-the-source.md) has the rules."""
    retention_seconds: float = option(
        "cloudFiles.cleanSource.retentionDuration",
        Kind(interval.label, _retention),
        default=30 * _SECONDS_A_DAY,
        shown="`30 days`",
    )
    """How long after its commit a file stays. More than 7 days with `DELETE`; with `MOVE` it may
    be anything."""
    move_destination: str | None = option(
        "cloudFiles.cleanSource.moveDestination", place, default=None
    )
    """The folder that files are moved to with `MOVE`, under their paths below the source. In the
    bucket or container of the source, neither in the source nor above it."""
    other_checkpoints: tuple[str, ...] = option(
        "cloudFiles.cleanSource.otherCheckpoints", names, default=()
    )
    """Ours: the checkpoint locations of the other streams that read this source, separated by
    commas. A file stays until each of them has committed it; while the state of one cannot be read,
    all files stay."""
    wait_for_completion: bool = option(
        "cloudFiles.cleanSource.waitForCompletion", boolean, default=False
    )
    """Whether a run goes on until everything that is due is cleaned. Otherwise it cleans for a
    minute at most, and the next run goes on."""

    @property
    def is_on(self) -> bool:
        """Whether anything is cleaned."""
        return self.mode != "OFF"

    def _check(self) -> None:
        if self.mode == "DELETE" and self.retention_seconds <= (
            _DAYS_BEFORE_DELETION * _SECONDS_A_DAY
        ):
            raise OptionError(  # B119
                "cloudFiles.cleanSource=DELETE needs a cloudFiles.cleanSource.retentionDuration of "
                f"more than {_DAYS_BEFORE_DELETION} days: what is deleted cannot be ingested "
                "again. Give a longer one, or use MOVE."
            )
        if self.mode == "MOVE" and self.move_destination is None:
            raise OptionError(
                "cloudFiles.cleanSource=MOVE needs cloudFiles.cleanSource.moveDestination: the "
                "folder that files are moved to."
            )
