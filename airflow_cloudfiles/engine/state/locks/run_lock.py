"""Lock a checkpoint, or a file of this machine, so that no two processes work on it.

One run at a time may plan and write. The lock is on `_source/run.lock` (and one on
`_source/job.lock` for jobs, taken before Spark starts). On a disk it is a file lock, which the
operating system frees when the run ends, even by SIGKILL; so there is nothing to clean up and no
time-out to tune. In an object store it is a `Lease`. The logs below the checkpoint are safe without
it (they are put-if-absent); the lock keeps two runs from doing the same work, and Spark's
checkpoint from two writers.

An advisory lock on a local file that the operating system frees when its holder ends, however it
ends. It belongs to one holder in one process: not to a program that process starts, and not to a
copy of it made by fork.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import weakref
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_cloudfiles.engine.errors import StateError, StateLockedError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state.locks.lease import LEASE_SECONDS, NOTE_VERSION, Lease
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.versions import FIELD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_cloudfiles.engine.storage import ObjectStore


_BUSY = {errno.EWOULDBLOCK, errno.EACCES}
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_MAX_NOTE_BYTES = 4096


class FileLock:
    """A lock on a file; the file is created, and stays when the lock is freed.

    Args:
        path: The file, in a folder that exists.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it.

        Raises:
            StateError: The file system does not know locks.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            os.close(descriptor)
            if failure.errno in _BUSY:
                return False
            if failure.errno in _NO_LOCKS:
                msg = f"The file system of {self._path} has no file locks: {failure.strerror}."
                raise StateError(msg) from failure
            raise
        self._descriptor = descriptor
        _held.add(self)
        return True

    def release(self) -> None:
        """Free the lock at once; freeing it twice does nothing."""
        if self._descriptor >= 0:
            # Closing alone frees it only when a program that is just being started has closed its
            # copy, too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.forget()

    def forget(self) -> None:
        """Close this process's copy; the lock stays with whoever has another one."""
        descriptor, self._descriptor = self._descriptor, -1
        _held.discard(self)
        if descriptor >= 0:
            os.close(descriptor)

    def write_note(self, note: bytes) -> None:
        """Note the holder in the file."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, note, 0)

    def read_note(self) -> bytes:
        """Read the note of the holder; empty when there is none (yet)."""
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123 - the path may not be UTF-8
                return file.read(_MAX_NOTE_BYTES)
        except OSError:
            return b""


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """Close a forked child's copies of the locks, which would outlive the parent's."""
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_leave_to_parent)


KEY = "_source/run.lock"
"""Held by the process that plans the micro-batches of a query, as long as the query runs."""

JOB_KEY = "_source/job.lock"
"""Held by the driver of a job from before it starts Spark: a second job fails at once, and Spark
never sees two queries begin on one checkpoint."""

_POLL_SECONDS = 0.1
_POLL_LEASE_SECONDS = 1.0
_releases: list[threading.Thread] = []
_LEASE_PATIENCE = 1.5
"""How many times the length of a lease a run waits that may wait at all."""


class RunLock:
    """The right to run on a checkpoint location; a context manager.

    For a state in memory it keeps apart the runs of this process.

    Args:
        state: The checkpoint location.
        key: Which of the two locks.
        lease_seconds: In an object store: after which time a silent holder is gone.
        run_id: The run that takes it, for who finds it taken.
    """

    _held_in_memory: ClassVar[set[str]] = set()
    _memory_guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        state: ObjectStore,
        key: str = KEY,
        *,
        lease_seconds: float = LEASE_SECONDS,
        run_id: str | None = None,
    ) -> None:
        self._state = state
        self._run_id = run_id
        self._name = f"{state.uri}/{key}"
        self._file: FileLock | None = None
        self._lease: Lease | None = None
        self._lease_seconds = lease_seconds
        self._is_held = False
        if isinstance(state, LocalStore):
            with reaching_state(state):
                state.make_folder(key)
            self._file = FileLock(state.local_path(key))
        elif not isinstance(state, MemoryStore):
            self._lease = Lease(state, key, _note(run_id), lease_seconds=lease_seconds)

    @property
    def is_held(self) -> bool:
        """Whether this run has the lock; a lease can be lost."""
        return self._is_held and (self._lease is None or self._lease.is_held)

    def acquire(self, timeout_seconds: float = 0.0) -> bool:
        """Take the lock, waiting for the run that has it.

        Args:
            timeout_seconds: How long to wait. In an object store, who waits at all waits long
                enough to see that a killed run is gone.

        Returns:
            Whether the first try got it; if not, another run has ended meanwhile.

        Raises:
            StateLockedError: Another run still has it; names it.
            StateUnreachableError: The store cannot be reached.
            StateError: It refuses this identity.
        """
        poll_seconds = _POLL_SECONDS
        if self._lease is not None and timeout_seconds > 0:
            timeout_seconds = max(timeout_seconds, self._lease_seconds * _LEASE_PATIENCE)
            poll_seconds = min(_POLL_LEASE_SECONDS, self._lease_seconds / 10)
        deadline = time.monotonic() + timeout_seconds
        tries = 1
        while not self._try_acquire():
            tries += 1
            if time.monotonic() >= deadline:
                raise self._locked()
            time.sleep(poll_seconds)
        return tries == 1

    def noted_run(self) -> str | None:
        """Read which run the note of the last holder names; it may have ended."""
        place = self._file or self._lease
        try:
            run_id = json.loads(place.read_note() if place else b"{}").get("run_id")
        except (ValueError, AttributeError):
            return None
        return run_id if isinstance(run_id, str) else None

    def release(self, wait: Callable[[], object] | None = None) -> None:
        """Free the lock; freeing it twice does nothing.

        Args:
            wait: In an object store: called before the lock is free, for what is to end first.
        """
        if not self._is_held:
            return
        self._is_held = False
        if self._file is not None:
            self._file.release()
        elif self._lease is not None:
            self._lease.release(wait)
        else:
            with self._memory_guard:
                self._held_in_memory.discard(self._name)

    def release_aside(self) -> None:
        """Begin to free the lock, and go on where that takes requests; `end_releases` waits.

        It is free when those are that this process has begun to free before.
        """
        if self._lease is None:
            self.release()
            return
        free_aside(partial(self.release, partial(_join, tuple(_releases))))

    def __enter__(self) -> Self:
        """Take the lock unless `acquire` did."""
        if not self._is_held:
            self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        """Free the lock."""
        self.release()

    def _try_acquire(self) -> bool:
        if self._is_held:
            return False
        if self._file is not None:
            with reaching_state(self._state):
                self._is_held = self._file.try_acquire()
                if self._is_held:
                    self._write_note(self._file)
            return self._is_held
        if self._lease is not None:
            with reaching_state(self._state):
                self._is_held = self._lease.try_acquire()
            return self._is_held
        with self._memory_guard:
            self._is_held = self._name not in self._held_in_memory
            self._held_in_memory.add(self._name)
        return self._is_held

    def _write_note(self, file: FileLock) -> None:
        """Note the holder; without a note, on a full disk, the lock is not kept."""
        try:
            file.write_note(json.dumps(_note(self._run_id)).encode("ascii") + b"\n")
        except OSError:
            self._is_held = False
            file.release()
            raise

    def _locked(self) -> StateLockedError:
        place = self._file or self._lease
        holder = _holder(place.read_note() if place else b"")
        return StateLockedError(
            f"Another run is working on the checkpoint location {printable_path(self._state.uri)}: "
            f"{holder}. Wait until it has ended, or stop it. The lock is then free."
        )


def free_aside(free: Callable[[], object]) -> None:
    """Begin to free a lock, and go on; `end_releases` waits."""
    thread = threading.Thread(target=free, name="run-lock-release")
    thread.start()
    _releases.append(thread)


def _join(threads: Iterable[threading.Thread]) -> None:
    for each in threads:
        each.join()


def end_releases() -> None:
    """Wait until the locks are free that this process has begun to free."""
    while _releases:
        _releases.pop().join()


def _note(run_id: str | None) -> dict[str, Any]:
    """Describe this process."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    note = {FIELD: NOTE_VERSION, "pid": os.getpid(), "host": socket.gethostname(), "since": since}
    return note if run_id is None else {**note, "run_id": run_id}


def _holder(note: bytes) -> str:
    """Describe the holder by its note; one that is just being written is no help."""
    try:
        match json.loads(note):
            case {"pid": int(pid), "host": str(host), "since": str(since), **more}:
                run = f", for the run {run_id}" if (run_id := more.get("run_id")) else ""
                return f"process {pid} on {host}, since {since}{run}"
    except ValueError:
        return "a process that left no note"
    return "a process that left no note"


@contextmanager
def locked(state: ObjectStore, *, timeout_seconds: float = 0.0) -> Iterator[Callable[[], None]]:
    """Hold both locks of a state; gives what raises when one is lost.

    Args:
        state: The checkpoint location.
        timeout_seconds: How long to wait for each.

    Raises:
        StateLockedError: A run is working on it.
    """
    with ExitStack() as stack:
        locks = [RunLock(state, key) for key in (JOB_KEY, KEY)]
        for lock in locks:
            lock.acquire(timeout_seconds)
            stack.enter_context(lock)

        def may_go_on() -> None:
            if not all(lock.is_held for lock in locks):
                raise StateLockedError(
                    f"The lock of {printable_path(state.uri)} was lost. Nothing else is. Run again."
                )

        yield may_go_on
