"""Refuse places that files of a source cannot be moved to.

Not where they would be ingested again, and not into a place that is something else. All of it is
known before a run begins, but for the sources of other streams, whose states are read later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from airflow_cloudfiles.engine.discovery.globs import SourcePattern
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.intake.opening import SourcePath, named_locations, place_of
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.storage import StoreOpener, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.uri import bucket_and_path
from airflow_cloudfiles.engine.target import target_of

OPTION: Final = "cloudFiles.cleanSource.moveDestination"


def check_cleaning(
    options: CloudFilesOptions, *others: str | None, open_state: StoreOpener = open_store
) -> None:
    """Find out whether files of the source can be moved where they are to be.

    Raises:
        OptionError: They cannot.
    """
    destination = options.cleaning.move_destination
    if destination is not None:
        check_destination(
            destination,
            place_of(options, options.checkpoint_location, open_state),
            [each for each in (*others, *named_locations(options), *options.exclude) if each],
            strict=options.discovery.use_strict_globber,
        )


def check_destination(
    destination: str, place: SourcePath, others: Iterable[str], *, strict: bool = False
) -> None:
    """Refuse a folder that files cannot be moved to.

    Args:
        destination: The folder.
        place: Where the files land.
        others: Locations that are not for files of the source: state, schemas, target, bad records.
        strict: Whether the pattern of the source is read as Spark reads it.

    Raises:
        OptionError: It is in another bucket; in the source, or above it; or in one of the others.
    """
    to = normalize_uri(destination)
    if _bucket(to) != _bucket(place.root):
        raise OptionError(
            f"{OPTION}={destination} is not where the source {printable_path(place.root)} is. "
            "Files are moved within one bucket, container, disk or server: give a folder there."
        )
    below = open_store(place.root).key_of(to)
    is_above = open_store(to).key_of(place.root) is not None
    if is_above or (below is not None and _may_be_input(below, place.pattern, strict=strict)):
        what = "is or contains the source" if is_above else "is below the source"
        raise OptionError(  # B121
            f"{OPTION}={destination} {what} {printable_path(place.name)}: files that were moved "
            "would be ingested again. Give a folder outside of it."
        )
    for other in others:
        folder = target_of(other).folder
        if folder is not None and _overlap(to, folder):
            raise OptionError(
                f"{OPTION}={destination} overlaps {printable_path(other)}, which this stream uses "
                "itself: the state, the schemas, the target or the bad records. Give a folder of "
                "its own."
            )


def _may_be_input(below: str, pattern: str | None, *, strict: bool) -> bool:
    """Tell whether files in a folder below the root of the source may be ingested."""
    if not below or pattern is None:
        return True
    return SourcePattern(pattern, strict=strict).may_hold(below)


def _overlap(one: str, other: str) -> bool:
    return open_store(one).key_of(other) is not None or open_store(other).key_of(one) is not None


def _bucket(uri: str) -> str:
    """Name the place that files can be moved within."""
    scheme = uri.partition("://")[0]
    return scheme if scheme == "file" else f"{scheme}://{bucket_and_path(uri)[0]}"
