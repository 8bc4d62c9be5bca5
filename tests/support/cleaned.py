"""A source with files that were committed some time ago, and its cleaning."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_cloudfiles.engine.extensions.cleaning.clean import Cleaning, CleaningReport, clean
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake.opening import locate
from airflow_cloudfiles.engine.options.discovery import CleaningOptions
from airflow_cloudfiles.engine.state.file_log import FileBatch, FoundBy
from airflow_cloudfiles.engine.state.packs import decode_entry, encode_entry
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from tests.support.written_state import WrittenState

DAY = 86400.0


class Cleaned:
    """A stream whose state is written entry by entry, and its source.

    Args:
        root: URI of a folder for all of it: `in`, `state` and `archive`.
        source: Store of the source, if it is not `<root>/in`.
        state: Name of the state below the folder.
        at: URI of the folder for `in` and `archive`, where no state can be.
        behind: A place from which the files in that folder can be written.

    Attributes:
        source: The source.
        archive: Where files are moved to.
        written: The state.
    """

    def __init__(
        self,
        root: str,
        *,
        source: str = "in",
        state: str = "state",
        at: str = "",
        behind: str = "",
    ) -> None:
        self.root = root
        self.source = open_store(f"{at or root}/{source}")
        self.archive = open_store(f"{at or root}/archive")
        self._landing = open_store(f"{behind or at or root}/{source}")
        self.written = WrittenState(f"{root}/{state}", self.source.uri)

    def land(self, *names: str, content: bytes = b"rows") -> list[FileEntry]:
        """Put files into the source."""
        for name in names:
            self._landing.put(name, content)
        found = [self.source.head(name) for name in names]
        return [each for each in found if each is not None]

    def discover(self, *files: FileEntry, found_by: FoundBy = "listing") -> None:
        """Record files, in one entry."""
        number = self.written.files.latest() + 1
        assert self.written.files.append(number, FileBatch(files, found_by))

    def commit(self, *, days_ago: float = 0.0, **counts: Any) -> int:
        """Plan what is recorded as a batch and commit it."""
        assert self.written.plan() is not None
        batch = self.written.commit(**counts)
        age(self.written.state, batch, days_ago)
        return batch

    def ingest(self, *names: str, days_ago: float = 0.0, **counts: Any) -> list[FileEntry]:
        """Put files into the source, discover and commit them."""
        files = self.land(*names)
        self.discover(*files)
        self.commit(days_ago=days_ago, **counts)
        return files

    def clean(self, mode: Any = "MOVE", days: float = 0.0, **more: Any) -> CleaningReport:
        """Clean the source."""
        found = CleaningReport(mode, bool(more.get("is_dry_run")))
        clean(self.task(mode, days, **more), found)
        return found

    def task(self, mode: Any = "MOVE", days: float = 0.0, **more: Any) -> Cleaning:
        """What `clean` is asked to do."""
        options = CleaningOptions(
            mode=mode,
            retention_seconds=days * DAY,
            move_destination=self.archive.uri,
            other_checkpoints=more.pop("others", ()),
            wait_for_completion=True,
        )
        more.setdefault("verify", lambda _: None)
        place = locate(self.source.uri, self.written.state)
        return Cleaning(location=self.written.uri, place=place, options=options, **more)

    def left(self) -> list[str]:
        """What is in the source."""
        return names(self.source)

    def moved(self) -> list[str]:
        """What is where files are moved to."""
        return names(self.archive)


def age(state: ObjectStore, batch: int, days_ago: float) -> None:
    """Have a batch committed some time ago."""
    key = f"_source/sink/0/{batch:020}"
    header, body = decode_entry(state.get(key), name=key, format_version=1)
    committed = datetime.now(UTC) - timedelta(days=days_ago)
    header = json.loads(json.dumps({**header, "created": committed.isoformat()}))
    state.put(key, encode_entry(header, body, format_version=1))


def names(store: ObjectStore) -> list[str]:
    """The keys of a store."""
    return [entry.path for entry in store.list()]
