"""Which files of a state are asked for?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, get_args

from airflow_cloudfiles.engine.discovery.globs import SourcePattern, compile_name
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage import normalize_uri

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.state.batch_states import BatchState

FileStatus = Literal[
    "existing",
    "duplicate",
    "discovered",
    "planned",
    "committed",
    "lost",
    "skipped",
    "quarantined",
    "released",
    "forgotten",
]
"""How far a file has come. `existing`: there before the first start, and never ingested.
`duplicate`: its content is that of another file, and it is never ingested.
`discovered`: recorded. `planned`: part of a micro-batch that is not committed. `committed`: its
micro-batch is committed. `lost`: that was, the table lost it, and the loss was accepted. `skipped`,
`quarantined`: by an operation, before it was ingested. `released`: that was, and another record of
the file came in its place. `forgotten`: before it was ingested; it is another record, if any."""

OUTSTANDING: Final = "outstanding"
"""In a query: `discovered` or `planned`."""
STATUSES: Final[tuple[str, ...]] = (*get_args(FileStatus), OUTSTANDING)
"""What a query can ask for."""
_PATTERN: Final = frozenset("*?[{\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuery:
    """Which files of a state are wanted: those for which all that is given holds.

    Attributes:
        path: A file, a folder, or a pattern as in a source path (`*`, `?`, `[a-c]`, `{a,b}`);
            relative to the source, or with all of its URI. A pattern without a slash is one for
            names of files.
        status: One of these (`STATUSES`); none for any.
        batch_id: Of this micro-batch.
        run_id: Committed by this run of a job.
        discovered_since: Discovered at this time or later.
        discovered_until: Discovered before this time.
        committed_since: Committed at this time or later.
        committed_until: Committed before this time.
    """

    path: str | None = None
    status: tuple[str, ...] = ()
    batch_id: int | None = None
    run_id: str | None = None
    discovered_since: datetime | None = None
    discovered_until: datetime | None = None
    committed_since: datetime | None = None
    committed_until: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            OptionError: A status is none, or a time has no zone.
        """
        unknown = [each for each in self.status if each not in STATUSES]
        if unknown:
            raise OptionError(f"status must be one of {', '.join(STATUSES)}, got {unknown[0]!r}.")
        for name in ("discovered_since", "discovered_until", "committed_since", "committed_until"):
            time = getattr(self, name)
            if time is not None and time.tzinfo is None:
                raise OptionError(
                    f"{name} needs a time zone, got {time.isoformat()}. Write {time.isoformat()}Z "
                    "or use datetime(..., tzinfo=UTC)."
                )

    @property
    def needs_batch(self) -> bool:
        """Whether only files of a committed micro-batch can be meant."""
        return any((self.run_id, self.committed_since, self.committed_until))

    def was_discovered(self, time: datetime) -> bool:
        """Whether files that were discovered at a time are wanted."""
        return _is_between(time, self.discovered_since, self.discovered_until)

    def has_batch(self, batch: BatchState | None) -> bool:
        """Whether files of a micro-batch, or of none, are wanted."""
        if not self.needs_batch:
            return True
        if batch is None or (self.run_id is not None and batch.run_id != self.run_id):
            return False
        if self.committed_since is None and self.committed_until is None:
            return True
        return batch.committed is not None and _is_between(
            batch.committed, self.committed_since, self.committed_until
        )

    def matcher(self, source: str) -> Callable[[str], bool] | None:
        """Give what decides for the path of a file, relative to the source, whether it is wanted.

        Args:
            source: URI of the folder that paths are relative to.

        Returns:
            `None` when all paths are.

        Raises:
            OptionError: The path is not below the source, or is a pattern that cannot be read.
        """
        if self.path is None:
            return None
        asked = _below(self.path, source)
        if not asked:
            return None
        if not _PATTERN & set(asked):
            return lambda path: path == asked or path.startswith(asked.rstrip("/") + "/")
        pattern = SourcePattern(asked, strict=True)
        if "/" in asked:
            return lambda path: path == asked or pattern.matches(path)
        name = compile_name(asked)
        return lambda path: path == asked or name.matches(path.rpartition("/")[2])


def _below(path: str, source: str) -> str:
    """Give a path relative to the source.

    Raises:
        OptionError: It is another location.
    """
    is_uri = "://" in path or path.startswith("file:")
    if not is_uri and not (path.startswith("/") and source.startswith("file:")):
        return path
    given = normalize_uri(path) + ("/" if path.endswith("/") else "")
    root = source.rstrip("/")
    if given.rstrip("/") == root:
        return ""
    if not given.startswith(root + "/"):
        raise OptionError(
            f"{path!r} is not below the source of this state, {source}. Give a path below it, or "
            "one relative to it."
        )
    return given[len(root) + 1 :]


def _is_between(time: datetime, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or time >= since) and (until is None or time < until)
