"""Which files were there before the first start?

With `cloudFiles.includeExistingFiles=false` these are recorded as `existing` and never ingested.
The very first start decides it, for ever: it notes the time by the clock of the source
(`_source/metadata.json`), and begins a listing. What arrived before that time and is found by that
listing was there. A later listing goes on where the first one was interrupted; it may find files
that began to be uploaded before the start and were whole after it, which carry the earlier time. So
it takes the last minutes before the start for new, and the log says how many such files there were:
a file too many can be recognized by its path, a file too few is lost.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, plural

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

MARGIN_SECONDS = 900
"""What arrived so shortly before the first start is ingested when a later listing finds it."""

_SAMPLE_FILES = 5
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Baseline:
    """Distinguishes existing files from new ones until every existing one is known.

    Attributes:
        source: The folder the files land in.
        started_us: When the very first start was, by the clock of the source; `None` when nobody
            noted it: then whatever is found is existing.
        is_first: Whether the listing is the one that the very first start began.
        in_doubt: How many files were taken for new that may have been there.
        sample: The first paths of these, at most five.
    """

    source: ObjectStore
    started_us: int | None
    is_first: bool
    in_doubt: int = 0
    sample: list[str] = field(default_factory=list)

    def existing(self, files: list[FileEntry]) -> list[FileEntry]:
        """Give those of some files that were there before the first start, in their order."""
        if self.started_us is None:
            return files
        margin_us = 0 if self.is_first else MARGIN_SECONDS * 1_000_000
        sure_us = self.started_us - margin_us
        return [file for file in files if self.source.arrived_us(file) < sure_us]

    def note_new(self, files: list[FileEntry]) -> None:
        """Count those of the recorded files that may have been there all the same."""
        if self.started_us is None:
            return
        for file in files:
            # The store's own second, or tick, of the start cannot be distinguished either.
            if self.source.arrived_us(file) <= self.started_us:
                self.in_doubt += 1
                if len(self.sample) < _SAMPLE_FILES:
                    self.sample.append(printable_path(file.path))

    def warn(self) -> None:
        """Log which files are ingested although they may have been there before the first start."""
        if self.in_doubt:
            _log.warning(
                "%s of about the time of the first start %s ingested, although "
                "cloudFiles.includeExistingFiles is false: its time does not show whether a file "
                "was there before it. Such as: %s",
                counted(self.in_doubt, "file"),
                plural(self.in_doubt, "is", "are"),
                ", ".join(self.sample),
            )
            self.in_doubt = 0
            self.sample.clear()
