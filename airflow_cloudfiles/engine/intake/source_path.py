"""Where do the files of a stream land, as its state sees it?

A state belongs to one source: a folder, or a pattern of folders. A part of that folder may be asked
for on the same state, for instance one day of a backfill; paths stay relative to the whole, so that
a file is the same file whichever part it was asked for in.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cloudfiles.engine.discovery.filters import escape_pattern, split_pattern
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri


@dataclass(frozen=True, slots=True)
class SourcePath:
    """Where the files of a stream land.

    Attributes:
        root: URI of the folder that paths are relative to.
        pattern: Which files below it are meant; `None` for all.
        name: What a state knows the source by.
    """

    root: str
    pattern: str | None
    name: str


def locate(source: str, state: ObjectStore | None = None) -> SourcePath:
    """Take a source path apart, as the state it is to be used with sees it.

    Args:
        source: Path or URI, perhaps with a pattern. It may be a folder or a pattern below the
            folder that the state belongs to.
        state: The checkpoint location; `None` when it is not known yet.
    """
    root, pattern = split_pattern(source)
    root = normalize_uri(root)
    metadata = None if state is None else read_metadata(state)
    if metadata is None or split_pattern(metadata.source)[1] is not None:
        return SourcePath(root, pattern, name_of(root, pattern))
    whole = metadata.source
    if root == whole:
        return SourcePath(whole, pattern, whole)
    if root.startswith(whole.rstrip("/") + "/"):
        below = escape_pattern(root[len(whole.rstrip("/")) + 1 :])
        return SourcePath(whole, f"{below}/{pattern or ''}", whole)
    return SourcePath(root, pattern, name_of(root, pattern))


def root_of(name: str) -> str:
    """Give the folder that paths are relative to, of what a state knows its source by."""
    try:
        return split_pattern(name)[0]
    except OptionError:  # the name of a folder, which is no pattern
        return name


def name_of(root: str, pattern: str | None) -> str:
    """Give what a state knows a source by."""
    return root if pattern is None else f"{root.rstrip('/')}/{pattern}"
