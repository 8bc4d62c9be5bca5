"""A stream starts over: its state goes, its rows stay, and nothing is ingested twice by mistake."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.cli import main
from airflow_cloudfiles.engine.errors import (
    OptionError,
    StateConflictError,
    StateError,
    StateLockedError,
    StateMovedError,
)
from airflow_cloudfiles.engine.extensions.start_over import start_over
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, KEY, RunLock
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import open_store
from tests.support.crash_points import RESTART_POINTS
from tests.support.ingested import Ingested
from tests.support.transferred import killed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    found = Ingested(tmp_path)
    found.add("one", "two")
    found.run()
    return found


def rows(table: Path) -> list[str]:
    return sorted(str(each) for each in DeltaTable(str(table)).to_pyarrow_table()["a"].to_pylist())


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file() and not each.name.endswith(".lock")
    }


def test_everything_is_ingested_again_into_another_table(stream: Ingested, tmp_path: Path) -> None:
    former, id_before = stream.target, read_metadata(open_store(str(stream.state))).stream_id
    stream.target = tmp_path / "again"
    done = start_over(str(stream.state), target=str(stream.target))
    assert (done.files, done.batches) == (2, 2)
    assert done.former_target == f"file://{former}"
    assert done.objects > 5
    assert done.is_done
    assert contents(stream.state) == {}
    stream.add("three")
    stream.run()
    assert rows(stream.target) == ["one", "three", "two"]
    assert rows(former) == ["one", "two"]
    assert read_metadata(open_store(str(stream.state))).stream_id != id_before


def test_a_table_that_has_its_rows_is_refused_until_it_is_deleted(stream: Ingested) -> None:
    before = contents(stream.state)
    with pytest.raises(StateConflictError, match=r"each would be there twice.* Delete the table"):
        start_over(str(stream.state), target=str(stream.target))
    assert contents(stream.state) == before
    shutil.rmtree(stream.target)
    start_over(str(stream.state), target=str(stream.target))
    stream.run()
    assert rows(stream.target) == ["one", "two"]


def test_a_table_of_a_stream_that_had_started_over_before_is_refused(
    stream: Ingested, tmp_path: Path
) -> None:
    former, stream.target = stream.target, tmp_path / "again"
    start_over(str(stream.state), target=str(stream.target))
    stream.run()
    with pytest.raises(StateConflictError, match="each would be there twice"):
        start_over(str(stream.state), target=str(former))


def test_it_is_refused_without_a_target_and_says_which_table_has_the_rows(
    stream: Ingested,
) -> None:
    with pytest.raises(OptionError, match=f"file://{stream.target} has its rows, and keeps them"):
        start_over(str(stream.state))
    assert read_metadata(open_store(str(stream.state))) is not None


@pytest.mark.parametrize("key", [KEY, JOB_KEY])
def test_it_is_refused_while_a_run_works(stream: Ingested, tmp_path: Path, key: str) -> None:
    before = contents(stream.state)
    with RunLock(open_store(str(stream.state)), key), pytest.raises(StateLockedError):
        start_over(str(stream.state), target=str(tmp_path / "again"))
    assert contents(stream.state) == before


def test_a_dry_run_says_what_would_go_and_removes_nothing(stream: Ingested, tmp_path: Path) -> None:
    before = contents(stream.state)
    would = start_over(str(stream.state), target=str(tmp_path / "again"), dry_run=True)
    assert contents(stream.state) == before
    done = start_over(str(stream.state), target=str(tmp_path / "again"))
    assert (would.objects, would.bytes, would.files) == (done.objects, done.bytes, done.files)
    assert (would.is_done, done.is_done) == (False, True)


def test_what_else_lies_in_the_location_stays(stream: Ingested, tmp_path: Path) -> None:
    (stream.state / "notes.txt").write_text("of somebody")
    start_over(str(stream.state), target=str(tmp_path / "again"))
    assert contents(stream.state) == {"notes.txt": b"of somebody"}


def test_a_schema_log_elsewhere_goes_with_it(stream: Ingested, tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    shutil.copytree(stream.state / "_schemas", schemas / "_schemas")
    assert len(SchemaHistory(str(schemas)).versions()) == 1
    start_over(str(stream.state), target=str(tmp_path / "t"), schema_location=str(schemas))
    assert SchemaHistory(str(schemas)).versions() == []


def test_a_schema_log_of_another_source_is_refused(stream: Ingested, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Ingested(tmp_path / "other")
    other.add("one")
    other.run()
    before = contents(stream.state)
    with pytest.raises(StateConflictError, match=r"is of the source .*other/in"):
        start_over(str(stream.state), target=str(tmp_path / "t"), schema_location=str(other.state))
    assert contents(stream.state) == before
    assert len(SchemaHistory(str(other.state)).versions()) == 1


def test_a_table_or_source_in_a_folder_of_the_state_is_refused(
    stream: Ingested, tmp_path: Path
) -> None:
    shutil.copytree(stream.target, stream.state / "state" / "orders")
    before = contents(stream.state)
    with pytest.raises(StateConflictError, match=r"state/orders/_delta_log.* Nothing was removed"):
        start_over(str(stream.state), target=str(tmp_path / "again"))
    shutil.rmtree(stream.state / "state")
    with pytest.raises(StateConflictError, match="is in a folder of the state"):
        start_over(str(stream.state), target=str(stream.state / "sources" / "again"))
    assert contents(stream.state) == {
        name: content for name, content in before.items() if not name.startswith("state/")
    }


def test_a_damaged_state_can_be_left_behind(stream: Ingested, tmp_path: Path) -> None:
    for entry in (stream.state / "_source" / "files").iterdir():
        entry.write_bytes(b"")
    stream.target = tmp_path / "again"
    done = start_over(str(stream.state), target=str(stream.target))
    assert (done.files, done.batches) == (None, None)
    stream.run()
    assert rows(stream.target) == ["one", "two"]


def test_a_location_without_a_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="There is no state"):
        start_over(str(tmp_path / "none"), target=str(tmp_path / "t"))


@pytest.mark.parametrize("point", RESTART_POINTS)
def test_killed_anywhere_it_is_refused_until_it_is_repeated(
    stream: Ingested, tmp_path: Path, point: str
) -> None:
    former, stream.target = stream.target, tmp_path / "again"
    killed(point, "start-over", stream.state, stream.target)
    if point == "after-restart":
        with pytest.raises(StateError, match="There is no state"):
            start_over(str(stream.state), target=str(stream.target))
    else:
        with pytest.raises(StateMovedError, match=r"start over into .*again.*state start-over"):
            stream.run()
        start_over(str(stream.state), target=str(stream.target))
    stream.run()
    assert rows(stream.target) == rows(former) == ["one", "two"]


def test_from_a_shell(stream: Ingested, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["state", "start-over", "--checkpoint-location", str(stream.state)]
    assert main(command) != 0
    assert "Say which table" in capsys.readouterr().err
    assert main([*command, "--target", str(tmp_path / "again"), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_done"] is False
    assert main([*command, "--target", str(tmp_path / "again")]) == 0
    said = capsys.readouterr().out
    assert "files: 2" in said
    assert f"former_target: file://{stream.target}" in said
