"""Whatever byte of an index of seen files, or of its snapshot, is damaged: the same answers."""

from __future__ import annotations

import random
import shutil
import uuid
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import LedgerError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.intake.ledger.base import Ledger
from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder, open_ledger
from airflow_cloudfiles.engine.intake.ledger.snapshots import COMPLETE, PREFIX, maybe_snapshot
from airflow_cloudfiles.engine.state.file_log import FileBatch, FileLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.damage import damages

STREAM = "2" * 32
ENTRIES, FILES_EACH = 4, 50
PLACES = 4
"""About so many places of each file are damaged, in a form, without `EXAMPLES=all`."""
pytestmark = [pytest.mark.law, pytest.mark.slow]


@pytest.fixture
def log() -> FileLog:
    files = FileLog(open_store(f"memory://{uuid.uuid4().hex}"))
    for number in range(ENTRIES):
        found = (FileEntry(f"{number}-{at:03}", 1, 2) for at in range(FILES_EACH))
        files.append(number, FileBatch(tuple(found)))
    return files


def answers(ledger: Ledger) -> list[object]:
    asked = [FileEntry(f"{n}-{at:03}", 1, 2) for n in range(ENTRIES) for at in range(FILES_EACH)]
    changed = FileEntry("0-000", 2, 2)
    return [
        [each.path for each in ledger.unseen([*asked, FileEntry("new", 1, 2)])],
        list(ledger.unseen([changed], versions=True)) == [changed],
        [ledger.entry_of(f"{number}-000") for number in range(ENTRIES)],
        (ledger.caught_up, ledger.files, ledger.last()),
    ]


def opened(log: FileLog) -> list[object]:
    """What a discovery sees, which builds the index anew where it cannot be read."""
    ledger = open_ledger(STREAM, FileLog(log.store))
    try:
        return answers(ledger)
    except LedgerError:
        ledger.clear()
    finally:
        ledger.close()
    ledger = open_ledger(STREAM, FileLog(log.store))
    try:
        return answers(ledger)
    finally:
        ledger.close()


def share(content: bytes) -> int:
    return max(1, len(content) // PLACES)


def test_a_damaged_index_gives_no_other_answer(log: FileLog, tmp_path: Path) -> None:
    expected = opened(log)
    kept, folder, chance = tmp_path / "kept", cache_folder() / STREAM, random.Random()
    shutil.copytree(folder, kept)
    (build,) = (kept / "0").iterdir()
    for path in sorted(build.iterdir()):
        content = path.read_bytes()
        for what, damaged in damages(content, share=share(content), chance=chance):
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            (folder / "0" / build.name / path.name).write_bytes(damaged)
            assert opened(log) == expected, (path.name, what)


def test_a_damaged_snapshot_gives_no_other_answer(log: FileLog) -> None:
    state, chance = log.store, random.Random()
    ledger = open_ledger(STREAM, log)
    assert maybe_snapshot(ledger, log, state, worth_entries=1)
    expected = answers(ledger)
    ledger.close()
    keys = [each.path for each in state.list(f"{PREFIX}/")]
    assert any(key.endswith(COMPLETE) for key in keys)
    for key in keys:
        content = state.get(key)
        for what, damaged in damages(content, share=share(content), chance=chance):
            shutil.rmtree(cache_folder() / STREAM)
            state.put(key, damaged)
            assert opened(log) == expected, (key, what)
        state.put(key, content)
