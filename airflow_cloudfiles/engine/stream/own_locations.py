"""Where do the files of a stream land, and what below that place is not input?"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_cloudfiles.engine.cleaning.destination import check_destination
from airflow_cloudfiles.engine.intake.source_path import SourcePath, locate
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.storage.uri import refuse_source_only


def own_locations(options: CloudFilesOptions, *others: str | None) -> Sequence[str]:
    """Locations that may lie below the source and are not input: state, schemas, target ...

    Raises:
        UnsupportedOptionError: State, schemas or bad records are where only a source can be.
    """
    for location in _named(options):
        refuse_source_only(location or "")
    named = (*_named(options), options.cleaning.move_destination)
    own = (*others, *named, *options.exclude)
    return tuple(dict.fromkeys(normalize_uri(location) for location in own if location))


def check_cleaning(options: CloudFilesOptions, *others: str | None) -> None:
    """Find out whether files of the source can be moved where they are to be.

    Raises:
        OptionError: They cannot.
    """
    destination = options.cleaning.move_destination
    if destination is not None:
        check_destination(
            destination,
            place_of(options, options.checkpoint_location),
            [each for each in (*others, *_named(options), *options.exclude) if each],
            strict=options.discovery.use_strict_globber,
        )


def _named(options: CloudFilesOptions) -> tuple[str | None, ...]:
    return options.checkpoint_location, options.schema_location, options.bad_records_path


def place_of(options: CloudFilesOptions, checkpoint: str | None) -> SourcePath:
    """Where the files land, as the state sees it."""
    return locate(options.path, open_store(checkpoint) if checkpoint else None)
