"""What do listings of a bucket cost? Counted in front of the emulator, with Amazon's client."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from airflow_cloudfiles.engine.clouds.aws.store import S3Store
from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.listing.state import ListingState, save_state
from airflow_cloudfiles.engine.errors import SourceNotFoundError
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage import open_store
from tests.support.discovery.known import MemoryRecorder
from tests.support.memory_ledger import MemoryLedger

ALWAYS = DiscoveryOptions(use_incremental_listing="true")
NAMES = [f"{number:06}.json" for number in range(2500)]


@pytest.fixture
def bucket(aws_serving, microburst, tmp_path):
    """A bucket of 2500 keys, behind a proxy that counts its listings (the last hundred)."""
    folder = tmp_path / "data/landing/in"
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).touch()
    aws = aws_serving(tmp_path / "data")
    proxy = microburst(aws.endpoint)
    proxy.rules([{"service": "s3", "operation": "ListObjectsV2", "latency": 1}])
    return replace(aws.access, endpoint_urls={"": proxy.endpoint}), proxy


def state():
    return open_store(f"memory://{uuid.uuid4().hex}")


def listing(source, remembered, options=ALWAYS):
    wanted = FileFilter(source.uri, None, options)
    return DirectoryListing(source, wanted, state=remembered, options=options), wanted


def test_listings_of_a_bucket_cost_their_pages_or_their_edges(bucket):  # B87
    access, proxy = bucket
    source, remembered = open_store("s3://landing/in", access), state()
    made, wanted = listing(source, remembered)
    report = made.run(MemoryRecorder(NAMES[:2000]))
    assert (report.kind, report.listed, report.new) == ("full", 2500, 500)
    assert report.list_calls == len(proxy.fired()) == 3

    known = MemoryRecorder(NAMES[:1500])
    before = ListingState(full_started=1.0, full_listed=1500, filter=wanted.fingerprint)
    save_state(remembered, replace(before, witness=NAMES[0]))
    report = made.run(known)
    assert (report.kind, report.listed, report.new) == ("incremental", 1500, 1000)
    assert report.list_calls == 2
    assert (made.run(known).listed, len(proxy.fired())) == (500, 6)


def test_many_readers_of_a_bucket_find_each_key_once(bucket):
    access, _ = bucket
    source = S3Store("s3://landing", access, page_size=25)
    intake = Intake(source=source, state=state(), format="json", ledger=MemoryLedger())
    found = intake.discover()
    assert (found.files, found.listing.kind) == (2500, "full")
    assert found.listing.ranges > 1
    assert found.listing.list_calls <= 100 * 11 // 10
    recorded = [file.path for file in intake.files.slice(START, intake.head())]
    assert sorted(recorded) == [f"in/{name}" for name in NAMES]


def test_a_flat_folder_of_a_server_that_is_not_amazon_s_is_not_shared(bucket):
    """Between keys without folders, nothing shows whether it lists folder by folder."""
    access, _ = bucket
    source = S3Store("s3://landing/in", access, page_size=60)
    report = listing(source, state(), DiscoveryOptions())[0].run(MemoryRecorder())
    assert (report.new, report.ranges, report.list_calls) == (2500, 1, 42)


def test_a_bucket_that_is_not_there_is_named(aws):
    source = open_store(f"s3://no-{uuid.uuid4().hex}/in", aws.access)
    with pytest.raises(SourceNotFoundError, match=source.uri):
        listing(source, state())[0].run(MemoryRecorder())
