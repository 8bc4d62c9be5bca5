"""An archive is one file: killed between any two steps, it is in the table once, as a whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.launch import LocalPython
from tests.support.archive_files import KINDS
from tests.support.driver import Driver
from tests.support.landing import rows

pytestmark = pytest.mark.slow

POINTS = ("before-file-log-append", "after-data-files", "before-sink-commit", "after-sink-commit")
SCHEMA_POINTS = ("before-schema-append", "after-schema-append")


def _arrive(driver: Driver, wave: int, kind: str, *, field: str = "") -> set[str]:
    """Land an archive of two members, and one that is damaged behind its first member."""
    ids = {f"{wave}-{number}" for number in range(4)}
    more = f', "{field}": 1' if field else ""
    lines = [f'{{"id": "{each}"{more}}}\n'.encode() for each in sorted(ids)]
    members = [("x/1.json", b"".join(lines[:2])), ("2.json", b"".join(lines[2:]))]
    (driver.source / f"{wave}{kind}").write_bytes(KINDS[kind](members))
    damaged = KINDS[".tar"]([("1.json", b'{"id": "damaged"}\n'), ("2.json", bytes(9000))])
    (driver.source / f"{wave}-damaged.tar").write_bytes(damaged[:4096])
    return ids


def test_an_archive_is_in_the_table_once_and_as_a_whole(tmp_path: Path) -> None:  # B106
    options = {"cloudFiles.maxFilesPerTrigger": "2", "ignoreCorruptFiles": "true"}
    driver = Driver(tmp_path, **options)
    driver.how = LocalPython()
    dropped: set[str] = set()
    kinds = (".zip", ".tar.gz", ".tar.zst", ".tar")
    for wave, (point, kind) in enumerate(zip(POINTS, kinds, strict=True)):
        dropped |= _arrive(driver, wave, kind)
        driver.killed_at(point)
        _check(driver, dropped)
    for wave, point in enumerate(SCHEMA_POINTS, len(POINTS)):
        dropped |= _arrive(driver, wave, ".zip", field=f"new_{wave}")
        driver.killed_at(point)
        _check(driver, dropped)
    while driver.run()[0] != 0:
        assert "UNKNOWN_FIELD_EXCEPTION" in driver.log
    assert _check(driver, dropped) == dropped


def _check(driver: Driver, dropped: set[str]) -> set[str]:
    if not (driver.target / "_delta_log").exists():
        return set()
    found = Counter(str(row["id"]) for row in rows(driver.target))
    assert set(found.values()) <= {1}
    assert set(found) <= dropped, "nothing of a damaged archive"
    waves = Counter(each.partition("-")[0] for each in found)
    assert set(waves.values()) <= {4}, "an archive as a whole"
    return set(found)
