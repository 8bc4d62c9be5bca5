"""How does the JVM of a local run start soon?

PySpark starts it with `spark-submit`: a shell script that starts a first JVM, which only writes the
command line of the second, while Python waits. Here it starts in the background:

1. **Its command line** is what Spark's launcher writes, kept for the next run with the same Java,
   Spark, arguments and environment. With a Spark configuration folder, whose files may be scripts,
   `spark-submit` starts it as ever.
2. **Its classes** come from a class data archive, once there is one: it is made after the second
   run on a machine (`jvm_archive`).

A process that has gone takes its JVM with it: the JVM ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_cloudfiles.engine import spark_versions
from airflow_cloudfiles.engine.errors import LedgerAccessError, RunError
from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.jvm_archive import ClassArchive
from airflow_cloudfiles.engine.job.spark_command import spark_home
from airflow_cloudfiles.engine.ledger.opening import cache_folder
from airflow_cloudfiles.engine.storage.local_disk import make_private

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
    """An interrupt is for Python, which then ends the JVM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def command_line(
    arguments: Sequence[str],
    stands_for: Mapping[str, str],
    conf: Mapping[str, str],
    use: Sequence[str] = (),
) -> tuple[list[str], ClassArchive | None]:
    """The command that starts a JVM with Spark.

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
    """Which Spark, and which Java."""
    found = java.resolve()
    identity: list[object] = [str(home), spark_versions.installed(), str(found)]
    # An archive fits only the archive of Java's own classes that it was made with.
    for path in (found, found.parents[1] / "lib" / "server" / "classes.jsa"):
        with contextlib.suppress(OSError):
            status = path.stat()
            identity += [status.st_size, status.st_mtime_ns]
    return identity


def _variables() -> list[tuple[str, str]]:
    """The environment that Spark's launcher reads."""
    return sorted(each for each in os.environ.items() if each[0].startswith(_READ_BY_LAUNCHER))


def _class_words(words: Sequence[str]) -> list[str]:
    """What of a command line says which classes there are; most of it is Spark's configuration."""
    classes = words[words.index("-cp") + 1] if "-cp" in words else ""
    return [classes, *(word for word in _own_words(words) if word.startswith(_OF_CLASSES))]


def _own_words(words: Sequence[str]) -> list[str]:
    """What of a command line is for Java itself, without properties, and the program it names."""
    own = words[1 : words.index(_SUBMIT)] if _SUBMIT in words else words[1:]
    return [word for word in own if not word.startswith("-D")]


def _hashed(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


_OF_CLASSES = ("--add-", "--enable-", "--patch-", "-XX:+Use", "-XX:-Use", "-javaagent")
_READ_BY_LAUNCHER = ("SPARK_", "HADOOP_", "YARN_", "JAVA_", "_JAVA_", "JDK_", "CLASSPATH")


def _kept(path: Path) -> list[str] | None:
    """A command line of an earlier run; `None` when there is none that can be read."""
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
