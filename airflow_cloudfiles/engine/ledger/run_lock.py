"""Is another run working on this checkpoint?

One run at a time may plan and write. The lock is a file lock on `_source/run.lock` (and one on
`_source/job.lock` for jobs, taken before Spark starts), which the operating system frees when the
run ends, even by SIGKILL; so there is nothing to clean up and no time-out to tune. The logs below
the checkpoint are safe without it (they are put-if-absent); the lock keeps two runs from doing the
same work, and Spark's checkpoint from two writers.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Self

from airflow_cloudfiles.engine.errors import StateLockedError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.ledger.file_lock import FileLock
from airflow_cloudfiles.engine.storage.local import LocalStore

if TYPE_CHECKING:
    from types import TracebackType

    from airflow_cloudfiles.engine.storage import ObjectStore

KEY = "_source/run.lock"
"""Held by the process that plans the micro-batches of a query, as long as the query runs."""

JOB_KEY = "_source/job.lock"
"""Held by the driver of a job from before it starts Spark: a second job is told at once, and Spark
never sees two queries begin on one checkpoint."""

_POLL_SECONDS = 0.1


class RunLock:
    """The right to run on a checkpoint location; a context manager.

    For a state in memory it keeps apart the runs of this process.

    Args:
        state: The checkpoint location.
        key: Which of the two locks.
    """

    _held_in_memory: ClassVar[set[str]] = set()
    _memory_guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, state: ObjectStore, key: str = KEY) -> None:
        self._state = state
        self._name = f"{state.uri}/{key}"
        self._file: FileLock | None = None
        self._is_held = False
        if isinstance(state, LocalStore):
            state.make_folder(key)
            self._file = FileLock(state.local_path(key))

    def acquire(self, timeout_seconds: float = 0.0) -> None:
        """Take the lock, waiting for the run that has it.

        Args:
            timeout_seconds: How long to wait.

        Raises:
            StateLockedError: Another run still has it; says which.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self._try_acquire():
            if time.monotonic() >= deadline:
                raise self._locked()
            time.sleep(_POLL_SECONDS)

    def release(self) -> None:
        """Free the lock; freeing it twice does nothing."""
        if not self._is_held:
            return
        self._is_held = False
        if self._file is not None:
            self._file.release()
        else:
            with self._memory_guard:
                self._held_in_memory.discard(self._name)

    def __enter__(self) -> Self:
        """Take the lock unless `acquire` did."""
        if not self._is_held:
            self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Free the lock."""
        self.release()

    def _try_acquire(self) -> bool:
        if self._is_held:
            return False
        if self._file is not None:
            self._is_held = self._file.try_acquire()
            if self._is_held:
                self._file.write_note(_note())
            return self._is_held
        with self._memory_guard:
            self._is_held = self._name not in self._held_in_memory
            self._held_in_memory.add(self._name)
        return self._is_held

    def _locked(self) -> StateLockedError:
        holder = _holder(self._file.read_note() if self._file else b"")
        return StateLockedError(
            f"Another run is working on the checkpoint location {printable_path(self._state.uri)}: "
            f"{holder}. Wait until it has ended, or stop it; the lock is freed by itself."
        )


def _note() -> bytes:
    """Say who this process is."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    value = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    return json.dumps(value).encode("ascii") + b"\n"


def _holder(note: bytes) -> str:
    """Put a note into words; a note that is just being written tells nothing."""
    try:
        match json.loads(note):
            case {"pid": int(pid), "host": str(host), "since": str(since)}:
                return f"process {pid} on {host}, since {since}"
    except ValueError:
        return "a process that did not say who it is"
    return "a process that did not say who it is"
