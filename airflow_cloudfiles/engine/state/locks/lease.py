"""Say who has an object now.

A lock in an object store, which frees nothing when its holder dies: so it is held for a time only.

1. The lock is an object. Who creates it (put-if-absent) holds it, and writes into it a random
   `nonce` that is his alone.
2. He counts its `beat` up every few seconds (put-if-match), in a thread of its own.
3. Who finds it there watches it. When it has not changed for `lease_seconds` on the watcher's own
   clock, the holder is gone, and it is taken over (put-if-match). No two clocks are compared.
4. A watcher on the holder's machine need not wait: it sees that the process is no more.
5. The holder deletes it when he is done.

A holder who is only slow (a suspended machine, a network that was away for longer) loses it and
learns of it at his next beat, maybe after he has gone on for a while. So nothing may become wrong
when two have it: the logs of the state are put-if-absent, and the sink commits each batch number
once. The lock only keeps two runs from doing the same work.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.versions import FIELD, json_object, require_version

if TYPE_CHECKING:
    from collections.abc import Callable


_log = logging.getLogger(__name__)

LEASE_SECONDS = 20.0
"""After this time without a beat the holder of a lock counts as gone."""
_BEATS_A_LEASE = 4
NOTE_VERSION = 1
_POLL_SECONDS = 0.2
LOOK_AGAIN_SECONDS = 0.2
"""A lock that was looked at longer ago is looked at once more before it is deleted."""


class Lease:
    """A lock on an object.

    Args:
        state: An object store with put-if-match.
        key: Of the object.
        note: What others read about its holder.
        lease_seconds: See `LEASE_SECONDS`.
    """

    def __init__(
        self,
        state: ObjectStore,
        key: str,
        note: dict[str, Any],
        *,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._state = state
        self._key = key
        self._lease_seconds = lease_seconds
        self._nonce = uuid.uuid4().hex
        self._note = {**note, "machine": machine(), "started": process_start(os.getpid())}
        self._beat = 0
        self._etag = ""
        self._owner = 0
        self._watched = ("", 0.0, b"")
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process has the lock, as far as it knows."""
        return self._owner == os.getpid() and not self._ended.is_set()

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it, or if its holder is gone.

        To be called again and again: that a holder is gone shows in time.

        Raises:
            OSError: The store cannot be reached.
            IncompatibleStateError: A newer version of this package holds it.
        """
        # Nearly always nobody has it: then this is the only request.
        has_met_another = bool(self._watched[0])
        won = not has_met_another and self._create()
        found = None if won else self._state.head(self._key)
        if won:
            pass
        elif found is None:
            won = self._create()
        elif self._is_gone(found.etag):
            won = self._write(
                lambda content: self._state.put_if_match(self._key, content, found.etag)
            )
            if won:
                _log.warning(
                    "%s was left behind by a run that ended; it is taken over.", self._name()
                )
        else:
            return False
        if won:
            self._owner = os.getpid()
            self._ended.clear()
            self._thread = threading.Thread(target=self._renew, daemon=True, name="run-lock")
            self._thread.start()
        return won

    def release(self, wait: Callable[[], object] | None = None) -> None:
        """Give the lock back; a copy of it made by fork gives back nothing.

        Args:
            wait: Called before the lock is deleted, for what is to end first.
        """
        if not self.is_held:
            return
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        try:
            is_there, looked = self._is_there(), time.monotonic()
            if wait is not None:
                wait()
                if time.monotonic() - looked > LOOK_AGAIN_SECONDS:
                    is_there = self._is_there()
            if is_there:
                self._state.delete(self._key)
        except OSError as failure:
            _log.warning(
                "%s could not be released, and expires by itself: %s", self._name(), failure
            )

    def read_note(self) -> bytes:
        """Read the note of the holder; empty when there is none."""
        try:
            return self._state.get(self._key)
        except (OSError, ObjectNotFoundError):
            return b""

    def _is_gone(self, etag: str) -> bool:
        """Tell whether the holder of the lock has stopped counting."""
        if etag != self._watched[0]:
            note = self.read_note()
            self._require_known(note)
            self._watched = (etag, time.monotonic(), note)
        _, since, note = self._watched
        return time.monotonic() - since >= self._lease_seconds or _has_ended(note)

    def _require_known(self, note: bytes) -> None:
        """Refuse a lock of a newer version, which may be held in another way."""
        require_version(
            json_object(note).get(FIELD, 1),
            name=self._state.child_uri(self._key),
            understood=NOTE_VERSION,
            what_to_do="Upgrade the package here. Where its holder has ended, delete it.",
        )

    def _create(self) -> bool:
        return self._write(lambda content: self._state.put_if_absent(self._key, content))

    def _write(self, put: Callable[[bytes], bool]) -> bool:
        """Write the lock on a condition; where the answer is no or none, what is there decides."""
        self._beat += 1
        content = {**self._note, "nonce": self._nonce, "beat": self._beat}
        failure: OSError | None = None
        try:
            if put(json.dumps(content).encode("ascii") + b"\n"):
                self._etag = ""  # asked for when it is needed
                return True
        except OSError as error:
            failure = error
        is_mine = self._read_back()
        if failure is not None and not is_mine:
            raise failure
        return is_mine

    def _read_back(self) -> bool:
        """Read the lock again: tell whether it is ours, and which version of it that is.

        The version is asked for first: should the content be newer than it, it matches nothing.
        """
        found = self._state.head(self._key)
        if found is None or not self._is_there():
            return False
        self._etag = found.etag
        return True

    def _is_there(self) -> bool:
        """Tell whether the lock is ours."""
        try:
            content = self._state.get(self._key)
        except ObjectNotFoundError:
            return False
        return json_object(content).get("nonce") == self._nonce

    def _renew(self) -> None:
        """Count until the end. A store that cannot be reached is tried again."""
        while not self._ended.wait(self._lease_seconds / _BEATS_A_LEASE):
            try:
                is_mine = bool(self._etag) or self._read_back()
                is_mine = is_mine and self._write(
                    lambda content: self._state.put_if_match(self._key, content, self._etag)
                )
                if not is_mine and self._state.head(self._key) is None:
                    # Somebody has deleted it by hand.
                    is_mine = self._create()
            except OSError as failure:
                _log.warning(
                    "%s could not be renewed, and is tried again: %s", self._name(), failure
                )
                continue
            if not is_mine and not self._ended.is_set():
                _log.error(
                    "%s was taken over by another run, because this one did not renew it for %s "
                    "seconds. What this run has committed stays, and nothing is ingested twice; "
                    "but both runs are at work.",
                    self._name(),
                    self._lease_seconds,
                )
                self._ended.set()

    def _name(self) -> str:
        return f"The lock {printable_path(self._state.child_uri(self._key))}"


def free_left_behind(state: ObjectStore, key: str, *, patience_seconds: float = 0.0) -> bool:
    """Delete a lock whose holder was a process of this machine and is no more.

    Else the next run, on another machine, would have to wait for it to lapse.

    Args:
        state: The object store.
        key: Of the lock.
        patience_seconds: How long to wait for a holder that is about to end.

    Returns:
        Whether there is no lock now.

    Raises:
        OSError: The store cannot be reached.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            content = state.get(key)
        except ObjectNotFoundError:
            return True
        if _has_ended(content):
            state.delete(key)
            return True
        if time.monotonic() >= deadline or json_object(content).get("machine") != machine():
            return False
        time.sleep(_POLL_SECONDS)


def machine() -> str:
    """Name this boot of this machine, and the name space of its process ids; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def process_start(pid: int) -> str:
    """Give the time at which a process of this machine was started, in its own unit; or empty.

    A process id alone may have been given to another process meanwhile.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = status.rpartition(")")[2].split()
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _has_ended(content: bytes) -> bool:
    """Tell whether the holder is a process of this machine that has ended."""
    match json_object(content):
        case {"pid": int(pid), "machine": str(where), "started": str(started)}:
            is_here = bool(where and started) and where == machine()
            return is_here and process_start(pid) != started
    return False
