"""Keep the classes of a JVM for the ones after it, in a process that no run waits for.

Most of what Spark takes to start is loading some 15,000 classes. Java can keep them in an archive
and map it instead (class data sharing). The first run on a machine leaves a note that it was there;
the JVM of the second one lists the classes that it loads; when that run has ended, a process of low
priority has Java make the archive of the list; all later runs use it. So a container that runs
once and is thrown away makes none.

Java checks by itself whether an archive fits, and does without it if not. What it does not check,
its content, is checked here by size and time: whatever else has written there, it is not used.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_cloudfiles.engine.locks.run_lock import FileLock
from airflow_cloudfiles.engine.spark.preload import JVM_ARCHIVE, is_on

MAX_BYTES = 512 * 1024 * 1024
"""Of one archive; a larger one is not kept. One of Spark has about 170 MB."""
MOST_KEPT = 4
"""How many archives are kept, the newest: one for each Java, Spark and choice of collector."""
MAKE_SECONDS = 3600.0
"""How long Java may take to make one; at low priority, on a busy machine, that is long."""
_MOST_FAILURES = 2
_VERSION = 1
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
_MODULE = "airflow_cloudfiles.engine.job.jvm_archive"
_KEPT_VARIABLES = ("HOME", "JAVA_", "JDK_", "_JAVA_", "LANG", "LC_", "LD_", "PATH", "PYTHON", "TMP")
"""What a process that outlives its run has of the environment: no credentials."""


class ClassArchive:
    """The archive for one command line.

    Args:
        folder: Where archives are kept; private to this user.
        key: Names the command line and all it depends on.
        conf: The Spark configuration of the run.
    """

    def __init__(self, folder: Path, key: str, conf: Mapping[str, str]) -> None:
        self._folder, self._key = folder, key
        self._path = folder / f"{key}.jsa"
        self._note = folder / f"{key}.archive.json"
        self._draft = folder / f"{key}.draft.jsa"
        self._list = folder / f"{key}.{os.getpid()}.classes"
        self._is_on = is_on(conf, JVM_ARCHIVE)
        self._lock = FileLock(str(folder / f"{key}.lock"))
        self._java: list[str] = []

    @property
    def is_wanted(self) -> bool:
        """Whether a JVM lists its classes for it (`options`), and it is not yet being made."""
        return bool(self._java)

    def options(self, command: Sequence[str], own: Sequence[str] = ()) -> list[str]:
        """The options with which a JVM uses the archive, or lists its classes for it.

        Args:
            command: Its command line; where it names an archive itself, nothing is added.
            own: Those of its words that are for Java, without a main class.
        """
        chosen = any(
            word.startswith(("-Xshare", "-XX:SharedArchive", "-XX:AOT")) for word in command
        )
        if not self._is_on or chosen:
            return []
        note = self._read()
        if self._fits(note):
            return [f"-XX:SharedArchiveFile={self._path}", "-Xshare:auto", *_QUIET]
        if not note:
            self._write({"failures": 0})
            return []
        if self._failures(note) >= _MOST_FAILURES or not self._lock.try_acquire():
            return []
        self._lock.release()  # nobody makes one now
        self._java = [command[0], *own]
        return [f"-XX:DumpLoadedClassList={self._list}", *_QUIET]

    def leave_to_next(self) -> None:
        """Make none of this JVM, which has hardly begun; the next run does. This is no failure."""
        self._java = []
        self._list.unlink(missing_ok=True)

    def make_in_background(self) -> None:
        """Have a process make it that nobody waits for, whatever becomes of this one."""
        java, self._java = self._java, []
        environment = {
            name: value for name, value in os.environ.items() if name.startswith(_KEPT_VARIABLES)
        }
        command = [sys.executable, "-m", _MODULE, str(self._folder), self._key, str(self._list)]
        streams = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_RDWR, 0) for each in range(3)]
        with contextlib.suppress(OSError):  # then the next run does
            # The supervisor of the run ends what is left in the session of that.
            os.posix_spawn(
                command[0], [*command, *java], environment, file_actions=streams, setsid=True
            )

    def make(self, classes: Path, java: Sequence[str]) -> None:
        """Make it, unless it is there, or somebody else is making it.

        A try that fails is noted with its reason, also one that is cut short; after two of those
        nobody tries again.

        Args:
            classes: The list of them; it is removed.
            java: Java, and the options that the archive is for.
        """
        if not self._lock.try_acquire():
            classes.unlink(missing_ok=True)
            return
        try:
            note = self._read()
            if not self._fits(note) and classes.is_file():
                failures = self._failures(note) + 1
                self._write({"failures": failures, "reason": "it was cut short"})
                reason = self._made(classes, java)
                found = {"failures": 0, "archive": self._identity()}
                self._write({"failures": failures, "reason": reason} if reason else found)
                self._prune()
        finally:
            self._draft.unlink(missing_ok=True)
            classes.unlink(missing_ok=True)
            self._lock.release()

    def _made(self, classes: Path, java: Sequence[str]) -> str:
        """Have Java make the archive; why there is none, if there is none."""
        whole = self._draft.with_suffix(".classes")
        command = [
            *(java[0], "-Xshare:dump", f"-XX:SharedClassListFile={whole}"),
            *(f"-XX:SharedArchiveFile={self._draft}", *java[1:], "-Xlog:disable"),
        ]
        try:
            # A JVM that ends may still write to its list, and be ended in the midst of a line.
            text = classes.read_bytes()
            whole.write_bytes(text[: text.rfind(b"\n") + 1])
            done = subprocess.run(command, capture_output=True, timeout=MAKE_SECONDS, check=False)
            if done.returncode:
                said = (done.stdout + done.stderr).decode(errors="replace").strip()
                return f"Java ended with exit code {done.returncode}: {said[-500:]}"
            size = self._draft.stat().st_size
            if size > MAX_BYTES:
                return f"the archive of {size} bytes is larger than {MAX_BYTES}"
            with self._draft.open("rb") as file:
                os.fsync(file.fileno())
            self._draft.replace(self._path)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return ""

    def _fits(self, note: Mapping[str, object]) -> bool:
        identity = self._identity()
        return identity is not None and note.get("archive") == identity

    @staticmethod
    def _failures(note: Mapping[str, object]) -> int:
        failures = note.get("failures")
        return failures if isinstance(failures, int) else _MOST_FAILURES

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
        """Remove all but the newest archives, and the lists of runs that were killed."""
        others = sorted(self._folder.glob("*.jsa"), key=lambda path: path.stat().st_mtime)
        for path in (*others[:-MOST_KEPT], *self._folder.glob(f"{self._key}.*.classes")):
            path.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> None:
    """Make the archive that the arguments name, in the way of nobody."""
    folder, key, classes, *java = arguments
    os.chdir("/")
    os.nice(19)
    for name, value in (
        ("autogroup", "19"),  # where a session is a group, its processes share the priority of it
        ("oom_score_adj", "1000"),  # where memory is short, this ends and no run
    ):
        with contextlib.suppress(OSError):
            Path("/proc/self", name).write_text(value, encoding="ascii")
    ClassArchive(Path(folder), key, {}).make(Path(classes), java)


if __name__ == "__main__":
    main(sys.argv[1:])
