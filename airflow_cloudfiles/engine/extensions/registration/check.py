"""Find out before a run whether its files can be registered at all.

A data file of a table is named by its path below the table. Absolute paths are in Delta's protocol,
too, but not every reader takes them (decision 220). And VACUUM of Delta, of `deltalake` and of this
package remove what no version names, such as a file that waits to be ingested, except in folders
whose names begin with `_`. So that is where the source has to lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.discovery.globs import split_pattern
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage import normalize_uri
from airflow_cloudfiles.engine.tables.delta.commit import table_state
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.table_state import MODE
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

OPTION: Final = "cloudFiles.loadMode=reference"
_COPY: Final = "Leave it out, and the files are copied."
_TAKEN: Final = ("_delta_log", "_delta_index", "_change_data", "_cloudfiles")
"""How the names of folders begin in which a table has files of its own."""
_MATERIALIZED: Final = "materializePartitionColumns"


def below_table(target: str, source_uri: str) -> str:
    """Give the path of a source below a table.

    Args:
        target: Path or URI of the table.
        source_uri: What the paths of the files are relative to.

    Raises:
        OptionError: Files there cannot be data files of the table.
    """
    location = DeltaLocation.of(target)
    folder = location.store().key_of(source_uri)
    first = (folder or "").partition("/")[0]
    if not folder or not first.startswith("_") or first.startswith(_TAKEN) or "=" in first:
        raise OptionError(
            f"{OPTION} needs a source in a folder of the table whose name begins with _, such as "
            f"{printable_path(target).rstrip('/')}/_landing, and this one is "
            f"{printable_path(source_uri)}. Readers of tables find data files below the table, and "
            "a vacuum of it passes over such folders. Let the files land there, or use "
            "cloudFiles.loadMode=copy."
        )
    return folder


def check_run(spec: JobSpec, options: CloudFilesOptions) -> None:
    """Refuse a run whose files cannot be registered, whatever they are.

    Args:
        spec: The run.
        options: Of its source.

    Raises:
        OptionError: It is one.
    """
    target = str(spec.target)
    target_of(target).require_delta(f"{OPTION} is", _COPY)
    if spec.transform is not None:
        raise _refusal("a function makes other rows of those of the files (transform)")
    if spec.table_options.merge_keys:
        raise _refusal("rows are merged into the table (mergeKeys)")
    below_table(target, normalize_uri(split_pattern(options.path)[0]))
    state = table_state(target)
    mode = (spec.table_options.column_mapping or "none") if state is None else state.mode
    if mode != "none":
        raise _refusal(
            f"{target} has column mapping ({MODE}={mode}), so its files have other names"
        )
    if state is not None and _MATERIALIZED in state.features:
        raise _refusal(f"{target} has the table feature {_MATERIALIZED}")


def _refusal(why: str) -> OptionError:
    return OptionError(f"{OPTION} cannot be used here: {why}. {_COPY}")
