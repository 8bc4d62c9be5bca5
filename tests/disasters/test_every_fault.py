"""Whatever call of the system fails once, a run ends with an error of ours that says what helps.

`EXAMPLES=all` fails each call that a run makes on its own files, with each error; otherwise some.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.faults import Fault, FaultyProcess
from tests.support.laws import ALL, SEED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("strace") is None, reason="strace is not installed (apt-get install strace)"
    ),
]

RUN = """
def work():
    import deltalake
    from tests.support.ingested import Ingested
    Ingested(ROOT).run()
"""
ERRORS = {"EIO": True, "ESTALE": True, "ENOSPC": True, "EACCES": False}
"""What a call fails with, and whether a retry helps."""
TRIED = 3
_OF_OPEN_FILES = {"close", "fstat", "fsync", "fdatasync", "ftruncate", "lseek", "pread64", "read"}
_OF_OPEN_FILES |= {"pwrite64", "write", "writev"}
_WITHOUT_REFUSAL = {*_OF_OPEN_FILES, "statx"}
"""Calls not failed for a lack of permission: who has opened a file may use it, and `deltalake`,
which looks with `statx`, says of any failure that there is no file."""


@pytest.mark.parametrize("error", ERRORS)
def test_a_call_that_fails_once_is_an_error_of_ours_and_loses_no_row(
    tmp_path: Path, error: str
) -> None:
    root, before = tmp_path / "root", tmp_path / "before"
    (root / "in").mkdir(parents=True)
    (root / "in/0.json").write_text('{"a": "0"}\n')
    process = FaultyProcess(RUN, root, tmp_path / "log")
    assert process.run(0) == {"class": ""}
    (root / "in/1.json").write_text('{"a": "1"}\n')
    shutil.copytree(root, before)
    counts = process.trace(1)
    calls = set(counts) - (_WITHOUT_REFUSAL if error == "EACCES" else set())
    cases = [
        Fault(call, each, error) for call in sorted(calls) for each in range(1, counts[call] + 1)
    ]
    chosen = cases if ALL else random.Random(f"{SEED}/{error}").sample(cases, TRIED)
    wrong = []
    for fault in chosen:
        shutil.rmtree(root)
        shutil.copytree(before, root)
        failed = process.run(1, fault)
        if "raw" in failed or (failed["class"] and failed["is_retryable"] != ERRORS[error]):
            wrong.append((fault, failed))
        after = process.run(2)
        rows = DeltaTable(str(root / "table")).to_pyarrow_dataset().to_table()["a"].to_pylist()
        if sorted(rows) != ["0", "1"] or after != {"class": ""}:
            wrong.append((fault, failed, after, rows))
    assert not wrong


OPEN = """
def work():
    from airflow_cloudfiles.engine.tables.delta.opening import open_table
    assert open_table(str(ROOT / "table")).version() == 0
"""
READ = """
def work():
    from airflow_cloudfiles.engine.storage.local import LocalStore
    from airflow_cloudfiles.engine.storage.outage import reaching_state
    store = LocalStore(f"file://{ROOT}")
    with reaching_state(store):
        assert store.get("note") == b"noted"
"""


@pytest.mark.parametrize("error", ["EIO", "ESTALE"])
@pytest.mark.parametrize(
    ("work", "call"),
    [
        pytest.param(OPEN, "statx", id="a table is neither missing nor damaged"),
        pytest.param(READ, "lseek", id="a note is no pipe"),  # Python gives no number of the error
    ],
)
def test_what_a_disk_does_not_show_may_be_there_the_next_time(
    tmp_path: Path, work: str, call: str, error: str
) -> None:
    root = tmp_path / "root"
    write_deltalake(str(root / "table"), pa.table({"a": [1]}))
    (root / "note").write_bytes(b"noted")
    process = FaultyProcess(work, root, tmp_path / "log")
    count = process.trace(1)[call]
    assert count
    failed = [process.run(1, Fault(call, each, error)) for each in range(1, count + 1)]
    assert any(each["class"] for each in failed)
    assert not [each for each in failed if each["class"] and not each["is_retryable"]]
    assert not [each for each in failed if "raw" in each]
