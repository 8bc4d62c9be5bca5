"""Others delete, overwrite, vacuum, optimize or restore a table, between two runs and during one.

What happens during a run happens at its worst moment: the data files of a batch are written, and it
is not committed yet.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_cloudfiles.engine.errors import CloudFilesError, LostBatchesError
from airflow_cloudfiles.engine.tables import delta_table
from airflow_cloudfiles.engine.tables.delta_table import DeltaWriter
from tests.support.ingested import Ingested

pytestmark = pytest.mark.slow
THEIRS = pa.table({"a": pa.array(["theirs"]), "_rescued_data": pa.array([None], pa.string())})


def _write(stream: Ingested, mode: Any) -> None:
    write_deltalake(str(stream.target), THEIRS, mode=mode)


def _replace(stream: Ingested) -> None:
    shutil.rmtree(stream.target)
    _write(stream, "error")


def _vacuum(stream: Ingested) -> None:
    """As somebody who knows nothing of a running stream."""
    stream.table.vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True
    )


def _checkpoint(stream: Ingested) -> None:
    stream.table.create_checkpoint()
    stream.table.cleanup_metadata()


KEPT: dict[str, Callable[[Ingested], Any]] = {
    "appended to": lambda stream: _write(stream, "append"),
    "optimized": lambda stream: stream.table.optimize.compact(),
    "vacuumed": _vacuum,
    "optimized and vacuumed": lambda stream: (stream.table.optimize.compact(), _vacuum(stream)),
    "checkpointed": _checkpoint,
}
"""What leaves the rows of the stream in the table."""
OVERWRITTEN: dict[str, Callable[[Ingested], Any]] = {
    "overwritten": lambda stream: _write(stream, "overwrite"),
    "emptied": lambda stream: stream.table.delete(),
}
"""What removes rows on purpose, and shows that in the table's history."""
LOST: dict[str, Callable[[Ingested], Any]] = {
    "deleted": lambda stream: shutil.rmtree(stream.target),
    "without its log": lambda stream: shutil.rmtree(stream.target / "_delta_log"),
    "replaced": _replace,
    "restored": lambda stream: stream.table.restore(1),
}
"""What takes batches away."""
WHEN = ("between runs", "during a run")


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    """A stream of which two batches are in the table."""
    found = Ingested(tmp_path)
    found.add("a", "b")
    found.run()
    found.add("c", "d")
    return found


def interfere(
    stream: Ingested, others: Callable[[Ingested], Any], when: str, monkeypatch: pytest.MonkeyPatch
) -> CloudFilesError | None:
    """Let others do something, and run; gives what the run fails with."""

    class Interrupted(DeltaWriter):
        has_begun = False

        def commit(self, written: Any, batch: int) -> None:
            if not Interrupted.has_begun:
                Interrupted.has_begun = True
                others(stream)
            super().commit(written, batch)

    with monkeypatch.context() as patch:
        if when == "between runs":
            others(stream)
        else:
            patch.setattr(delta_table, "DeltaWriter", Interrupted)
        try:
            stream.run()
        except CloudFilesError as error:
            return error
    return None


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("what", [*KEPT, *OVERWRITTEN])
def test_rows_stay_but_those_that_were_removed_on_purpose(
    stream: Ingested, what: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {**KEPT, **OVERWRITTEN}[what]
    error = interfere(stream, others, when, monkeypatch)
    assert error is None or error.is_retryable, repr(error)
    stream.run()
    ours = ["a", "b", "c", "d"] if what in KEPT else ["c", "d"]
    theirs = ["theirs"] if what in {"appended to", "overwritten"} else []
    assert stream.rows() == [*ours, *theirs]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("what", LOST)
def test_what_takes_batches_away_is_refused_until_they_are_replayed(
    stream: Ingested, what: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = interfere(stream, LOST[what], when, monkeypatch)
    assert error is not None
    with pytest.raises(LostBatchesError, match="cloudfiles replay") as caught:
        stream.run()
    assert not caught.value.is_retryable
    stream.replay(0)
    stream.run()
    theirs = ["theirs"] if what == "replaced" else []
    assert stream.rows() == ["a", "b", "c", "d", *theirs]
