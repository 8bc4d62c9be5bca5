"""Whatever of a state is not as it was written is found, and named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.errors import StateError, StateUnreachableError
from airflow_cloudfiles.engine.extensions.overview.verify import verify_state
from airflow_cloudfiles.engine.intake.upkeep import compact
from airflow_cloudfiles.engine.storage.local import LocalStore
from tests.support.written_state import WrittenState

_HOW = ("--quiet", "--engine=local", "--format=json")
LOCKS = {"run.lock", "job.lock"}


def _ingest(folder: Path, *more: str) -> None:
    given = [f"--{name}={folder / name}" for name in ("source", "checkpoint-location", "target")]
    subprocess.run(
        [sys.executable, "-m", "airflow_cloudfiles.cli", "ingest", *_HOW, *given, *more],
        check=True,
        env={**os.environ, "CLOUDFILES_CACHE_DIR": str(folder / "cache")},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of two real runs, of three batches and two versions of the schema."""
    folder = tmp_path_factory.mktemp("stream")
    source = folder / "source"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.json").write_text('{"a": 1}\n')
    _ingest(folder, "--option=cloudFiles.maxFilesPerTrigger=2")
    (source / "3.json").write_text('{"a": 1}\n')
    _ingest(folder)
    return folder / "checkpoint-location"


def _objects(state: Path) -> list[Path]:
    return sorted(each for each in state.rglob("*") if each.is_file() and each.name not in LOCKS)


@pytest.mark.slow
def test_a_state_that_runs_have_written_is_whole(whole, capsys):
    found = verify_state(str(whole))
    assert found.damages == []
    assert (found.entries, found.files, found.batches, found.schema_versions) == (2, 4, 3, 1)
    assert cli.main(["verify", "--checkpoint-location", str(whole)]) == 0
    assert "The state is whole." in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_each_object_that_is_changed_is_named(whole, tmp_path, how):
    for number, path in enumerate(_objects(whole)):
        state = tmp_path / str(number)
        shutil.copytree(whole, state)
        changed = state / path.relative_to(whole)
        content = bytearray(changed.read_bytes())
        if how == "cut":
            del content[len(content) // 2 :]
        else:
            content[len(content) // 2] ^= 1
        changed.write_bytes(content)
        if changed.name == "metadata.json":
            with pytest.raises(StateError, match=r"metadata\.json"):
                verify_state(str(state))
            continue
        names = [each.name for each in verify_state(str(state)).damages]
        assert any(name in {changed.as_uri(), changed.parent.as_uri()} for name in names), changed


@pytest.mark.slow
def test_an_entry_that_is_missing_is_named(whole, tmp_path):
    for log, others in (("files", "0" * 20), ("plans", "0" * 19 + "1")):
        state = tmp_path / log
        shutil.copytree(whole, state)
        (state / "_source" / log / others).unlink()
        (damage, *_) = verify_state(str(state)).damages
        assert log in damage.name


@pytest.mark.slow
def test_it_is_known_what_may_be_deleted(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "state")
    (report, *_) = (tmp_path / "state" / "_reports").iterdir()
    report.write_text("{}")
    where = ["--checkpoint-location", str(tmp_path / "state")]
    assert cli.main(["verify", *where, "--json"]) == 1
    (damage,) = json.loads(capsys.readouterr().out)["damages"]
    assert damage["problem"].endswith("Nothing needs it: it may be deleted.")
    report.unlink()
    assert cli.main(["verify", *where]) == 0


@pytest.mark.slow
def test_a_damaged_state_is_not_exported_as_if_it_were_whole(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "state")
    (tmp_path / "state" / "_source" / "plans" / ("0" * 20)).write_text("v1\n{}\n")
    where, archive = ["--checkpoint-location", str(tmp_path / "state")], tmp_path / "state.zip"
    assert cli.main(["state", "export", *where, "--to", str(archive)]) == 1
    assert "1 damage, such as" in capsys.readouterr().err
    assert not archive.exists()
    assert cli.main(["state", "export", *where, "--to", str(archive), "--damaged"]) == 0
    again = ["--checkpoint-location", str(tmp_path / "again")]
    assert cli.main(["state", "import", *again, "--from", str(archive)]) == 1
    assert "as it was when it was exported" in capsys.readouterr().err
    assert cli.main(["doctor", *where]) == 1
    assert "All of them: cloudfiles verify" in capsys.readouterr().out


def test_one_copy_of_a_pack_is_enough_to_go_on_and_its_damage_is_found(tmp_path):
    written = WrittenState(f"file://{tmp_path}/state")
    for number in range(230):
        written.discover(f"{number}.json")
        written.plan()
        written.commit()
    compact(written.state, retention_seconds=1.0)
    packs = sorted((tmp_path / "state" / "_source" / "files" / "packs").iterdir())
    assert len(packs) == 2, "both copies of one pack"
    assert verify_state(written.uri).damages == []
    packs[0].write_bytes(packs[0].read_bytes()[:-1])
    found = verify_state(written.uri)
    assert [each.name for each in found.damages] == [packs[0].as_uri()]
    assert (found.entries, found.files) == (230, 230), "they are read from the other copy"


def test_a_store_that_does_not_answer_is_no_damage(tmp_path, monkeypatch):
    written = WrittenState(f"file://{tmp_path}/state")
    written.discover("a.json")
    get = LocalStore.get

    def answer(store: LocalStore, key: str) -> bytes:
        if key.startswith("_source/files/"):
            raise TimeoutError
        return get(store, key)

    monkeypatch.setattr(LocalStore, "get", answer)
    with pytest.raises(StateUnreachableError):
        verify_state(written.uri)
