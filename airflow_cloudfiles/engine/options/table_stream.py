"""Declare the options of a stream from a Delta table.

Delta's own names. What looks like one of them and is none is left to Spark, which passes on
options of all kinds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.errors import (
    OptionError,
    UnknownOptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.options.declared import OptionGroup, option, options_of
from airflow_cloudfiles.engine.options.sink import EXPECT, OF_SINK
from airflow_cloudfiles.engine.options.values import (
    CREDENTIALS,
    boolean,
    option_text,
    place,
    positive,
    size,
    text,
)

TRACKING: Final = "_schema_tracking"
"""Folder of the schema tracking log of a run, below its checkpoint location."""
DEFAULT_MAX_FILES = 1000
"""How many files a micro-batch has at most, where no limit is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStreamOptions(OptionGroup):
    """The options of `readStream.format("delta")`."""

    starting_version: str | None = option("startingVersion", text, default=None)
    """Begin with the changes of this version, or with `latest` those after the newest one, instead
    of all rows that the table has. It matters only to a new checkpoint."""
    starting_timestamp: str | None = option("startingTimestamp", text, default=None)
    """Begin with the first version that was committed at or after this time, such as
    `2026-01-31T12:00:00Z`. It matters only to a new checkpoint."""
    max_files_per_trigger: int | None = option(
        "maxFilesPerTrigger",
        positive,
        default=None,
        shown="1000; none where only `maxBytesPerTrigger` is given",
    )
    """How many files a micro-batch has at most."""
    max_bytes_per_trigger: int | None = option("maxBytesPerTrigger", size, default=None)
    """A micro-batch takes no further file when it has this many bytes; it may have more, by one
    file."""
    ignore_deletes: bool = option("ignoreDeletes", boolean, default=False)
    """Ignore commits that only delete data files."""
    ignore_changes: bool = option(
        "ignoreChanges", boolean, default=False, also=("ignoreFileDeletion",)
    )
    """Emit again, as a whole, the files that a commit has rewritten: rows are repeated."""
    skip_change_commits: bool = option("skipChangeCommits", boolean, default=False)
    """Skip, as a whole, commits that delete or update rows."""
    exclude_regex: str | None = option("excludeRegex", text, default=None)
    """Leave out data files in whose path this pattern is found."""
    fail_on_data_loss: bool = option("failOnDataLoss", boolean, default=True)
    """Fail when versions that were not read are gone from the log; otherwise go on behind them."""
    schema_tracking_location: str | None = option(
        "schemaTrackingLocation", place, default=None, also=("schemaLocation",)
    )
    """Folder below the checkpoint location where the stream keeps the schemas of the table; with it
    the stream goes on over renamed, dropped and retyped columns."""
    streaming_source_tracking_id: str | None = option(
        "streamingSourceTrackingId", text, default=None
    )
    """Tells two streams from one table apart that have one `schemaTrackingLocation`."""
    checkpoint_location: str | None = option(
        "checkpointLocation", place, default=None, shown="that of `writeStream`"
    )
    """The checkpoint of the query. After `airflow_cloudfiles.register(spark)` it is passed on."""
    allow_source_column_rename: str | None = option("allowSourceColumnRename", text, default=None)
    """Go on over renamed columns: `always`, or the version that the error names."""
    allow_source_column_drop: str | None = option("allowSourceColumnDrop", text, default=None)
    """Go on over dropped columns: `always`, or the version that the error names."""
    allow_source_column_type_change: str | None = option(
        "allowSourceColumnTypeChange", text, default=None
    )
    """Go on over columns with another type: `always`, or the version that the error names."""
    read_change_feed: bool = option(
        "readChangeFeed", boolean, default=False, also=("readChangeData",)
    )
    """Refused: the change data feed is not read."""

    @property
    def most_files(self) -> int | None:
        """How many files a micro-batch has at most; `None` for any number."""
        if self.max_files_per_trigger is None and self.max_bytes_per_trigger is not None:
            return None
        return self.max_files_per_trigger or DEFAULT_MAX_FILES

    def _check(self) -> None:
        if self.read_change_feed:
            raise OptionError(
                "The option readChangeFeed is not supported: the change data feed of a Delta table "
                "is not read. Leave it out to read the rows that are added, or use Delta's jars."
            )
        if self.starting_version is not None and self.starting_timestamp is not None:
            raise OptionError("Set startingVersion or startingTimestamp, not both.")
        version = self.starting_version
        if version is not None and version != "latest" and not re.fullmatch(r"\d{1,18}", version):
            raise OptionError(
                f"startingVersion={version} is not valid: give the number of a version, or latest."
            )
        if self.exclude_regex is not None:
            try:
                re.compile(self.exclude_regex)
            except re.error as error:
                raise OptionError(
                    f"excludeRegex={self.exclude_regex} is no regular expression: {error}."
                ) from error
        if self.schema_tracking_location is not None and not self.fail_on_data_loss:
            raise OptionError(
                "failOnDataLoss=false and schemaTrackingLocation contradict each other: schema "
                "changes may be in what is lost. Leave one of them out."
            )


_OF_SINK: Final = frozenset(each.lower() for each in OF_SINK)
_NAMES: Final = {
    name.lower(): name for each in options_of(TableStreamOptions).values() for name in each.names
}
_CREDENTIALS: Final = {each.name.lower(): each for each in CREDENTIALS}


def check_names(options: Mapping[str, object]) -> dict[str, str]:
    """Check the options of a task whose source is a Delta table.

    Args:
        options: Of the source and of the sink.

    Returns:
        Those of the source, by their names in lower case.

    Raises:
        OptionError: One has a bad value, or contradicts another.
        UnknownOptionError: There is no such option.
    """
    found = {}
    for name, value in options.items():
        key = str(name).lower()
        if credential := _CREDENTIALS.get(key):
            credential.refuse("")
        if key.startswith(EXPECT):
            raise UnsupportedOptionError(
                f"{name}: expectations are for streams of files, and the source is a Delta table, "
                "whose rows are not parsed. Remove it."
            )
        if key in _OF_SINK:
            continue
        if key not in _NAMES:
            near = difflib.get_close_matches(key, _NAMES, n=1)
            hint = f" Did you mean {_NAMES[near[0]]}?" if near else ""
            raise UnknownOptionError(
                f"{name} is no option of a stream from a Delta table.{hint} The options are "
                f"{', '.join(sorted(_NAMES.values()))}."
            )
        found[key] = option_text(value)
    TableStreamOptions.read(found)
    return found


def table_options(
    options: Mapping[str, object], checkpoint: str, schema_location: str | None
) -> dict[str, str]:
    """Build the options of a run's source; schemas are tracked, unless data may get lost.

    Args:
        options: Of the task.
        checkpoint: Its checkpoint location.
        schema_location: Where its schema log is, if it says so.
    """
    found = check_names(options)
    read = TableStreamOptions.read(found)
    if read.schema_tracking_location is None and read.fail_on_data_loss:
        location = schema_location or f"{checkpoint.rstrip('/')}/{TRACKING}"
        found["schematrackinglocation"] = location
    return found
