"""Changes wait for a person, and files are put aside, on a server too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles import operate_on_files
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FilesQuarantinedError,
    SchemaProposedError,
    SchemaRefusedError,
)
from airflow_cloudfiles.engine.schema.proposals import SchemaProposals
from tests.support.connect_server import ConnectServer, ConnectStream
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Run = Callable[[], dict[str, Any]]


@pytest.fixture
def stream(tmp_path: Path) -> ConnectStream:
    """A stream whose rescued data is counted."""
    return ConnectStream(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "2"})


@pytest.fixture
def run(server: ConnectServer, stream: ConnectStream) -> Run:
    """Run the stream to its end."""
    return lambda: stream.run(server.remote)


def _ids(stream: ConnectStream) -> list[str]:
    return sorted(str(row["id"]) for row in rows(stream.target))


def _fails(run: Run, error: type[CloudFilesError], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        run()
    assert type(caught.value) is error


def test_a_change_waits_and_is_accepted_rescued_or_refused(stream: ConnectStream, run: Run) -> None:
    stream.options["cloudFiles.requireApproval"] = "true"
    proposals = SchemaProposals(stream.checkpoint_location)
    drop(stream.source, "1.json", [{"id": 1}])
    run()
    drop(stream.source, "2.json", [{"id": 2, "accepted": "x"}])
    _fails(run, SchemaProposedError, "accepted")
    assert _ids(stream) == ["1"]
    (change,) = proposals.waiting().changes
    assert (change.path, change.samples) == ("accepted", ('"x"',))
    proposals.accept()
    run()
    drop(stream.source, "3.json", [{"id": 3, "kept": "y"}])
    _fails(run, SchemaProposedError, "kept")
    proposals.rescue()
    assert run()["rescued_rows"] == 1
    bad = drop(stream.source, "4.json", [{"id": 4, "refused": "z"}])
    _fails(run, SchemaProposedError, "refused")
    proposals.refuse()
    _fails(run, SchemaRefusedError, "refused")
    bad.unlink()
    run()
    assert [(row["id"], row["accepted"]) for row in sorted(rows(stream.target), key=str)] == [
        ("1", None),
        ("2", "x"),
        ("3", None),
    ]


def test_files_to_blame_are_put_aside_and_the_rest_is_ingested(
    stream: ConnectStream, run: Run
) -> None:
    stream.options |= {
        "cloudFiles.inferColumnTypes": "true",
        "cloudFiles.schemaHints": "id BIGINT",
        "expect.maxRescuedShare": "0.1",
        "expect.onViolation": "quarantine",
    }
    drop(stream.source, "1.json", [{"id": 1}])
    drop(stream.source, "2.json", [{"id": "two"}])
    _fails(run, FilesQuarantinedError, r"1 file is quarantined for that: .*/2\.json")
    assert run()["rows"] == 1
    drop(stream.source, "2.json", [{"id": 2}])
    operate_on_files(stream.checkpoint_location, "release", "2.json")
    assert run()["rows"] == 1
    assert _ids(stream) == ["1", "2"]
