"""What another user of this machine sees: command lines, environments, files and sockets.

    with OtherUser([folder], ["marker"]) as other:
        ...
    other.seen  # where a marker was seen, and what could be read or connected to

Run as root, it is a process of `nobody`. Else nobody can be somebody else here, and it is one of
this user that looks at what is open to all: command lines, and the modes of files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_LOOKS = r"""
import json, os, select, socket, stat, sys
given = json.loads(sys.stdin.readline())
markers = [each.encode() for each in given["markers"]]
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
is_other = os.getuid() == 65534
found, counts = set(), {"commands": 0, "environments": 0, "files": 0, "sockets": 0}

def has_marker(content):
    return any(each in content for each in markers)

def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return None

def is_open(path, status):
    return is_other or status.st_mode & stat.S_IROTH

def look():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        content = read(f"/proc/{pid}/cmdline")
        counts["commands"] += bool(content)
        if content and has_marker(content):
            found.add("command")
        content = read(f"/proc/{pid}/environ") if is_other else None
        counts["environments"] += bool(content)
        if content and has_marker(content):
            found.add("environment")
    for root in given["folders"]:
        for folder, folders, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.lstat(path)
                except OSError:
                    continue
                if stat.S_ISSOCK(status.st_mode):
                    try:
                        with socket.socket(socket.AF_UNIX) as one:
                            one.connect(path)
                        if is_other:
                            counts["sockets"] += 1
                            found.add("socket " + path)
                    except OSError:
                        pass
                elif stat.S_ISREG(status.st_mode) and is_open(path, status):
                    content = read(path)
                    counts["files"] += content is not None
                    if content and has_marker(content):
                        found.add("file " + path)

print("ready", flush=True)
while True:
    look()
    if select.select([sys.stdin], [], [], given["pause"])[0]:
        asked = sys.stdin.readline()
        look()
        if asked != "again\n":
            break
        print("looked", flush=True)
print(json.dumps({"is_other": is_other, "found": sorted(found), **counts}))
"""


@dataclass
class Seen:
    """What was seen.

    Attributes:
        is_other: Whether it was another user who looked.
        found: Where a marker was, and which sockets took a connection.
        commands: How many command lines could be read, again and again.
        environments: How many environments.
        files: How many files.
        sockets: How many sockets took a connection.
    """

    is_other: bool
    found: list[str]
    commands: int
    environments: int
    files: int
    sockets: int


class OtherUser:
    """Looks for as long as the context lasts.

    Args:
        folders: Where files and sockets are looked for.
        markers: What must not be seen.
        pause_seconds: Between two looks.
    """

    def __init__(
        self, folders: Sequence[Path], markers: Sequence[str], *, pause_seconds: float = 0.2
    ) -> None:
        self._given = {
            "folders": [str(each) for each in folders],
            "markers": list(markers),
            "pause": pause_seconds,
        }
        self.seen = Seen(is_other=False, found=[], commands=0, environments=0, files=0, sockets=0)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _LOOKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"]},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(self._given) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "ready\n"
        return self

    def look_again(self) -> None:
        """Look once more, and wait until that is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "looked\n"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, and tell."""
        out, _ = self._process.communicate("end\n", timeout=60)
        self.seen = Seen(**json.loads(out))
