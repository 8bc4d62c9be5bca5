"""What a process leaves on a disk when the power fails, told from its system calls.

A model of POSIX at its least: bytes are on the disk after an `fsync` of their file, a name after an
`fsync` of its folder, and nothing before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

TRACED = (
    "open,openat,fsync,fdatasync,rename,renameat,renameat2,link,linkat,"
    "mkdir,mkdirat,unlink,unlinkat,rmdir"
)
ACK = "/acknowledged/"
"""A file that is not there; asking for it marks a place in the trace."""
_CALL = re.compile(r"^(?:\[pid +)?(?P<pid>\d+)\]? +(?P<text>.*)$")
_PARTS = re.compile(r'"((?:[^"\\]|\\.)*)"')
_RESULT = re.compile(r"= (-?\d+)(?:<(.*?)>)?[^=]*$")


@dataclass(slots=True)
class _Inode:
    synced: bool = False


@dataclass(slots=True)
class Disk:
    """Names and bytes below a root, and which of them would be there after a power failure.

    Attributes:
        syncs: How often something was synced.
    """

    root: str
    names: dict[str, _Inode] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)
    syncs: Counter[str] = field(default_factory=Counter)

    def lost(self) -> list[str]:
        """What would be empty, or gone."""
        return sorted(
            [f"{path}: its name" for path in self.loose]
            + [f"{path}: its bytes" for path, inode in self.names.items() if not inode.synced]
        )

    def apply(self, call: str, arguments: str, result: str) -> None:
        """Follow one system call that has succeeded."""
        given = [os.fsdecode(_unescaped(text)) for text in _PARTS.findall(arguments)]
        kind = call.removesuffix("at2").removesuffix("at")
        match kind:
            case "fsync" | "fdatasync":
                self._sync(arguments.partition("<")[2].rpartition(">")[0])
            case "rename":
                self._rename(*given)
            case "link":
                self._name(given[1], self.names.get(given[0], _Inode(synced=True)))
            case "mkdir":
                self._name(given[0], _Inode(synced=True))
            case "unlink" | "rmdir":
                self._forget(given[0])
            case "open":
                self._open(result or given[0], arguments)

    def _open(self, path: str, arguments: str) -> None:
        if not re.search("O_WRONLY|O_RDWR", arguments):
            return
        if path in self.names:
            self.names[path].synced = False
        elif "O_CREAT" in arguments:
            self._name(path, _Inode())

    def _sync(self, path: str) -> None:
        if not self._is_watched(path):
            return
        self.syncs[path] += 1
        if path in self.names:
            self.names[path].synced = True
        self.loose -= {name for name in self.loose if str(PurePosixPath(name).parent) == path}

    def _name(self, path: str, inode: _Inode) -> None:
        if self._is_watched(path):
            self.names[path] = inode
            self.loose.add(path)

    def _forget(self, path: str) -> None:
        self.names.pop(path, None)
        self.loose.discard(path)

    def _rename(self, old: str, new: str) -> None:
        inode = self.names.get(old, _Inode(synced=True))
        self._forget(old)
        self._name(new, inode)

    def _is_watched(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")


def trace(script: str, root: Path, log: Path, **environment: str) -> dict[str, Disk]:
    """Run a program under `strace`; gives the disk as it was at each `ack(name)` of the program.

    Args:
        script: The program. It has `ROOT`, a `Path`, and `ack`.
        root: The folder that is watched; it is there, and is on the disk.
        log: Where the trace is written.
        environment: Variables for the program.
    """
    head = (
        "import os\nfrom pathlib import Path\n"
        f"ROOT = Path({str(root)!r})\n"
        "def ack(name):\n"
        "    try:\n"
        f"        os.open({ACK!r} + name, os.O_RDONLY)\n"
        "    except FileNotFoundError:\n"
        "        pass\n"
    )
    command = ["strace", "-f", "-y", "-s", "4096", "-e", f"trace={TRACED}", "-o", str(log)]
    done = subprocess.run(
        [*command, sys.executable, "-c", head + script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return _disks(log, str(root))


def _disks(log: Path, root: str) -> dict[str, Disk]:
    disk, found = Disk(root), {}
    for call, arguments, result in _calls(log):
        if call == "openat" and ACK in arguments:
            name = arguments.partition(ACK)[2].partition('"')[0]
            found[name] = disk
            disk = Disk(root, dict(disk.names), set(disk.loose))
        elif result is not None:
            disk.apply(call, arguments, result)
    return found


def _calls(log: Path) -> list[tuple[str, str, str | None]]:
    """The calls in the order in which they ended: name, arguments, and the path they gave."""
    begun: dict[str, str] = {}
    found = []
    for line in log.read_text(errors="surrogateescape").splitlines():
        parts = _CALL.match(line)
        if parts is None:
            continue
        text = parts["text"]
        if text.endswith("<unfinished ...>"):
            begun[parts["pid"]] = text.removesuffix("<unfinished ...>")
            continue
        if text.startswith("<... "):
            text = begun.pop(parts["pid"], "") + text.partition("resumed>")[2]
        call, bracket, rest = text.partition("(")
        result = _RESULT.search(rest)
        if not bracket or result is None:
            continue
        failed = result[1].startswith("-")
        found.append((call, rest[: result.start()], None if failed else result[2] or ""))
    return found


def _unescaped(text: str) -> bytes:
    return text.encode("latin-1", "surrogateescape").decode("unicode_escape").encode("latin-1")
