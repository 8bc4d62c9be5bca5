"""Have Spark keep its checkpoint in an object store it cannot reach.

Plain PySpark has no connector for object stores. Where the JVM has none either, Spark writes its
own part of the checkpoint (`offsets`, `commits`, `metadata`, `state`, `sources`) into a local
directory, the mirror, and what is there is published to the state:

1. Before a query starts, its mirror is filled from the state: the newest offsets and commits, and
   all that stateful operators keep. Nothing an earlier query left on this disk is used.
2. Before the files of a micro-batch are read (`partitions`), its offsets are published.
3. When Spark has committed (`commit`, or within a second by the driver), its commit is.
4. When the query ends, the driver publishes the rest and removes the mirror.

The order is always: what a commit needs, offsets, commits. So the state is one that Spark could
have been killed in: if a commit was not published, the batch is run again, with the same number and
the same files (the plan log sees to that), and the sink leaves it out.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import logging
import shutil
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateError, StateUnreachableError
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.state.locks import run_lock
from airflow_cloudfiles.engine.state.locks.lease import LEASE_SECONDS, free_left_behind
from airflow_cloudfiles.engine.state.locks.run_lock import FileLock
from airflow_cloudfiles.engine.state.spark_checkpoint import KEPT_BATCHES
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.local import make_private, path_below
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.outage import is_transient
from airflow_cloudfiles.engine.storage.vendors import BY_SCHEME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from airflow_cloudfiles.engine.storage import ObjectStore

_log = logging.getLogger(__name__)

LOGS = ("offsets", "commits")
"""Spark's logs: one file a micro-batch."""
OTHERS = ("metadata", "state", "sources")

_RESTORED_BATCHES = 3
_WATCH_SECONDS = 1.0
_LOCK_SECONDS = 60.0
_RECEIVE_SECONDS = 60.0
"""How long a start waits for the planning processes to take what is handed over."""
_NO_FILE_SYSTEM = ("UnsupportedFileSystemException", "ClassNotFoundException")


class CheckpointMirror:
    """A local directory that stands for Spark's part of a state in an object store.

    The driver and the planning process each have one of these over one directory.

    Args:
        folder: The directory; `create` makes one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where Spark's checkpoint is."""
        self._notes = folder.with_suffix(".json")
        self._in_use: FileLock | None = None
        self._store: ObjectStore | None = None

    @classmethod
    def create(cls, uri: str) -> CheckpointMirror:
        """Make the mirror of a checkpoint location and fill it.

        Raises:
            StateError: The state cannot be read, or the local disk not written.
        """
        uri = normalize_uri(uri)
        parent = cache_folder() / "mirrors" / hashlib.sha256(uri.encode()).hexdigest()[:32]
        try:
            make_private(parent.parent)
            make_private(parent)
            _remove_left_behind(parent)
            folder, lock = _new_name(parent)
            mirror = cls(folder)
            mirror._in_use = lock
            make_private(mirror.folder)
            mirror._write_notes(uri, {})
            mirror._restore(uri)
        except OSError as failure:
            raise _failed(f"cannot be fetched from {uri} to {parent}", failure) from failure
        return mirror

    def publish(self) -> None:
        """Bring the state up to what Spark has written; what is there already is not sent again.

        Raises:
            StateError: The state cannot be written.
        """
        try:
            with self._exclusively():
                self._publish()
        except OSError as failure:
            raise _failed(f"in {self.folder} cannot be published", failure) from failure

    def finish(self) -> None:
        """Publish the rest and remove the mirror; finishing twice does nothing.

        Nothing is lost when that fails: the last micro-batch is run again and left out by the sink.
        """
        if self._in_use is None:
            return
        try:
            self.publish()
        except StateError as failure:
            _log.warning("%s The last micro-batch will be run again.", failure)
        self._free_lock()
        in_use, self._in_use = self._in_use, None
        self._remove()
        in_use.release()

    def _remove(self) -> None:
        """Remove the mirror: its notes first, between two publications.

        The planning process may live on for a moment. To it, a folder that is being removed would
        look as if Spark had purged everything, and the checkpoint would be deleted in the state.
        """
        try:
            with self._exclusively():
                self._notes.unlink(missing_ok=True)
        except OSError as failure:
            _log.warning("%s is removed while it is published: %s", self.folder, failure)
            self._notes.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        for suffix in (".json", ".draft", ".publishing", ".lock"):
            self.folder.with_suffix(suffix).unlink(missing_ok=True)

    def _free_lock(self) -> None:
        """Free the lock of the planning process, which Spark ends before it can do so itself.

        On a busy machine that process takes seconds to end; later the lock would have lapsed.
        """
        if self._store is None or isinstance(self._store, MemoryStore):
            return
        try:
            free_left_behind(self._store, run_lock.KEY, patience_seconds=LEASE_SECONDS)
        except OSError as failure:
            _log.warning("The run lock was not released, and expires by itself: %s", failure)

    def _restore(self, uri: str) -> None:
        store = self._opened(uri)
        known: dict[str, list[int] | None] = {}
        for name in LOGS:
            keys = {entry.path for entry in store.list(f"{name}/")}
            numbers = sorted((key for key in keys if _number(key) >= 0), key=_number)
            known |= dict.fromkeys(numbers)
            for key in numbers[-_RESTORED_BATCHES:]:
                known[key] = self._fetch(store, key)
        for name in OTHERS:
            keys = {"metadata"} if name == "metadata" else _keys(store, name)
            for key in sorted(keys):
                with contextlib.suppress(ObjectNotFoundError):
                    known[key] = self._fetch(store, key)
        self._write_notes(uri, known)

    def _fetch(self, store: ObjectStore, key: str) -> list[int]:
        try:
            path = path_below(self.folder, key)
        except ValueError as failure:
            raise CorruptedStateError(
                f"The checkpoint location {store.uri} holds {store.child_uri(key)!r}, which Spark "
                f"did not write: {failure}. Find out who did, and remove it."
            ) from failure
        content = store.get(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return _stamp(path)

    def _publish(self) -> None:
        """Send what has changed, in order; then delete what Spark has purged."""
        notes = json.loads(self._notes.read_text(encoding="utf-8"))
        uri, known = notes["uri"], notes["known"]
        store = self._opened(uri)
        before = dict(known)
        there = self._files()
        if not (self._notes.exists() and self.folder.exists()):
            raise FileNotFoundError(f"{self.folder} is being removed.")
        for key in sorted(there, key=_rank):
            try:
                path = self.folder / key
                stamp = _stamp(path)
                if known.get(key) != stamp:
                    store.put(key, path.read_bytes())
                    known[key] = stamp
            except FileNotFoundError:
                continue  # Spark has purged it meanwhile
        for key in [key for key in known if _is_purged(key, known[key], there)]:
            store.delete(key)
            del known[key]
        if known != before:
            self._write_notes(uri, known)

    def _files(self) -> set[str]:
        """List the files that Spark has finished; names with a dot are drafts and checksums."""
        found = set()
        # Commits first, and what they need last: Spark goes on meanwhile, and what was there before
        # a commit is there after it.
        for name in (*reversed(LOGS), *OTHERS):
            folder = self.folder / name
            for path in (folder, *folder.rglob("*")):
                key = path.relative_to(self.folder).as_posix()
                if not any(part.startswith(".") for part in key.split("/")) and path.is_file():
                    found.add(key)
        return found

    def _opened(self, uri: str) -> ObjectStore:
        if self._store is None:
            self._store = open_store(uri)
        return self._store

    def _write_notes(self, uri: str, known: dict[str, list[int] | None]) -> None:
        draft = self._notes.with_suffix(".draft")
        draft.write_text(json.dumps({"uri": uri, "known": known}), encoding="utf-8")
        draft.rename(self._notes)

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Keep the driver and the planning process from publishing at once."""
        deadline = time.monotonic() + _LOCK_SECONDS
        lock = FileLock(str(self.folder.with_suffix(".publishing")))
        while not lock.try_acquire():
            if time.monotonic() > deadline:
                msg = "another process of the query has been publishing for a minute"
                raise TimeoutError(msg)
            time.sleep(0.05)
        try:
            yield
        finally:
            lock.release()


def for_spark(spark: SparkSession, checkpoint: str) -> tuple[str, CheckpointMirror | None]:
    """Decide where Spark writes its checkpoint.

    Returns:
        The location to give to Spark; and the mirror it is in, if it is one.
    """
    uri = normalize_uri(checkpoint)
    vendor = BY_SCHEME.get(uri.partition(":")[0])
    if vendor is None or not vendor.hadoop:
        return checkpoint, None
    for scheme in vendor.hadoop:
        if _has_file_system(spark, scheme):
            return f"{scheme}:{uri.partition(':')[2]}", None
    mirror = CheckpointMirror.create(uri)
    _log.info("Spark cannot write to %s; it writes to %s, which is mirrored", uri, mirror.folder)
    return str(mirror.folder), mirror


def _failed(what: str, failure: OSError) -> StateError:
    kind = StateUnreachableError if is_transient(failure) else StateError
    return kind(f"Spark's checkpoint {what}: {failure}")


def _has_file_system(spark: SparkSession, scheme: str) -> bool:
    """Tell whether the JVM has a Hadoop file system for a scheme."""
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no public way
    conf = spark._jsc.hadoopConfiguration()  # noqa: SLF001
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
    except Exception as error:
        # Nothing for the scheme; or something in the configuration that is not on the class path.
        if any(name in str(error) for name in _NO_FILE_SYSTEM):
            return False
        raise
    return True


def start_handing_over(
    start: Callable[[], Any],
    handed: Mapping[str, Mapping[str, Any]],
    mirror: CheckpointMirror | None,
) -> Any:
    """Start a query, and wait until its sources know what they are to know of it.

    Args:
        start: Starts it.
        handed: What is handed over, by the tokens of the sources.
        mirror: Of its checkpoint, which is followed then; `None` where Spark reaches the location.
    """
    try:
        try:
            for token, value in handed.items():
                handoff.put(token, value)
            query = start()
        except BaseException:
            if mirror is not None:
                mirror.finish()
            raise
        if mirror is not None:
            follow(query, mirror)
        deadline = time.monotonic() + _RECEIVE_SECONDS
        while query.isActive and time.monotonic() < deadline:
            if all(map(handoff.is_received, handed)):
                break
            time.sleep(0.01)
    finally:
        for token in handed:
            handoff.withdraw(token)
    return query


_followed: dict[str, CheckpointMirror] = {}


def follow(query: Any, mirror: CheckpointMirror) -> None:
    """Publish in the background as long as a query runs, and at its end."""
    run = str(query.runId)
    _followed[run] = mirror
    thread = threading.Thread(target=_watch, args=(query, run), daemon=True, name="checkpoint")
    thread.start()


def ended(query: Any) -> None:
    """Publish the rest if the query has ended, before its caller goes on."""
    run = str(query.runId)
    if run in _followed and not query.isActive:
        _finish(run)


def _watch(query: Any, run: str) -> None:
    """Publish about every second; the rest is published by whoever sees the end first."""
    while run in _followed:
        try:
            if not query.isActive:
                break
            _followed[run].publish()
        except Exception as failure:  # noqa: BLE001 - tried again; at the end it is raised
            _log.debug("Not published: %s", failure)
        time.sleep(_WATCH_SECONDS)
    _finish(run)


_finishing = threading.Lock()


def _finish(run: str) -> None:
    with _finishing:
        mirror = _followed.get(run)
        if mirror is not None:
            mirror.finish()
            del _followed[run]


@atexit.register
def _finish_all() -> None:
    """Publish what queries have committed when a program ends while they run."""
    for run in list(_followed):
        _finish(run)


def _keys(store: ObjectStore, folder: str) -> set[str]:
    return {entry.path for entry in store.list(f"{folder}/")}


def _number(key: str) -> int:
    """Read the number of the micro-batch of a file in a log of Spark's; -1 for other files."""
    name = key.rpartition("/")[2]
    return int(name) if name.isascii() and name.isdigit() else -1


def _rank(key: str) -> tuple[int, int, str]:
    """Return the order of publication."""
    first = key.partition("/")[0]
    return (LOGS.index(first) + 1, _number(key), key) if first in LOGS else (0, 0, key)


def _is_purged(key: str, stamp: list[int] | None, there: set[str]) -> bool:
    """Tell whether Spark has purged a file, or would have, had it been fetched."""
    if stamp is not None:
        return key not in there
    folder = key.partition("/")[0]
    newest = max((_number(name) for name in there if name.startswith(folder + "/")), default=-1)
    return _number(key) < newest - KEPT_BATCHES


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _new_name(parent: Path) -> tuple[Path, FileLock]:
    """Lock a new name; one that another driver just took for left behind is left to it."""
    while True:
        folder = parent / uuid.uuid4().hex
        lock = FileLock(str(folder.with_suffix(".lock")))
        if lock.try_acquire():
            return folder, lock


def _remove_left_behind(parent: Path) -> None:
    """Remove the mirrors of drivers that are no more."""
    for path in parent.glob("*.lock"):
        lock = FileLock(str(path))
        if lock.try_acquire():
            CheckpointMirror(path.with_suffix(""))._remove()  # noqa: SLF001 - of this class
            lock.release()
