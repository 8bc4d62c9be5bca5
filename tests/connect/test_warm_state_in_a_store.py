"""Runs on a warm Spark whose state and table are in an object store."""

from __future__ import annotations

import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.errors import SparkUnreachableError
from airflow_cloudfiles.engine.job.warm import listing
from airflow_cloudfiles.engine.storage.access import ENVIRONMENT, to_environment
from tests.support.connect_server import MANY, each_once
from tests.support.emulators.aws import Aws
from tests.support.waiting import until
from tests.support.warm_spark import WarmStream, all_have_ended, below, only, warm_home

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.emulator]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Where the warm Sparks of these tests are; none is left."""
    with warm_home() as folder:
        yield folder


@pytest.fixture
def stream(aws: Aws, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WarmStream:
    """A stream of small micro-batches; its credentials are in an access, as a connection's are."""
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(home.with_name("cache")))
    made = WarmStream(tmp_path, aws.access, **{"cloudFiles.maxFilesPerTrigger": "1"})
    made.checkpoint_location = f"{aws.bucket()}/streams/orders"
    made.table = f"{aws.bucket()}/tables/orders"
    return made


def _ids(stream: WarmStream, aws: Aws) -> Counter[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT, to_environment(aws.access)[ENVIRONMENT])
        location = DeltaLocation.of(stream.table)
        table = DeltaTable(location.table_uri, storage_options=location.storage_options())
        return Counter(str(row["id"]) for row in table.to_pyarrow_dataset().to_table().to_pylist())


def test_runs_share_one_and_every_row_arrives_once(stream: WarmStream, aws: Aws) -> None:
    listing.stop_all()  # those of other tests
    reports = [stream.warm(files) for files in (3, 0, 2)]

    assert [each["rows"] for each in reports] == [9, 0, 6]
    assert _ids(stream, aws) == each_once(5)
    assert only()["runs_ended"] == 3
    assert not any("one of its own" in line for line in stream.log)
    kept = {entry.path.partition("/")[0] for entry in stream.store().list()}
    assert kept == {"_reports", "_runs", "_schemas", "_source"}
    until(lambda: not [each for each in stream.store().list() if each.path.endswith(".lock")])
    until(lambda: not list(Path(only()["folder"]).glob("cloudfiles-checkpoint-*")))


def test_the_credentials_of_one_run_never_reach_the_spark_of_another(
    stream: WarmStream, aws: Aws
) -> None:
    secrets = {aws.access.secret_access_key, "secret-of-another-run"}
    stream.warm(1)
    stream.access = replace(
        aws.access, access_key_id="other", secret_access_key="secret-of-another-run"
    )
    assert stream.warm(1)["rows"] == 3

    assert not any("one of its own" in line for line in stream.log)
    found = set()
    for each in listing.found():
        held = set()
        for process in below(each["pid"]):
            environment = process.environ()
            assert not secrets & set("".join(process.cmdline()).split('"'))
            held |= secrets & set(environment[ENVIRONMENT].split('"'))
        assert len(held) == 1
        found |= held
        for path in (each for each in Path(each["folder"]).rglob("*") if each.is_file()):
            assert not any(secret.encode() in path.read_bytes() for secret in secrets), path
    assert found == secrets


def test_one_that_is_killed_loses_nothing(stream: WarmStream, aws: Aws) -> None:
    stream.warm(1)
    run = stream.in_background(MANY)
    until(lambda: stream.batches() > 2)
    (used,) = (each for each in listing.found() if each["runs_in_progress"])
    processes = below(used["pid"])
    psutil.Process(used["pid"]).send_signal(signal.SIGKILL)

    error = run.end().error
    assert isinstance(error, SparkUnreachableError), error
    all_have_ended(processes)
    stream.take_the_rest_at_once()
    assert stream.warm()["rows"] > 0
    assert _ids(stream, aws) == each_once(MANY + 1)
