"""Tell how the names of a table's files grow, and what finding new ones would cost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.overview.cost import KINDS, Load, estimated
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

_FEWEST: Final = 3
_MOSTLY: Final = 0.95
_HOURS_A_MONTH: Final = 720
_HOUR_US: Final = 3600 * 10**6
_TEXTS: Final = {
    "last": "New files come last in the order of names: useIncrementalListing=auto finds them at "
    "the end, without listing everything each time.",
    "last in their folders": "New files come last in their folders, but not in the order of all "
    "names: useIncrementalListing=auto looks where the source has grown before.",
    "anywhere": "New files come anywhere in the order of names: useIncrementalListing=auto finds "
    "some of them only with a full listing, which is one of eight.",
    "unknown": "The times of the files do not show in which order they came.",
}


@dataclass(frozen=True, slots=True)
class Growth:
    """How the names of files grow.

    Attributes:
        kind: `last`, `last in their folders`, `anywhere` or `unknown`.
        files_an_hour: How many came, on average; `None` where it is not known.
    """

    kind: str
    files_an_hour: float | None

    @property
    def text(self) -> str:
        """What that means for a listing, in a sentence."""
        return _TEXTS[self.kind]


def growth_of(files: Sequence[FileEntry]) -> Growth:
    """Compare the order of names with the order of times."""
    times = sorted({file.modification_time_us for file in files})
    if len(times) < _FEWEST:
        return Growth("unknown", None)
    hours = (times[-1] - times[0]) / _HOUR_US
    rate = len(files) / hours if hours > 1 else None
    by_time = sorted(files, key=lambda file: (file.modification_time_us, os.fsencode(file.path)))
    if _share_last(by_time, per_folder=False) >= _MOSTLY:
        return Growth("last", rate)
    folders = {file.path.rpartition("/")[0] for file in files}
    if len(folders) > 1 and _share_last(by_time, per_folder=True) >= _MOSTLY:
        return Growth("last in their folders", rate)
    return Growth("anywhere", rate)


def _share_last(by_time: Sequence[FileEntry], *, per_folder: bool) -> float:
    """Compute which share of files had the greatest name when they came."""
    last: dict[str, bytes] = {}
    count = 0
    for file in by_time:
        folder = file.path.rpartition("/")[0] if per_folder else ""
        name = os.fsencode(file.path)
        count += name > last.get(folder, b"")
        last[folder] = max(name, last.get(folder, b""))
    return count / len(by_time)


@dataclass(frozen=True, slots=True)
class DiscoveryCost:
    """What the runs of a stream would ask of a store in a month.

    Attributes:
        requests: By kind.
        new_files: So many of a run were supposed.
    """

    requests: Mapping[str, int]
    new_files: int


def monthly_cost(
    source: str,
    options: CloudFilesOptions,
    files: Sequence[FileEntry],
    growth: Growth,
    runs_an_hour: float,
) -> DiscoveryCost | None:
    """Estimate the requests of a month; `None` where requests have no price, as on a disk.

    Args:
        source: Of the stream.
        options: Its options.
        files: That it has.
        growth: How they come.
        runs_an_hour: How often it would run.
    """
    size = sum(file.size for file in files) // max(1, len(files))
    new = max(1, round((growth.files_an_hour or 0) / runs_an_hour))
    try:
        each = estimated(source, options, Load(len(files), new, size))["new"]
    except OptionError:
        return None
    month: Counter[str] = Counter()
    for kind in KINDS:
        month[kind] = round(each[kind] * runs_an_hour * _HOURS_A_MONTH)
    return DiscoveryCost(month, new)
