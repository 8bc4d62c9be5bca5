"""An inbox on an SFTP server goes into a table, with its new columns, and is emptied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles import UnknownFieldException
from airflow_cloudfiles.engine.extensions.cleaning.of_stream import clean_source
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.ingested import Ingested
from tests.support.sftp_servers import PASSWORD, FaultyServer, faulty

CLEAN = "cloudFiles.cleanSource"


class Inbox(Ingested):
    """A stream whose files land on a server, and are moved there when the table has them."""

    def __init__(self, folder: Path, server: FaultyServer) -> None:
        location = server.served.location
        move = {
            CLEAN: "MOVE",
            f"{CLEAN}.retentionDuration": "0 seconds",
            f"{CLEAN}.moveDestination": f"{location}done",
        }
        super().__init__(folder, **move)
        self.source: Any = f"{location}inbox"
        self.folder = server.folder
        (self.folder / "inbox").mkdir()

    def add(self, *names: str, **fields: Any) -> None:
        """Let files land."""
        for name in names:
            content = json.dumps({"a": name, **fields})
            (self.folder / "inbox" / f"{name}.json").write_text(f"{content}\n")


def test_an_inbox_goes_into_a_table_and_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with faulty(tmp_path / "server") as server:
        for name, value in to_environment(server.served.access).items():
            monkeypatch.setenv(name, value)
        inbox = Inbox(tmp_path, server)
        inbox.add("a b", "c#%")
        inbox.run()
        inbox.add("d", currency="CHF")
        server.faults.cut_after = 2
        with pytest.raises(UnknownFieldException, match="currency"):  # B46
            inbox.run()
        inbox.run()
        assert server.faults.cuts == 1
        assert inbox.rows() == ["a b", "c#%", "d"]
        report = clean_source(inbox.spec("clean"))
        assert (report["files"], report["others"]) == (3, {})
        assert list((inbox.folder / "inbox").iterdir()) == []
        moved = sorted(path.name for path in (inbox.folder / "done").iterdir())
        assert moved == ["a b.json", "c#%.json", "d.json"]
        inbox.run()
        assert len(inbox.rows()) == 3
    kept = b"".join(path.read_bytes() for path in inbox.state.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in kept
    assert PASSWORD not in caplog.text
