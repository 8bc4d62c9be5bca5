"""Fail one system call of a real process that touches its own files, by `strace`.

A first run under `strace` shows which paths are touched, and how often each call; then any of these
calls can be made to fail once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CALLS = (
    "openat,read,pread64,write,pwrite64,fsync,fdatasync,close,rename,link,linkat,mkdir,unlink,"
    "newfstatat,statx,fstat,getdents64,lseek,flock,ftruncate"
)
"""What the package, `deltalake`, Arrow and RocksDB ask of a disk."""
_LINE = re.compile(r"(?P<pid>\d+) +(?P<call>\w+)\(")
_PATH = re.compile(r'"(/[^"]*)"|<(/[^>]*)>')
_HEAD = """
import itertools, json, logging, sys, uuid
logging.disable(logging.CRITICAL)
numbers = itertools.count(int(sys.argv[2]) * 10**6)
uuid.uuid4 = lambda: uuid.UUID(int=next(numbers), version=4)  # the same names in each run
from pathlib import Path
from airflow_cloudfiles.engine.errors import CloudFilesError, to_record
from airflow_cloudfiles.engine.storage.outage import unexpected
ROOT = Path(sys.argv[1])
"""
_TAIL = """
try:
    work()
    print(json.dumps({"class": ""}))
except CloudFilesError as error:
    print(json.dumps(to_record(error)))
except BaseException as error:
    found = unexpected(error)  # as a run does where an error leaves its process
    raw = {"class": "", "raw": f"{type(error).__name__}: {error}"}
    print(json.dumps(to_record(found) if found else raw))
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that fails: the how-manieth of its kind in a thread, and with what."""

    call: str
    number: int
    error: str


class FaultyProcess:
    """A program whose calls can be failed.

    Args:
        work: Defines `work()`; it has `ROOT`.
        root: The folder that it works in.
        log: Where a trace may be written.
    """

    def __init__(self, work: str, root: Path, log: Path) -> None:
        self._program = _HEAD + work + _TAIL
        self._root = root
        self._log = log
        self._paths: list[str] = []

    def run(self, number: int, fault: Fault | None = None) -> dict[str, Any]:
        """Run it; gives the record of the error, whose class is empty where there was none."""
        if fault is None:
            return self._run(number)
        return self._run(
            number,
            *(word for path in self._paths for word in ("-P", path)),
            "-e",
            f"trace={fault.call}",
            "-e",
            f"inject={fault.call}:error={fault.error}:when={fault.number}",
        )

    def trace(self, number: int) -> Counter[str]:
        """Run it, and give how often each kind of call was made in the thread that made it most."""
        self._run(number, "-y", "-s", "4096", "-e", f"trace={CALLS}", log=self._log)
        counts: Counter[tuple[str, str]] = Counter()
        paths: set[str] = set()
        for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines():
            touched = {first or second for first, second in _PATH.findall(line)}
            own = {path for path in touched if path.startswith(str(self._root))}
            found = _LINE.match(line)
            if own and found is not None:
                counts[found["call"], found["pid"]] += 1
                paths |= own
        self._paths = sorted(paths)
        most: Counter[str] = Counter()
        for (call, _), count in counts.items():
            most[call] = max(most[call], count)
        return most

    def _run(self, number: int, *options: str, log: Path | None = None) -> dict[str, Any]:
        strace = ["strace", "-f", "-qq", "-o", str(log or os.devnull), *options] if options else []
        command = [*strace, sys.executable, "-c", self._program, str(self._root), str(number)]
        given = {**os.environ, "CLOUDFILES_CACHE_DIR": str(self._root / "cache")}
        given["PYTHONPATH"] = str(Path.cwd())
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            return {"class": "", "raw": f"ended with {done.returncode}: {done.stderr[-500:]}"}
        found: dict[str, Any] = json.loads(lines[-1])
        return found
