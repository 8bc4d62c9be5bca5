"""A report in a bucket is read there, completed, and resumed when its reader is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.discovery.inventories import Row, write_report
from tests.support.discovery.ways import landing, recorded
from tests.support.memory_ledger import MemoryLedger

SCRIPT = Path(__file__).with_name("inventory_discoverer.py")
PACKAGE_FOLDER = str(Path(airflow_cloudfiles.__file__).parents[1])
ODD = ["a b", "a+b", "a%2Fb", "ünï/日本", "day=1/x=y"]


@pytest.fixture
def placed(request, tmp_path):
    """Give a place to land in of a kind, and what writes reports of it."""

    def make(way: str):
        place = landing(way, tmp_path, request.getfixturevalue)
        emulator = request.getfixturevalue(
            {"s3": "aws", "azure": "azurite", "gcs": "gcs"}[way.partition(" ")[0]]
        )
        is_azure = way.startswith("azure")
        reports = open_store(emulator.container() if is_azure else emulator.bucket(), place.access)
        bucket = place.source.partition("://")[2].partition("/")[0].partition("@")[0]
        account = {"endpoint": "https://devstoreaccount1.blob.core.windows.net"}

        def report(data_format: str, *, started=None, files=2) -> str:
            rows = [
                Row(f"in/{each.path}", each.size, each.modification_time_us, each.etag)
                for each in place.store.list()
            ]
            started = started or datetime.now(tz=UTC)
            kind = f"{way.partition(' ')[0]} {data_format}"
            more = account if is_azure else {}
            write_report(reports, kind, rows, bucket=bucket, started=started, files=files, **more)
            return reports.uri

        return place, report

    return make


@pytest.mark.parametrize(
    ("way", "data_format"), [("s3", "csv"), ("s3", "orc"), ("azure", "csv"), ("gcs", "parquet")]
)
def test_a_report_in_a_bucket_and_a_listing_give_each_file_once(placed, tmp_path, way, data_format):
    place, report = placed(way)
    for key in ODD:
        place.put(key)
    reports = report(data_format)
    place.put("after the report")
    state = tmp_path / "state"
    with contextlib.closing(place.open(state, inventory=reports)) as intake:
        assert intake.discover().inventory.new == len(ODD)
        assert sorted(recorded(intake)) == sorted(ODD)
        listed = {each.path: each for each in place.store.list()}
        assert all(listed[each.path] == each for each in intake.files.read(0).files)
        intake.discover()
        assert Counter(recorded(intake)) == Counter([*ODD, "after the report"])
        assert intake.discover().files == 0


@pytest.mark.parametrize("way", ["s3 notified", "gcs notified"])
def test_a_queue_that_is_older_than_the_report_completes_it_without_a_listing(
    placed, tmp_path, way
):
    place, report = placed(way)
    place.put("announced and in the report")
    place.lose("in the report only")
    reports = report("csv")
    place.put("announced only")
    since = datetime.now(tz=UTC) - timedelta(days=2)
    options = {"inventory": reports, "notifications_since_us": int(since.timestamp()) * 10**6}
    with contextlib.closing(place.open(tmp_path / "state", **options)) as intake:
        found = intake.discover()
        assert found.listing is None
        assert found.inventory.completed_by == "notifications"
        place.put("later")
        assert intake.discover().listing is None
        assert sorted(recorded(intake)) == [
            *("announced and in the report", "announced only", "in the report only", "later")
        ]


def test_a_queue_of_unknown_age_is_followed_by_one_listing(placed, tmp_path):
    place, report = placed("s3 notified")
    place.put("a")
    reports = report("csv")
    place.lose("lost before the stream began")
    with contextlib.closing(place.open(tmp_path / "state", inventory=reports)) as intake:
        found = intake.discover()
        assert (found.listing, found.inventory.completed_by) == (None, "full listing")
        assert intake.discover().listing.kind == "full"
        assert sorted(recorded(intake)) == ["a", "lost before the stream began"]
        assert intake.discover().listing is None


def test_a_backfill_by_a_report_finds_what_notifications_have_lost(placed, tmp_path):
    place, report = placed("s3 notified")
    with contextlib.closing(place.open(tmp_path / "state")) as intake:
        intake.discover()
    place.lose("lost")
    options = {"inventory": report("parquet"), "backfill_interval_seconds": 0.001}
    with contextlib.closing(place.open(tmp_path / "state", **options)) as intake:
        found = intake.discover()
        assert (found.by, found.listing) == ({"backfill": 1}, None)
        assert intake.discover().inventory is None, "the next report is waited for"


@pytest.mark.slow
@pytest.mark.parametrize(
    "crash_at",
    [
        "after-file-log-append:2",
        "before-file-log-append:3",
        "after-ledger-record:4",
        "after-inventory-file",
        "after-inventory-file:2",
        "before-inventory-done",
    ],
)
def test_a_killed_reader_leaves_each_file_in_one_entry(placed, tmp_path, crash_at):
    place, report = placed("s3")
    for number in range(12):
        place.put(f"{number:02}")
    reports = report("csv", files=3)
    state = tmp_path / "state"

    def run(point: str) -> int:
        search = os.pathsep.join(filter(None, [PACKAGE_FOLDER, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, **to_environment(place.access), "PYTHONPATH": search}
        command = [sys.executable, SCRIPT, place.source, state, reports, "2"]
        return subprocess.run(command, env={**environment, CRASH_AT: point}, check=False).returncode

    assert run(crash_at) == -signal.SIGKILL
    assert run("") == 0
    intake = Intake(
        source=place.store, state=open_store(str(state)), format="json", ledger=MemoryLedger()
    )
    files = [file.path for file in intake.files.slice(START, intake.head())]
    assert sorted(files) == [f"{number:02}" for number in range(12)]
    again = replace(place.options, inventory=reports)
    last = Intake(
        source=place.store,
        state=open_store(str(state)),
        format="json",
        discovery=again,
        ledger=MemoryLedger(),
    )
    assert last.discover().listing.kind == "full"
    assert last.discover().files == 0
