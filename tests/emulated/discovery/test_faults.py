"""A network at its worst between discovery and a cloud: nothing missed, nothing repeated.

A proxy cuts, refuses and loses what passes: pages of listings, entries of the file log on their way
and the answers to them. Discovery may fail, with an error of ours; in the end each file is recorded
once. What the clients repeat by themselves is bounded, so that failures come through.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.clouds.aws.store import S3Store
from airflow_cloudfiles.engine.clouds.azure.store import AzureStore
from airflow_cloudfiles.engine.clouds.gcp.store import GcsStore
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.intake import Intake
from tests.support.laws import some
from tests.support.memory_ledger import MemoryLedger

BUSY = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
REFUSED = {"respond": {"data": BUSY, "then": "close"}}
RESET = {"reset": True}
CUT = {"cut_reply": {"after_bytes": 300}}
LOST = {"cut_reply": {"after_bytes": 5}}
LISTINGS = {"s3": "list-type=2", "azure": "comp=list", "gcs": "GET /storage/v1/b/"}
WRITES = {"s3": "PUT /", "azure": "PUT /", "gcs": "POST /upload/"}
FAULTS = {"503": REFUSED, "reset": RESET, "cut": CUT, "lost": LOST}
TRIED = [
    pytest.param(cloud, FAULTS[fault], id=f"{cloud}-{fault}")
    for cloud in LISTINGS
    for fault in some([*FAULTS], 2, name=f"faults of {cloud}")
]
SCRIPT = Path(__file__).with_name("discoverer.py")


class Far:
    """A cloud behind a proxy; each store it gives has a connection of its own."""

    def __init__(self, kind, request, microburst) -> None:
        self.kind = kind
        fixture = {"s3": "aws", "azure": "azurite", "gcs": "gcs"}[kind]
        self.emulator = request.getfixturevalue(fixture)
        self.root = self.emulator.container() if kind == "azure" else self.emulator.bucket()
        port = self.emulator.blob_port if kind == "azure" else None
        address = f"127.0.0.1:{port}" if port else self.emulator.endpoint.removeprefix("http://")
        self.proxy = microburst(address, "tcp")

    def near(self, folder):
        """A store that no proxy is before."""
        return self._store(folder, self.emulator.access)

    def store(self, folder):
        """A store with small pages behind the proxy."""
        if self.kind == "azure":
            return self._store(folder, self.emulator.access_through(self.proxy.port))
        access = self.emulator.access_through(self.proxy.endpoint)
        if self.kind == "s3":
            access = replace(access, role_session_name=uuid.uuid4().hex)
        return self._store(folder, access)

    def _store(self, folder, access):
        uri = f"{self.root}/{folder}"
        if self.kind == "s3":
            return S3Store(uri, access, page_size=10)
        if self.kind == "azure":
            return AzureStore(uri, access, page_size=10, retries=1)
        return GcsStore(uri, access, page_size=10, retry_seconds=1)

    def fails(self, what, *, where, times):
        return {"service": "tcp", "operation": "conn", "payload": where, "times": times, **what}


@pytest.fixture
def far(request, microburst, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    return Far(request.param, request, microburst)


@pytest.mark.parametrize(("far", "what"), TRIED, indirect=["far"])
def test_whatever_the_network_does_each_file_is_recorded_once(far, what):
    names = []
    near = far.near("in")
    for round_ in range(2):
        for number in range(25):
            names.append(f"{number:02}-{round_}.json")
            near.put(names[-1], b"x")
        far.proxy.rules(
            [
                far.fails(what, where=LISTINGS[far.kind], times=2),
                far.fails(what, where=WRITES[far.kind], times=2),
            ]
        )
        for _ in range(8):
            with contextlib.suppress(CloudFilesError, OSError):
                Intake(
                    source=far.store("in"),
                    state=far.store("state"),
                    format="json",
                    ledger=MemoryLedger(),
                ).discover()
                break
        assert far.proxy.fired()
        far.proxy.rules([])
    intake = Intake(
        source=far.near("in"), state=far.near("state"), format="json", ledger=MemoryLedger()
    )
    assert intake.discover().files == 0
    recorded = [file.path for file in intake.files.slice(START, intake.head())]
    assert Counter(recorded) == Counter(names)


@pytest.mark.parametrize("point", ["after-dedupe", "after-file-log-append:3"])
def test_a_parallel_listing_that_is_killed_goes_on_and_misses_nothing(aws, tmp_path, point):
    bucket = aws.bucket()
    near = S3Store(f"{bucket}/in", aws.access)
    names = [f"{number % 7}/{number:03}.json" for number in range(300)]
    for name in names:
        near.put(name, b"")

    def discover(crash_at):
        search = str(Path(airflow_cloudfiles.__file__).parents[1])
        access = aws.access
        environment = {
            **os.environ,
            CRASH_AT: crash_at,
            "PYTHONPATH": search,
            "AWS_ENDPOINT_URL": aws.endpoint,
            "AWS_ACCESS_KEY_ID": access.access_key_id,
            "AWS_SECRET_ACCESS_KEY": access.secret_access_key,
            "AWS_DEFAULT_REGION": access.region,
        }
        command = [sys.executable, str(SCRIPT), f"{bucket}/in", f"{bucket}/state", "8", "20"]
        return subprocess.run(command, env=environment, check=False, timeout=600).returncode

    assert discover(point) == -signal.SIGKILL
    near.put("0/000-early.json", b"")
    assert discover("") == 0
    state = S3Store(f"{bucket}/state", aws.access)
    intake = Intake(source=near, state=state, format="json", ledger=MemoryLedger())
    intake.discover(full=True)
    recorded = [file.path for file in intake.files.slice(START, intake.head())]
    assert Counter(recorded) == Counter([*names, "0/000-early.json"])
