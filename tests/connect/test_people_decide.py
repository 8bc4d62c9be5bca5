"""Changes wait for a person, and files are put aside, on a server and on a warm Spark, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from airflow_cloudfiles.engine.schema.decisions import SchemaProposals
from tests.support import laws
from tests.support.landing import drop, rows
from tests.support.warm_spark import WarmStream, warm_home

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Run = Callable[[], dict[str, Any]]
WAYS = ("a server", "a warm Spark")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Where the warm Spark of these tests is; none is left."""
    with warm_home() as folder:
        yield folder


@pytest.fixture
def stream(tmp_path: Path) -> WarmStream:
    """A stream whose rescued data is counted."""
    return WarmStream(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "2"})


@pytest.fixture
def run(request: pytest.FixtureRequest, stream: WarmStream) -> Run:
    """Run the stream to its end, in the way that the test names."""
    if request.param == "a server":
        server = request.getfixturevalue("server")
        return lambda: stream.run(server.remote)
    folder = request.getfixturevalue("home")
    request.getfixturevalue("monkeypatch").setenv("CLOUDFILES_CACHE_DIR", f"{folder}-cache")
    return stream.warm


def _ids(stream: WarmStream) -> list[str]:
    return sorted(str(row["id"]) for row in rows(stream.target))


def _fails(run: Run, error: type[CloudFilesError], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        run()
    assert type(caught.value) is error


# What is decided is the same code in both ways; how an error comes back, the other test tries.
@pytest.mark.parametrize("run", laws.some(WAYS, 1, name="people_decide"), indirect=True)
def test_a_change_waits_and_is_accepted_rescued_or_refused(stream: WarmStream, run: Run) -> None:
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


@pytest.mark.parametrize("run", WAYS, indirect=True)
def test_files_to_blame_are_put_aside_and_the_rest_is_ingested(
    stream: WarmStream, run: Run
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
