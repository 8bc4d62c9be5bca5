"""The commands reach an SFTP server as OpenSSH would: by the user's files, or by variables."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles import cli
from airflow_cloudfiles.engine.clouds.sftp import session
from tests.support.sftp_servers import Served


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, where nothing says anything about SFTP yet."""
    (tmp_path / "home/.ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in [each for each in os.environ if each.startswith(("CLOUDFILES_SFTP_", "SSH_"))]:
        monkeypatch.delenv(name)
    session.close_all()  # what other tests have logged in with
    return tmp_path / "home"


@pytest.fixture
def inbox(openssh_server: Served, tmp_path: Path) -> tuple[str, Path]:
    """A folder on the server: its URI, and where it is on the disk."""
    folder = openssh_server.folder / tmp_path.name / "in box"
    folder.mkdir(parents=True)
    (folder / "1.json").write_text('{"a": 1}\n{"a": 2}\n')
    return f"{openssh_server.location}/{tmp_path.name}/in box", folder


def _known(home: Path, server: Served) -> None:
    """What OpenSSH notes of a server that somebody has accepted."""
    access = server.access
    line = f"[{access.host}]:{access.port} {access.host_key}\n"
    (home / ".ssh/known_hosts").write_text(line)


def _told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a command that succeeds says."""
    status = cli.main([*words, "--json", "--quiet"])
    said = capsys.readouterr()
    assert status == 0, said
    return json.loads(said.out)


def _stream(source: str, tmp_path: Path) -> list[str]:
    return ["--source", source, "--format", "json", "--checkpoint-location", f"{tmp_path}/state"]


@pytest.mark.slow
def test_commands_log_in_with_what_the_user_keeps_for_openssh(
    openssh_server: Served,
    inbox: tuple[str, Path],
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, folder = inbox
    _known(home, openssh_server)
    shutil.copy(str(openssh_server.access.key_file), home / ".ssh/id_ed25519")
    found = {
        each["check"]: (each["verdict"], each["found"])
        for each in _told(capsys, "doctor", "--source", source)
    }
    assert found["source: list"] == ("ok", f"such as {source}/1.json")
    assert found["source: clock"][0] == "ok"
    stream, table = _stream(source, tmp_path), tmp_path / "table"
    typed = ["--option", "cloudFiles.inferColumnTypes=true"]
    explained = _told(capsys, "explain", *stream[:4], *typed)
    assert "cloudFiles.inferColumnTypes" in [each["name"] for each in explained["options"]]
    inferred = _told(capsys, "infer", *stream, *typed)
    assert inferred["schema"] == "a BIGINT, _rescued_data STRING"
    assert _told(capsys, "discover", *stream, *typed)["new_files"] == 1
    ingest = ["ingest", *stream, *typed, "--target", str(table), "--master", "local[1]"]
    assert (_told(capsys, *ingest)["rows"], _told(capsys, *ingest)["rows"]) == (2, 0)
    (folder / "2.json").write_text('{"a": 3, "b": "new"}\n')
    assert cli.main([*ingest, "--quiet"]) == 1  # B46
    assert "run the stream again" in capsys.readouterr().err
    assert _told(capsys, *ingest)["rows"] == 1
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted((row["a"], row["b"]) for row in rows) == [(1, None), (2, None), (3, "new")]


@pytest.mark.slow
def test_commands_log_in_with_what_the_environment_says(
    openssh_server: Served,
    inbox: tuple[str, Path],
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    access, (source, _) = openssh_server.access, inbox
    known = tmp_path / "known"
    known.write_text(f"[{access.host}]:{access.port} {access.host_key}\n")
    monkeypatch.setenv("CLOUDFILES_SFTP_KEY_FILE", str(access.key_file))
    monkeypatch.setenv("CLOUDFILES_SFTP_USER", str(access.user))
    monkeypatch.setenv("CLOUDFILES_SFTP_KNOWN_HOSTS", str(known))
    assert list((home / ".ssh").iterdir()) == []
    stream = _stream(source, tmp_path)
    assert _told(capsys, "infer", *stream)["sampled_files"] == 1
    table = ["--target", str(tmp_path / "table"), "--master", "local[1]"]
    assert _told(capsys, "ingest", *stream, *table)["rows"] == 2


@pytest.mark.parametrize("command", ["doctor", "discover", "infer", "ingest"])
def test_a_command_names_a_server_that_is_not_known_and_sends_it_nothing(
    openssh_server: Served,
    inbox: tuple[str, Path],
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    shutil.copy(str(openssh_server.access.key_file), home / ".ssh/id_ed25519")
    (home / ".ssh/known_hosts").write_text("")
    source, _ = inbox
    stream = ["--source", source] if command == "doctor" else _stream(source, tmp_path)
    if command == "ingest":
        stream += ["--target", str(tmp_path / "table"), "--master", "local[1]"]
    assert cli.main([command, *stream, "--quiet"]) != 0
    said = "".join(capsys.readouterr())
    assert "is not known here" in said
    assert "SHA256:" in said
    assert f"{openssh_server.access.host}" in said
    assert "Traceback" not in said
    assert not (tmp_path / "table").exists()
