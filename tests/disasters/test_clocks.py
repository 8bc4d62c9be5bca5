"""The clock of the machine jumps, forward and back, between runs: every file is ingested once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.ingested import Ingested

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
YEAR = 365 * 24 * 3600
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        FAKETIME is None and not os.environ.get("CI"),
        reason="libfaketime is not installed (apt-get install faketime)",
    ),
]


def run(folder: Path, jump: int = 0, **options: str) -> tuple[float, float]:
    """Run the stream with another clock.

    Returns:
        What the clock said, and when it said that the last full listing began.
    """
    clock = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{jump:+d}s"}
    # The clock that counts from the machine's start does not jump, and times of files are real.
    clock |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.disasters.stream_process", str(folder), json.dumps(options)],
        env={**os.environ, **clock},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    now, full = json.loads(done.stdout.splitlines()[-1])
    assert abs(now - time.time() - jump) < 300
    return now, full


def test_whatever_the_clock_says_every_file_is_ingested_once(tmp_path: Path) -> None:
    stream, names = Ingested(tmp_path), []
    options = {
        "cloudFiles.backfillInterval": "1 hour",
        "cloudFiles.useIncrementalListing": "true",
        "cloudFiles.maxFilesPerTrigger": "2",
    }
    for number, jump in enumerate((0, YEAR, -YEAR, 0)):
        names += [f"{number} first", f"{number} second"]
        stream.add(*names[-2:])
        now, full = run(tmp_path, jump, **options)
        assert abs(full - now) < 300, "the listing that was to be due in the future is due"
        assert stream.rows() == names


def test_a_file_that_a_clock_ahead_takes_for_too_old_is_ingested_when_it_is_right(
    tmp_path: Path,
) -> None:
    stream = Ingested(tmp_path)
    stream.add("a")
    options = {"cloudFiles.maxFileAge": "30 days"}
    run(tmp_path, **options)
    stream.add("b")
    run(tmp_path, YEAR, **options)
    assert stream.rows() == ["a"]
    stream.add("c")
    run(tmp_path, **options)
    assert stream.rows() == ["a", "b", "c"]
