"""How does a JVM find its classes ready?

Most of what Spark takes to start is loading some 15,000 classes. Java can keep them in an archive
and map it instead (class data sharing). The first run on a machine leaves a note that it was there;
the second one makes the archive when its JVM ends, which takes some seconds once; all later ones
use it. So a container that runs once and is thrown away makes none.

Java checks by itself whether an archive fits, and does without it if not. What it does not check,
its content, is checked here by size and time: whatever else has written there, it is not used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_cloudfiles.engine.job.start_conf import JVM_ARCHIVE, is_on
from airflow_cloudfiles.engine.locks.file_lock import FileLock

MAX_BYTES = 512 * 1024 * 1024
"""Of one archive; a larger one is not kept. One of Spark has about 170 MB."""
MOST_KEPT = 4
"""How many archives are kept, the newest: one for each Java, Spark and choice of collector."""
MAKE_SECONDS = 300.0
"""How long a JVM may take to write its archive."""
_MOST_FAILURES = 2
_VERSION = 1
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
_log = logging.getLogger(__name__)


class Archive:
    """The archive for one command line.

    Args:
        folder: Where archives are kept; private to this user.
        key: Names the command line and all it depends on.
        conf: The Spark configuration of the run.
    """

    def __init__(self, folder: Path, key: str, conf: Mapping[str, str]) -> None:
        self._path = folder / f"{key}.jsa"
        self._note = folder / f"{key}.archive.json"
        self._draft = folder / f"{key}.draft.jsa"
        self._is_on = is_on(conf, JVM_ARCHIVE)
        self._lock = FileLock(str(folder / f"{key}.lock"))
        self._failures = 0
        self.is_wanted = False

    def options(self, command: Sequence[str]) -> list[str]:
        """The options with which a JVM uses the archive, or makes it when it ends.

        Args:
            command: Its command line; where it names an archive itself, nothing is added.
        """
        chosen = any(
            word.startswith(("-Xshare", "-XX:SharedArchive", "-XX:AOT")) for word in command
        )
        if not self._is_on or chosen:
            return []
        note = self._read()
        identity = self._identity()
        if identity is not None and note.get("archive") == identity:
            return [f"-XX:SharedArchiveFile={self._path}", "-Xshare:auto", *_QUIET]
        if not note:
            self._write({"failures": 0})
            return []
        failures = note.get("failures")
        if not isinstance(failures, int) or failures >= _MOST_FAILURES:
            return []
        if not self._lock.try_acquire():
            return []
        self.is_wanted = True
        # Until it is made, it counts as failed: the process may be killed while it makes it.
        self._failures = failures
        self._write({"failures": failures + 1})
        return [f"-XX:ArchiveClassesAtExit={self._draft}", *_QUIET]

    def keep(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a JVM that makes the archive, and keep what it has made."""
        began = time.monotonic()
        _log.info("Keeping the classes of this JVM for later runs, once on this machine ...")
        try:
            process.wait(MAKE_SECONDS)
            size = self._draft.stat().st_size
            if size > MAX_BYTES:
                _log.info("The archive of %s bytes is larger than %s: not kept", size, MAX_BYTES)
                return
            with self._draft.open("rb") as file:
                os.fsync(file.fileno())
            self._draft.replace(self._path)
            self._write({"failures": 0, "archive": self._identity()})
            _log.info("Kept %s (%s bytes) in %.1f s", self._path, size, time.monotonic() - began)
            self._prune()
        except (OSError, subprocess.TimeoutExpired) as error:
            _log.info("The archive of classes was not made: %s", error)
        finally:
            self._draft.unlink(missing_ok=True)
            self._lock.release()

    def leave_to_next(self) -> None:
        """Make none of this JVM, which has hardly begun; the next run does. This is no failure."""
        self.is_wanted = False
        self._write({"failures": self._failures})
        self._lock.release()

    def _identity(self) -> list[int] | None:
        """What tells the archive from another file of its name."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return [status.st_size, status.st_mtime_ns, status.st_ino]

    def _read(self) -> dict[str, object]:
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        is_ours = isinstance(note, dict) and note.get("version") == _VERSION
        return note if is_ours else {}

    def _write(self, note: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):
            draft = self._note.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({"version": _VERSION, **note}), encoding="utf-8")
            draft.replace(self._note)

    def _prune(self) -> None:
        """Remove all but the newest archives."""
        others = sorted(self._path.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime)
        for path in others[:-MOST_KEPT]:
            path.unlink(missing_ok=True)
