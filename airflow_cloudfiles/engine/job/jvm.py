"""Start the JVM of a local run in the background, with the classes that an earlier one kept.

PySpark starts it with `spark-submit`: a shell script that starts a first JVM, which only writes the
command line of the second, while Python waits. Here it starts in the background:

1. **Its command line** is what Spark's launcher writes, kept for the next run with the same Java,
   Spark, arguments and environment. With a Spark configuration folder, whose files may be scripts,
   `spark-submit` starts it as ever.
2. **Its classes** come from a class data archive, once there is one: it is made after the second
   run on a machine.

A process that has gone takes its JVM with it: the JVM ends when its standard input does.

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
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_cloudfiles.engine import spark_versions
from airflow_cloudfiles.engine.errors import LedgerAccessError, RunError
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder
from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.spark_command import spark_home
from airflow_cloudfiles.engine.spark.preload import JVM_ARCHIVE, is_on
from airflow_cloudfiles.engine.state.locks.run_lock import FileLock
from airflow_cloudfiles.engine.storage.local import make_private

MAX_BYTES = 512 * 1024 * 1024
"""Of one archive; a larger one is not kept. One of Spark has about 170 MB."""
MOST_KEPT = 4
"""How many archives are kept, the newest: one for each Java, Spark and choice of collector."""
MAKE_SECONDS = 3600.0
"""How long Java may take to make one; at low priority, on a busy machine, that is long."""
_MOST_FAILURES = 2
_VERSION = 1
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
_MODULE = "airflow_cloudfiles.engine.job.jvm"
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
        """Build the options with which a JVM uses the archive, or lists its classes for it.

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
        """Describe what distinguishes the archive from another file of its name."""
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


FOLDER = "CLOUDFILES_JVM_DIR"
"""Environment variable: folder of this user for what makes JVMs start sooner; default is `jvm` in
the cache (`ledger.opening`)."""
_LINE = ".command.json"
_MOST_LINES = 50
"""How many command lines are kept, the newest."""
_FOLDER = "@folder@"
"""Stands for the folder of a run in a command line that is kept."""
_INFO = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_SECONDS = 0.02
_LAUNCHER_SECONDS = 120
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"


class Jvm:
    """A JVM on its way, then one that Spark runs in.

    Args:
        folder: Private to this user and this run.
        conf: The Spark configuration of the run.
    """

    def __init__(self, folder: Path, conf: Mapping[str, str]) -> None:
        self._info = folder / "jvm"
        self._is_used = False
        flags = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        arguments = [*flags, *shlex.split(given)]
        command, self._archive = command_line(arguments, {_FOLDER: str(folder)}, conf)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env={
                **os.environ,
                "SPARK_CONNECT_MODE": "0",
                "PYTHONHASHSEED": "0",
                _INFO: str(self._info),
            },
            preexec_fn=_ignore_interrupts,  # noqa: PLW1509 - as PySpark does, before any thread
        )

    def connect(self) -> None:
        """Wait until it listens, and have PySpark use it for the session that it makes next.

        Raises:
            RunError: It has ended; what it wrote is in the log.
        """
        while not self._info.is_file():
            if self._process.poll() is not None:
                raise RunError(
                    f"Java ended with exit code {self._process.returncode} before Spark was there. "
                    "Its last lines are in the log above."
                )
            time.sleep(_POLL_SECONDS)
        content = self._info.read_bytes()
        self._info.unlink()
        length = int.from_bytes(content[4:8], "big")
        os.environ[_PORT] = str(int.from_bytes(content[:4], "big"))
        os.environ[_SECRET] = content[8 : 8 + length].decode("utf-8")
        self._is_used = True

    def forget(self) -> None:
        """Take back what `connect` has put into the environment, for later JVMs."""
        for name in (_PORT, _SECRET):
            os.environ.pop(name, None)

    def close(self) -> None:
        """End it, and have its classes kept for the next one if this is the run for that."""
        self.forget()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if self._archive is not None and self._archive.is_wanted:
            if self._is_used:
                self._archive.make_in_background()
            else:  # it has not loaded what a run needs
                self._archive.leave_to_next()


def _ignore_interrupts() -> None:
    """Ignore interrupts: they are for Python, which then ends the JVM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def command_line(
    arguments: Sequence[str],
    stands_for: Mapping[str, str],
    conf: Mapping[str, str],
    use: Sequence[str] = (),
) -> tuple[list[str], ClassArchive | None]:
    """Build the command that starts a JVM with Spark.

    Args:
        arguments: As `spark-submit` takes them.
        stands_for: What differs from run to run, by the word that stands for it in the command
            line that is kept. Either may be in the arguments.
        conf: The Spark configuration.
        use: Names what the JVM is for, where that has classes of its own.

    Returns:
        The command; and the archive of its classes, where it has one.
    """
    home = spark_home()
    whole = [_replaced(word, stands_for) for word in arguments]
    submit = [str(home / "bin" / "spark-submit"), *whole]
    if "SPARK_CONF_DIR" in os.environ or (home / "conf").exists() or "SPARK_TESTING" in os.environ:
        return submit, None
    try:
        chosen = os.environ.get(FOLDER)
        cache = make_private(Path(chosen).absolute() if chosen else cache_folder() / "jvm")
    except (OSError, LedgerAccessError):
        return submit, None
    java = Path(find_java(), "bin", "java")
    kind = [*software(java, home), *use]
    template = [
        _replaced(word, {value: name for name, value in stands_for.items()}) for word in arguments
    ]
    kept = cache / f"{_hashed([kind, template, _variables()])}{_LINE}"
    words = _kept(kept) or _launched(java, home, template, kept)
    if words is None:
        return submit, None
    archive = ClassArchive(cache, _hashed([kind, _class_words(words)]), conf)
    words = [_replaced(word, stands_for) for word in words]
    return [words[0], *archive.options(words, _own_words(words)), *words[1:]], archive


def _replaced(word: str, by: Mapping[str, str]) -> str:
    for old, new in by.items():
        word = word.replace(old, new)
    return word


def software(java: Path, home: Path) -> list[object]:
    """Identify which Spark and which Java this is."""
    found = java.resolve()
    identity: list[object] = [str(home), spark_versions.installed(), str(found)]
    # An archive fits only the archive of Java's own classes that it was made with.
    for path in (found, found.parents[1] / "lib" / "server" / "classes.jsa"):
        with contextlib.suppress(OSError):
            status = path.stat()
            identity += [status.st_size, status.st_mtime_ns]
    return identity


def _variables() -> list[tuple[str, str]]:
    """List the environment that Spark's launcher reads."""
    return sorted(each for each in os.environ.items() if each[0].startswith(_READ_BY_LAUNCHER))


def _class_words(words: Sequence[str]) -> list[str]:
    """Select what of a command line decides which classes there are; most of it is Spark's."""
    classes = words[words.index("-cp") + 1] if "-cp" in words else ""
    return [classes, *(word for word in _own_words(words) if word.startswith(_OF_CLASSES))]


def _own_words(words: Sequence[str]) -> list[str]:
    """Select what is for Java itself, without properties, and the program it names."""
    own = words[1 : words.index(_SUBMIT)] if _SUBMIT in words else words[1:]
    return [word for word in own if not word.startswith("-D")]


def _hashed(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


_OF_CLASSES = ("--add-", "--enable-", "--patch-", "-XX:+Use", "-XX:-Use", "-javaagent")
_READ_BY_LAUNCHER = ("SPARK_", "HADOOP_", "YARN_", "JAVA_", "_JAVA_", "JDK_", "CLASSPATH")


def _kept(path: Path) -> list[str] | None:
    """Read the command line of an earlier run; `None` when there is none that can be read."""
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(words, list) and len(words) > 1 and all(isinstance(w, str) for w in words)
    return words if whole else None


def _launched(java: Path, home: Path, template: Sequence[str], path: Path) -> list[str] | None:
    """Have Spark's launcher write the command line, and keep it; `None` when it cannot."""
    core = next((home / "jars").glob("spark-core_*.jar"), None)
    if core is None:
        return None
    scala = core.name.removeprefix("spark-core_").partition("-")[0]
    jars = str(home / "jars" / "*")
    command = [str(java), "-Xmx128m", "-cp", jars, "org.apache.spark.launcher.Main", _SUBMIT]
    try:
        done = subprocess.run(
            [*command, *template],
            capture_output=True,
            timeout=_LAUNCHER_SECONDS,
            check=True,
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    _, _, written = done.stdout.partition(b"\0\n")
    words = [word.decode("utf-8", "surrogateescape") for word in written.split(b"\0")[:-1]]
    if len(words) < len(template):
        return None
    with contextlib.suppress(OSError):
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(words), encoding="utf-8")
        draft.replace(path)
        lines = sorted(path.parent.glob(f"*{_LINE}"), key=lambda each: each.stat().st_mtime)
        for each in lines[:-_MOST_LINES]:
            each.unlink(missing_ok=True)
    return words


if __name__ == "__main__":
    main(sys.argv[1:])
