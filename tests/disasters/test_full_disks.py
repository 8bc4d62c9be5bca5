"""A full disk fails a run by name; with room again, the next run ingests everything once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    LedgerError,
    RunFailedError,
    StateUnreachableError,
    TargetUnreachableError,
)
from airflow_cloudfiles.engine.job.launch import LocalPython, launch
from tests.support.ingested import Ingested
from tests.support.small_disk import PAGE, SmallDisk

pytestmark = pytest.mark.slow
FULL: dict[str, type[CloudFilesError]] = {
    "state": StateUnreachableError,
    "table": TargetUnreachableError,
    "cache": LedgerError,
}
FREE_PAGES = (0, 1, 2, 3, 4, 5, 6)
"""Each step of a run meets the end of the disk with one of these: some write one page only."""


@pytest.mark.parametrize("place", FULL)
def test_a_full_disk_fails_by_name_and_nothing_is_lost(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SmallDisk(tmp_path / "disk") as disk:
        stream, failed = Ingested(tmp_path), 0
        folder = disk.folder / place
        if place == "cache":
            monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(folder))
        else:
            setattr(stream, "target" if place == "table" else place, folder)
        for number, pages in enumerate((*FREE_PAGES, *FREE_PAGES)):
            stream.add(f"file {number:02}")
            disk.fill(free=pages * PAGE)
            error = _failure(stream)
            disk.empty()
            if error is not None:
                failed += 1
                assert isinstance(error, FULL[place]), error
                assert error.is_retryable
                assert str(folder) in str(error)
                assert "No space left on device" in str(error)
            if pages == FREE_PAGES[-1]:
                stream.run()
                assert stream.rows() == [f"file {each:02}" for each in range(number + 1)]
        assert failed


def test_a_full_temporary_folder_fails_a_run_by_name_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SmallDisk(tmp_path / "disk") as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))
        stream = Ingested(tmp_path)
        stream.add("a")
        disk.fill()
        with pytest.raises(RunFailedError, match=f"No space left.*{disk.folder}|TMPDIR") as caught:
            launch(stream.spec(), LocalPython(), on_log=print)
        assert caught.value.is_retryable
        assert [path.name for path in disk.folder.iterdir()] == [".ballast"]


def _failure(stream: Ingested) -> CloudFilesError | None:
    """Run, and give what that fails with."""
    try:
        stream.run()
    except CloudFilesError as error:
        return error
    return None
