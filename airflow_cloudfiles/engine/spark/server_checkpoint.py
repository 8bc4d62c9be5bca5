"""Where does Spark keep its checkpoint of a job that runs on a Spark Connect server?

In a folder of the server's own disk, for the one run. All that is in it is in the state, too.

1. The client names the folder, at random, below the server's temporary directory.
2. When the server defines the source, before it starts the query, the source makes the folder and
   writes the id of the query into it. A stream has the same id in every run, so Spark, which lets
   one query of an id run at a time, stops what a killed client has left behind.
3. The planning process holds a lock in the folder while the query runs, and removes it at its end.
4. A folder whose planning process was killed is removed by a later run on that server.

What is committed depends on none of it: that is in the records of the sink.
"""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import time
from pathlib import Path

from airflow_cloudfiles.engine.errors import OptionError, StateError
from airflow_cloudfiles.engine.locks.file_lock import FileLock
from airflow_cloudfiles.engine.private_folders import make_private
from airflow_cloudfiles.engine.state.spark_checkpoint import METADATA, encode_query_id

FOLDER = "cloudFiles.internal.checkpointFolder"
"""Option of the source: the folder."""
QUERY_ID = "cloudFiles.internal.queryId"
"""Option of the source: the id of the query."""
_PREFIX = "cloudfiles-checkpoint-"
_NAME = re.compile(f"{_PREFIX}[0-9a-f]{{32}}")
_QUERY_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOCK = "planning.lock"
_LEFT_BEHIND_SECONDS = 3600.0
"""How old a folder is that nobody holds when it is removed: its query may be about to start."""
_log = logging.getLogger(__name__)


def new_folder(temporary: str) -> str:
    """Name the folder of a run.

    Args:
        temporary: The temporary directory of the server.
    """
    return f"{temporary.rstrip('/')}/{_PREFIX}{secrets.token_hex(16)}"


def prepare(folder: str, query_id: str) -> None:
    """Make the folder, for a query that is about to start; again, it changes nothing.

    Args:
        folder: As `new_folder` names it.
        query_id: The id that the query is to have.

    Raises:
        OptionError: The folder or the id are not what a job gives.
        StateError: The folder cannot be made.
    """
    path = _checked(folder)
    if not _QUERY_ID.fullmatch(query_id):
        raise OptionError(f"{QUERY_ID} is set by this package itself; remove it.")
    _remove_left_behind(path.parent)
    try:
        metadata = make_private(path) / METADATA
        if not metadata.exists():
            metadata.write_bytes(encode_query_id(query_id))
    except OSError as failure:
        raise StateError(
            f"The Spark Connect server cannot write to its temporary directory {path.parent}: "
            f"{failure}. Its java.io.tmpdir says where that is."
        ) from failure


class HeldCheckpoint:
    """The folder of the query that this process plans.

    Args:
        folder: As it was prepared.
    """

    def __init__(self, folder: str) -> None:
        self._path = _checked(folder)
        self._lock = FileLock(str(self._path / _LOCK))
        self._lock.try_acquire()

    def remove(self) -> None:
        """Remove it: the query has ended."""
        shutil.rmtree(self._path, ignore_errors=True)
        self._lock.release()


def _checked(folder: str) -> Path:
    """The folder as a path; it is deleted, so it is no other than one of ours."""
    path = Path(folder)
    if not path.is_absolute() or ".." in path.parts or not _NAME.fullmatch(path.name):
        raise OptionError(f"{FOLDER} is set by this package itself; remove it.")
    return path


def _remove_left_behind(parent: Path) -> None:
    """Remove the folders of queries whose planning processes were killed."""
    oldest = time.time() - _LEFT_BEHIND_SECONDS
    for path in parent.glob(f"{_PREFIX}*"):
        try:
            if _NAME.fullmatch(path.name) and path.lstat().st_mtime < oldest:
                lock = FileLock(str(path / _LOCK))
                if lock.try_acquire():
                    shutil.rmtree(path, ignore_errors=True)
                    lock.release()
        except (OSError, StateError) as failure:  # another user's, or gone meanwhile
            _log.debug("%s stays: %s", path, failure)
