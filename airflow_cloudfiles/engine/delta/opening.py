"""Is there a Delta table, and how is it opened?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql.types import StructType  # noqa: TC002 - read when the module is

from airflow_cloudfiles.engine.delta.data_files import FileSettings
from airflow_cloudfiles.engine.delta.durability import (
    refuse_torn,
    refuse_unreadable,
    set_aside_torn,
)
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.read.files import TableColumns
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.errors import TargetCorruptedError, TargetNotDeltaError


def open_table(target: str, version: int | None = None) -> DeltaTable | None:
    """Open a table; `None` when there is nothing yet.

    Args:
        target: Path or URI of the table.
        version: One of its versions; the newest, unless one is named.

    Raises:
        TargetNotDeltaError: The folder holds something else, or is no folder.
        TargetUnreachableError: Its storage failed, or refused us.
    """
    location = DeltaLocation.of(target)
    with location.translate_store_errors("cannot be opened"):
        if not _has_log(location):
            return None
    try:
        return load_table(location, version)
    except TableNotFoundError:
        return None


def open_to_write(target: str) -> DeltaTable | None:
    """Open a table as `open_table` does; a log that a power failure has torn is mended first."""
    try:
        return open_table(target)
    except TargetCorruptedError:
        location = DeltaLocation.of(target)
        with location.translate_errors("cannot be mended"):
            is_whole = set_aside_torn(location)
        if not is_whole:
            raise
        return open_table(target)


def file_settings(
    target: str, target_bytes: int | None = None, *, folder: str = ""
) -> FileSettings:
    """What the data files of a table are to be like; the defaults when there is none yet.

    Args:
        target: Path or URI of the table.
        target_bytes: A size that goes before that of the table.
        folder: Where in the table the files are to be, as `FileSettings` has it.

    Raises:
        TargetNotDeltaError: As for `open_table`.
        TargetUnreachableError: As for `open_table`.
    """
    table = open_to_write(target)
    found = FileSettings.of({} if table is None else table.metadata().configuration, target_bytes)
    return replace(found, folder=folder)


def open_existing(target: str, version: int | None = None) -> DeltaTable:
    """Open a table that must be there.

    Raises:
        TargetNotDeltaError: There is no Delta table.
    """
    table = open_table(target, version)
    if table is None:
        raise TargetNotDeltaError(f"There is no Delta table at {target}. Check the path.")
    return table


def table_schema(target: str) -> StructType:
    """The columns of the newest version of a table.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        UnsupportedTableError: It needs a feature that is not supported.
    """
    log = TableLog(DeltaLocation.to_read(target))
    return TableColumns.of(log.snapshot()).public_schema


def load_table(location: DeltaLocation, version: int | None = None) -> DeltaTable:
    """Load a table that has a log; a log that a power failure has torn is refused."""
    with location.translate_store_errors("cannot be read"):
        refuse_torn(location)
    with location.translate_errors("cannot be opened"):
        try:
            return DeltaTable(
                location.table_uri, version=version, storage_options=location.storage_options()
            )
        except DeltaError:
            refuse_unreadable(location)
            raise


def _has_log(location: DeltaLocation) -> bool:
    """Whether there is a Delta log; refuses a place that has something else."""
    if location.folder is None:
        store = location.store()
        if next(store.list("_delta_log/"), None) is not None:
            return True
        keys = (file.path for file in store.list(skip=lambda key, _: _is_ours(key)))
        foreign = next(keys, None)
    else:
        folder = Path(location.folder)
        if folder.exists() and not folder.is_dir():
            raise TargetNotDeltaError(
                f"The target {location.target} is a file, not a folder. Choose another target."
            )
        if not folder.is_dir() or (folder / "_delta_log").is_dir():
            return folder.is_dir()
        foreign = next((path.name for path in folder.iterdir() if not _is_ours(path.name)), None)
    if foreign is not None:
        raise TargetNotDeltaError(
            f"The target {location.target} is not a Delta table: it has no _delta_log but holds "
            f"{foreign!r}. Choose an empty folder or a Delta table."
        )
    return False


def _is_ours(key: str) -> bool:
    """Whether something is hidden, or a data file that a killed task left before any commit."""
    name = key.partition("/")[0]
    return name.startswith((".", "_")) or (
        name.startswith("part-") and name.endswith(".parquet") and name == key
    )
