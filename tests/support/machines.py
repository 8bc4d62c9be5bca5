"""Machines that share no disk, on one machine.

Each machine is a mount namespace. In the place of the folder of all machines it has its own folder,
and everything else is read-only: the programs (Java, Python, Spark, this package), as in an image
that all were started from. So a path that one machine writes is another file on each of the
others, or none. Processes and the loopback network are shared, so that a test can kill and watch.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.spark_command import spark_home
from tests.support.jvm_classes import keep_classes

_ENTER = """
mount --bind "$1" "$2"
mount -o remount,bind,ro /
for each in /tmp /var/tmp /home /root /work; do
    if mountpoint -q "$each"; then mount -o remount,bind,ro "$each"; fi
done
mount -t tmpfs none /dev/shm
cd "$2"
shift 2
exec "$@"
"""
"""A shell that has entered a new namespace becomes the machine: `$1` its folder, `$2` of all."""
_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


@cache
def require_machines() -> None:
    """Skip the test where the kernel allows no namespaces."""
    program = shutil.which("unshare")
    if program is None:
        pytest.skip("unshare is not installed (util-linux): machines cannot be kept apart")
    words = [*_NAMESPACE, "sh", "-ec", "mount -t tmpfs none /tmp"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"machines cannot be kept apart here: {tried.stderr.strip()}")


class Machine:
    """One machine.

    Args:
        name: Of the machine, and of its folder.
        root: The folder of all machines; within the machine, its own.
        address: On the loopback network.
        identity: Environment variables that say who the machine is to a cloud.
    """

    def __init__(
        self, name: str, root: Path, address: str, identity: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.address = address
        self.folder = root / name
        """Seen from outside."""
        self._root = root
        self._identity = dict(identity or {})
        for each in ("tmp", "home", "work", "cache"):
            (self.folder / each).mkdir(parents=True)

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs another one on this machine."""
        enter = [*_NAMESPACE, "sh", "-ec", _ENTER, "machine", str(self.folder), str(self._root)]
        return [*enter, *words]

    def environment(self) -> dict[str, str]:
        """What a process on this machine finds in its environment, besides what all have."""
        inside = self._root
        return {
            "CLOUDFILES_CACHE_DIR": f"{inside}/cache",
            "HOME": f"{inside}/home",
            "JAVA_HOME": find_java(),
            "JAVA_TOOL_OPTIONS": f"{keep_classes()} -Djava.io.tmpdir={inside}/tmp -XX:-UsePerfData",
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_DIRS": f"{inside}/tmp",
            "SPARK_LOCAL_IP": self.address,
            "TMPDIR": f"{inside}/tmp",
            **self._identity,
        }

    def has(self, path: Path) -> bool:
        """Whether a path is there, seen from this machine."""
        found = subprocess.run(self.command(["test", "-e", str(path)]), check=False)
        assert found.returncode in {0, 1}
        return found.returncode == 0

    def script(self, name: str, words: Sequence[str]) -> Path:
        """A program outside that runs one on this machine, with the arguments that it is given."""
        quoted = " ".join(f"'{word}'" for word in self.command(words))
        sets = "".join(f"export {key}='{value}'\n" for key, value in self.environment().items())
        path = self.folder.with_name(f"{self.name}-{name}")
        path.write_text(f'#!/bin/sh\n{sets}exec {quoted} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
        return path
